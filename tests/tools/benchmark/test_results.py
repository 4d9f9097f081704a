"""What is complete, and how targets are judged. That all tables are right is what test_document.py compares."""

from __future__ import annotations

import pytest
from benchmark_results import result, rounds, variant

from tools.benchmark.cases.exactly_once import TASKS, job_variant, stream_variant
from tools.benchmark.comparisons import limit_table, losses
from tools.benchmark.contestants import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, OUR_COLUMNS, OURS
from tools.benchmark.document import as_text
from tools.benchmark.results import incomplete
from tools.benchmark.spark.jobs import EXACTLY_ONCE
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


def test_a_number_without_a_target_is_shown_and_not_judged() -> None:
    """The micro-batches of a stream have a target with their pauses, and none without; a job has none at all."""
    stream = {
        EXACTLY_ONCE: rounds(wall_s=[22.0], cpu_s=[5.0], took_s=[2.6]),
        OURS: rounds(wall_s=[20.0], cpu_s=[5.0], took_s=[2.0]),
    }
    job = {EXACTLY_ONCE: rounds(wall_s=[3.0], cpu_s=[4.0]), OURS: rounds(wall_s=[2.0], cpu_s=[2.0])}
    variants = [
        *(variant(stream_variant(tasks), stream) for tasks in TASKS),
        *(variant(job_variant(tasks), job) for tasks in TASKS),
    ]
    rows = {row[0]: row for row in target_table(result(("exactly-once", variants))).rows}
    of_stream, of_one, of_job = (row[1:] for what, row in rows.items() if "exactly once" in what or "pause" in what)
    assert of_stream[1:] == ["1.1 ×, 1 ×, 1.1 ×, 1 ×", "met"]
    assert of_one == ["wall, 8 tasks (no target), wall, 200 tasks (no target)", "1.3 ×, 1.3 ×", "no target"]
    assert of_job[1:] == ["1.5 ×, 2 ×, 1.5 ×, 2 ×", "no target"]


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


COSTS = {"memory-copy": 0.1, "crc": 0.05, "socket": 0.05, "semaphore": 80.0, "round-trip": 50.0}
LIMITS = ("limits", [variant(name, {"this machine": rounds(cost=[cost])}) for name, cost in COSTS.items()])


def test_distances() -> None:
    """A record of 91 bytes is 100 in a batch: 10 ns are copied, 10 ns go to the sender, 80 ns to the semaphore."""
    figures = {"cpu_us_per_record": 1.0, "records": 10.0, "bytes": 910.0, "cpu_workers_s": 8e-6, "cpu_sender_s": 2e-6}
    of = variant("apache-unkeyed", {OURS: [figures | {"cpu_system_s": 1e-6}]})
    measured = result(LIMITS, ("records", [of]))
    rest = "producers 710 ns, sender 190 ns, of all in the kernel 100 ns"
    assert limit_table(measured).rows == [["1, `send`, unkeyed", "100 ns", "1,000 ns", "10 ×", rest]]
    assert limit_table(measured, "records").rows == limit_table(measured).rows
    assert limit_table(measured, "columns").rows == []
    assert limit_table(result(("records", [of]))).rows == [], "without limits there is no distance"


def test_where_a_peer_is_better() -> None:
    first = variant(
        "v",
        {
            OURS: rounds(records_per_core_s=[50.0, 90.0, 200.0], records_per_s=[9.0, 9.0, 9.0], memory_mb=[4.0] * 3),
            OUR_COLUMNS: rounds(records_per_core_s=[10.0] * 3, records_per_s=[9.0] * 3, memory_mb=[1.0] * 3),
            CONFLUENT: rounds(records_per_core_s=[100.0] * 3, records_per_s=[3.0] * 3, memory_mb=[1.0] * 3),
        },
    )
    second = variant(
        "w", {OURS: rounds(wall_s=[1.0], batch_fill=[0.1]), CONFLUENT: rounds(wall_s=[1.0], batch_fill=[1])}
    )
    assert losses(result(("records", [first]), ("spark", [second]))).rows == [
        ["1. title of v", OURS, CONFLUENT, "records/s per core 0.9 × (0.7 - 1.45), memory MB 0.25 ×"],
        ["1. title of v", OUR_COLUMNS, CONFLUENT, "records/s per core 0.1 ×"],
    ]


def test_the_report_says_what_is_wrong() -> None:
    text = as_text(result(("columns", [columns(900.0), variant("x", {"a": rounds(cost=[1.0])}, void="lost 3")])))
    assert "VOID: lost 3" in text
    assert "NOT COMPLETE" in text
    assert "9 ×" in text
