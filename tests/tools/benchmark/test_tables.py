"""Numbers, tables and statistics. What they come to in the documents is compared by test_document.py."""

from __future__ import annotations

import pytest

from tools.benchmark.statistics import ratio, summary
from tools.benchmark.tables import Table, number, plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.00001234, "1.23e-05"),
        (0.0123, "0.0123"),
        (1.0, "1"),
        (12.345, "12.3"),
        (999.4, "999"),
        (1234.5, "1,230"),
        (1_234_567, "1,230,000"),
    ],
)
def test_a_number_has_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_table_as_text() -> None:
    table = Table(["", "b"], [["x", "1"], ["longer", "1,000"]])
    assert plain(table).splitlines() == ["                 b", "     x           1", "     longer  1,000"]


def test_a_summary_has_what_all_rounds_have() -> None:
    assert summary([{"a": 1.0, "b": 2.0}, {"a": 3.0}]) == {"a": (1.5, 2.0, 2.5)}
    assert summary([]) == {}


@pytest.mark.parametrize("theirs", [[], [{"x": 0.0}], [{"y": 1.0}]])
def test_without_a_figure_of_theirs_there_is_no_ratio(theirs: list[dict[str, float]]) -> None:
    assert ratio([{"x": 1.0}], theirs, "x") is None
