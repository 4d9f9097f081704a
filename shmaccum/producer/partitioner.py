"""Which partition a record goes to, where nobody said: Kafka's choice (``BuiltInPartitioner``).

A record with a key goes where the murmur2 hash of its key says. One without goes to the partition of the moment:
uniform sticky partitioning (KIP-794) stays with a partition until a batch of bytes has gone there and the batch has
ended. The next partition is chosen in front of the record that would begin another batch (see `adaptive_partitioning`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.record.murmur2 import partition_for_key


class Topic(Protocol):
    """What the partitioner needs of a topic."""

    @property
    def queues(self) -> Sequence[PartitionQueue]:
        """The deques of its partitions, by number."""


class StickyPartitioner:
    """The partition of the moment of one topic, of one process.

    Threads share it without a lock: one that loses a race between its reads and its stores counts some bytes for the
    wrong partition, which only moves the next switch.

    Args:
        topic: whose partitions it chooses among.
        sticky_bytes: bytes after which to switch (``batch.size``).
        choose: returns this many partitions to go on with.

    Attributes:
        partition: that of the moment.
    """

    def __init__(self, topic: Topic, sticky_bytes: int, choose: Callable[[int], Sequence[int]]) -> None:
        self._topic = topic
        self._sticky_bytes = sticky_bytes
        self._choose = choose
        self._produced = 0
        self.partition = choose(1)[0]

    def within(self, count: int) -> int:
        """Return the partition of the moment; another one if the topic has only ``count`` partitions by now."""
        if self.partition >= count:
            self._switch()
            self.partition %= count  # another thread may have seen the topic before it shrank
        return self.partition

    def note_appended(self, size: int) -> None:
        """Count the bytes that a record added to its batch, the header of a new one included.

        At twice the sticky bytes it switches at once: where other records keep a batch open, this process might never
        meet the end of one (``updatePartitionInfo`` has the same limit).
        """
        self._produced += size
        if self._produced >= 2 * self._sticky_bytes:
            self._switch()

    def reroute(self, queue: PartitionQueue) -> PartitionQueue:
        """Return the deque for a record that the open batch of ``queue`` has no room for.

        The switch comes before the record opens a new batch: one that it left behind would hold this record only.
        It is another deque, too, if a thread switched since ``queue`` was chosen (``isPartitionChanged``); and the same
        one if the topic is gone.
        """
        if queue.topic_partition.partition == self.partition:
            if self._produced < self._sticky_bytes:
                return queue
            self._switch()
        queues = self._topic.queues
        return queues[self.within(len(queues))] if queues else queue

    def has_begun(self) -> bool:
        """Return whether the partition of the moment is to get another batch after the one that is open."""
        return self._produced < self._sticky_bytes

    def spread(self, batches: int, of_moment: int) -> dict[int, int]:
        """Choose the partitions of this many batches, which are filled at once.

        Args:
            batches: at least one.
            of_moment: how many of them go to the partition of the moment: 0 or 1.

        Returns:
            The number of batches of each partition. A partition has its batches in one piece; the one of the last
            piece is that of the moment from now on, and the caller notes what its last batch got.
        """
        pieces = {self.partition: of_moment} if of_moment else {}
        for partition in self._choose(batches - of_moment) if batches > of_moment else ():
            pieces[partition] = pieces.get(partition, 0) + 1
        last = next(reversed(pieces))
        if batches > of_moment:
            self.partition = last
            self._produced = 0
        return pieces

    def _switch(self) -> None:
        self._produced = 0
        self.partition = self._choose(1)[0]


__all__ = ["StickyPartitioner", "partition_for_key"]
