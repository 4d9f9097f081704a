"""Case 6: time from the append of a record to its acknowledgement, at a steady rate, without overload."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final

from tools.benchmark.brokers import APACHE
from tools.benchmark.cases.base import Case, Variant
from tools.benchmark.cases.sending import QUANTILES, Pace, measure, quantiles, send_at_rate
from tools.benchmark.contestants import CONFLUENT, OURS, Client
from tools.benchmark.environment import Environment, Work
from tools.benchmark.settings import Settings

RATES: Final = (100, 1_000, 10_000)
LINGERS_MS: Final = (0, 5)
SECONDS: Final = 3.0
WARM_UP_S: Final = 0.5
VALUE_SIZE: Final = 100
JUDGED: Final = (10_000, 0)
"""Rate and linger of a target: this variant runs more rounds than the others."""
POOLED: Final = {"p99_pooled_ms": 0.99, "p999_pooled_ms": 0.999}
"""Of all rounds' records together, because one round has few beyond it."""


def _variants(environment: Environment) -> Sequence[Variant]:
    combinations = environment.some([*itertools.product(LINGERS_MS, RATES)], 5)
    return [_variant(environment, rate, linger) for linger, rate in combinations]


def _variant(environment: Environment, rate: int, linger_ms: int) -> Variant:
    count = int(rate * environment.seconds(SECONDS))
    settings = Settings(linger_ms=linger_ms)
    is_judged = (rate, linger_ms) == JUDGED
    of_all_rounds: dict[str, list[int]] = defaultdict(list)

    def turn(contestant: str) -> dict[str, float]:
        def works(servers: str, topic: str) -> list[Work]:
            # Between two records it polls, which runs the callbacks as early as possible.
            pace = Pace(rate, count, VALUE_SIZE, int(rate * WARM_UP_S), Client.poll)
            return [partial(send_at_rate, contestant, servers, settings, topic, pace)]

        figures, (sent,) = measure(environment, APACHE, works, settings, 1)
        of_all_rounds[contestant] += sent.latencies_ns
        return figures | quantiles(sent.latencies_ns, QUANTILES)

    return Variant(
        name=f"rate-{rate}-linger-{linger_ms}",
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
        pooled=lambda contestant: quantiles(of_all_rounds[contestant], POOLED),
    )


LATENCY: Final = Case(6, "latency", "Append to acknowledgement", _variants)
