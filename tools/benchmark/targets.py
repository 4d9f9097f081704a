"""What was to be reached, and what was: the table that a run ends with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tools.benchmark.cases.latency import variant_name as latency_variant
from tools.benchmark.cases.producers import ONE
from tools.benchmark.cases.sender import FEW, SENDER, finding_variant, sending_variant
from tools.benchmark.contestants import AIOKAFKA, CONFLUENT, KAFKA_PYTHON
from tools.benchmark.results import Result, median, ratio_of
from tools.benchmark.spark.host import SPARK_SINK
from tools.benchmark.tables import Table, number

PER_CORE: Final = "records_per_core_s"


@dataclass(frozen=True, slots=True)
class Part:
    """One number of a target.

    Attributes:
        label: what it is.
        reached: finds it in a result; None if it was not measured.
        bound: what it is to be.
        at_least: whether more is better.
        unit: behind the number.
    """

    label: str
    reached: Callable[[Result], float | None]
    bound: float
    at_least: bool = True
    unit: str = " ×"

    def met(self, result: Result) -> bool | None:
        """Say whether it is met; None if it was not measured."""
        reached = self.reached(result)
        if reached is None:
            return None
        return reached >= self.bound if self.at_least else reached <= self.bound


@dataclass(frozen=True, slots=True)
class Target:
    """A target: it is met if all its parts are."""

    what: str
    parts: Sequence[Part]

    def verdict(self, result: Result) -> str:
        """Return "met", "not met", or "not measured"."""
        verdicts = [part.met(result) for part in self.parts]
        if False in verdicts:
            return "**not met**"
        return "not measured" if None in verdicts else "met"


def _better(case: str, variant: str, peer: str, figure: str, bound: float, label: str) -> Part:
    """Return the part that our figure, of which more is better, is so many times the peer's."""
    return Part(label, lambda result: ratio_of(result, case, variant, peer, figure), bound)


def _less(case: str, variant: str, peer: str, figure: str, bound: float, label: str) -> Part:
    """Return the part that the peer's figure, of which less is better, is so many times ours."""

    def reached(result: Result) -> float | None:
        found = ratio_of(result, case, variant, peer, figure)
        return 1 / found if found else None

    return Part(label, reached, bound)


def _at_most(case: str, variant: str, peer: str, figure: str, bound: float, label: str) -> Part:
    """Return the part that our figure is no more than so many times the peer's."""
    return Part(label, lambda result: ratio_of(result, case, variant, peer, figure), bound, at_least=False)


def _record_by_record(what: str, variant: str) -> Target:
    return Target(
        f"record by record, {what}: records a second per core",
        [
            _better("records", variant, CONFLUENT, PER_CORE, 1, CONFLUENT),
            _better("records", variant, AIOKAFKA, PER_CORE, 4, AIOKAFKA),
            _better("records", variant, KAFKA_PYTHON, PER_CORE, 8, KAFKA_PYTHON),
        ],
    )


TARGETS: Final = (
    Target(
        "columns: records a second per core, delivery included",
        [_better("columns", "apache-unkeyed", CONFLUENT, PER_CORE, 8, CONFLUENT)],
    ),
    _record_by_record("unkeyed", "apache-unkeyed"),
    _record_by_record("keyed by murmur2", "apache-keyed"),
    Target(
        "PySpark job to Kafka, against `foreachPartition` + confluent-kafka",
        [
            _less("spark", "large", CONFLUENT, "wall_s", 4, "wall"),
            _less("spark", "large", CONFLUENT, "cpu_s", 4, "CPU"),
        ],
    ),
    Target(
        "PySpark job to Kafka, against Spark's JVM sink",
        [
            _less("spark", "large", SPARK_SINK, "wall_s", 1.3, "wall"),
            _less("spark", "large", SPARK_SINK, "cpu_s", 1.3, "CPU"),
        ],
    ),
    Target(
        "8 producers on one partition, record by record: total throughput against one",
        [_better("producers", "one-partition", ONE, "records_per_s", 0.9, "records/s")],
    ),
    Target(
        "8 producers against confluent-kafka in each, where batches do not fill by themselves",
        [
            _at_most("producers", "trickle", CONFLUENT, "connections", 1 / 8, "connections"),
            _at_most("producers", "trickle", CONFLUENT, "requests_per_mb", 1 / 3, "requests/MB"),
        ],
    ),
    Target(
        "sender alone, full 16 KiB batches for 8 partitions, into the acknowledging sink",
        [
            Part(
                "a core",
                lambda result: median(result, "sender", sending_variant(8), SENDER, "mb_per_core_s"),
                700,
                unit=" MB/s",
            ),
            Part(
                "a batch",
                lambda result: median(result, "sender", sending_variant(8), SENDER, "cpu_us_per_batch"),
                25,
                at_least=False,
                unit=" µs",
            ),
        ],
    ),
    Target(
        "p99 append to acknowledgement at 10,000 records a second, linger 0",
        [_at_most("latency", latency_variant(10_000, 0), CONFLUENT, "p99_ms", 1.5, CONFLUENT)],
    ),
    Target(
        "`ready` + `drain` with 1,000 partitions against 10, the same number of ready batches",
        [
            _at_most("sender", finding_variant(lingering=False), FEW, "cpu_us", 3, "the others empty"),
            _at_most("sender", finding_variant(lingering=True), FEW, "cpu_us", 3, "lingering"),
        ],
    ),
)


def target_table(result: Result) -> Table:
    """Return target, bound, reached, and whether it is met."""
    rows = []
    for target in TARGETS:
        bounds, reached = [], []
        for part in target.parts:
            found = part.reached(result)
            bounds.append(f"{part.label} {'≥' if part.at_least else '≤'} {number(part.bound)}{part.unit}")
            reached.append("-" if found is None else f"{number(found)}{part.unit}")
        rows.append([target.what, ", ".join(bounds), ", ".join(reached), target.verdict(result)])
    return Table(["target", "at least, at most", "reached", ""], rows)
