"""Case 3: N processes on P partitions: the gain of sharing and the cost of contention."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from tools.benchmark.brokers import SINK
from tools.benchmark.cases.base import Case, Variant, plural
from tools.benchmark.cases.sending import NORMAL, Pace, measure, send, send_at_rate, sending
from tools.benchmark.contestants import CONFLUENT, OURS, Client
from tools.benchmark.environment import Environment, Work
from tools.benchmark.load import Load, make_values

NUMBERS: Final = (1, 2, 4, 8, 16)
PARTITIONS: Final = (1, 8, 100, 1000)
RECORDS: Final = 160_000
"""Of all producers together."""
VALUE_SIZE: Final = 100
ONE_PARTITION_RECORDS: Final = 400_000
"""The same if all send to one partition, which has a target."""
EIGHT: Final = f"{OURS}, 8 producers"
ONE: Final = f"{OURS}, 1 producer"
TRICKLE_PRODUCERS: Final = 8
TRICKLE_RATE: Final = 500
"""Records per second of each producer: five of them fill a hundredth of a batch while it lingers."""
TRICKLE_SECONDS: Final = 4.0
_FIGURES: Final = (
    *("records_per_s", "records_per_core_s", "cpu_us_per_record"),
    *("connections", "requests_per_mb", "batch_fill", "memory_mb"),
)


def _variants(environment: Environment) -> Sequence[Variant]:
    """Return every number of producers on every number of partitions; one partition; a load that fills no batch.

    All is sent into the sink, which counts.
    """
    producers, partitions = ((2,), (8,)) if environment.smoke else (NUMBERS, PARTITIONS)
    grid = [_of_grid(environment, number, of) for of in partitions for number in producers]
    return [*grid, _one_partition(environment), _trickle(environment)]


def variant_name(producers: int, partitions: int) -> str:
    return f"{producers}-on-{partitions}"


def _of_grid(environment: Environment, producers: int, partitions: int) -> Variant:
    count = environment.count(RECORDS) // producers
    return sending(
        environment,
        variant_name(producers, partitions),
        f"{plural(producers, 'producer')} on {plural(partitions, 'partition')}",
        (OURS, CONFLUENT),
        partial(_load, count, producers, partitions),
        broker=SINK,
        partitions=partitions,
        producers=producers,
        figures=_FIGURES,
        facts={"producers": producers, "partitions": partitions, "records_each": count, "value_size": VALUE_SIZE},
        rounds_at_most=3,
        warm_up=False,
    )


def _load(count: int, producers: int, partitions: int, contestant: str, topic: str, number: int) -> Load:
    first = number * partitions // producers  # producers begin at different partitions
    of_records = [(first + each) % partitions for each in range(count)]
    return Load(topic, make_values(count, VALUE_SIZE), partitions=of_records)


def _one_partition(environment: Environment) -> Variant:
    count = environment.count(ONE_PARTITION_RECORDS)

    def turn(contestant: str) -> dict[str, float]:
        producers = 8 if contestant == EIGHT else 1
        load = partial(_load, count // producers, producers, 1)
        return send(environment, SINK, OURS, NORMAL, load, 1, producers)

    return Variant(
        name="one-partition",
        title="8 producers on one partition against one",
        contestants=(EIGHT, ONE),
        turn=turn,
        figures=_FIGURES[:3],
        broker=SINK,
        facts={"records": count, "value_size": VALUE_SIZE},
        rounds_times=2,
    )


def _trickle(environment: Environment) -> Variant:
    """Return producers that are asleep between two records."""
    count = int(TRICKLE_RATE * environment.seconds(TRICKLE_SECONDS))

    def wait(client: Client, early: float) -> None:
        client.poll(0)
        time.sleep(early)

    def turn(contestant: str) -> dict[str, float]:
        def works(servers: str, topic: str) -> list[Work]:
            pace = Pace(TRICKLE_RATE, count, VALUE_SIZE, 1, wait)
            return [partial(send_at_rate, contestant, servers, NORMAL, topic, pace)] * TRICKLE_PRODUCERS

        return measure(environment, SINK, works, NORMAL, TRICKLE_PRODUCERS)[0]

    return Variant(
        name="trickle",
        title=f"{TRICKLE_PRODUCERS} producers, {TRICKLE_RATE} records a second each, {TRICKLE_PRODUCERS} partitions",
        contestants=(OURS, CONFLUENT),
        turn=turn,
        figures=("connections", "requests_per_mb", "batch_fill", "cpu_us_per_record", "memory_mb"),
        broker=SINK,
        facts={"records_each": count, "rate_each": TRICKLE_RATE, "value_size": VALUE_SIZE},
        rounds_at_most=3,
        warm_up=False,
    )


PRODUCERS: Final = Case(3, "producers", "N processes on P partitions", _variants)
