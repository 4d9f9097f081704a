"""Ready check and drain among many partitions, and the throttle: not all open batches leave at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from accumulators import BATCH_SIZE, UNLIMITED, add, assert_empty, config_of, open_accumulator, partition_of
from fixture_types import Link, Start

from shmaccum._core import Super
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators

TOPIC = "many"
SLOTS = 1024
SHARE = SLOTS // 8
HOUR_MS = 3_600_000
NODES = [Node(0), Node(1)]


def hour_config(name: str, slots: int = SLOTS) -> ProducerConfig:
    return config_of(
        name,
        buffer_memory=slots * BATCH_SIZE,
        linger_ms=HOUR_MS,
        delivery_timeout_ms=2 * HOUR_MS,
        shmaccum_max_partitions=2048,
    )


class Open:
    """A slab with an open batch in each of many partitions of node 0; the last partition is node 1's."""

    def __init__(self, name: str, partitions: int, slots: int = SLOTS) -> None:
        self.accumulator: Accumulators = open_accumulator(hour_config(name, slots))
        self.accumulator.map.request(TOPIC)
        self.accumulator.map.update(TOPIC, partitions + 1, None)
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self.other = TopicPartition(TOPIC, partitions)
        leaders = dict.fromkeys(self.partitions, 0) | {self.other: 1}
        self.cluster = Cluster(dict(enumerate(NODES)), {TOPIC: partitions + 1}, leaders)
        self.add()
        self.now_ms = self.accumulator.map.queues[self.partitions[0]].first().created_ms  # type: ignore[union-attr]
        self.late_ms = self.now_ms + 2 * HOUR_MS

    def add(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Append a record to some partitions, or to all of node 0."""
        for each in self.partitions if partitions is None else partitions:
            add(self.accumulator, each)

    def ready(self, now_ms: int = 0) -> set[int]:
        """Return the ids of the nodes that have something to be sent, at a time when all of it has lingered."""
        return {node.id for node in self.accumulator.sender.ready(self.cluster, now_ms or self.late_ms).ready_nodes}

    def drain(self, node: int = 0, now_ms: int = 0) -> list[RecordBatch]:
        """Take what there is for a request to a node, at a time when all of it has lingered."""
        return self.accumulator.sender.drain(self.cluster, NODES[node], UNLIMITED, now_ms or self.late_ms)

    def answer(self, batches: list[RecordBatch]) -> None:
        self.accumulator.sender.complete([BatchOutcome(batch, 0) for batch in batches])

    def of(self, batches: list[RecordBatch]) -> list[TopicPartition]:
        return [partition_of(self.accumulator, batch) for batch in batches]

    def fill(self, partition: TopicPartition) -> None:
        """Append until a partition has a full batch."""
        while len(self.accumulator.map.queues[partition]) < 2:
            add(self.accumulator, partition)

    def close(self) -> None:
        self.accumulator.sender.recover()
        self.accumulator.sender.abort_expired_batches(1 << 40)
        assert_empty(self.accumulator)
        detach(self.accumulator.slab)


Begin = Callable[..., Open]


@pytest.fixture
def begin(slab_name: str) -> Iterator[Begin]:
    begun: list[Open] = []

    def begin_one(partitions: int, slots: int = SLOTS) -> Open:
        begun.append(Open(slab_name, partitions, slots))
        return begun[-1]

    yield begin_one
    for each in begun:
        each.close()


def test_all_open_batches_leave_with_enough_free_slots(begin: Begin) -> None:
    many = begin(SLOTS // 2)
    assert many.of(many.drain()) == many.partitions


def test_open_batches_leave_up_to_the_free_slots(begin: Begin) -> None:
    many = begin(SLOTS - 200)
    first = many.drain()
    assert many.of(first) == many.partitions[:200]
    assert many.ready() == {0}  # the free slots are still free
    many.add(many.of(first))
    assert many.ready() == set()
    assert many.drain() == []


def test_open_batches_wait_for_a_response(begin: Begin) -> None:
    many = begin(SLOTS)
    under_way = many.drain()
    assert many.of(under_way) == many.partitions[:SHARE]
    for _ in range(3):
        many.add(many.partitions[SHARE:])
        assert many.ready() == set()
        assert many.accumulator.sender.ready(many.cluster, many.late_ms).next_ready_check_delay_ms == float("inf")
        assert many.drain() == []
    many.answer(under_way)
    many.add(many.partitions[:SHARE])  # the free slots are taken at once
    assert many.ready() == {0}
    under_way = many.drain()
    assert [batch.record_count for batch in under_way] == [4] * SHARE
    for batch in under_way:  # those that failed are no longer under way
        many.accumulator.sender.reenqueue(batch, many.late_ms)
    assert many.ready() == {0}


def test_few_open_batches_leave_with_little_memory(begin: Begin) -> None:
    many = begin(16, 16)
    assert many.of(many.drain()) == many.partitions
    assert many.ready() == set()


def test_partitions_take_turns(begin: Begin) -> None:
    many = begin(SLOTS)
    left: list[TopicPartition] = []
    for _ in range(2 * len(many.partitions) // SHARE):
        batches = many.drain()
        left += many.of(batches)
        many.answer(batches)
        many.add(many.of(batches))
    assert left == many.partitions * 2


def test_full_batches_are_not_held_back(begin: Begin) -> None:
    many = begin(SLOTS - 1)
    many.drain()
    full = many.partitions[-1]
    many.fill(full)
    assert many.accumulator.slab.words[Super.FREE_SLOTS] == 0
    assert many.ready() == {0}
    assert many.of(many.drain()) == [full]


def test_silent_node_delays_no_other(begin: Begin) -> None:
    many = begin(SLOTS - 1)
    add(many.accumulator, many.other)
    many.drain()
    assert many.ready() == {1}
    assert many.of(many.drain(1)) == [many.other]
    assert many.ready() == set()


def append_one(link: Link, name: str, slots: int, value_size: int) -> None:
    accumulator = open_accumulator(hour_config(name, slots))
    accumulator.append(TopicPartition(TOPIC, len(accumulator.map.topics[TOPIC].queues) - 1), 0, None, bytes(value_size))
    detach(accumulator.slab)


@pytest.mark.parametrize("slots", [1, SHARE + 1])
def test_waiter_gets_memory_of_lingering_batches(begin: Begin, start: Start, slab_name: str, slots: int) -> None:
    many = begin(SLOTS)
    assert many.ready(many.now_ms) == set()
    waiter = start(append_one, slab_name, SLOTS, (slots - 1) * BATCH_SIZE + 1)
    while not many.accumulator.pool.queued():
        pass
    requests = 0
    while many.accumulator.pool.queued() or not len(many.accumulator.map.queues[many.other]):
        if 0 in many.ready(many.now_ms):
            free = many.accumulator.pool.available_memory() // BATCH_SIZE
            batches = many.drain(now_ms=many.now_ms)
            # A waiter that has what it needs by now leaves what else was freed for the places of those that are taken.
            assert len(batches) <= max(SHARE, free)
            assert 0 not in many.ready(many.now_ms)  # the answer is what frees memory
            requests += 1
            many.answer(batches)
    assert waiter.result() is None
    assert requests == 1 if slots == 1 else requests > 1


@pytest.mark.parametrize(("partitions", "took_ms", "rest_ms"), [(150, 10, 30), (150, 60_000, 50), (50, 10, 0)])
def test_lingered_batches_rest_after_a_large_pass(begin: Begin, partitions: int, took_ms: int, rest_ms: int) -> None:
    """Three times as long as it took, but not for long."""
    many = begin(partitions)
    assert len(many.drain()) == partitions
    many.add()
    sent_ms = many.late_ms + took_ms
    many.accumulator.sender.rest_after(many.late_ms, sent_ms)

    if rest_ms:
        assert many.accumulator.sender.ready(many.cluster, sent_ms) == (set(), rest_ms, set())
        assert many.drain(now_ms=sent_ms) == []
    assert many.ready(sent_ms + rest_ms) == {0}
    assert len(many.drain(now_ms=sent_ms + rest_ms)) == partitions


@pytest.mark.parametrize("urgent", ["full", "flush", "leaving"])
def test_urgent_batches_do_not_rest(begin: Begin, urgent: str) -> None:
    many = begin(150)
    many.drain()
    many.add()
    sent_ms = many.late_ms + 10
    many.accumulator.sender.rest_after(many.late_ms, sent_ms)
    if urgent == "full":
        many.fill(many.partitions[7])
    elif urgent == "flush":
        many.accumulator.producer.pending.begin_flush("flush")
    else:
        many.accumulator.sender.send_all()
    assert many.ready(sent_ms) == {0}
    assert len(many.drain(now_ms=sent_ms)) == (1 if urgent == "full" else 150)
