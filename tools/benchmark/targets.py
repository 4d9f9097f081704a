"""The targets and whether they are met: the last table of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tools.benchmark.cases.exactly_once import COMMIT, TASKS, TRANSACTIONS, job_variant, stream_variant
from tools.benchmark.cases.latency import variant_name as latency_variant
from tools.benchmark.cases.producers import ONE
from tools.benchmark.cases.sender import FEW, SENDER, finding_variant, sending_variant
from tools.benchmark.contestants import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, OUR_ASYNC, OURS
from tools.benchmark.results import Result, ratio_of, spread_of
from tools.benchmark.spark.jobs import SPARK_SINK
from tools.benchmark.statistics import Spread
from tools.benchmark.tables import Table, number, with_spread

PER_CORE: Final = "records_per_core_s"


Find = Callable[[Result], Spread | None]


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
    reached: Find
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


@dataclass(frozen=True, slots=True)
class Target:
    """A target: it is met if all its parts with a bound are."""

    what: str
    parts: Sequence[Part]

    def verdict(self, result: Result) -> str:
        """Return "met", "not met", "not measured", or "no target" if no part has a bound."""
        verdicts = [part.met(result) for part in self.parts if part.bound is not None]
        if not verdicts:
            return "no target"
        if False in verdicts:
            return "**not met**"
        return "not measured" if None in verdicts else "met"


def _better(case: str, variant: str, peer: str, figure: str, bound: float, *, label: str = "") -> Part:
    """Return a part: our figure, of which more is better, is a multiple of the peer's."""
    return Part(
        label or peer,
        lambda result: ratio_of(result, case, variant, peer, figure),
        bound,
    )


def _less(case: str, variant: str, peer: str, figure: str, bound: float, label: str) -> Part:
    """Return a part: the peer's figure, of which less is better, is a multiple of ours."""

    def reached(result: Result) -> Spread | None:
        found = ratio_of(result, case, variant, peer, figure)
        return Spread(1 / found.high, 1 / found.median, 1 / found.low) if found else None

    return Part(label, reached, bound)


def _at_most(case: str, variant: str, peer: str, figure: str, bound: float | None, label: str) -> Part:
    """Return a part: our figure is at most a multiple of the peer's; or the multiple alone."""
    return Part(label, lambda result: ratio_of(result, case, variant, peer, figure), bound, at_least=False)


def _sender(figure: str, bound: float, label: str, unit: str, *, at_least: bool) -> Part:
    """Return a part about the sender alone, with full batches for eight partitions."""
    return Part(
        label,
        lambda result: spread_of(result, "sender", sending_variant(8), SENDER, figure),
        bound,
        at_least,
        unit,
    )


def _record_by_record(what: str, variant: str) -> Target:
    return Target(
        f"record by record, {what}: records a second per core",
        [
            _better("records", variant, peer, PER_CORE, bound)
            for peer, bound in ((CONFLUENT, 1), (AIOKAFKA, 4), (KAFKA_PYTHON, 8))
        ],
    )


def _in_loop(peer: str, bound: float, label: str) -> Part:
    """Return a part: `AsyncProducer` sends a multiple of what the peer does."""
    return Part(label, lambda result: ratio_of(result, "asyncio", "apache", peer, "records_per_s", OUR_ASYNC), bound)


TARGETS: Final = (
    Target(
        "columns: records a second per core, delivery included",
        [_better("columns", "apache-unkeyed", CONFLUENT, PER_CORE, 8)],
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
        [_better("producers", "one-partition", ONE, "records_per_s", 0.9, label="records/s")],
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
            _sender("mb_per_core_s", 700, "a core", " MB/s", at_least=True),
            _sender("cpu_us_per_batch", 25, "a batch", " µs", at_least=False),
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
    Target(
        "a stream's 10-s micro-batches of a million rows, exactly once against at least once",
        [
            _at_most("exactly-once", stream_variant(tasks), OURS, figure, 1.1, f"{label}, {tasks} tasks")
            for tasks in TASKS
            for figure, label in (("wall_s", "wall"), ("cpu_s", "CPU"))
        ],
    ),
    Target(
        "one of these micro-batches, without the pause behind it",
        [
            _at_most("exactly-once", stream_variant(tasks), OURS, "took_s", None, f"wall, {tasks} tasks")
            for tasks in TASKS
        ],
    ),
    Target(
        "a PySpark job of a million rows, exactly once against at least once",
        [
            _at_most("exactly-once", job_variant(tasks), OURS, figure, None, f"{label}, {tasks} tasks")
            for tasks in TASKS
            for figure, label in (("wall_s", "wall"), ("cpu_s", "CPU"))
        ],
    ),
    Target(
        f"commit of {TRANSACTIONS} transactions",
        [
            Part(
                "wall",
                lambda result: spread_of(result, "exactly-once", COMMIT, OURS, "commit_ms"),
                1000,
                at_least=False,
                unit=" ms",
            )
        ],
    ),
    Target(
        "record by record in an event loop: records a second",
        [_in_loop(OURS, 0.7, "synchronous `send`"), _in_loop(AIOKAFKA, 4, AIOKAFKA)],
    ),
)


def target_table(result: Result) -> Table:
    """Return target, bound, value, and whether it is met."""
    rows = []
    for target in TARGETS:
        bounds = [each.text() for each in target.parts]
        rows.append([target.what, ", ".join(bounds), ", ".join(_reached(target, result)), target.verdict(result)])
    return Table(["target", "at least, at most", "reached", ""], rows)


def _reached(target: Target, result: Result) -> list[str]:
    """Return the value of each part."""
    found = [part.reached(result) for part in target.parts]
    return [
        "-" if each is None else f"{with_spread(each, part.unit)}"
        for part, each in zip(target.parts, found, strict=True)
    ]
