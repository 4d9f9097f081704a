"""The targets and whether they are met: the last table of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tools.benchmark.cases.exactly_once import COMMIT, TASKS, TRANSACTIONS, job_variant, stream_variant
from tools.benchmark.cases.latency import variant_name as latency_variant
from tools.benchmark.cases.producers import ONE
from tools.benchmark.cases.sender import ALONE, FEW, finding_variant, sending_variant
from tools.benchmark.contestants import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, OUR_ASYNC, OURS
from tools.benchmark.results import Result, ratio_of, spread_of
from tools.benchmark.spark.jobs import SPARK_SINK
from tools.benchmark.statistics import Spread
from tools.benchmark.tables import Table, number, with_spread

PER_CORE: Final = "records_per_core_s"


class Part(NamedTuple):
    """One number of a target: our figure as a multiple of a peer's, or as it is.

    Attributes:
        label: its name.
        bound: for the median; None where the number is shown beside the others, without a target of its own.
        case, variant, figure: where it is in a result.
        peer: whose figure is 1; empty if ours is shown as it is.
        ours: the contestant, if not the first.
        at_least: whether more is better.
        inverse: show the peer's figure as a multiple of ours.
        unit: after the number.
    """

    label: str
    bound: float | None
    case: str
    variant: str
    figure: str
    peer: str = ""
    ours: str = ""
    at_least: bool = True
    inverse: bool = False
    unit: str = " ×"

    def reached(self, result: Result) -> Spread | None:
        """Find it in a result; return None if it was not measured."""
        if not self.peer:
            return spread_of(result, self.case, self.variant, self.ours, self.figure)
        found = ratio_of(result, self.case, self.variant, self.peer, self.figure, self.ours)
        return Spread(1 / found.high, 1 / found.median, 1 / found.low) if found and self.inverse else found

    def met(self, reached: Spread | None) -> bool | None:
        """Return whether it is met; None if it was not measured, or has no target."""
        if reached is None or self.bound is None:
            return None
        return reached.median >= self.bound if self.at_least else reached.median <= self.bound

    def text(self) -> str:
        if self.bound is None:
            return f"{self.label} (no target)"
        return f"{self.label} {'≥' if self.at_least else '≤'} {number(self.bound)}{self.unit}"


def _record_by_record(variant: str) -> list[Part]:
    peers = {CONFLUENT: 1, AIOKAFKA: 4, KAFKA_PYTHON: 8}
    return [Part(peer, bound, "records", variant, PER_CORE, peer) for peer, bound in peers.items()]


def _of_spark(peer: str, bound: float) -> list[Part]:
    figures = {"wall": "wall_s", "CPU": "cpu_s"}
    return [Part(name, bound, "spark", "large", figure, peer, inverse=True) for name, figure in figures.items()]


def _exactly_once(variant: Callable[[int], str], bound: float | None) -> list[Part]:
    """Return wall and processor time as multiples of those of at least once, in few tasks and in many."""
    return [
        Part(f"{label}, {tasks} tasks", bound, "exactly-once", variant(tasks), figure, OURS, at_least=False)
        for tasks in TASKS
        for figure, label in (("wall_s", "wall"), ("cpu_s", "CPU"))
    ]


_EIGHT: Final = ("sender", sending_variant(8))
"""Full batches for eight partitions."""
TARGETS: Final[dict[str, Sequence[Part]]] = {
    "columns: records a second per core, delivery included": [
        Part(CONFLUENT, 8, "columns", "apache-unkeyed", PER_CORE, CONFLUENT)
    ],
    "record by record, unkeyed: records a second per core": _record_by_record("apache-unkeyed"),
    "record by record, keyed by murmur2: records a second per core": _record_by_record("apache-keyed"),
    "PySpark job to Kafka, against `foreachPartition` + confluent-kafka": _of_spark(CONFLUENT, 4),
    "PySpark job to Kafka, against Spark's JVM sink": _of_spark(SPARK_SINK, 1.3),
    "8 producers on one partition, record by record: total throughput against one": [
        Part("records/s", 0.9, "producers", "one-partition", "records_per_s", ONE)
    ],
    "8 producers against confluent-kafka in each, where batches do not fill by themselves": [
        Part("connections", 1 / 8, "producers", "trickle", "connections", CONFLUENT, at_least=False),
        Part("requests/MB", 1 / 3, "producers", "trickle", "requests_per_mb", CONFLUENT, at_least=False),
    ],
    "sender alone, full 16 KiB batches for 8 partitions, into the acknowledging sink": [
        Part("a core", 700, *_EIGHT, "mb_per_core_s", ours=ALONE, unit=" MB/s"),
        Part("a batch", 25, *_EIGHT, "cpu_us_per_batch", ours=ALONE, unit=" µs", at_least=False),
    ],
    "p99 append to acknowledgement at 10,000 records a second, linger 0": [
        Part(CONFLUENT, 1.5, "latency", latency_variant(10_000, 0), "p99_ms", CONFLUENT, at_least=False)
    ],
    "`ready` + `drain` with 1,000 partitions against 10, the same number of ready batches": [
        Part(label, 3, "sender", finding_variant(lingering=lingering), "cpu_us", FEW, at_least=False)
        for label, lingering in (("the others empty", False), ("lingering", True))
    ],
    "a stream's 10-s micro-batches of a million rows, exactly once against at least once": _exactly_once(
        stream_variant, 1.1
    ),
    "one of these micro-batches, without the pause behind it": [
        Part(f"wall, {tasks} tasks", None, "exactly-once", stream_variant(tasks), "took_s", OURS) for tasks in TASKS
    ],
    "a PySpark job of a million rows, exactly once against at least once": _exactly_once(job_variant, None),
    f"commit of {TRANSACTIONS} transactions": [
        Part("wall", 1000, "exactly-once", COMMIT, "commit_ms", ours=OURS, unit=" ms", at_least=False)
    ],
    "record by record in an event loop: records a second": [
        Part(label, bound, "asyncio", "apache", "records_per_s", peer, OUR_ASYNC)
        for label, peer, bound in (("synchronous `send`", OURS, 0.7), (AIOKAFKA, AIOKAFKA, 4))
    ],
}
"""A target is met if all its parts with a bound are."""


def target_table(result: Result) -> Table:
    """Return target, bound, value, and whether it is met."""
    rows = []
    for what, parts in TARGETS.items():
        found = [(part, part.reached(result)) for part in parts]
        shown = ["-" if reached is None else with_spread(reached, part.unit) for part, reached in found]
        verdicts = [part.met(reached) for part, reached in found if part.bound is not None]
        verdict = "not measured" if None in verdicts else "met" if verdicts else "no target"
        is_missed = False in verdicts
        bounds = ", ".join(part.text() for part in parts)
        rows.append([what, bounds, ", ".join(shown), "**not met**" if is_missed else verdict])
    return Table(["target", "at least, at most", "reached", ""], rows)
