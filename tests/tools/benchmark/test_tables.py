"""Numbers and tables as people read them."""

from __future__ import annotations

import pytest
from benchmark_results import rounds, variant

from tools.benchmark.tables import Table, by_contestant, costs, markdown, number, plain, side_by_side


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00001234, "1.23e-05"),
        (0.0123, "0.0123"),
        (1.0, "1"),
        (2.5, "2.5"),
        (12.345, "12.3"),
        (999.4, "999"),
        (1234.5, "1,230"),
        (1_234_567, "1,230,000"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_by_contestant() -> None:
    table = by_contestant(
        variant(
            "v",
            {
                "ours": rounds(records_per_s=[2000.0, 4000.0], wall_s=[2.0, 1.0], cpu_s=[1.0, 1.0]),
                "peer": rounds(records_per_s=[1000.0, 1000.0], wall_s=[4.0, 4.0], cpu_s=[2.0, 2.0]),
            },
        )
    )
    assert table.head == ["", "records/s", "wall s", "CPU s", "ratio of records/s", "ratio of wall s"]
    assert table.rows == [
        ["ours", "3,000 (2,500 - 3,500)", "1.5 (1.25 - 1.75)", "1", "", ""],
        ["peer", "1,000", "4", "2", "3 × (2.5 - 3.5)", "0.375 × (0.312 - 0.438)"],
    ]


def test_side_by_side() -> None:
    variants = [
        variant(name, {"ours": rounds(p99_ms=[ours]), "peer": rounds(p99_ms=[2.0])})
        for name, ours in (("a", 1.0), ("b", 3.0))
    ]
    assert side_by_side(variants) == Table(
        ["ours / peer", "p99 ms", "ratio of p99 ms"],
        [["title of a", "1 / 2", "0.5 ×"], ["title of b", "3 / 2", "1.5 ×"]],
    )


def test_costs() -> None:
    assert costs([variant("limit", {"machine": rounds(cost=[5.0])})]).rows == [["title of limit", "5"]]


def test_set_as_text_and_markdown() -> None:
    table = Table(["", "b"], [["x", "1"], ["longer", "1,000"]])
    assert plain(table).splitlines() == ["                 b", "     x           1", "     longer  1,000"]
    assert markdown(table).splitlines() == ["|  | b |", "| --- | ---: |", "| x | 1 |", "| longer | 1,000 |"]
