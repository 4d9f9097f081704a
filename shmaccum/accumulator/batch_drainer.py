"""The sender's half of the accumulator: which batches are ready, and what becomes of them.

``RecordAccumulator.ready``, ``drain``, ``reenqueue``, the expiry and the completion of batches. Only the one sender
calls any of it, in one thread. A drained batch is IN_FLIGHT and the sender's; one whose outcome is known is
COMPLETING until everybody who contributed has been told and its slot is free. Both survive the sender: `recover`
goes on where the last one died.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmaccum.accumulator.completion import RingWriter, pack_result
from shmaccum.accumulator.partition_map import PartitionMap
from shmaccum.accumulator.partition_queue import PartitionQueue
from shmaccum.accumulator.record_batch import RecordBatch
from shmaccum.cluster import Cluster, Node, TopicPartition
from shmaccum.errors import DeliveryTimeoutError, KafkaError, LockTimeoutError
from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.shm.layout import (
    ATTEMPTS_SHIFT,
    STATE_MASK,
    TIME_MASK,
    Partition,
    Process,
    Slot,
    SlotState,
    Super,
)
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)

FOREVER_MS: Final = float("inf")
STOPPED_PATIENCE_S: Final = 0.1
"""How long the sender waits for a partition whose lock a stopped process holds, before it goes on with the others."""

_TIME = np.uint64(TIME_MASK)
_ATTEMPTS = np.uint64(ATTEMPTS_SHIFT)


class ReadyCheckResult(NamedTuple):
    """What `ready` found."""

    ready_nodes: set[Node]
    """Nodes that lead a partition with something to send."""
    next_ready_check_delay_ms: float
    """When to look again, if nothing else happens; infinite where only an event can change the answer."""
    unknown_leader_topics: set[str]
    """Topics with something to send and no known leader."""


class BatchOutcome(NamedTuple):
    """What became of a batch."""

    batch: RecordBatch
    base_offset: int = -1
    append_time_ms: int = -1
    error: type[KafkaError] | None = None


class BatchDrainer:
    """Takes batches out of the deques of a slab, and completes them."""

    def __init__(
        self,
        slab: Slab,
        pool: BufferPool,
        partition_map: PartitionMap,
        *,
        linger_ms: int,
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        delivery_timeout_ms: int,
        max_in_flight: int,
    ) -> None:
        self._slab = slab
        self._pool = pool
        self._map = partition_map
        self._linger_ms = linger_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._max_in_flight = max_in_flight
        self._words = slab.words
        self._rings = RingWriter(slab.words, slab.geometry)
        self._cluster: Cluster | None = None
        self._producer = (-1, -1)
        self._drain_index: dict[int, int] = defaultdict(int)
        self._next_expiry_ms = 0.0
        self._anything_queued = False
        self.closed = False
        """Whether everything is to be sent at once, because the sender is about to leave."""

    # --- ready --------------------------------------------------------------------------------------

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Find the nodes to which something can be sent now (see `RecordAccumulator.ready`)."""
        self._sync(cluster)
        table = self._slab.partitions
        waiting = np.flatnonzero(table[:, Partition.HEAD])
        self._anything_queued = len(waiting) > 0
        if not self._anything_queued:
            return ReadyCheckResult(set(), FOREVER_MS, set())
        leaders = table[waiting, Partition.LEADER]
        unknown = {self._map.by_entry[entry].topic_partition.topic for entry in waiting[leaders == 0].tolist()}
        free = (leaders != 0) & self._may_send(table, waiting)
        waiting, leaders = waiting[free], leaders[free]
        # Only this thread takes batches from the front, so what the heads say stays true without the locks.
        heads = self._slab.headers[table[waiting, Partition.HEAD].astype(np.int64) - 1]
        attempts = heads[:, Slot.ATTEMPTS]
        waited = np.maximum(now_ms - (attempts & _TIME).astype(np.int64), 0)
        backoff = self._backoff_ms(attempts >> _ATTEMPTS)
        backing_off = waited < backoff
        to_wait = np.where(backing_off, backoff, self._linger_ms)
        sendable = (table[waiting, Partition.QUEUED] > 1) | self._is_closed(heads) | (waited >= to_wait)
        if self._pool.is_exhausted() or self.closed or self.flush_in_progress():
            sendable[:] = True
        is_ready = sendable & ~backing_off
        nodes = {cluster.nodes[int(leader) - 1] for leader in np.unique(leaders[is_ready])}
        delays = (to_wait - waited)[~is_ready]
        delay = float(delays.min()) if len(delays) else FOREVER_MS
        return ReadyCheckResult(nodes, delay, unknown)

    def _may_send(self, table: npt.NDArray[np.uint64], entries: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say which partitions are neither muted nor have all the requests in flight that they may have."""
        in_flight = table[entries, Partition.IN_FLIGHT] < self._max_in_flight
        return np.asarray((table[entries, Partition.MUTED] == 0) & in_flight)

    def _is_closed(self, heads: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        return np.asarray((heads[:, Slot.STATE] & np.uint64(STATE_MASK)) == SlotState.CLOSED)

    def _backoff_ms(self, attempts: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
        """How long batches wait after their last attempt: exponential (KIP-580), none before the first."""
        exponent = np.minimum(attempts.astype(np.float64) - 1, 32)
        backoff = np.minimum(self._retry_backoff_ms * 2.0**exponent, self._retry_backoff_max_ms)
        return np.where(attempts > 0, backoff, 0.0)

    def _sync(self, cluster: Cluster) -> None:
        """Store the leaders of a new cluster snapshot in the partition table."""
        if cluster is self._cluster:
            return
        self._cluster = cluster
        self._map.refresh()
        for queue in self._map.by_entry:
            leader = cluster.leader_for(queue.topic_partition)
            at = self._slab.geometry.partition(queue.entry)
            self._words[at + Partition.LEADER] = 0 if leader is None else leader.id + 1

    def flush_in_progress(self) -> bool:
        """Say whether any process flushes."""
        return bool(self._slab.process_rows[:, Process.FLUSHING].any())

    # --- drain --------------------------------------------------------------------------------------

    def drain(
        self, cluster: Cluster, nodes: Iterable[Node], max_size: int, now_ms: int
    ) -> dict[int, list[RecordBatch]]:
        """Take one batch of every partition that is due, for each node up to ``max_size`` bytes."""
        self._sync(cluster)
        return {node.id: self._drain_node(node, max_size, now_ms) for node in nodes}

    def _drain_node(self, node: Node, max_size: int, now_ms: int) -> list[RecordBatch]:
        table = self._slab.partitions
        due = (table[:, Partition.HEAD] != 0) & (table[:, Partition.LEADER] == node.id + 1)
        entries = np.flatnonzero(due)
        entries = entries[self._may_send(table, entries)]
        # Begin behind the partition where the last request to this node was full, so that none starves.
        start = int(np.searchsorted(entries, self._drain_index[node.id]))
        drained: list[RecordBatch] = []
        size = 0
        for entry in np.roll(entries, -start).tolist():
            room = max_size - size if drained else FOREVER_MS
            try:
                batch, fits = self._take_first(self._map.by_entry[entry], room, now_ms)
            except LockTimeoutError as error:
                logger.warning("%s; going on with the other partitions", error)
                continue
            if not fits:
                self._drain_index[node.id] = entry
                break
            if batch is not None:
                self._count_in_flight(batch, 1)
                self._assign_sequence(batch)
                batch.drained_ms = now_ms
                size += batch.size
                drained.append(batch)
        return drained

    def _take_first(self, queue: PartitionQueue, room: float, now_ms: int) -> tuple[RecordBatch | None, bool]:
        """Take a partition's first batch if it is due; False if it is, but there is no room for it."""
        with queue.lock.within(STOPPED_PATIENCE_S):
            batch = queue.first()
            if batch is None or self._is_backing_off(batch, now_ms):
                return None, True
            if batch.size > room:
                return None, False
            return queue.pop_first(SlotState.IN_FLIGHT), True

    def _is_backing_off(self, batch: RecordBatch, now_ms: int) -> bool:
        if not batch.attempts:
            return False
        backoff = self._backoff_ms(np.array(batch.attempts))
        return bool(now_ms - batch.last_attempt_ms < backoff)

    def use_producer_id(self, producer_id: int, epoch: int) -> None:
        """Number the batches that are drained from now on, as idempotence asks for."""
        self._producer = (producer_id, epoch)

    def _assign_sequence(self, batch: RecordBatch) -> None:
        """Give a batch its sequence number, once: a batch that is sent again keeps it."""
        producer_id, epoch = self._producer
        if producer_id < 0 or batch.has_sequence:
            return
        at = self._slab.geometry.partition(batch.partition) + Partition.NEXT_SEQUENCE
        sequence = self._words[at]
        batch.set_sequence(producer_id, epoch, sequence)
        self._words[at] = _next_sequence(sequence, batch.record_count)

    def _count_in_flight(self, batch: RecordBatch, change: int) -> None:
        self._words[self._slab.geometry.partition(batch.partition) + Partition.IN_FLIGHT] += change

    def mute(self, topic_partition: TopicPartition) -> None:
        """Send nothing of a partition until `unmute`: a batch of it is in flight, and order matters."""
        self._set_muted(topic_partition, 1)

    def unmute(self, topic_partition: TopicPartition) -> None:
        """Take a `mute` back."""
        self._set_muted(topic_partition, 0)

    def _set_muted(self, topic_partition: TopicPartition, muted: int) -> None:
        entry = self._map.queues[topic_partition].entry
        self._words[self._slab.geometry.partition(entry) + Partition.MUTED] = muted

    # --- what becomes of batches ----------------------------------------------------------------------

    def complete(self, outcomes: Iterable[BatchOutcome]) -> None:
        """Tell everybody who contributed what became of their batches, and free the slots."""
        batches = []
        for outcome in outcomes:
            batch = outcome.batch
            if batch.state == SlotState.IN_FLIGHT:
                self._count_in_flight(batch, -1)
            batch.set_result(outcome.base_offset + 1, pack_result(outcome.append_time_ms, outcome.error))
            batch.state = SlotState.COMPLETING
            self._count_outcome(outcome)
            batches.append(batch)
        self._finish(batches)

    def _finish(self, batches: list[RecordBatch], *, again: bool = False) -> None:
        """Take batches from COMPLETING to FREE; ``again`` if a sender before this one may have begun to."""
        told: set[int] = set()
        for batch in batches:
            contributors = batch.contributors()
            for entry in contributors:
                if not (again and self._rings.has_told(entry, batch.batch_id)):
                    self._rings.tell(entry, batch.batch_id, *batch.result)
            told.update(contributors)
        self.deallocate(*batches)
        # After the pool's lock, a full barrier: whoever is not seen listening now will see the ring.
        for entry in told:
            self._slab.bells.ring(entry)

    def deallocate(self, *batches: RecordBatch) -> None:
        """Give the memory of batches back to the pool."""
        if batches:
            self._pool.deallocate(*(batch.buffer for batch in batches))

    def _count_outcome(self, outcome: BatchOutcome) -> None:
        words, batch = self._words, outcome.batch
        at = self._slab.geometry.partition(batch.partition)
        records = batch.record_count
        if outcome.error is not None:
            words[Super.BATCHES_FAILED] += 1
            words[Super.RECORDS_FAILED] += records
            words[at + Partition.RECORDS_FAILED] += records
            return
        words[Super.BATCHES_SENT] += 1
        words[Super.RECORDS_SENT] += records
        words[Super.FILL_BYTES] += batch.size
        words[Super.CAPACITY_BYTES] += batch.buffer.slots * self._slab.geometry.slot_size
        words[at + Partition.BATCHES_SENT] += 1
        words[at + Partition.RECORDS_SENT] += records
        if outcome.base_offset >= 0:
            words[at + Partition.LAST_OFFSET] = outcome.base_offset + records

    def reenqueue(self, batch: RecordBatch, now_ms: int) -> None:
        """Put a batch that failed, and may succeed later, back in front of all that came after it."""
        batch.note_attempt(now_ms)
        self._words[Super.BATCHES_RETRIED] += 1
        self._put_back(batch)

    def _put_back(self, batch: RecordBatch) -> None:
        queue = self._map.by_entry[batch.partition]
        with queue.lock:
            queue.put_back(batch)
        self._count_in_flight(batch, -1)
        # It may be older than all that was queued when the next expiry was worked out.
        self._next_expiry_ms = min(self._next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)

    # --- expiry and the end -------------------------------------------------------------------------

    @property
    def next_expiry_ms(self) -> float:
        """Monotonic milliseconds before which no batch that is queued now expires."""
        return self._next_expiry_ms if self._anything_queued else FOREVER_MS

    def abort_expired_batches(self, now_ms: int) -> list[BatchOutcome]:
        """Give up the queued batches that are older than ``delivery.timeout.ms``; return what was given up."""
        if now_ms < self._next_expiry_ms:
            return []
        expired = []
        oldest = now_ms
        table = self._slab.partitions
        for entry in np.flatnonzero(table[:, Partition.HEAD]).tolist():
            queue = self._map.by_entry[entry]
            try:
                with queue.lock.within(STOPPED_PATIENCE_S):
                    while (batch := queue.first()) is not None and self._has_expired(batch, now_ms):
                        expired.append(BatchOutcome(queue.pop_first(SlotState.IN_FLIGHT), error=DeliveryTimeoutError))
            except LockTimeoutError as error:
                logger.warning("%s; going on with the other partitions", error)
                continue
            if batch is not None:
                oldest = min(oldest, batch.created_ms)
        self._next_expiry_ms = oldest + self._delivery_timeout_ms
        self._abort(expired)
        return expired

    def _has_expired(self, batch: RecordBatch, now_ms: int) -> bool:
        return batch.created_ms + self._delivery_timeout_ms <= now_ms

    def abort_incomplete_batches(self, error: type[KafkaError]) -> list[BatchOutcome]:
        """Give up everything that is queued; return what was given up."""
        aborted = []
        self._map.refresh()
        for queue in self._map.by_entry:
            with queue.lock:
                while queue.first() is not None:
                    aborted.append(BatchOutcome(queue.pop_first(SlotState.IN_FLIGHT), error=error))
        self._abort(aborted)
        return aborted

    def _abort(self, outcomes: list[BatchOutcome]) -> None:
        for outcome in outcomes:
            self._count_in_flight(outcome.batch, 1)
        self.complete(outcomes)

    def recover(self) -> None:
        """Go on where the last sender died: finish what was completing, put back what was in flight."""
        words, geometry = self._words, self._slab.geometry
        self._map.refresh()
        for queue in self._map.by_entry:
            at = geometry.partition(queue.entry)
            words[at + Partition.MUTED] = 0
            words[at + Partition.IN_FLIGHT] = 0
        states = self._slab.headers[:, Slot.STATE] & np.uint64(STATE_MASK)
        held = [RecordBatch(self._slab, slot) for slot in np.flatnonzero(states >= SlotState.OPEN).tolist()]
        self._finish([batch for batch in held if batch.state == SlotState.COMPLETING], again=True)
        for batch in held:
            if batch.has_sequence:
                at = geometry.partition(batch.partition) + Partition.NEXT_SEQUENCE
                if words[at] == batch.base_sequence:  # died between the two stores of the assignment
                    words[at] = _next_sequence(words[at], batch.record_count)
            if batch.state == SlotState.IN_FLIGHT:
                self._count_in_flight(batch, 1)
                self._put_back(batch)


def _next_sequence(sequence: int, records: int) -> int:
    """Return the sequence number behind a batch: they wrap at 2^31 (``DefaultRecordBatch.incrementSequence``)."""
    return (sequence + records) % (1 << 31)
