"""Case 6: time from the append of a record to its acknowledgement, at a steady rate, without overload."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from tools.benchmark.brokers import APACHE
from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.cases.sending import figures_of
from tools.benchmark.contestants import CLIENTS, CONFLUENT, OURS
from tools.benchmark.environment import Environment, Member, Work
from tools.benchmark.load import make_values
from tools.benchmark.settings import Settings
from tools.benchmark.statistics import quantile

RATES: Final = (100, 1_000, 10_000)
LINGERS_MS: Final = (0, 5)
SECONDS: Final = 3.0
WARM_UP_S: Final = 0.5
VALUE_SIZE: Final = 100
JUDGED: Final = (10_000, 0)
"""Rate and linger of a target: this variant runs more rounds than the others."""
QUANTILES: Final = {"p50_ms": 0.5, "p99_ms": 0.99}
"""Of one round."""
POOLED: Final = {"p99_pooled_ms": 0.99, "p999_pooled_ms": 0.999}
"""Of all rounds' records together, because one round has few beyond it."""


def _variants(environment: Environment) -> Sequence[Variant]:
    combinations = environment.some([*itertools.product(LINGERS_MS, RATES)], 5)
    return [_variant(environment, rate, linger) for linger, rate in combinations]


def variant_name(rate: int, linger_ms: int) -> str:
    return f"rate-{rate}-linger-{linger_ms}"


def _variant(environment: Environment, rate: int, linger_ms: int) -> Variant:
    count = int(rate * environment.seconds(SECONDS))
    warm_up = int(rate * WARM_UP_S)
    settings = Settings(linger_ms=linger_ms)
    is_judged = (rate, linger_ms) == JUDGED
    of_all_rounds: dict[str, list[int]] = defaultdict(list)

    def turn(contestant: str) -> dict[str, float]:
        broker = environment.broker(APACHE)
        with environment.topic(broker, 1) as topic:
            work = _timing(contestant, broker.servers, settings, topic, rate, warm_up, count)
            measured = environment.measure(broker, [work])
            (report,) = measured.reports
            latencies_ns: list[int] = report.result
            environment.check_delivered(broker, topic, warm_up + count, [count - len(latencies_ns)])
        of_all_rounds[contestant] += latencies_ns
        return figures_of(measured, count, count * VALUE_SIZE, settings) | _quantiles(latencies_ns, QUANTILES)

    return Variant(
        name=variant_name(rate, linger_ms),
        title=f"{rate:,} records a second, linger {linger_ms} ms",
        contestants=(OURS, CONFLUENT),
        turn=turn,
        figures=(*QUANTILES, *POOLED, "cpu_us_per_record"),
        broker=APACHE,
        settings=settings,
        facts={"rate": rate, "records": count, "value_size": VALUE_SIZE, "partitions": 1},
        rounds_times=2 if is_judged and not environment.smoke else 1,
        rounds_at_most=20 if is_judged else 4,
        warm_up=False,
        pooled=lambda contestant: _quantiles(of_all_rounds[contestant], POOLED),
    )


def _quantiles(latencies_ns: Sequence[int], shares: Mapping[str, float]) -> dict[str, float]:
    return {name: quantile(latencies_ns, share) / 1e6 for name, share in shares.items()}


def _timing(contestant: str, servers: str, settings: Settings, topic: str, rate: int, warm_up: int, count: int) -> Work:
    """Return the work of sending at a rate and polling for acknowledgements as early as possible.

    Between two records it calls the library's `poll`, which runs the callbacks.
    """

    def work(member: Member) -> None:
        client = CLIENTS[contestant](servers, settings, topic)
        values = make_values(max(count, warm_up), VALUE_SIZE)
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
                    client.poll(early)
                client.send_one(topic, values[each], partial(told, clock()))
            client.flush()

        send_all(warm_up)
        latencies_ns.clear()
        member.wait_for_go()
        send_all(count)
        member.done(latencies_ns)
        client.close()

    return work


LATENCY: Final = Case(6, "latency", "Append to acknowledgement", _variants)
