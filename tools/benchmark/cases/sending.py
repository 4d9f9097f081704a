"""A turn of sending: producers, each with its load, to one topic; and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tools.benchmark import cpu
from tools.benchmark.environment import Environment, Measured
from tools.benchmark.load import Load
from tools.benchmark.process_group import Sent, Work, sending
from tools.benchmark.settings import Settings

WARM_UP_SHARE: Final = 0.05
MEGABYTE: Final = 1e6

SENDING_FIGURES: Final = ("records_per_core_s", "records_per_s", "cpu_us_per_record", "wall_s", "cpu_s", "broker_cpu_s")


def send(
    environment: Environment,
    kind: str,
    contestant: str,
    settings: Settings,
    make_load: Callable[[str, int], Load],
    *,
    partitions: int = 1,
    producers: int = 1,
) -> dict[str, float]:
    """Run a contestant's turn and return its figures.

    Args:
        environment: to work in.
        kind: of broker.
        contestant: by name.
        settings: the same for all.
        make_load: returns a producer's load, given the topic and the producer's number; called in its process.
        partitions: of the topic.
        producers: number of processes that send.

    Raises:
        VoidError: not everything arrived.
        BenchmarkError: it failed.
    """

    def works(servers: str, topic: str) -> list[Work]:
        return [
            sending(contestant, servers, settings, topic, partial(make_load, topic, number), WARM_UP_SHARE)
            for number in range(producers)
        ]

    return measure(environment, kind, works, settings, partitions)


def measure(
    environment: Environment,
    kind: str,
    works: Callable[[str, str], Sequence[Work]],
    settings: Settings,
    partitions: int,
) -> dict[str, float]:
    """Run the works of a turn, each of which has a `Sent` as its result, and return its figures.

    Args:
        environment: to work in.
        kind: of broker.
        works: returns them, given ``bootstrap.servers`` and the topic.
        settings: the same for all.
        partitions: of the topic.

    Raises:
        As `send`.
    """
    broker = environment.broker(kind)
    with environment.topic(broker, environment.new_name(), partitions) as topic:
        measured = environment.measure(broker, works(broker.servers, topic))
        sent: list[Sent] = [report.result for report in measured.reports]
        untold = [None if each.acknowledged is None else each.records - each.acknowledged for each in sent]
        environment.check_delivered(broker, topic, sum(each.records + each.warm_up for each in sent), untold)
    return figures_of(measured, sum(each.records for each in sent), sum(each.bytes for each in sent), settings)


def figures_of(measured: Measured, records: int, size: int, settings: Settings) -> dict[str, float]:
    """Return the figures of a turn with this many records and bytes delivered."""
    cpu_s, wall_s, seconds = measured.usage.contestant_s, measured.wall_s, measured.usage.seconds
    figures = {
        "records": float(records),
        "bytes": float(size),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "cpu_workers_s": seconds.get(cpu.WORKERS, 0.0),
        "cpu_sender_s": seconds.get(cpu.SENDER, 0.0),
        "cpu_jvm_s": seconds.get(cpu.JVM, 0.0),
        "cpu_system_s": measured.usage.system_s,
        "broker_cpu_s": seconds.get(cpu.BROKER, 0.0),
        "records_per_s": records / wall_s,
        "records_per_core_s": records / cpu_s,
        "cpu_us_per_record": cpu_s / records * 1e6,
        "mb_per_s": size / wall_s / MEGABYTE,
        "mb_per_core_s": size / cpu_s / MEGABYTE,
        "memory_mb": measured.memory / MEGABYTE,
    }
    counts = measured.counts
    if counts and counts["batches"]:
        figures |= {
            "connections": float(counts["producing"]),
            "open_connections": float(counts["open"]),
            "requests": float(counts["requests"]),
            "requests_per_mb": counts["requests"] / (size / MEGABYTE),
            "batches": float(counts["batches"]),
            "batches_per_mb": counts["batches"] / (size / MEGABYTE),
            "batch_fill": counts["bytes"] / counts["batches"] / settings.batch_size,
        }
    return figures
