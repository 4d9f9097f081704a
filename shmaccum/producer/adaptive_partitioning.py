"""Adaptive choice of partitions for records without a key (KIP-794).

Kafka's Sender measures the partitions' queue lengths and hands them to the partitioner
(``RecordAccumulator.partitionReady``, ``BuiltInPartitioner.updatePartitionLoadStats``). Here they are in the slab, and
a producer reads them when it chooses. It takes no lock and writes no shared word. Values can change meanwhile, which
makes a choice slightly outdated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shmaccum._core import LINGER_SHIFT, Partition, Slot
from shmaccum.accumulator.state.partition_map import TopicEntry
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.later import np
from shmaccum.shm.layout import TIME_MASK, column_of
from shmaccum.shm.slab import Slab

if TYPE_CHECKING:
    import numpy.typing as npt


class PartitionLoads:
    """One producer's choice among the partitions of one topic, which has at least one."""

    def __init__(self, slab: Slab, topic: TopicEntry, *, adaptive: bool, availability_timeout_ms: int) -> None:
        self._slab = slab
        self._topic = topic
        self._adaptive = adaptive
        self._nodes = _NodeProgress(slab, availability_timeout_ms) if availability_timeout_ms else None
        self._count = 0
        self._entries: list[int] = []
        """The partitions' entries."""
        self._at: list[int] = []
        """Word index of each partition's entry."""
        self._in_a_row = True
        """Whether the entries are adjacent, as those of a topic are that has not grown since."""

    def choose(self, times: int) -> list[int]:
        """Choose ``times`` partitions at random, by the current state of the slab.

        One without a leader is not chosen while others have one. With adaptive partitioning the weight of each is
        ``longest deque + 1 - own deque``, and 0 on a node that makes no progress.
        """
        queues = self._topic.queues
        if len(queues) != self._count and queues:  # a topic that is gone keeps its last partitions
            self._look_up(queues)
        if not self._count:
            return [0] * times
        leaders = self._column(Partition.LEADER)
        numbers: Sequence[int] = range(self._count)
        if not all(leaders):
            numbers = [number for number in numbers if leaders[number]]
        if not numbers:
            return random.choices(range(self._count), k=times)
        if not self._adaptive or self._count < 2:
            return random.choices(numbers, k=times)
        if self._nodes is not None:
            entries = np.array(self._entries, np.int64)
            available = self._nodes.available(entries, np.array(leaders, np.uint64))
            of_nodes = [number for number in numbers if available[number]]
            if not of_nodes:
                return random.choices(numbers, k=times)
            numbers = of_nodes
        queued = self._column(Partition.QUEUED)
        if queued.count(queued[0]) == self._count:
            return random.choices(numbers, k=times)
        # Bounded: a damaged count, which is only an index, must not produce absurd weights.
        most = self._slab.geometry.slot_count
        lengths = [min(queued[number], most) for number in numbers]
        longest = max(lengths)
        return random.choices(numbers, [longest + 1 - length for length in lengths], k=times)

    def _look_up(self, queues: Sequence[PartitionQueue]) -> None:
        self._entries = [queue.entry for queue in queues]
        self._at = [self._slab.geometry.partition(entry) for entry in self._entries]
        self._in_a_row = self._at == list(range(self._at[0], self._at[-1] + 1, Partition.length))
        self._count = len(queues)

    def _column(self, word: int) -> list[int]:
        """Return one word of every partition's entry as a list: numpy is much slower for few partitions."""
        words, at = self._slab.words, self._at
        if self._in_a_row:
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
