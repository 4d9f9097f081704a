"""Ready check and drain among many partitions; `RecordAccumulatorTest` has few."""

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
COUNT = 40
"""Partitions: more than twice the stripes of locks."""
NODE1 = Node(1)


class Many:
    """An accumulator of one topic with many partitions: the first is led by node 0, the others by node 1."""

    def __init__(self, name: str) -> None:
        config = config_of(name, shmaccum_max_partitions=64, buffer_memory=128 * 1088, linger_ms=LINGER_MS)
        self.accumulator: Accumulators = open_accumulator(config)
        self.accumulator.map.request("many")
        self.accumulator.map.update("many", COUNT, None)
        self.partitions = [TopicPartition("many", number) for number in range(COUNT)]
        leaders = {each: min(each.partition, 1) for each in self.partitions}
        self.cluster = Cluster({0: Node(0), 1: NODE1}, {"many": COUNT}, leaders)

    def linger(self) -> int:
        """Begin a batch in each partition; return when the first one was begun."""
        for partition in self.partitions:
            add(self.accumulator, partition)
        return min(created_ms(self.accumulator, partition) for partition in self.partitions)

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


@pytest.fixture
def many(slab_name: str) -> Iterator[Many]:
    opened = Many(slab_name)
    yield opened
    opened.close()


# --- ready ------------------------------------------------------------------------------------------------------------


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
        for _ in range(1000):
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


# --- drain ------------------------------------------------------------------------------------------------------------


def test_drain_follows_partition_order_across_stripes(many: Many) -> None:
    begun_ms = many.linger()
    drained = many.accumulator.sender.drain(many.cluster, NODE1, UNLIMITED, begun_ms)
    assert [partition_of(many.accumulator, batch) for batch in drained] == many.partitions[1:]
    assert len({batch.partition % STRIPES for batch in drained}) == STRIPES


def test_request_begins_where_the_last_one_was_full(many: Many) -> None:
    begun_ms = many.linger()
    size = many.accumulator.map.queues[many.partitions[1]].first().size  # of a batch of one record
    taken: list[TopicPartition] = []
    while drained := many.accumulator.sender.drain(many.cluster, NODE1, 3 * size, begun_ms):
        assert len(drained) <= 3
        taken += [partition_of(many.accumulator, batch) for batch in drained]
    assert taken == many.partitions[1:]
