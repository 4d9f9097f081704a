"""Adaptive partitioning: which partitions are chosen, and how often, by the slab's words."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from accumulators import TOPIC, add, cluster_of, config_of, drain, open_accumulator
from broker_model import Clock, stop_the_clock

from shmaccum.cluster import TopicPartition
from shmaccum.errors import IllegalStateError
from shmaccum.producer import adaptive_partitioning
from shmaccum.producer.adaptive_partitioning import PartitionLoads
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators

FULL = b"x" * 1000
"""A value that fills a batch."""
ROUNDS = 4000

Loads = Callable[..., PartitionLoads]


@pytest.fixture
def accumulator(slab_name: str) -> Iterator[Accumulators]:
    """Return an accumulator with a topic of four partitions."""
    accumulator = open_accumulator(config_of(slab_name))
    yield accumulator
    accumulator.sender.recover()
    accumulator.sender.abort_incomplete_batches(IllegalStateError)
    detach(accumulator.slab)


@pytest.fixture
def loads(accumulator: Accumulators) -> Loads:
    """Return a function that makes a producer's view of the topic."""

    def make(*, adaptive: bool = True, timeout_ms: int = 0) -> PartitionLoads:
        entry = accumulator.map.topics[TOPIC]
        return PartitionLoads(accumulator.slab, entry, adaptive=adaptive, availability_timeout_ms=timeout_ms)

    return make


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stop the clock: a test that decides what time it is does not depend on how long it takes itself."""
    clock = stop_the_clock(monkeypatch)
    monkeypatch.setattr(adaptive_partitioning, "time", clock)
    return clock


def led_by(accumulator: Accumulators, *leaders: int | None) -> None:
    """Have the sender's half find out who leads the partitions."""
    accumulator.sender.ready(cluster_of(*leaders), 0)


def enqueue(accumulator: Accumulators, *lengths: int) -> None:
    """Append this many batches to each partition's deque."""
    for partition, length in enumerate(lengths):
        for _ in range(length):
            add(accumulator, TopicPartition(TOPIC, partition), FULL)


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
    accumulator: Accumulators,
    loads: Loads,
    leaders: tuple[int | None, ...],
    lengths: tuple[int, ...],
    adaptive: bool,
    expected: dict[int, float],
) -> None:
    """Unless no partition has a leader."""
    led_by(accumulator, *leaders)
    enqueue(accumulator, *lengths)
    assert shares(loads(adaptive=adaptive)) == pytest.approx(expected, abs=0.04)


def test_new_partitions_of_a_topic_are_chosen(accumulator: Accumulators, loads: Loads) -> None:
    """Also where their entries are not behind those of the others."""
    of_topic = loads()
    assert set(shares(of_topic)) == {0, 1, 2, 3}
    accumulator.map.request("other")
    accumulator.map.update("other", 2, None)
    accumulator.map.update(TOPIC, 6, None)
    assert set(shares(of_topic)) == {0, 1, 2, 3, 4, 5}
    led_by(accumulator, 0, 0, None, None, 1, 1)
    enqueue(accumulator, 0, 1, 0, 0, 1, 0)
    assert shares(of_topic) == pytest.approx({0: 1 / 3, 1: 1 / 6, 4: 1 / 6, 5: 1 / 3}, abs=0.04)


# --- partitioner.availability.timeout.ms ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "options", "chosen"),
    [
        ((1, 0, 0, 0), {"timeout_ms": 1}, {2, 3}),
        ((1, 0, 0, 0), {"timeout_ms": 60_000}, {0, 1, 2, 3}),
        ((1, 0, 0, 0), {"timeout_ms": 1, "adaptive": False}, {0, 1, 2, 3}),
        ((1, 0, 0, 1), {"timeout_ms": 1}, {0, 1, 2, 3}),
    ],
    ids=["stuck", "not for long", "not adaptive", "all are stuck"],
)
def test_stuck_node_is_left_out_unless_all_are(
    accumulator: Accumulators,
    loads: Loads,
    clock: Clock,
    lengths: tuple[int, ...],
    options: dict[str, Any],
    chosen: set[int],
) -> None:
    led_by(accumulator, 0, 0, 1, 1)
    enqueue(accumulator, *lengths)
    of_topic = loads(**options)
    of_topic.choose(1)
    clock.now_ms += 20
    assert set(shares(of_topic)) == chosen


def test_newly_ready_batch_does_not_exclude_a_node(accumulator: Accumulators, loads: Loads, clock: Clock) -> None:
    """However long ago the last look at an idle node was."""
    led_by(accumulator, 0, 0, 1, 1)
    of_topic = loads(timeout_ms=200)
    of_topic.choose(1)
    clock.now_ms += 250
    enqueue(accumulator, 1, 0, 0, 0)
    random.seed(1)
    assert set(of_topic.choose(20)) & {0, 1}


def test_moving_backlog_does_not_exclude_a_node(accumulator: Accumulators, loads: Loads, clock: Clock) -> None:
    led_by(accumulator, 0, 0, 1, 1)
    enqueue(accumulator, 3, 3, 0, 0)
    of_topic = loads(timeout_ms=200)
    of_topic.choose(1)
    clock.now_ms += 250
    assert set(shares(of_topic)) == {2, 3}
    assert len(drain(accumulator)) == 2
    random.seed(1)
    assert set(of_topic.choose(50)) & {0, 1}
