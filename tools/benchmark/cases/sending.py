"""A turn of sending: producers, each with its load, to one topic; and its figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tools.benchmark import cpu
from tools.benchmark.cases.base import Variant
from tools.benchmark.contestants import CLIENTS, Client
from tools.benchmark.environment import Environment, Measured, Member, Work
from tools.benchmark.load import Load, make_values
from tools.benchmark.settings import Settings
from tools.benchmark.statistics import quantile

WARM_UP_SHARE: Final = 0.05
_LEAST_WARM_UP: Final = 1000
"""Records."""
MEGABYTE: Final = 1e6
NORMAL: Final = Settings()
QUANTILES: Final = {"p50_ms": 0.5, "p99_ms": 0.99}
"""Of one round's latencies."""

MakeLoad = Callable[[str, str, int], Load]
"""Returns a producer's load, given contestant, topic, and the producer's number; called in its process."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of a producer.

    Attributes:
        records, bytes: of its load.
        warm_up: records that it had sent before.
        acknowledged: how many of the load's records were acknowledged, None if it did not ask.
        latencies_ns: of the acknowledged records, if it measures them.
    """

    records: int
    bytes: int
    warm_up: int
    acknowledged: int | None
    latencies_ns: Sequence[int] = ()


def sending(
    environment: Environment,
    name: str,
    title: str,
    contestants: Sequence[str],
    make_load: MakeLoad,
    *,
    broker: str,
    settings: Settings = NORMAL,
    partitions: int = 1,
    producers: int = 1,
    **options: Any,
) -> Variant:
    """Return a variant in which each contestant sends loads to a topic."""

    def turn(contestant: str) -> dict[str, float]:
        return send(environment, broker, contestant, settings, make_load, partitions, producers)

    return Variant(name, title, contestants, turn, broker=broker, settings=settings, **options)


def send(
    environment: Environment,
    kind: str,
    contestant: str,
    settings: Settings,
    make_load: MakeLoad,
    partitions: int,
    producers: int,
) -> dict[str, float]:

    def works(servers: str, topic: str) -> list[Work]:
        loads = [partial(make_load, contestant, topic, number) for number in range(producers)]
        return [partial(_send, contestant, servers, settings, topic, load) for load in loads]

    return measure(environment, kind, works, settings, partitions)[0]


def _send(
    contestant: str, servers: str, settings: Settings, topic: str, make_load: Callable[[], Load], member: Member
) -> None:
    """Send a load with a contestant's client, after a part of it that does not count."""
    load = make_load()  # in the sending process, so that the tool stays small
    records, size = load.count, load.size
    warm_up = load.first(max(min(records, _LEAST_WARM_UP), int(records * WARM_UP_SHARE)))
    client = CLIENTS[contestant](servers, settings, topic)
    client.send(warm_up)
    member.wait_for_go()
    acknowledged = client.send(load)
    member.done(Sent(records, size, warm_up.count, acknowledged))
    client.close()


@dataclass(frozen=True, slots=True)
class Pace:
    """How records are sent one by one.

    Attributes:
        rate: records a second.
        count, size: of the records, and bytes of each.
        warm_up: records that come before and do not count.
        wait: called with the client and the seconds until the next record is due, until it is.
    """

    rate: int
    count: int
    size: int
    warm_up: int
    wait: Callable[[Client, float], object]


def send_at_rate(contestant: str, servers: str, settings: Settings, topic: str, pace: Pace, member: Member) -> None:
    count, rate = pace.count, pace.rate
    client = CLIENTS[contestant](servers, settings, topic)
    records = make_values(max(count, pace.warm_up), pace.size)
    clock = time.perf_counter_ns
    latencies_ns: list[int] = []

    def told(sent_ns: int, success: bool) -> None:
        if success:
            latencies_ns.append(clock() - sent_ns)

    def send_all(number: int) -> None:
        began = time.monotonic()
        for each in range(number):
            due = began + each / rate
            while (early := due - time.monotonic()) > 0:
                pace.wait(client, early)
            client.send_one(topic, records[each], partial(told, clock()))
        client.flush()

    send_all(pace.warm_up)
    latencies_ns.clear()
    member.wait_for_go()
    send_all(count)
    member.done(Sent(count, count * pace.size, pace.warm_up, len(latencies_ns), latencies_ns))
    client.close()


def quantiles(latencies_ns: Sequence[int], shares: Mapping[str, float]) -> dict[str, float]:
    """Return quantiles in milliseconds, by their names; none without latencies."""
    return {name: quantile(latencies_ns, share) / 1e6 for name, share in shares.items() if latencies_ns}


def measure(
    environment: Environment,
    kind: str,
    works: Callable[[str, str], Sequence[Work]],
    settings: Settings,
    partitions: int,
) -> tuple[dict[str, float], list[Sent]]:
    """Run the works of a turn, given ``bootstrap.servers`` and topic; return its figures, and the result of each."""
    broker = environment.broker(kind)
    with environment.topic(broker, partitions) as topic:
        measured = environment.measure(broker, works(broker.servers, topic))
        sent: list[Sent] = [report.result for report in measured.reports]
        lacking = [None if each.acknowledged is None else each.records - each.acknowledged for each in sent]
        environment.check_delivered(broker, topic, sum(each.records + each.warm_up for each in sent), lacking)
    return figures_of(measured, sum(each.records for each in sent), sum(each.bytes for each in sent), settings), sent


def figures_of(measured: Measured, records: int, size: int, settings: Settings) -> dict[str, float]:
    cpu_s, wall_s = measured.usage.contestant_s, measured.wall_s
    figures = basic_figures(records, size, wall_s, measured.usage) | {
        "cpu_system_s": measured.usage.system_s,
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


def basic_figures(records: int, size: int, wall_s: float, used: cpu.Usage) -> dict[str, float]:
    return {
        "records": float(records),
        "bytes": float(size),
        "wall_s": wall_s,
        **cpu_figures(used),
        "records_per_s": records / wall_s,
        "records_per_core_s": records / used.contestant_s,
        "cpu_us_per_record": used.contestant_s / records * 1e6,
    }


def cpu_figures(used: cpu.Usage, share: int = 1) -> dict[str, float]:
    """Return seconds of processor time by kind of process, divided by a number."""
    kinds = {"workers": cpu.WORKERS, "sender": cpu.SENDER, "jvm": cpu.JVM}
    figures = {f"cpu_{name}_s": used.seconds.get(kind, 0.0) / share for name, kind in kinds.items()}
    return {"cpu_s": used.contestant_s / share, **figures, "broker_cpu_s": used.seconds.get(cpu.BROKER, 0.0) / share}
