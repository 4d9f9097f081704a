"""The ready check: which partitions have something to send, and when others will.

Kafka's ``RecordAccumulator.ready``. Only the sender calls this, in one thread. It takes no lock: only this thread takes
batches from the front of a deque, so a first batch stays first. Producers can still close it or begin to compress it;
the drain checks both again under the partition's lock. The sender alone writes the words LEADER, HELD, MUTED and
IN_FLIGHT of a partition; a new sender stores them again.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmaccum._compiled import COMPILED
from shmaccum._core import AHEAD_MS, SEALING_TIMEOUT_MS
from shmaccum.accumulator.drain.backoff import RetryBackoff
from shmaccum.accumulator.drain.deferral import BatchReturns, Deferral
from shmaccum.accumulator.drain.open_batch_throttle import OpenBatchThrottle
from shmaccum.accumulator.drain.sequences import Sequences
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import Cluster, Node
from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.shm.layout import (
    ATTEMPTS_SHIFT,
    KEY_LANE_SHIFT,
    LANE_WORDS,
    LINGER_SHIFT,
    LOCK_STRIPES,
    PARTITION_WORDS,
    PROCESS_WORDS,
    STATE_MASK,
    STRIPES,
    TIME_MASK,
    Lane,
    Partition,
    Process,
    Slot,
    SlotState,
    Super,
)
from shmaccum.shm.slab import Slab

FOREVER_MS: Final = float("inf")
_MANY: Final = sys.maxsize if COMPILED else 32
"""Number of partitions or processes from which numpy is faster than a Python loop; never if compiled. Same result."""

_PARTITION_COUNT: Final = Super.PARTITION_COUNT
_PARTITION_WORDS: Final = PARTITION_WORDS
_PROCESS_WORDS: Final = PROCESS_WORDS
_LEADER: Final = Partition.LEADER
_KEY: Final = Partition.KEY
_LANE_SHIFT: Final = KEY_LANE_SHIFT
_LANE_WORDS: Final = LANE_WORDS
_LANE_PRODUCER_ID: Final = Lane.PRODUCER_ID
_LANE_ERROR: Final = Lane.ERROR
_HEAD: Final = Partition.HEAD
_QUEUED: Final = Partition.QUEUED
_HELD: Final = Partition.HELD
_MUTED: Final = Partition.MUTED
_IN_FLIGHT: Final = Partition.IN_FLIGHT
_SLOT_STATE: Final = Slot.STATE
_ATTEMPTS: Final = Slot.ATTEMPTS
_SEALING: Final = Slot.SEALING
_LINGER: Final = Slot.LINGER
_LINGER_SHIFT: Final = LINGER_SHIFT
_PARTITION: Final = Slot.PARTITION
_ATTEMPTS_SHIFT: Final = ATTEMPTS_SHIFT
_STATE_BITS: Final = STATE_MASK
_TIME_BITS: Final = TIME_MASK
_SEALING_TIMEOUT_MS: Final = SEALING_TIMEOUT_MS
_OPEN: Final = int(SlotState.OPEN)
_AHEAD_MS: Final = AHEAD_MS
_STATE: Final = np.uint64(STATE_MASK)
_TIME: Final = np.uint64(TIME_MASK)
_ONE: Final = np.uint64(1)
_LINGER_BITS: Final = np.uint64(LINGER_SHIFT)


class ReadyCheckResult(NamedTuple):
    """Result of `ReadyCheck.ready`."""

    ready_nodes: set[Node]
    """Nodes that lead a partition with something to send."""
    next_ready_check_delay_ms: float
    """When to look again, if nothing else happens; infinite where only an event can change the result."""
    unknown_leader_topics: set[str]
    """Topics with something to send and no known leader."""


class ReadyCheck:
    """Looks for sendable batches in the deques of a slab.

    Args:
        slab: the slab.
        pool: whether its memory is exhausted.
        partition_map: the deques.
        sequences: without a producer id, where there must be one, nothing is ready.
        deferral: of work that a stopped process blocks.
        returns: nothing behind a batch that waits to be put back may be sent.
        throttle: limits how many open batches may be sent.
        backoff: of batches that are tried again; can be replaced.
        max_in_flight: ``max.in.flight.requests.per.connection``, here per partition.

    Attributes:
        closed: whether everything is sendable at once, because the sender is about to leave.
    """

    def __init__(
        self,
        slab: Slab,
        pool: BufferPool,
        partition_map: PartitionMap,
        sequences: Sequences,
        deferral: Deferral,
        returns: BatchReturns,
        throttle: OpenBatchThrottle,
        *,
        backoff: RetryBackoff,
        max_in_flight: int,
    ) -> None:
        self.closed = False
        self._slab = slab
        self._pool = pool
        self._map = partition_map
        self._sequences = sequences
        self._deferral = deferral
        self._returns = returns
        self._throttle = throttle
        self.backoff = backoff
        self._max_in_flight = max_in_flight
        self._words = slab.words
        self._memory = slab.memory
        self._partitions_at = slab.geometry.partition(0)
        self._lanes_at = slab.geometry.lane(0)
        self._headers_at = slab.geometry.header(0)
        self._header_words = slab.geometry.slot_words
        self._slot_count = slab.geometry.slot_count
        self._max_partitions = slab.geometry.max_partitions
        self._flushing_at = slab.geometry.process(0) + Process.FLUSHING
        self._max_processes = slab.geometry.max_processes
        self._cluster: Cluster | None = None
        self._leader_epochs: list[int] = []
        """By partition entry: the epoch of its known leader, -1 for none."""
        self._sent_epochs = [-1] * slab.geometry.slot_count
        """By slot: the leader's epoch when this sender last drained the batch there."""
        self._is_urgent: bool | None = None

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Return the nodes to which something can be sent now (see `SenderAccumulator.ready`)."""
        self.store_leaders(cluster)
        words = self._memory.words
        can_number = not self._sequences.need_producer_id
        retry_ms = self._deferral.retry_delay_ms()
        delay_ms = FOREVER_MS
        unknown: set[str] = set()
        leaders: set[int] = set()
        has_room: dict[int, bool] = {}
        self._is_urgent = None
        if can_number:
            waiting, delay_ms = self._not_lingering(now_ms)
        else:
            waiting = self.waiting()
        for entry in waiting:
            at = self._partitions_at + entry * _PARTITION_WORDS
            leader = words[at + _LEADER]
            head = words[at + _HEAD]
            if leader in leaders or not head:
                continue
            if not leader:
                queue = self._map.by_entry[entry]
                self._store_leader(queue, cluster)  # again: damage can have erased one that the cluster has
                unknown.add(queue.topic_partition.topic)
            elif can_number and self.may_send(at):
                left_ms = self._left_ms(at, head - 1, now_ms)
                if left_ms > 0:
                    delay_ms = min(delay_ms, left_ms)
                elif not self.may_grow(at, head - 1):
                    leaders.add(leader)
                else:
                    if leader not in has_room:
                        has_room[leader] = self.room_to_leave(leader - 1, now_ms) > 0
                    if has_room[leader]:
                        leaders.add(leader)
        if not all(has_room.values()) and self._throttle.rest_ms(now_ms) > 0:
            delay_ms = min(delay_ms, self._throttle.rest_ms(now_ms))
        nodes = {cluster.nodes[leader - 1] for leader in leaders}
        return ReadyCheckResult(nodes, min(delay_ms, retry_ms), unknown)

    def waiting(self, leader: int = 0) -> list[int]:
        """Return the partitions with batches in their deques, in order: all of them, or those of a leader.

        Args:
            leader: id of its node + 1.
        """
        words = self._memory.words
        count = self._partition_count()
        found: list[int] = []
        if count >= _MANY:
            found = self._waiting_of_many(leader).tolist()
        else:
            at = self._partitions_at
            for entry in range(count):
                if words[at + _HEAD] and (not leader or words[at + _LEADER] == leader):
                    found.append(entry)
                at += _PARTITION_WORDS
        return found

    def _not_lingering(self, now_ms: int) -> tuple[list[int], float]:
        """Return what `waiting` does, without partitions whose only batch lingers.

        Returns:
            The partitions; and how long to wait for the first of those left out.
        """
        words = self._memory.words
        count = self._partition_count()
        if count >= _MANY:
            return self._not_lingering_of_many(now_ms)
        found: list[int] = []
        delay_ms = FOREVER_MS
        at = self._partitions_at - _PARTITION_WORDS
        for entry in range(count):
            at += _PARTITION_WORDS
            head = words[at + _HEAD]
            if not head:
                continue
            if (
                words[at + _QUEUED] == 1
                and head <= self._slot_count
                and words[at + _LEADER]
                and not (words[at + _MUTED] or words[at + _HELD] or words[at + _IN_FLIGHT])
            ):
                header = self._headers_at + (head - 1) * self._header_words
                if words[header + _SLOT_STATE] & _STATE_BITS == _OPEN:
                    waited_ms = now_ms - (words[header + _ATTEMPTS] & _TIME_BITS)
                    linger_ms = words[header + _LINGER] >> _LINGER_SHIFT
                    left_ms = linger_ms - (waited_ms if waited_ms > 0 else 0)
                    if left_ms > 0 and waited_ms >= -_AHEAD_MS:
                        if left_ms < delay_ms:
                            delay_ms = left_ms
                        continue
            found.append(entry)
        if delay_ms < FOREVER_MS and self._all_is_urgent():  # checked once, not for each partition
            return self.waiting(), FOREVER_MS
        return found, delay_ms

    def _partition_count(self) -> int:
        """Return how many partition entries are in use (`Slab.partition_count` raises if that is damaged)."""
        count = self._memory.words[_PARTITION_COUNT]
        return count if count <= self._max_partitions else self._slab.partition_count

    def _waiting_of_many(self, leader: int) -> npt.NDArray[np.int64]:
        """Return what `waiting` does, with numpy."""
        table = self._slab.partitions
        # Compared first: nonzero() counts its input twice, and fails if another process changes it in between.
        waits = table[:, Partition.HEAD] != 0
        if leader:
            waits &= table[:, Partition.LEADER] == leader
        found: npt.NDArray[np.int64] = waits.nonzero()[0]
        return found

    def _not_lingering_of_many(self, now_ms: int) -> tuple[list[int], float]:
        """Return what `_not_lingering` does, with numpy.

        Where few partitions have batches none is left out: `ready` looks at each with the same result.
        """
        waiting = self._waiting_of_many(0)
        if len(waiting) < _MANY:
            return waiting.tolist(), FOREVER_MS
        table, headers = self._slab.partitions, self._slab.headers
        is_plain = (table[:, Partition.MUTED] | table[:, Partition.HELD] | table[:, Partition.IN_FLIGHT]) == 0
        is_plain &= (table[:, Partition.LEADER] != 0) & (table[:, Partition.QUEUED] == 1)
        plain = waiting[is_plain[waiting]]
        heads = table[plain, Partition.HEAD] - _ONE  # one emptied meanwhile wraps to the largest number
        is_slot = heads < self._slot_count
        plain, heads = plain[is_slot], heads[is_slot].astype(np.int64)
        waited_ms = now_ms - (headers[heads, Slot.ATTEMPTS] & _TIME).astype(np.int64)
        linger_ms = (headers[heads, Slot.LINGER] >> _LINGER_BITS).astype(np.int64)
        left_ms = linger_ms - np.maximum(waited_ms, 0)
        lingers = ((headers[heads, Slot.STATE] & _STATE) == _OPEN) & (left_ms > 0) & (waited_ms >= -AHEAD_MS)
        if not lingers.any() or self._all_is_urgent():
            return waiting.tolist(), FOREVER_MS
        others = np.ones(len(table), bool)
        others[plain[lingers]] = False
        return waiting[others[waiting]].tolist(), float(left_ms[lingers].min())

    def may_send(self, at: int) -> bool:
        """Return whether a partition may have one more batch in flight now."""
        memory = self._memory
        if (
            memory.words[at + _MUTED]
            or memory.words[at + _HELD]
            or memory.words[at + _IN_FLIGHT] >= self._max_in_flight
        ):
            return False
        lane = memory.words[at + _KEY] >> _LANE_SHIFT
        if lane:
            lane_at = self._lanes_at + (lane - 1) * _LANE_WORDS
            if not memory.words[lane_at + _LANE_PRODUCER_ID] or memory.words[lane_at + _LANE_ERROR]:
                return False
        return not (self._deferral or self._returns) or not self._is_held_up(at)

    def _is_held_up(self, at: int) -> bool:
        """Return whether a stopped process blocks a partition."""
        entry = (at - self._partitions_at) // PARTITION_WORDS
        return entry in self._returns.partitions() or entry % STRIPES + LOCK_STRIPES in self._deferral.held_up()

    def _left_ms(self, at: int, slot: int, now_ms: int) -> float:
        """Return how long until a partition's first batch may be sent.

        Only this thread takes batches from the front, so the head stays valid without the lock.
        """
        words = self._memory.words
        left_ms = self.not_due_ms(slot, now_ms)
        if left_ms > 0 or not self.may_grow(at, slot):
            return left_ms
        header = self._headers_at + slot * self._header_words
        waited_ms = now_ms - (words[header + _ATTEMPTS] & _TIME_BITS)
        linger_ms = words[header + _LINGER] >> _LINGER_SHIFT
        left_ms = linger_ms - (waited_ms if waited_ms > 0 else 0)
        return 0 if left_ms > 0 and self._all_is_urgent() else left_ms

    def room_to_leave(self, node_id: int, now_ms: int) -> int:
        """Return how many open batches may be taken for a node now."""
        if self._throttle.rest_ms(now_ms) > 0 and not self._all_is_urgent():
            return 0
        return self._throttle.room(node_id)

    def may_grow(self, at: int, slot: int) -> bool:
        """Return whether a partition's first batch is open; it can close meanwhile, but never reopen."""
        memory = self._memory
        if memory.words[at + _QUEUED] > 1 or slot >= self._slot_count:
            return False
        return memory.words[self._headers_at + slot * self._header_words + _SLOT_STATE] & _STATE_BITS == _OPEN

    def not_due_ms(self, slot: int, now_ms: int) -> float:
        """Return how long a first batch still backs off, or waits for the producer that compresses it.

        A damaged slot number counts as due: taking it, under the lock, raises the error.
        """
        if slot >= self._slot_count:
            return 0
        memory, header = self._memory, self._headers_at + slot * self._header_words
        sealing_since_ms, attempts = memory.words[header + _SEALING], memory.words[header + _ATTEMPTS]
        latest_ms = now_ms + _AHEAD_MS
        if attempts & _TIME_BITS > latest_ms:
            # Only the sender stores this word once a batch is in its deque.
            attempts = attempts >> _ATTEMPTS_SHIFT << _ATTEMPTS_SHIFT | now_ms
            memory.words[header + _ATTEMPTS] = attempts
        if 0 < sealing_since_ms <= latest_ms and sealing_since_ms + _SEALING_TIMEOUT_MS > now_ms:
            return sealing_since_ms + _SEALING_TIMEOUT_MS - now_ms
        if not attempts >> _ATTEMPTS_SHIFT or self._has_new_leader(slot, memory.words[header + _PARTITION]):
            return 0
        backoff_ms = self.backoff.after_last_attempt_ms(self._slab.headers[slot : slot + 1])[0]
        return float(backoff_ms) - max(0, now_ms - (attempts & TIME_MASK))

    def _all_is_urgent(self) -> bool:
        """Return whether no batch may linger; the result holds for one ready check."""
        if self._is_urgent is None:
            self._is_urgent = self._pool.is_exhausted() or self.closed or self._flush_in_progress()
        return self._is_urgent

    def store_leaders(self, cluster: Cluster) -> None:
        """Store the leaders that have changed since the last cluster snapshot in the partition table."""
        known = len(self._leader_epochs)
        is_new = cluster is not self._cluster
        if not is_new and self._memory.words[_PARTITION_COUNT] == known:
            return
        self._map.refresh()
        by_entry = self._map.by_entry
        self._leader_epochs += [-1] * (len(by_entry) - known)
        queues = by_entry[known:]
        if is_new:
            changed = cluster.changed_since(self._cluster)
            self._cluster = cluster
            if changed is None:
                queues = by_entry
            else:
                queues += self._map.all_of(changed)
        for queue in queues:
            self._store_leader(queue, cluster)

    def _store_leader(self, queue: PartitionQueue, cluster: Cluster) -> None:
        leader = cluster.leader_for(queue.topic_partition)
        at = self._slab.geometry.partition(queue.entry)
        self._words[at + Partition.LEADER] = 0 if leader is None else leader.id + 1
        self._leader_epochs[queue.entry] = cluster.leader_epochs.get(queue.topic_partition, -1)

    def note_sent(self, slot: int, entry: int) -> None:
        """Note that a batch is being sent to its partition's current leader."""
        self._sent_epochs[slot] = self._leader_epochs[entry]

    def _has_new_leader(self, slot: int, entry: int) -> bool:
        """Return whether a partition's leader has changed since a batch was sent (``hasLeaderChanged``, KIP-951)."""
        return entry < len(self._leader_epochs) and 0 <= self._sent_epochs[slot] < self._leader_epochs[entry]

    def _flush_in_progress(self) -> bool:
        """Return whether any process flushes."""
        if self._max_processes >= _MANY:
            return bool(self._slab.process_rows[:, Process.FLUSHING].any())
        words, at = self._memory.words, self._flushing_at
        for _ in range(self._max_processes):
            if words[at]:
                return True
            at += _PROCESS_WORDS
        return False
