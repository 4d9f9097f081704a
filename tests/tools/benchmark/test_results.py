"""What is complete, and how targets are judged. That all tables are right is what test_document.py compares."""

from __future__ import annotations

import pytest
from benchmark_results import result, rounds, variant

from tools.benchmark.contestants import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, OUR_COLUMNS, OURS
from tools.benchmark.document import as_text
from tools.benchmark.results import incomplete
from tools.benchmark.targets import TARGETS, target_table


def columns(ours: float) -> object:
    return variant(
        "apache-unkeyed",
        {OUR_COLUMNS: rounds(records_per_core_s=[ours]), CONFLUENT: rounds(records_per_core_s=[100.0])},
    )


@pytest.mark.parametrize(("ours", "verdict"), [(800.0, "met"), (799.0, "**not met**")])
def test_a_target(ours: float, verdict: str) -> None:
    table = target_table(result(("columns", [columns(ours)])))
    assert len(table.rows) == len(TARGETS)
    assert table.rows[0][1:] == ["confluent-kafka ≥ 8 ×", f"{ours / 100:.3g} ×", verdict]
    assert {row[3] for row in table.rows[1:]} == {"not measured", "no target"}


def test_a_target_of_several_parts() -> None:
    """Met where all its parts are; one that is not is enough for the contrary, whatever else was not measured."""
    core = {OURS: 100.0, CONFLUENT: 100.0, AIOKAFKA: 25.0, KAFKA_PYTHON: 12.5}

    def verdict(of: dict[str, float]) -> str:
        measured = {name: rounds(records_per_core_s=[value]) for name, value in of.items()}
        return target_table(result(("records", [variant("apache-unkeyed", measured)]))).rows[1][-1]

    assert verdict(core) == "met"
    assert verdict(core | {KAFKA_PYTHON: 12.6}) == "**not met**"
    del core[AIOKAFKA]
    assert verdict(core) == "not measured"
    assert verdict(core | {CONFLUENT: 101.0}) == "**not met**"


def test_what_is_not_complete_is_named() -> None:
    assert incomplete(result(("columns", [columns(1.0)]))) == []
    lacking = columns(1.0)
    lacking["contestants"][CONFLUENT]["summary"] = {}  # type: ignore[index]
    void = variant("x", {"a": rounds(cost=[1.0])}, void="a worker failed: KeyError: 1\nTraceback ...")
    missing = variant("y", {"a": rounds(cost=[1.0])}, missing="there is no Java")
    assert incomplete(result(("columns", [lacking, void, missing]))) == [
        "columns/apache-unkeyed has no records_per_core_s of confluent-kafka",
        "columns/x is void: a worker failed: KeyError: 1",
        "columns/y is missing: there is no Java",
    ]


def test_the_report_says_what_is_wrong() -> None:
    text = as_text(result(("columns", [columns(900.0), variant("x", {"a": rounds(cost=[1.0])}, void="lost 3")])))
    assert "VOID: lost 3" in text
    assert "NOT COMPLETE" in text
    assert "9 ×" in text
