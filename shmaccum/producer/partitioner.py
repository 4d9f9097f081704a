"""Kafka's choice of a partition where the user names none (``BuiltInPartitioner``).

The murmur2 hash of the key determines the partition. A record without a key goes to the sticky partition: uniform
sticky partitioning (KIP-794) stays with a partition until ``batch.size`` bytes have gone there and the batch is full.
It switches before a record that would begin another batch, and chooses the next one adaptively.

Kafka's Sender measures the partitions' queue lengths and hands them to the partitioner
(``RecordAccumulator.partitionReady``, ``BuiltInPartitioner.updatePartitionLoadStats``). Here they are in the slab, and
a producer reads them when it chooses. It takes no lock and writes no shared word. Values can change meanwhile, which
makes a choice slightly outdated. All other state is private to the process.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from shmaccum import _core
from shmaccum._core import LINGER_SHIFT, Partition, Slot, murmur2
from shmaccum.accumulator.state.partition_map import TopicEntry
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.later import np
from shmaccum.shm.layout import TIME_MASK, column_of
from shmaccum.shm.slab import Slab

if TYPE_CHECKING:
    import numpy.typing as npt

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
        """Choose the partitions of this many batches, at least one, which are filled at once.

        ``of_moment`` of them, 0 or 1, go to the sticky partition. Return the number of batches of each partition, in
        order; a partition's batches are consecutive. The last partition is the new sticky one, and the caller notes the
        bytes of its last batch.
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


class _Entries(NamedTuple):
    """The partitions of a topic, in their order."""

    entries: list[int]
    at: list[int]
    """Word index of each one's entry."""
    in_a_row: bool
    """Whether the entries are adjacent, as those of a topic are that has not grown since."""


class PartitionLoads:
    """One producer's choice among the partitions of one topic, which has at least one."""

    def __init__(self, slab: Slab, topic: TopicEntry, *, adaptive: bool, availability_timeout_ms: int) -> None:
        self._slab = slab
        self._topic = topic
        self._adaptive = adaptive
        self._nodes = _NodeProgress(slab, availability_timeout_ms) if availability_timeout_ms else None
        self._known = _Entries([], [], in_a_row=True)

    def choose(self, times: int) -> list[int]:
        """Choose ``times`` partitions at random, by the current state of the slab.

        One without a leader is not chosen while others have one. With adaptive partitioning the weight of each is
        ``longest deque + 1 - own deque``, and 0 on a node that makes no progress.
        """
        queues = self._topic.queues
        if len(queues) != len(self._known.at) and queues:  # a topic that is gone keeps its last partitions
            self._known = self._look_up(queues)
        known = self._known  # another thread can replace it
        count = len(known.at)
        if not count:
            return [0] * times
        leaders = self._column(known, Partition.LEADER)
        numbers: Sequence[int] = range(count)
        if not all(leaders):
            numbers = [number for number in numbers if leaders[number]]
        if not numbers:
            return random.choices(range(count), k=times)
        if not self._adaptive or count < 2:
            return random.choices(numbers, k=times)
        if self._nodes is not None:
            entries = np.array(known.entries, np.int64)
            available = self._nodes.available(entries, np.array(leaders, np.uint64))
            of_nodes = [number for number in numbers if available[number]]
            if not of_nodes:
                return random.choices(numbers, k=times)
            numbers = of_nodes
        queued = self._column(known, Partition.QUEUED)
        if queued.count(queued[0]) == count:
            return random.choices(numbers, k=times)
        # Bounded: a damaged count, which is only an index, must not produce absurd weights.
        most = self._slab.geometry.slot_count
        lengths = [min(queued[number], most) for number in numbers]
        longest = max(lengths)
        return random.choices(numbers, [longest + 1 - length for length in lengths], k=times)

    def _look_up(self, queues: Sequence[PartitionQueue]) -> _Entries:
        entries = [queue.entry for queue in queues]
        at = [self._slab.geometry.partition(entry) for entry in entries]
        return _Entries(entries, at, at == list(range(at[0], at[-1] + 1, Partition.length)))

    def _column(self, known: _Entries, word: int) -> list[int]:
        """Return one word of every partition's entry as a list: numpy is much slower for few partitions."""
        words, at = self._slab.words, known.at
        if known.in_a_row:
            return column_of(words, at[0] + word, len(at), Partition.length)
        return [words[base + word] for base in at]


class _NodeProgress:
    """Tracks which nodes make progress (``RecordAccumulator.NodeLatencyStats``).

    A node makes none while batches of its partitions are ready and none is drained. The position of a deque's head
    counts the batches drained from it, so two looks at it show progress.
    """

    def __init__(self, slab: Slab, timeout_ms: int) -> None:
        self._slab = slab
        self._timeout_ms = timeout_ms
        self._drained: dict[int, tuple[int, int]] = {}
        """Node id + 1 -> batches drained from its deques, and when that count was first seen."""

    def available(self, entries: npt.NDArray[np.int64], leaders: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Return, for each partition, whether its leader makes progress as far as can be seen."""
        now_ms = time.monotonic_ns() // 1_000_000
        rows = self._slab.partitions[entries]
        heads = rows[:, Partition.HEAD].astype(np.int64) - 1  # -1 for none: a valid index, corrected below
        headers = self._slab.headers
        ready_ms = headers[heads, Slot.CREATED_MS] & np.uint64(TIME_MASK)
        ready_ms += headers[heads, Slot.LINGER] >> np.uint64(LINGER_SHIFT)
        ready_ms = ready_ms.astype(np.int64)
        ready_ms[heads < 0] = now_ms
        taken = rows[:, Partition.NEXT_POSITION] - rows[:, Partition.QUEUED]
        result = np.ones(len(entries), np.bool_)
        for leader in set(leaders.tolist()):
            of_node = leaders == leader
            drained = int(taken[of_node].sum())
            before, since_ms = self._drained.get(leader, (-1, now_ms))
            if drained != before:
                since_ms = now_ms
                self._drained[leader] = drained, now_ms
            stuck_ms = now_ms - max(since_ms, int(ready_ms[of_node].min()))
            if stuck_ms > self._timeout_ms:
                result[of_node] = False
        return result
