"""A turn of sending: producers, each with its load, to one topic; and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tools.benchmark import cpu
from tools.benchmark.contestants import CLIENTS
from tools.benchmark.environment import Environment, Measured, Member, Work
from tools.benchmark.load import Load
from tools.benchmark.settings import Settings

WARM_UP_SHARE: Final = 0.05
_LEAST_WARM_UP: Final = 1000
"""Records."""
MEGABYTE: Final = 1e6

MakeLoad = Callable[[str, int], Load]
"""Returns a producer's load, given the topic and the producer's number; called in its process."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of a producer.

    Attributes:
        records, bytes: of its load.
        warm_up: records that it had sent before.
        acknowledged: how many of the load's records were acknowledged, None if it did not ask.
    """

    records: int
    bytes: int
    warm_up: int
    acknowledged: int | None


def send(
    environment: Environment,
    kind: str,
    contestant: str,
    settings: Settings,
    make_load: MakeLoad,
    *,
    partitions: int = 1,
    producers: int = 1,
) -> dict[str, float]:

    def works(servers: str, topic: str) -> list[Work]:
        return [_sending(contestant, servers, settings, topic, partial(make_load, topic, n)) for n in range(producers)]

    return measure(environment, kind, works, settings, partitions)


def _sending(contestant: str, servers: str, settings: Settings, topic: str, make_load: Callable[[], Load]) -> Work:
    """Return the work of sending a load with a contestant's client, after a part of it that does not count."""

    def work(member: Member) -> None:
        load = make_load()  # in the sending process, so that the tool stays small
        records, size = load.count, load.size
        warm_up = load.first(max(min(records, _LEAST_WARM_UP), int(records * WARM_UP_SHARE)))
        client = CLIENTS[contestant](servers, settings, topic)
        client.send(warm_up)
        member.wait_for_go()
        acknowledged = client.send(load)
        member.done(Sent(records, size, warm_up.count, acknowledged))
        client.close()

    return work


def measure(
    environment: Environment,
    kind: str,
    works: Callable[[str, str], Sequence[Work]],
    settings: Settings,
    partitions: int,
) -> dict[str, float]:
    """Run the works of a turn, given ``bootstrap.servers`` and topic; each results in a `Sent`. Return its figures."""
    broker = environment.broker(kind)
    with environment.topic(broker, partitions) as topic:
        measured = environment.measure(broker, works(broker.servers, topic))
        sent: list[Sent] = [report.result for report in measured.reports]
        lacking = [None if each.acknowledged is None else each.records - each.acknowledged for each in sent]
        environment.check_delivered(broker, topic, sum(each.records + each.warm_up for each in sent), lacking)
    return figures_of(measured, sum(each.records for each in sent), sum(each.bytes for each in sent), settings)


def figures_of(measured: Measured, records: int, size: int, settings: Settings) -> dict[str, float]:
    cpu_s, wall_s = measured.usage.contestant_s, measured.wall_s
    figures = {
        "records": float(records),
        "bytes": float(size),
        "wall_s": wall_s,
        **cpu_figures(measured.usage),
        "cpu_system_s": measured.usage.system_s,
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


def cpu_figures(used: cpu.Usage, share: int = 1) -> dict[str, float]:
    """Return seconds of processor time by kind of process, divided by a number."""
    kinds = {"workers": cpu.WORKERS, "sender": cpu.SENDER, "jvm": cpu.JVM}
    figures = {f"cpu_{name}_s": used.seconds.get(kind, 0.0) / share for name, kind in kinds.items()}
    return {"cpu_s": used.contestant_s / share, **figures, "broker_cpu_s": used.seconds.get(cpu.BROKER, 0.0) / share}
