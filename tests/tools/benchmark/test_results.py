"""What is complete, and how targets are judged."""

from __future__ import annotations

import pytest
from benchmark_results import result, rounds, variant

from tools.benchmark.contestants import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, OUR_COLUMNS, OURS
from tools.benchmark.distance import distance_table
from tools.benchmark.report import as_text
from tools.benchmark.results import incomplete, median, ratio_of
from tools.benchmark.targets import TARGETS, target_table


def columns(ours: float) -> object:
    return variant(
        "apache-unkeyed",
        {OUR_COLUMNS: rounds(records_per_core_s=[ours]), CONFLUENT: rounds(records_per_core_s=[100.0])},
    )


def test_found_again() -> None:
    found = result(("columns", [columns(900.0)]))
    assert median(found, "columns", "apache-unkeyed", CONFLUENT, "records_per_core_s") == 100.0
    assert ratio_of(found, "columns", "apache-unkeyed", CONFLUENT, "records_per_core_s") == 9.0
    assert median(found, "columns", "apache-unkeyed", "nobody", "records_per_core_s") is None
    assert median(found, "columns", "apache-keyed", CONFLUENT, "records_per_core_s") is None
    assert ratio_of(found, "nothing", "apache-unkeyed", CONFLUENT, "records_per_core_s") is None


@pytest.mark.parametrize(("ours", "verdict"), [(800.0, "met"), (799.0, "**not met**")])
def test_a_target(ours: float, verdict: str) -> None:
    table = target_table(result(("columns", [columns(ours)])))
    assert len(table.rows) == len(TARGETS)
    assert table.rows[0][1:] == ["confluent-kafka ≥ 8 ×", f"{ours / 100:.3g} ×", verdict]
    assert {row[3] for row in table.rows[1:]} == {"not measured"}


def test_a_target_of_several_parts() -> None:
    """Met where all its parts are; one that is not is enough for the contrary, whatever else was not measured."""
    core = {OURS: 100.0, CONFLUENT: 100.0, AIOKAFKA: 25.0, KAFKA_PYTHON: 12.5}

    def verdict(of: dict[str, float]) -> str:
        measured = {name: rounds(records_per_core_s=[value]) for name, value in of.items()}
        return target_table(result(("records", [variant("apache-unkeyed", measured)]))).rows[1][3]

    assert verdict(core) == "met"
    assert verdict(core | {KAFKA_PYTHON: 12.6}) == "**not met**"
    del core[AIOKAFKA]
    assert verdict(core) == "not measured"
    assert verdict(core | {CONFLUENT: 101.0}) == "**not met**"


def test_less_is_better() -> None:
    """Wall and processor time of a job: how many times ours the peer's is."""
    of = {OURS: rounds(wall_s=[2.0], cpu_s=[3.0]), CONFLUENT: rounds(wall_s=[10.0], cpu_s=[9.0])}
    row = target_table(result(("spark", [variant("large", of)]))).rows[3]
    assert row[2:] == ["5 ×, 3 ×", "**not met**"]


def test_complete() -> None:
    assert incomplete(result(("columns", [columns(1.0)]))) == []


def test_incomplete() -> None:
    lacking = columns(1.0)
    lacking["contestants"][CONFLUENT]["summary"] = {}  # type: ignore[index]
    void = variant("x", {"a": rounds(cost=[1.0])}, void="records are missing")
    missing = variant("y", {"a": rounds(cost=[1.0])}, missing="there is no Java")
    assert incomplete(result(("columns", [lacking, void, missing]))) == [
        "columns/apache-unkeyed has no records_per_core_s of confluent-kafka",
        "columns/x is void: records are missing",
        "columns/y is missing: there is no Java",
    ]


def test_distances() -> None:
    costs = {"memory-copy": 0.1, "crc": 0.05, "socket": 0.05, "semaphore": 80.0, "round-trip": 50.0}
    limits = [variant(name, {"this machine": rounds(cost=[cost])}) for name, cost in costs.items()]
    figures = {"cpu_us_per_record": 1.0, "records": 10.0, "bytes": 910.0, "cpu_s": 2.0, "cpu_workers_s": 1.5}
    measured = {OURS: [figures | {"cpu_sender_s": 0.5}]}
    table = distance_table(result(("limits", limits), ("records", [variant("apache-unkeyed", measured)])))
    assert table.rows == [["1, `send`, unkeyed", "100 ns", "1,000 ns", "10 ×", "producers 75%, sender 25%"]]


def test_the_report_says_what_is_wrong() -> None:
    text = as_text(result(("columns", [columns(900.0), variant("x", {"a": rounds(cost=[1.0])}, void="lost 3")])))
    assert "VOID: lost 3" in text
    assert "NOT COMPLETE" in text
    assert "9 ×" in text
