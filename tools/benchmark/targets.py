"""The targets and whether they are met: the last table of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

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


@dataclass(frozen=True, slots=True)
class Part:
    """One number of a target.

    Attributes:
        label: its name.
        reached: finds it in a result; None if it was not measured.
        bound: for the median; None where the number is shown beside the others, without a target of its own.
        at_least: whether more is better.
        unit: after the number.
    """

    label: str
    reached: Callable[[Result], Spread | None]
    bound: float | None
    at_least: bool = True
    unit: str = " ×"

    def met(self, result: Result) -> bool | None:
        """Return whether it is met; None if it was not measured, or has no target."""
        reached = self.reached(result)
        if reached is None or self.bound is None:
            return None
        return reached.median >= self.bound if self.at_least else reached.median <= self.bound

    def text(self) -> str:
        """Return its name, with its bound."""
        if self.bound is None:
            return f"{self.label} (no target)"
        return f"{self.label} {'≥' if self.at_least else '≤'} {number(self.bound)}{self.unit}"


def _better(case: str, variant: str, peer: str, figure: str, bound: float, label: str = "") -> Part:
    """Return a part: our figure, of which more is better, is a multiple of the peer's."""
    found = partial(ratio_of, case=case, variant=variant, peer=peer, figure=figure)
    return Part(label or peer, found, bound)


def _less(case: str, variant: str, peer: str, figure: str, bound: float, label: str) -> Part:
    """Return a part: the peer's figure, of which less is better, is a multiple of ours."""

    def reached(result: Result) -> Spread | None:
        found = ratio_of(result, case, variant, peer, figure)
        return Spread(1 / found.high, 1 / found.median, 1 / found.low) if found else None

    return Part(label, reached, bound)


def _at_most(case: str, variant: str, peer: str, figure: str, bound: float | None, label: str) -> Part:
    """Return a part: our figure is at most a multiple of the peer's; or the multiple alone."""
    found = partial(ratio_of, case=case, variant=variant, peer=peer, figure=figure)
    return Part(label, found, bound, at_least=False)


def _alone(figure: str, bound: float, label: str, unit: str, *, at_least: bool) -> Part:
    """Return a part about the sender alone, with full batches for eight partitions."""
    found = partial(spread_of, case="sender", variant=sending_variant(8), contestant=ALONE, figure=figure)
    return Part(label, found, bound, at_least, unit)


def _in_loop(peer: str, bound: float, label: str) -> Part:
    """Return a part: `AsyncProducer` sends a multiple of what the peer does."""
    found = partial(ratio_of, case="asyncio", variant="apache", peer=peer, figure="records_per_s", ours=OUR_ASYNC)
    return Part(label, found, bound)


def _record_by_record(variant: str) -> list[Part]:
    peers = ((CONFLUENT, 1), (AIOKAFKA, 4), (KAFKA_PYTHON, 8))
    return [_better("records", variant, peer, PER_CORE, bound) for peer, bound in peers]


def _both(variant: Callable[[int], str], bound: float | None) -> list[Part]:
    """Return parts about exactly once: wall and processor time, in few tasks and in many."""
    return [
        _at_most("exactly-once", variant(tasks), OURS, figure, bound, f"{label}, {tasks} tasks")
        for tasks in TASKS
        for figure, label in (("wall_s", "wall"), ("cpu_s", "CPU"))
    ]


TARGETS: Final[dict[str, Sequence[Part]]] = {
    "columns: records a second per core, delivery included": [
        _better("columns", "apache-unkeyed", CONFLUENT, PER_CORE, 8)
    ],
    "record by record, unkeyed: records a second per core": _record_by_record("apache-unkeyed"),
    "record by record, keyed by murmur2: records a second per core": _record_by_record("apache-keyed"),
    "PySpark job to Kafka, against `foreachPartition` + confluent-kafka": [
        _less("spark", "large", CONFLUENT, "wall_s", 4, "wall"),
        _less("spark", "large", CONFLUENT, "cpu_s", 4, "CPU"),
    ],
    "PySpark job to Kafka, against Spark's JVM sink": [
        _less("spark", "large", SPARK_SINK, "wall_s", 1.3, "wall"),
        _less("spark", "large", SPARK_SINK, "cpu_s", 1.3, "CPU"),
    ],
    "8 producers on one partition, record by record: total throughput against one": [
        _better("producers", "one-partition", ONE, "records_per_s", 0.9, "records/s")
    ],
    "8 producers against confluent-kafka in each, where batches do not fill by themselves": [
        _at_most("producers", "trickle", CONFLUENT, "connections", 1 / 8, "connections"),
        _at_most("producers", "trickle", CONFLUENT, "requests_per_mb", 1 / 3, "requests/MB"),
    ],
    "sender alone, full 16 KiB batches for 8 partitions, into the acknowledging sink": [
        _alone("mb_per_core_s", 700, "a core", " MB/s", at_least=True),
        _alone("cpu_us_per_batch", 25, "a batch", " µs", at_least=False),
    ],
    "p99 append to acknowledgement at 10,000 records a second, linger 0": [
        _at_most("latency", latency_variant(10_000, 0), CONFLUENT, "p99_ms", 1.5, CONFLUENT)
    ],
    "`ready` + `drain` with 1,000 partitions against 10, the same number of ready batches": [
        _at_most("sender", finding_variant(lingering=False), FEW, "cpu_us", 3, "the others empty"),
        _at_most("sender", finding_variant(lingering=True), FEW, "cpu_us", 3, "lingering"),
    ],
    "a stream's 10-s micro-batches of a million rows, exactly once against at least once": _both(stream_variant, 1.1),
    "one of these micro-batches, without the pause behind it": [
        _at_most("exactly-once", stream_variant(tasks), OURS, "took_s", None, f"wall, {tasks} tasks") for tasks in TASKS
    ],
    "a PySpark job of a million rows, exactly once against at least once": _both(job_variant, None),
    f"commit of {TRANSACTIONS} transactions": [
        Part(
            "wall",
            partial(spread_of, case="exactly-once", variant=COMMIT, contestant=OURS, figure="commit_ms"),
            1000,
            at_least=False,
            unit=" ms",
        )
    ],
    "record by record in an event loop: records a second": [
        _in_loop(OURS, 0.7, "synchronous `send`"),
        _in_loop(AIOKAFKA, 4, AIOKAFKA),
    ],
}
"""A target is met if all its parts with a bound are."""


def target_table(result: Result) -> Table:
    """Return target, bound, value, and whether it is met."""
    rows = []
    for what, parts in TARGETS.items():
        found = [part.reached(result) for part in parts]
        reached = [
            "-" if each is None else with_spread(each, part.unit) for part, each in zip(parts, found, strict=True)
        ]
        rows.append([what, ", ".join(part.text() for part in parts), ", ".join(reached), _verdict(parts, result)])
    return Table(["target", "at least, at most", "reached", ""], rows)


def _verdict(parts: Sequence[Part], result: Result) -> str:
    verdicts = [part.met(result) for part in parts if part.bound is not None]
    if not verdicts:
        return "no target"
    if False in verdicts:
        return "**not met**"
    return "not measured" if None in verdicts else "met"
