"""Case 3: N processes on P partitions: the gain of sharing and the cost of contention."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from tools.benchmark.brokers import SINK
from tools.benchmark.cases.base import Case, Variant, plural
from tools.benchmark.cases.sending import figures_of, send
from tools.benchmark.contestants import CLIENTS, CONFLUENT, OURS
from tools.benchmark.environment import Environment, Member, Work
from tools.benchmark.load import Load, make_values
from tools.benchmark.settings import Settings

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
    return Variant(
        name=variant_name(producers, partitions),
        title=f"{plural(producers, 'producer')} on {plural(partitions, 'partition')}",
        contestants=(OURS, CONFLUENT),
        turn=lambda contestant: _send(environment, contestant, count, producers, partitions),
        figures=_FIGURES,
        broker=SINK,
        facts={"producers": producers, "partitions": partitions, "records_each": count, "value_size": VALUE_SIZE},
        rounds_at_most=3,
        warm_up=False,
    )


def _send(environment: Environment, contestant: str, count: int, producers: int, partitions: int) -> dict[str, float]:
    def load(topic: str, number: int) -> Load:
        first = number * partitions // producers  # producers begin at different partitions
        of_records = [(first + each) % partitions for each in range(count)]
        return Load(topic, make_values(count, VALUE_SIZE), partitions=of_records)

    return send(environment, SINK, contestant, Settings(), load, partitions=partitions, producers=producers)


def _one_partition(environment: Environment) -> Variant:
    count = environment.count(ONE_PARTITION_RECORDS)

    def turn(contestant: str) -> dict[str, float]:
        producers = 8 if contestant == EIGHT else 1
        return _send(environment, OURS, count // producers, producers, 1)

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
    count = int(TRICKLE_RATE * environment.seconds(TRICKLE_SECONDS))

    def turn(contestant: str) -> dict[str, float]:
        broker = environment.broker(SINK)
        values = make_values(count, VALUE_SIZE)
        with environment.topic(broker, TRICKLE_PRODUCERS) as topic:
            work = _pacing(contestant, broker.servers, topic, values)
            measured = environment.measure(broker, [work] * TRICKLE_PRODUCERS)
            lacking = [count - report.result for report in measured.reports]
            environment.check_delivered(broker, topic, (count + 1) * TRICKLE_PRODUCERS, lacking)
        return figures_of(measured, count * TRICKLE_PRODUCERS, count * TRICKLE_PRODUCERS * VALUE_SIZE, Settings())

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


def _pacing(contestant: str, servers: str, topic: str, values: Sequence[bytes]) -> Work:
    """Return the work of sending records one by one at `TRICKLE_RATE`, asleep in between."""

    def work(member: Member) -> None:
        client = CLIENTS[contestant](servers, Settings(), topic)
        acknowledged = 0

        def told(success: bool) -> None:
            nonlocal acknowledged
            acknowledged += success

        client.send_one(topic, values[0], told)
        client.flush()
        acknowledged = 0
        member.wait_for_go()
        for number, value in enumerate(values):
            early = member.began_s + number / TRICKLE_RATE - time.monotonic()
            if early > 0:
                time.sleep(early)
            client.send_one(topic, value, told)
            client.poll(0)
        client.flush()
        member.done(acknowledged)
        client.close()

    return work


PRODUCERS: Final = Case(3, "producers", "N processes on P partitions", _variants)
