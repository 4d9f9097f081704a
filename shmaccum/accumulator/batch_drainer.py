"""The sender's half of the accumulator: which batches are ready, and the way of a batch out of its deque and back.

``RecordAccumulator.ready``, ``drain`` and ``reenqueue``. Only the one sender calls any of it, in one thread. A drained
batch is IN_FLIGHT and the sender's; if the sender dies, `recover` puts it back.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmaccum.accumulator.backoff import RetryBackoff
from shmaccum.accumulator.batch_compressor import SEALING_PATIENCE_MS
from shmaccum.accumulator.completer import BatchCompleter
from shmaccum.accumulator.partition_map import PartitionMap
from shmaccum.accumulator.partition_queue import PartitionQueue
from shmaccum.accumulator.record_batch import RecordBatch
from shmaccum.accumulator.sequences import Sequences
from shmaccum.cluster import Cluster, Node, TopicPartition
from shmaccum.errors import LockTimeoutError
from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.shm.layout import STATE_MASK, TIME_MASK, Partition, Process, Slot, SlotState, Super
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)

FOREVER_MS: Final = float("inf")
STOPPED_PATIENCE_S: Final = 0.1
"""How long the sender waits for a partition whose lock a stopped process holds, before it goes on with the others."""

_TIME = np.uint64(TIME_MASK)


class ReadyCheckResult(NamedTuple):
    """What `ready` found."""

    ready_nodes: set[Node]
    """Nodes that lead a partition with something to send."""
    next_ready_check_delay_ms: float
    """When to look again, if nothing else happens; infinite where only an event can change the answer."""
    unknown_leader_topics: set[str]
    """Topics with something to send and no known leader."""


class BatchDrainer:
    """Takes batches out of the deques of a slab, and puts them back.

    Args:
        slab: where they are.
        pool: whether its memory is exhausted matters.
        partition_map: the deques.
        completer: finishes what a dead sender had begun to complete.
        sequences: numbers what is drained, and says what may not be yet.
        backoff: of batches that are tried again.
        linger_ms: ``linger.ms``.
        max_in_flight: ``max.in.flight.requests.per.connection``, here of a partition.
    """

    def __init__(
        self,
        slab: Slab,
        pool: BufferPool,
        partition_map: PartitionMap,
        completer: BatchCompleter,
        sequences: Sequences,
        *,
        backoff: RetryBackoff,
        linger_ms: int,
        max_in_flight: int,
    ) -> None:
        self._slab = slab
        self._pool = pool
        self._map = partition_map
        self._completer = completer
        self._sequences = sequences
        self._backoff = backoff
        self._linger_ms = linger_ms
        self._max_in_flight = max_in_flight
        self._words = slab.words
        self._cluster: Cluster | None = None
        self._drain_index: dict[int, int] = defaultdict(int)
        self.closed = False
        """Whether everything is to be sent at once, because the sender is about to leave."""

    # --- ready --------------------------------------------------------------------------------------

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Find the nodes to which something can be sent now (see `RecordAccumulator.ready`)."""
        self._sync(cluster)
        table = self._slab.partitions
        waiting = np.flatnonzero(table[:, Partition.HEAD])
        if not len(waiting):
            return ReadyCheckResult(set(), FOREVER_MS, set())
        leaders = table[waiting, Partition.LEADER]
        unknown = {self._map.by_entry[entry].topic_partition.topic for entry in waiting[leaders == 0].tolist()}
        free = (leaders != 0) & self._may_send(table, waiting)
        waiting, leaders = waiting[free], leaders[free]
        # Only this thread takes batches from the front, so what the heads say stays true without the locks.
        heads = self._slab.headers[table[waiting, Partition.HEAD].astype(np.int64) - 1]
        attempts = heads[:, Slot.ATTEMPTS]
        waited = np.maximum(now_ms - (attempts & _TIME).astype(np.int64), 0)
        backoff = self._backoff.after_last_attempt_ms(heads)
        backing_off = waited < backoff
        to_wait = np.where(backing_off, backoff, self._linger_ms)
        sendable = (table[waiting, Partition.QUEUED] > 1) | self._is_closed(heads) | (waited >= to_wait)
        if self._pool.is_exhausted() or self.closed or self.flush_in_progress():
            sendable[:] = True
        sealing_since = heads[:, Slot.SEALING].astype(np.int64)
        sealing_left = sealing_since + SEALING_PATIENCE_MS - now_ms
        sealing = (sealing_since > 0) & (sealing_left > 0)
        is_ready = sendable & ~backing_off & ~sealing
        nodes = {cluster.nodes[int(leader) - 1] for leader in np.unique(leaders[is_ready])}
        delays = np.where(sealing, sealing_left, to_wait - waited)[~is_ready]
        delay = float(delays.min()) if len(delays) else FOREVER_MS
        return ReadyCheckResult(nodes, delay, unknown)

    def _may_send(self, table: npt.NDArray[np.uint64], entries: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say which partitions neither wait for an answer nor have all the requests in flight that they may have."""
        if self._sequences.need_producer_id:
            return np.zeros(len(entries), np.bool_)
        in_flight = table[entries, Partition.IN_FLIGHT] < self._max_in_flight
        waits = table[entries, Partition.MUTED] | table[entries, Partition.HELD]
        return np.asarray((waits == 0) & in_flight)

    def _is_closed(self, heads: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        return np.asarray((heads[:, Slot.STATE] & np.uint64(STATE_MASK)) == SlotState.CLOSED)

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
                self._sequences.drained(batch)
                batch.drained_ms = now_ms
                size += batch.stored_size
                drained.append(batch)
        return drained

    def _take_first(self, queue: PartitionQueue, room: float, now_ms: int) -> tuple[RecordBatch | None, bool]:
        """Take a partition's first batch if it is due; False if it is, but there is no room for it."""
        with queue.lock.within(STOPPED_PATIENCE_S):
            batch = queue.first()
            if batch is None or self._is_backing_off(batch, now_ms) or self._is_sealing(batch, now_ms):
                return None, True
            if batch.stored_size > room:
                return None, False
            return queue.pop_first(SlotState.IN_FLIGHT), True

    def _is_backing_off(self, batch: RecordBatch, now_ms: int) -> bool:
        if not batch.attempts:
            return False
        backoff = self._backoff.after_last_attempt_ms(self._slab.headers[batch.slot : batch.slot + 1])
        return bool(now_ms - batch.last_attempt_ms < backoff[0])

    def _is_sealing(self, batch: RecordBatch, now_ms: int) -> bool:
        """Say whether a producer compresses it, and has not been at it for too long."""
        return batch.sealing_since_ms > 0 and now_ms < batch.sealing_since_ms + SEALING_PATIENCE_MS

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

    # --- back ---------------------------------------------------------------------------------------

    def reenqueue(self, batch: RecordBatch, now_ms: int) -> None:
        """Put a batch that failed, and may succeed later, back in front of all that came after it."""
        batch.note_attempt(now_ms)
        self._words[Super.BATCHES_RETRIED] += 1
        self.put_back(batch)

    def put_back(self, batch: RecordBatch) -> None:
        """Put a batch that came back, and is to be sent otherwise, to its place: that was no attempt."""
        self._map.put_back(batch)
        self._count_in_flight(batch, -1)
        self._sequences.review(batch.partition)

    def recover(self) -> None:
        """Go on where the last sender died: finish what was completing, put back what was in flight.

        All indexes are made anew: whatever has become of them, a new sender goes by the headers.

        Raises:
            SlabDamagedError: what is in the slab cannot be.
        """
        self._slab.check()
        for lock in self._slab.locks:
            try:
                with lock.within(STOPPED_PATIENCE_S):
                    lock.rebuild()
            except LockTimeoutError as error:
                logger.warning("%s; what it guards stays as it is", error)
        self._map.refresh()
        for queue in self._map.by_entry:
            at = self._slab.geometry.partition(queue.entry)
            self._words[at + Partition.MUTED] = 0
            self._words[at + Partition.IN_FLIGHT] = 0
        states = self._slab.headers[:, Slot.STATE] & np.uint64(STATE_MASK)
        held = [RecordBatch(self._slab, slot) for slot in np.flatnonzero(states >= SlotState.OPEN).tolist()]
        completing = [batch for batch in held if batch.state == SlotState.COMPLETING]
        left = [batch for batch in held if batch.state != SlotState.COMPLETING]
        left += self._completer.finish(completing, again=True)
        for batch in left:
            if batch.state == SlotState.IN_FLIGHT:
                if batch.in_pieces:
                    batch.note_attempt(batch.last_attempt_ms)  # nobody knows whether the piece has been stored
                self._map.put_back(batch)
        self._sequences.recover(left, len(self._map.by_entry))
