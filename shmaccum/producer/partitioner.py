"""Kafka's choice of a partition where the user names none (``BuiltInPartitioner``).

The murmur2 hash of the key determines the partition. A record without a key goes to the sticky partition: uniform
sticky partitioning (KIP-794) stays with a partition until ``batch.size`` bytes have gone there and the batch is full.
It switches before a record that would begin another batch (see `adaptive_partitioning`). All state is private to the
process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from shmaccum import _core
from shmaccum._core import murmur2
from shmaccum.accumulator.state.partition_queue import PartitionQueue

_POSITIVE: Final = 0x7FFFFFFF
"""Clears the sign of a 32-bit number, as ``Utils.toPositive`` does."""


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a serialized key (``BuiltInPartitioner.partitionForKey``)."""
    return (murmur2(key) & _POSITIVE) % partition_count


class Topic(Protocol):
    """The part of a topic that the partitioner needs."""

    @property
    def queues(self) -> Sequence[PartitionQueue]:
        """The deques of its partitions, by number."""


class StickyPartitioner(_core.StickyPartition):
    """One process's sticky partition of one topic.

    It switches to what ``choose`` returns after ``sticky_bytes`` (``batch.size``).

    Threads share it without a lock. A thread that loses a race between its reads and its stores counts some bytes for
    the wrong partition, which only moves the next switch.
    """

    def __init__(self, topic: Topic, sticky_bytes: int, choose: Callable[[int], Sequence[int]]) -> None:
        super().__init__(sticky_bytes)
        self._topic = topic
        self._choose = choose
        self.partition = choose(1)[0]

    def within(self, count: int) -> int:
        """Return the sticky partition; switch if the topic has only ``count`` partitions by now."""
        if self.partition >= count:
            self.switch()
            self.partition %= count  # another thread can have switched among the partitions before the topic shrank
        return self.partition

    def note_appended(self, size: int) -> None:
        """Count the bytes that records added to their batch, including the header of a new one; switch if due."""
        if self.note(size):
            self.switch()

    def reroute(self, queue: PartitionQueue) -> PartitionQueue:
        """Return the deque for a record that the open batch of ``queue`` has no room for.

        It switches before the record opens a new batch; after a later switch that batch would hold this record only.
        It also returns another deque if a thread switched since ``queue`` was chosen (``isPartitionChanged``), but
        ``queue`` if the topic is gone.
        """
        if queue.topic_partition.partition == self.partition:
            if self.produced < self.sticky_bytes:
                return queue
            self.switch()
        queues = self._topic.queues
        return queues[self.within(len(queues))] if queues else queue

    def spread(self, batches: int, of_moment: int) -> dict[int, int]:
        """Choose the partitions of this many batches, which are filled at once.

        Args:
            batches: at least one.
            of_moment: how many of them go to the sticky partition: 0 or 1.

        Returns:
            The number of batches of each partition, in order; a partition's batches are consecutive. The last partition
            is the new sticky one, and the caller notes the bytes of its last batch.
        """
        shares = {self.partition: of_moment} if of_moment else {}
        for partition in self._choose(batches - of_moment) if batches > of_moment else ():
            shares[partition] = shares.get(partition, 0) + 1
        last = next(reversed(shares))
        if batches > of_moment:
            self.partition = last
            self.produced = 0
        return shares

    def switch(self) -> None:
        """Choose another partition."""
        self.produced = 0
        self.partition = self._choose(1)[0]


__all__ = ["StickyPartitioner", "partition_for_key"]
