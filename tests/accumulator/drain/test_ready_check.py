"""Ready check and drain, among few partitions and among many."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from accumulators import UNLIMITED, add, assert_empty, config_of, created_ms, open_accumulator, partition_of

from shmaccum._core import STRIPES, Partition
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.cluster import Node, TopicPartition
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators

LINGER_MS = 10
FOREVER_FROM_MS = 60_000
TP_FIRST = TopicPartition("many", 0)
COUNTS = [5, 40]
"""Partition counts."""
NODE0, NODE1, NODE2 = Node(0), Node(1), Node(2)


class Many:
    """An accumulator of one topic with many partitions: the first is led by node 0, the others by node 1."""

    def __init__(self, name: str, count: int, **settings: object) -> None:
        config = config_of(name, shmaccum_max_partitions=64, buffer_memory=128 * 1088, linger_ms=LINGER_MS, **settings)
        self.accumulator: Accumulators = open_accumulator(config)
        self.accumulator.map.request("many")
        self.accumulator.map.update("many", count, None)
        self.partitions = [TopicPartition("many", number) for number in range(count)]
        self.cluster = self.led_by({0: 0})

    def led_by(self, leaders: dict[int, int | None]) -> Cluster:
        """Return a cluster of these leaders, node 1 being that of the other partitions."""
        led = {each: leaders.get(each.partition, 1) for each in self.partitions}
        known = {each: node for each, node in led.items() if node is not None}
        return Cluster({0: NODE0, 1: NODE1, 2: NODE2}, {"many": len(self.partitions)}, known)

    def linger(self) -> int:
        """Begin a batch in each partition; return when the first one was begun."""
        for partition in self.partitions:
            add(self.accumulator, partition)
        return min(created_ms(self.accumulator, partition) for partition in self.partitions)

    def fill(self, partition: int) -> None:
        """Append until a partition has a full batch."""
        while len(self.accumulator.map.queues[self.partitions[partition]]) < 2:
            add(self.accumulator, self.partitions[partition])

    def set(self, partition: int, word: int, value: int) -> None:
        """Store a word of a partition's entry."""
        entry = self.accumulator.map.queues[self.partitions[partition]].entry
        self.accumulator.slab.words[self.accumulator.slab.geometry.partition(entry) + word] = value

    def close(self) -> None:
        """Complete what there is, and leave."""
        self.accumulator.sender.recover()
        self.accumulator.sender.abort_expired_batches(1 << 40)
        assert_empty(self.accumulator)
        detach(self.accumulator.slab)


@pytest.fixture(params=COUNTS)
def many(slab_name: str, request: pytest.FixtureRequest) -> Iterator[Many]:
    opened = Many(slab_name, request.param)
    yield opened
    opened.close()


# --- ready ------------------------------------------------------------------------------------------------------------


def test_lingering_batches_delay_the_next_check(many: Many) -> None:
    begun_ms = many.linger()
    result = many.accumulator.sender.ready(many.cluster, begun_ms + 4)
    assert result == (set(), LINGER_MS - 4, set())


def test_full_batch_is_ready_among_lingering_ones(many: Many) -> None:
    begun_ms = many.linger()
    many.fill(0)
    result = many.accumulator.sender.ready(many.cluster, begun_ms)
    assert result.ready_nodes == {NODE0}
    assert LINGER_MS <= result.next_ready_check_delay_ms < FOREVER_FROM_MS


def test_lingered_batch_is_ready(many: Many) -> None:
    many.linger()
    last_ms = max(created_ms(many.accumulator, partition) for partition in many.partitions)
    result = many.accumulator.sender.ready(many.cluster, last_ms + LINGER_MS)
    assert result == ({NODE0, NODE1}, float("inf"), set())


def test_flush_makes_lingering_batches_ready(many: Many) -> None:
    begun_ms = many.linger()
    many.accumulator.producer.pending.begin_flush("flush")
    result = many.accumulator.sender.ready(many.cluster, begun_ms)
    assert result == ({NODE0, NODE1}, float("inf"), set())


def test_topic_without_leader_is_reported(many: Many) -> None:
    begun_ms = many.linger()
    result = many.accumulator.sender.ready(many.led_by({0: 0, 3: None}), begun_ms)
    assert result == (set(), LINGER_MS, {"many"})


def test_deques_can_change_during_the_check(many: Many) -> None:
    """Others put batches into deques that the sender is just looking at, from other processes."""
    begun_ms = many.linger()
    slab = many.accumulator.slab
    heads = [slab.geometry.partition(queue.entry) + Partition.HEAD for queue in many.accumulator.map.by_entry]
    words = [slab.words[at] for at in heads]
    pid = os.fork()
    if not pid:
        while True:
            for at, word in zip(heads, words, strict=True):
                slab.words[at] = 0 if slab.words[at] else word
    try:
        for _ in range(3000):
            assert not many.accumulator.sender.ready(many.cluster, begun_ms).unknown_leader_topics
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for at, word in zip(heads, words, strict=True):
            slab.words[at] = word


@pytest.mark.parametrize("word", [Partition.MUTED, Partition.HELD, Partition.IN_FLIGHT])
def test_held_partition_is_neither_ready_nor_waited_for(many: Many, word: int) -> None:
    begun_ms = many.linger()
    for number in range(len(many.partitions)):
        many.set(number, word, 5)
    assert many.accumulator.sender.ready(many.cluster, begun_ms) == (set(), float("inf"), set())
    many.set(1, word, 0)
    lingered_ms = created_ms(many.accumulator, many.partitions[1]) + LINGER_MS
    assert many.accumulator.sender.ready(many.cluster, lingered_ms).ready_nodes == {NODE1}
    for number in range(len(many.partitions)):
        many.set(number, word, 0)


def test_backoff_holds_during_a_flush(many: Many) -> None:
    begun_ms = many.linger()
    (batch,) = many.accumulator.sender.drain(many.cluster, NODE0, UNLIMITED, begun_ms)
    many.accumulator.sender.reenqueue(batch, begun_ms + 1000)
    many.accumulator.producer.pending.begin_flush("flush")
    result = many.accumulator.sender.ready(many.cluster, begun_ms + 1000)
    assert result.ready_nodes == {NODE1}
    assert 0 < result.next_ready_check_delay_ms < FOREVER_FROM_MS


# --- drain ------------------------------------------------------------------------------------------------------------


def test_drain_follows_partition_order_across_stripes(many: Many) -> None:
    begun_ms = many.linger()
    drained = many.accumulator.sender.drain(many.cluster, NODE1, UNLIMITED, begun_ms)
    assert [partition_of(many.accumulator, batch) for batch in drained] == many.partitions[1:]
    assert len(many.partitions) < 2 * STRIPES or len({batch.partition % STRIPES for batch in drained}) == STRIPES


def test_request_begins_where_the_last_one_was_full(many: Many) -> None:
    begun_ms = many.linger()
    size = created_size(many)
    taken: list[TopicPartition] = []
    while drained := many.accumulator.sender.drain(many.cluster, NODE1, 3 * size, begun_ms):
        assert len(drained) <= 3
        taken += [partition_of(many.accumulator, batch) for batch in drained]
    assert taken == many.partitions[1:]


def created_size(many: Many) -> int:
    """Return the size of a batch of one record."""
    batch = many.accumulator.map.queues[many.partitions[1]].first()
    return batch.size


def entry_of(many: Many, partition: int) -> int:
    """Return a partition's entry."""
    return many.accumulator.map.queues[many.partitions[partition]].entry
