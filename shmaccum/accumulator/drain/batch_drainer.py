"""Takes batches out of their deques and back: ``RecordAccumulator.drain`` and ``reenqueue``.

Only the sender calls this, in one thread. `shmaccum.accumulator.drain.ready_check` decides what may be drained. Deques
change under their partition's lock. Partition.IN_FLIGHT and MUTED, and the header of a batch in flight, are the
sender's alone and need no lock. If the sender dies, `recover` of the next one puts the batches in flight back. Modelled
in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left
from collections.abc import Iterable
from functools import partial
from typing import Final

import numpy as np

from shmaccum._core import MOST_DRAINED
from shmaccum.accumulator.drain.completer import BatchCompleter
from shmaccum.accumulator.drain.deferral import BatchReturns, Deferral
from shmaccum.accumulator.drain.open_batch_throttle import OpenBatchThrottle
from shmaccum.accumulator.drain.ready_check import ReadyCheck
from shmaccum.accumulator.drain.sequences import Sequences
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.record_batch import RecordBatch, batch_in
from shmaccum.cluster import Cluster, Node
from shmaccum.errors import LockTimeoutError
from shmaccum.shm.histograms import count as count_in_histogram
from shmaccum.shm.layout import (
    ATTEMPTS_SHIFT,
    COMMIT_SIZE_SHIFT,
    COMPRESSED_SIZE_SHIFT,
    KEY_LANE_SHIFT,
    PARTITION_WORDS,
    STATE_MASK,
    STRIPES,
    OfSender,
    Partition,
    Slot,
    SlotState,
    Super,
)
from shmaccum.shm.slab import Slab

_PARTITION_WORDS: Final = PARTITION_WORDS
_KEY: Final = Partition.KEY
_LANE_SHIFT: Final = KEY_LANE_SHIFT
_HEAD: Final = Partition.HEAD
_QUEUED: Final = Partition.QUEUED
_IN_FLIGHT: Final = Partition.IN_FLIGHT
_COMMIT: Final = Slot.COMMIT
_COMPRESSED: Final = Slot.COMPRESSED
_DRAINED_MS: Final = Slot.DRAINED_MS
_ATTEMPTS: Final = Slot.ATTEMPTS
_OPENED_US: Final = Slot.OPENED_US
_SIZE_SHIFT: Final = COMMIT_SIZE_SHIFT
_STORED_SIZE_SHIFT: Final = COMPRESSED_SIZE_SHIFT
_ATTEMPTS_SHIFT: Final = ATTEMPTS_SHIFT


class BatchDrainer:
    """Takes batches out of the deques of a slab, and puts them back.

    Args:
        slab: the slab.
        partition_map: the deques.
        completer: finishes batches that a dead sender began to complete.
        sequences: assigns sequence numbers to drained batches.
        ready_check: decides what may be drained.
        deferral: of work that a stopped process blocks.
        returns: puts batches back into the deques.
        throttle: limits how many open batches may be sent.
    """

    def __init__(
        self,
        slab: Slab,
        partition_map: PartitionMap,
        completer: BatchCompleter,
        sequences: Sequences,
        ready_check: ReadyCheck,
        deferral: Deferral,
        returns: BatchReturns,
        throttle: OpenBatchThrottle,
    ) -> None:
        self._slab = slab
        self._map = partition_map
        self._completer = completer
        self._sequences = sequences
        self._ready_check = ready_check
        self._deferral = deferral
        self._returns = returns
        self._throttle = throttle
        self._words = slab.words
        self._memory = slab.memory
        self._partitions_at = slab.geometry.partition(0)
        self._headers_at = slab.geometry.header(0)
        self._header_words = slab.geometry.slot_words
        self._slot_count = slab.geometry.slot_count
        self._queue_times_at = slab.geometry.sender_histogram(OfSender.QUEUE_TIME)
        self._drain_index: dict[int, int] = {}
        """Node id -> the first partition left out of its last full request."""
        self._drained: dict[int, list[RecordBatch]] = {}
        """Node id -> the batches of its last request."""
        self._others_left = False
        """Whether the last request left out batches because they belong to another transaction, or to none."""

    # --- drain --------------------------------------------------------------------------------------

    def drain(
        self, cluster: Cluster, nodes: Iterable[Node], max_size: int, now_ms: int
    ) -> dict[int, list[RecordBatch]]:
        """Take the first batch of every partition where it is due, up to ``max_size`` bytes for each node."""
        self._ready_check.store_leaders(cluster)
        if self._sequences.need_producer_id:
            return {node.id: [] for node in nodes}
        return {node.id: self._drain_node(node, max_size, now_ms) for node in nodes}

    def has_backlog(self, node: Node) -> bool:
        """Return whether partitions of a node that the last `drain` took from have more full batches.

        The node's other partitions have nothing, wait for something, or come first the next time. So do those of other
        transactions, of which a request holds only one.
        """
        if self._others_left:
            return True
        words = self._memory.words
        for batch in self._drained.get(node.id, ()):
            if words[batch.partition_at + _QUEUED] > 1 and self._ready_check.may_send(batch.partition_at):
                return True
        return False

    def _drain_node(self, node: Node, max_size: int, now_ms: int) -> list[RecordBatch]:
        node_id = node.id
        entries = self._ready_check.waiting(node_id + 1)
        # Begin at the partition where the last request to this node was full, so that none starves.
        start = bisect_left(entries, self._drain_index[node_id]) if node_id in self._drain_index else 0
        if start:
            entries = entries[start:] + entries[:start]
        sizes: list[int] = []
        chosen = self._choose(node_id, entries, sizes, max_size, now_ms)
        drained = self._drained[node_id] = self._take_firsts(chosen, sizes, now_ms)
        words, now_us = self._memory.words, time.monotonic_ns() // 1000
        for batch in drained:
            words[batch.partition_at + _IN_FLIGHT] += 1
            words[batch.at + _DRAINED_MS] = now_ms
            opened_us = words[batch.at + _OPENED_US]
            if now_us > opened_us and not words[batch.at + _ATTEMPTS] >> _ATTEMPTS_SHIFT:
                count_in_histogram(self._memory, self._queue_times_at, now_us - opened_us)
            self._ready_check.note_sent(batch.slot, batch.partition)
            self._sequences.drained(batch)
        return drained

    def _choose(self, node_id: int, entries: list[int], sizes: list[int], max_size: int, now_ms: int) -> list[int]:
        """Choose partitions whose first batch is due, as many as fit into a request.

        No lock is needed: only this thread takes batches from the front, and an open one only grows.

        Args:
            node_id: the leader's.
            entries: entries of the partitions that it leads.
            sizes: output: for each chosen partition, how many bytes its first batch may have when it is taken.
            max_size: bytes of the request, unless its first batch is larger.
            now_ms: monotonic milliseconds.
        """
        words, ready_check = self._memory.words, self._ready_check
        chosen: list[int] = []
        room = max_size
        may_leave = ready_check.room_to_leave(node_id, now_ms)
        growing = 0
        lane = 0
        others_left = False
        last_growing = first_left = -1
        for entry in entries:
            at = self._partitions_at + entry * _PARTITION_WORDS
            head = words[at + _HEAD]
            if not head or not ready_check.may_send(at) or ready_check.not_due_ms(head - 1, now_ms) > 0:
                continue
            if not chosen:
                lane = words[at + _KEY] >> _LANE_SHIFT
            elif words[at + _KEY] >> _LANE_SHIFT != lane:
                first_left = first_left if first_left >= 0 else entry
                others_left = True
                continue
            is_growing = ready_check.may_grow(at, head - 1)
            if is_growing and growing >= may_leave:
                first_left = first_left if first_left >= 0 else entry
                continue
            size = self._stored_size(head - 1)
            if size > room and chosen:
                first_left = entry
                break
            chosen.append(entry)
            sizes.append(size)
            room -= size
            if is_growing:
                growing += 1
                last_growing = head - 1
        if first_left >= 0:
            self._drain_index[node_id] = first_left
        self._others_left = others_left
        if growing:
            self._throttle.take(node_id, growing, last_growing)
        # The first batch is taken whatever its size.
        count = len(chosen)
        to_grow = room // count if count > 1 else self._memory.slot_size
        for index in range(count):
            sizes[index] += to_grow
        return chosen

    def _take_firsts(self, chosen: list[int], sizes: list[int], now_ms: int) -> list[RecordBatch]:
        """Take the first batches of partitions, by stripe: acquiring a lock costs more than taking a batch.

        The sections check again that they are due and fit.

        Args:
            chosen: the entries of the partitions.
            sizes: how many bytes each batch may have.
            now_ms: monotonic milliseconds.
        """
        stripes: dict[int, list[int]] = {}
        for index, entry in enumerate(chosen):
            stripes.setdefault(entry % STRIPES, []).append(index)
        taken: dict[int, RecordBatch] = {}
        for indexes in stripes.values():
            with contextlib.suppress(LockTimeoutError):
                for first in range(0, len(indexes), MOST_DRAINED):
                    self._take_turn(indexes[first : first + MOST_DRAINED], chosen, sizes, taken, now_ms)
        return [taken[index] for index in sorted(taken)]

    def _take_turn(
        self, indexes: list[int], chosen: list[int], sizes: list[int], taken: dict[int, RecordBatch], now_ms: int
    ) -> None:
        """Take first batches of one stripe's partitions under one acquisition of its lock.

        Args:
            indexes: of the partitions in the two lists.
            chosen: as of `_take_firsts`.
            sizes: likewise.
            taken: output: the batches, by index.
            now_ms: monotonic milliseconds.
        """
        words = self._memory.words
        entries = [chosen[index] for index in indexes]
        slots = [words[self._partitions_at + entry * _PARTITION_WORDS + _HEAD] - 1 for entry in entries]
        limits = [sizes[index] for index in indexes]
        section = partial(self._slab.deques.drain, entries, slots, limits, now_ms)
        _, found = self._deferral.section(self._map.by_entry[entries[0]].lock, section)
        for number, index in enumerate(indexes):
            if found >> number & 1:
                taken[index] = batch_in(self._memory, slots[number])

    def _stored_size(self, slot: int) -> int:
        if slot >= self._slot_count:
            return 0
        memory, header = self._memory, self._headers_at + slot * self._header_words
        compressed = memory.words[header + _COMPRESSED]
        return compressed >> _STORED_SIZE_SHIFT if compressed else memory.words[header + _COMMIT] >> _SIZE_SHIFT

    def mute(self, entry: int) -> None:
        """Send nothing of a partition until `unmute`, to keep order while a batch of it is in flight."""
        self._words[self._slab.geometry.partition(entry) + Partition.MUTED] = 1

    def unmute(self, entry: int) -> None:
        """Undo `mute`."""
        self._words[self._slab.geometry.partition(entry) + Partition.MUTED] = 0

    # --- back ---------------------------------------------------------------------------------------

    def reenqueue(self, batch: RecordBatch, now_ms: int, incident: int = 0) -> None:
        """Put a batch that failed, and may succeed later, back in front of all later ones.

        Args:
            batch: in flight until now.
            now_ms: monotonic milliseconds.
            incident: number of the incident that made it fail, 0 for none.
        """
        batch.note_attempt(now_ms, incident)
        self._words[Super.BATCHES_RETRIED] += 1
        self._words[batch.partition_at + Partition.BATCHES_RETRIED] += 1
        self._words[batch.partition_at + Partition.RECORDS_RETRIED] += batch.record_count - batch.settled
        self.put_back(batch)

    def put_back(self, batch: RecordBatch) -> None:
        """Put a batch back to be sent differently, without counting an attempt."""
        if self._returns.put_back(batch, self._is_back):
            self._is_back(batch)

    def _is_back(self, batch: RecordBatch) -> None:
        self._words[batch.partition_at + Partition.IN_FLIGHT] -= 1
        self._sequences.review(batch.partition)

    def recover(self) -> None:
        """Recover from the last sender's death: finish completing batches, put batches in flight back.

        All indexes are rebuilt from the headers, damaged or not, except those whose lock a stopped process holds.

        Raises:
            SlabDamagedError: a word of the slab is damaged.
        """
        self._slab.check()
        for lock in self._slab.locks:
            with contextlib.suppress(LockTimeoutError):
                self._deferral.section(lock, partial(self._slab.rebuild, lock.number))
        self._map.refresh()
        for queue in self._map.by_entry:
            at = self._slab.geometry.partition(queue.entry)
            self._words[at + Partition.MUTED] = 0
            self._words[at + Partition.IN_FLIGHT] = 0
        states = self._slab.headers[:, Slot.STATE] & np.uint64(STATE_MASK)
        held = [batch_in(self._memory, slot) for slot in np.flatnonzero(states >= SlotState.OPEN).tolist()]
        completing = [batch for batch in held if batch.state == SlotState.COMPLETING]
        left = [batch for batch in held if batch.state != SlotState.COMPLETING]
        left += self._completer.finish(completing, again=True)
        for batch in left:
            if batch.state == SlotState.IN_FLIGHT:
                if batch.is_split:
                    batch.note_attempt(batch.last_attempt_ms)  # the broker may have stored the part
                if not self._returns.put_back(batch, self._is_back):
                    self._words[batch.partition_at + Partition.IN_FLIGHT] += 1
        self._sequences.recover(left, len(self._map.by_entry))
