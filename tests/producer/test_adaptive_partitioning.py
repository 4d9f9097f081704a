"""Adaptive partitioning: which partitions are chosen, and how often, by the slab's words."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from accumulators import TOPIC, add, cluster_of, config_of, drain, open_accumulator
from broker_model import Clock, stop_the_clock

from shmaccum.cluster import TopicPartition
from shmaccum.errors import IllegalStateError
from shmaccum.producer import partitioner
from shmaccum.producer.partitioner import PartitionLoads
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators

FULL = b"x" * 1000
"""A value that fills a batch."""
ROUNDS = 4000

Numbers = tuple[int, ...]


@pytest.fixture
def accumulator(slab_name: str) -> Iterator[Accumulators]:
    """Return an accumulator with a topic of four partitions."""
    accumulator = open_accumulator(config_of(slab_name))
    yield accumulator
    accumulator.sender.recover()
    accumulator.sender.abort_incomplete_batches(IllegalStateError)
    detach(accumulator.slab)


@pytest.fixture
def equal(accumulator: Accumulators) -> Accumulators:
    """Return the accumulator when two nodes lead two partitions each."""
    led_by(accumulator, 0, 0, 1, 1)
    return accumulator


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stop the clock: a test that decides what time it is does not depend on how long it takes itself."""
    clock = stop_the_clock(monkeypatch)
    monkeypatch.setattr(partitioner, "time", clock)
    return clock


def led_by(accumulator: Accumulators, *leaders: int | None) -> None:
    """Have the sender's half find out who leads the partitions."""
    accumulator.sender.ready(cluster_of(*leaders), 0)


def enqueue(accumulator: Accumulators, *lengths: int) -> None:
    """Append this many batches to each partition's deque."""
    for partition, length in enumerate(lengths):
        for _ in range(length):
            add(accumulator, TopicPartition(TOPIC, partition), FULL)


def loads_of(accumulator: Accumulators, *, adaptive: bool = True, timeout_ms: int = 0) -> PartitionLoads:
    """Return a producer's view of the topic."""
    entry = accumulator.map.topics[TOPIC]
    return PartitionLoads(accumulator.slab, entry, adaptive=adaptive, availability_timeout_ms=timeout_ms)


def shares(loads: PartitionLoads) -> dict[int, float]:
    """Return how often each partition is chosen, in parts of one."""
    random.seed(5)
    counts = Counter(loads.choose(ROUNDS))
    return {partition: count / ROUNDS for partition, count in sorted(counts.items())}


EQUAL = {0: 1 / 4, 1: 1 / 4, 2: 1 / 4, 3: 1 / 4}
WITH_LEADER = {0: 1 / 3, 2: 1 / 3, 3: 1 / 3}


@pytest.mark.parametrize(
    ("leaders", "lengths", "adaptive", "expected"),
    [
        # ``BuiltInPartitioner``'s own example: lengths 0, 3, 1 of four weigh 4, 1, 3; 3, 0, 1, 2 weigh 1, 4, 3, 2.
        ((0, 0, 1, 1), (3, 0, 1, 2), True, {0: 0.1, 1: 0.4, 2: 0.3, 3: 0.2}),
        ((0, 0, 1, 1), (3, 0, 1, 2), False, EQUAL),
        ((0, 0, 1, 1), (0, 0, 0, 0), True, EQUAL),
        ((0, None, 1, 1), (0, 0, 0, 0), True, WITH_LEADER),
        ((0, None, 1, 1), (1, 0, 0, 0), True, {0: 0.2, 2: 0.4, 3: 0.4}),
        ((0, None, 1, 1), (1, 0, 0, 0), False, WITH_LEADER),
        ((None, None, None, None), (1, 0, 0, 0), True, EQUAL),
        ((None, None, None, None), (1, 0, 0, 0), False, EQUAL),
    ],
)
def test_short_deques_get_more_records_and_partitions_without_a_leader_none(
    accumulator: Accumulators, leaders: Numbers, lengths: Numbers, adaptive: bool, expected: dict[int, float]
) -> None:
    """Unless no partition has a leader."""
    led_by(accumulator, *leaders)
    enqueue(accumulator, *lengths)
    assert shares(loads_of(accumulator, adaptive=adaptive)) == pytest.approx(expected, abs=0.04)


def test_new_partitions_of_a_topic_are_chosen(accumulator: Accumulators) -> None:
    """Also where their entries are not behind those of the others."""
    loads = loads_of(accumulator)
    assert set(shares(loads)) == {0, 1, 2, 3}
    accumulator.map.request("other")
    accumulator.map.update("other", 2, None)
    accumulator.map.update(TOPIC, 6, None)
    assert set(shares(loads)) == {0, 1, 2, 3, 4, 5}
    led_by(accumulator, 0, 0, None, None, 1, 1)
    enqueue(accumulator, 0, 1, 0, 0, 1, 0)
    assert shares(loads) == pytest.approx({0: 1 / 3, 1: 1 / 6, 4: 1 / 6, 5: 1 / 3}, abs=0.04)


def test_a_topic_shrinks_while_one_is_chosen(accumulator: Accumulators, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread of the producer, which chooses too, sees it first."""
    loads, read = loads_of(accumulator), partitioner.column_of
    led_by(accumulator, 0, 0, 1, 1)
    enqueue(accumulator, 1, 0, 0, 1)
    loads.choose(1)

    class Leaders(list[int]):
        def __iter__(self) -> Iterator[int]:
            monkeypatch.setattr(partitioner, "column_of", read)
            accumulator.map.update(TOPIC, 2, None)
            assert set(loads.choose(9)) <= {0, 1}
            return super().__iter__()

    monkeypatch.setattr(partitioner, "column_of", lambda *where: Leaders(read(*where)))
    assert set(loads.choose(9)) <= {0, 1, 2, 3}


# --- partitioner.availability.timeout.ms ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "adaptive", "timeout_ms", "chosen"),
    [
        ((1, 0, 0, 0), True, 1, {2, 3}),
        ((1, 0, 0, 0), True, 60_000, {0, 1, 2, 3}),
        ((1, 0, 0, 0), False, 1, {0, 1, 2, 3}),
        ((1, 0, 0, 1), True, 1, {0, 1, 2, 3}),
    ],
    ids=["stuck", "not for long", "not adaptive", "all are stuck"],
)
def test_stuck_node_is_left_out_unless_all_are(
    equal: Accumulators, clock: Clock, lengths: Numbers, adaptive: bool, timeout_ms: int, chosen: set[int]
) -> None:
    enqueue(equal, *lengths)
    loads = loads_of(equal, adaptive=adaptive, timeout_ms=timeout_ms)
    loads.choose(1)
    clock.now_ms += 20
    assert set(shares(loads)) == chosen


def test_newly_ready_batch_does_not_exclude_a_node(equal: Accumulators, clock: Clock) -> None:
    """However long ago the last look at an idle node was."""
    loads = loads_of(equal, timeout_ms=200)
    loads.choose(1)
    clock.now_ms += 250
    enqueue(equal, 1, 0, 0, 0)
    random.seed(1)
    assert set(loads.choose(20)) & {0, 1}


def test_moving_backlog_does_not_exclude_a_node(equal: Accumulators, clock: Clock) -> None:
    enqueue(equal, 3, 3, 0, 0)
    loads = loads_of(equal, timeout_ms=200)
    loads.choose(1)
    clock.now_ms += 250
    assert set(shares(loads)) == {2, 3}
    assert len(drain(equal)) == 2
    random.seed(1)
    assert set(loads.choose(50)) & {0, 1}
