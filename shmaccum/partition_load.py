"""Which of a topic's partitions may be chosen for records without a key, and how often: KIP-794's adaptive part.

Kafka's Sender gathers how long each partition's deque is and hands that to the partitioner
(``RecordAccumulator.partitionReady``, ``BuiltInPartitioner.updatePartitionLoadStats``). Here both are in the slab,
so a producer looks for itself, at the moment when it chooses. It takes no lock: what it reads may change meanwhile,
which makes for a choice that was right a moment ago.
"""

from __future__ import annotations

import random
import time
from typing import Final

import numpy as np
import numpy.typing as npt

from shmaccum.accumulator.partition_map import TopicEntry
from shmaccum.shm.layout import TIME_MASK, Partition, Slot
from shmaccum.shm.slab import Slab

_TIME: Final = np.uint64(TIME_MASK)


class PartitionLoads:
    """The choice among the partitions of one topic, as one producer makes it.

    Args:
        slab: the slab.
        topic: whose partitions; known, so that there is at least one.
        adaptive: ``partitioner.adaptive.partitioning.enable``.
        availability_timeout_ms: ``partitioner.availability.timeout.ms``; 0 turns it off.
        linger_ms: how long a batch waits before it is ready.
    """

    def __init__(
        self, slab: Slab, topic: TopicEntry, *, adaptive: bool, availability_timeout_ms: int, linger_ms: int
    ) -> None:
        self._slab = slab
        self._topic = topic
        self._adaptive = adaptive
        self._nodes = _NodeProgress(slab, availability_timeout_ms, linger_ms) if availability_timeout_ms else None
        self._entries = np.empty(0, np.int64)

    def choose(self, times: int) -> list[int]:
        """Choose a partition so many times, at random, by what is to be seen now.

        One without a leader is not chosen while others have one. With adaptive partitioning the chance of each is
        ``longest deque + 1 - own deque``, and those of a node that takes no batches have none.
        """
        count = len(self._topic.queues)
        if count != len(self._entries):
            self._entries = np.array([queue.entry for queue in self._topic.queues], np.int64)
        table = self._slab.partitions
        leaders = table[self._entries, Partition.LEADER]
        candidates = leaders != 0
        if not self._adaptive or count < 2:
            return _uniform(candidates, times)
        if self._nodes is not None:
            available = candidates & self._nodes.available(self._entries, leaders)
            if not available.any():
                return _uniform(candidates, times)
            candidates = available
        # No longer than a deque can be: a damaged count, which is an index, must not lead astray.
        queued = np.minimum(table[self._entries, Partition.QUEUED], self._slab.geometry.slot_count)
        if (queued == queued[0]).all():
            return _uniform(candidates, times)
        return _weighted(candidates, queued, times)


def _uniform(candidates: npt.NDArray[np.bool_], times: int) -> list[int]:
    """Choose any candidates; if there is none, anything."""
    if candidates.all() or not candidates.any():
        return random.choices(range(len(candidates)), k=times)
    return random.choices(np.flatnonzero(candidates).tolist(), k=times)


def _weighted(candidates: npt.NDArray[np.bool_], queued: npt.NDArray[np.uint64], times: int) -> list[int]:
    """Choose candidates, each the more often the fewer batches wait for it."""
    numbers = np.flatnonzero(candidates)
    if not len(numbers):
        return _uniform(candidates, times)
    lengths = queued[numbers].astype(np.int64)
    return random.choices(numbers.tolist(), (lengths.max() + 1 - lengths).tolist(), k=times)


class _NodeProgress:
    """Which nodes take batches (``RecordAccumulator.NodeLatencyStats``).

    A node makes no progress while batches of its partitions are ready and none is drained. How many have been
    drained from a deque is the position of its head, so what was drained since the last look shows by itself.
    """

    def __init__(self, slab: Slab, timeout_ms: int, linger_ms: int) -> None:
        self._slab = slab
        self._timeout_ms = timeout_ms
        self._linger_ms = linger_ms
        self._drained: dict[int, tuple[int, int]] = {}
        """Node id + 1 -> batches drained from its deques at some look, and when it was first seen to be so many."""

    def available(self, entries: npt.NDArray[np.int64], leaders: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Say of each partition whether its leader takes batches, as far as can be seen."""
        now_ms = time.monotonic_ns() // 1_000_000
        rows = self._slab.partitions[entries]
        heads = rows[:, Partition.HEAD].astype(np.int64) - 1  # -1, where there is none, is a slot like any other
        ready_ms = (self._slab.headers[heads, Slot.CREATED_MS] & _TIME).astype(np.int64) + self._linger_ms
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
