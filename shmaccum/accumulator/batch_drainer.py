"""The sender's half of the accumulator: which batches are ready, and the way of a batch out of its deque and back.

``RecordAccumulator.ready``, ``drain`` and ``reenqueue``. Only the one sender calls any of it, in one thread. A drained
batch is IN_FLIGHT and the sender's; if the sender dies, `recover` puts it back.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmaccum.accumulator.backoff import RetryBackoff
from shmaccum.accumulator.batch_compressor import SEALING_PATIENCE_MS
from shmaccum.accumulator.completer import BatchCompleter
from shmaccum.accumulator.partition_map import PartitionMap
from shmaccum.accumulator.record_batch import RecordBatch
from shmaccum.accumulator.sequences import Sequences
from shmaccum.cluster import Cluster, Node, TopicPartition
from shmaccum.errors import LockTimeoutError
from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.shm.layout import (
    ATTEMPTS_SHIFT,
    COMMIT_SIZE_SHIFT,
    COMPRESSED_SIZE_SHIFT,
    PARTITION_WORDS,
    STATE_MASK,
    STRIPES,
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

_TAKEN_A_TURN: Final = 8
"""Batches that are taken in one turn of a stripe's lock, at most: producers wait for it."""

# As numpy has them: to it, members of an enum and large numbers are objects that it has to look into.
_TIME: Final = np.uint64(TIME_MASK)
_STATE: Final = np.uint64(STATE_MASK)
_CLOSED: Final = np.uint64(SlotState.CLOSED)


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
        self._partitions_at = slab.geometry.partition(0)
        self._headers_at = slab.geometry.header(0)
        self._header_words = slab.geometry.slot_words
        self._cluster: Cluster | None = None
        self._drain_index: dict[int, int] = defaultdict(int)
        self.closed = False
        """Whether everything is to be sent at once, because the sender is about to leave."""

    # --- ready --------------------------------------------------------------------------------------

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Find the nodes to which something can be sent now (see `RecordAccumulator.ready`)."""
        self._sync(cluster)
        table = self._slab.partitions
        waiting = table[:, Partition.HEAD].nonzero()[0]
        rows = table[waiting]
        unknown: set[str] = set()
        may_send = self._may_send(rows)
        if not may_send.all():
            leaderless = waiting[rows[:, Partition.LEADER] == 0]
            unknown = {self._map.by_entry[entry].topic_partition.topic for entry in leaderless.tolist()}
            rows = rows[may_send]
        if not len(rows):
            return ReadyCheckResult(set(), FOREVER_MS, unknown)
        # Only this thread takes batches from the front, so what the heads say stays true without the locks.
        heads = self._slab.headers[rows[:, Partition.HEAD].astype(np.int64) - 1]
        to_wait_ms = self._to_wait_ms(rows, heads, now_ms)
        is_ready = to_wait_ms <= 0
        leaders = rows[:, Partition.LEADER]
        if is_ready.all():
            delay_ms = FOREVER_MS
        else:
            leaders = leaders[is_ready]
            delay_ms = float(to_wait_ms[~is_ready].min())
        return ReadyCheckResult({cluster.nodes[leader - 1] for leader in set(leaders.tolist())}, delay_ms, unknown)

    def _may_send(self, rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Say which partitions have a leader, wait for no answer, and may have one more request in flight."""
        waits = rows[:, Partition.MUTED] | rows[:, Partition.HELD]
        may_send = (
            (waits == 0) & (rows[:, Partition.IN_FLIGHT] < self._max_in_flight) & (rows[:, Partition.LEADER] != 0)
        )
        if self._sequences.need_producer_id:
            may_send[:] = False
        return np.asarray(may_send)

    def _to_wait_ms(
        self, rows: npt.NDArray[np.uint64], heads: npt.NDArray[np.uint64], now_ms: int
    ) -> npt.NDArray[np.float64]:
        """Return for partitions, by the headers of their first batches, how long those are not to be sent yet."""
        attempts = heads[:, Slot.ATTEMPTS]
        waited_ms = np.maximum(now_ms - (attempts & _TIME).astype(np.float64), 0)
        # Full, as there is another one behind it, or closed.
        sendable = (rows[:, Partition.QUEUED] > 1) | ((heads[:, Slot.STATE] & _STATE) == _CLOSED)
        to_wait_ms = np.where(sendable, 0, self._linger_ms - waited_ms)
        if not sendable.all() and (self._pool.is_exhausted() or self.closed or self.flush_in_progress()):
            to_wait_ms[:] = 0
        if (attempts > _TIME).any():
            backoff_ms = self._backoff.after_last_attempt_ms(heads)
            backing_off = waited_ms < backoff_ms
            to_wait_ms = np.where(backing_off, backoff_ms - waited_ms, to_wait_ms)
        sealing_since_ms = heads[:, Slot.SEALING]
        if sealing_since_ms.any():
            left_ms = np.where(sealing_since_ms > 0, sealing_since_ms + float(SEALING_PATIENCE_MS) - now_ms, 0)
            to_wait_ms = np.where(left_ms > 0, left_ms, to_wait_ms)
        return np.asarray(to_wait_ms)

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
        waiting = due.nonzero()[0]
        entries = waiting[self._may_send(table[waiting])].tolist()
        # Begin behind the partition where the last request to this node was full, so that none starves.
        start = bisect_left(entries, self._drain_index[node.id])
        chosen = self._choose(node, entries[start:] + entries[:start], max_size, now_ms)
        drained = self._take_firsts(chosen, now_ms)
        words = self._words
        for batch in drained:
            words[batch.partition_at + Partition.IN_FLIGHT] += 1
            words[batch.at + Slot.DRAINED_MS] = now_ms
            self._sequences.drained(batch)
        return drained

    def _choose(self, node: Node, entries: list[int], max_size: int, now_ms: int) -> dict[int, int]:
        """Choose of partitions those whose first batch is due, as many as fit into a request.

        Without their locks: nobody else takes batches from the front, and one that is still open only grows.

        Returns:
            Partition entry -> how many bytes its first batch may have by the time that it is taken.
        """
        sizes: dict[int, int] = {}
        room = max_size
        for entry in entries:
            head = self._words[self._partitions_at + entry * PARTITION_WORDS + Partition.HEAD]
            if not head or not self._is_due(head - 1, now_ms):
                continue
            size = self._stored_size(head - 1)
            if size > room and sizes:
                self._drain_index[node.id] = entry
                break
            sizes[entry] = size
            room -= size
        # A first one is taken whatever its size.
        to_grow = room // len(sizes) if len(sizes) > 1 else self._slab.geometry.slot_size
        return {entry: size + to_grow for entry, size in sizes.items()}

    def _take_firsts(self, chosen: dict[int, int], now_ms: int) -> list[RecordBatch]:
        """Take the first batches of partitions, those of a stripe together: the lock takes longer than the taking."""
        by_stripe: dict[int, list[int]] = defaultdict(list)
        for entry in chosen:
            by_stripe[entry % STRIPES].append(entry)
        taken: dict[int, RecordBatch] = {}
        for of_stripe in by_stripe.values():
            try:
                for begin in range(0, len(of_stripe), _TAKEN_A_TURN):
                    self._take_turn(of_stripe[begin : begin + _TAKEN_A_TURN], chosen, taken, now_ms)
            except LockTimeoutError as error:
                logger.warning("%s; going on with the other partitions", error)
        return [taken[entry] for entry in chosen if entry in taken]

    def _take_turn(
        self, entries: list[int], largest: dict[int, int], taken: dict[int, RecordBatch], now_ms: int
    ) -> None:
        """Take the first batches of some partitions of a stripe that are still due, and no larger than they may be."""
        queues = [self._map.by_entry[entry] for entry in entries]
        with queues[0].lock.within(STOPPED_PATIENCE_S):
            for queue in queues:
                slot = self._words[queue.head_at] - 1
                if slot >= 0 and self._is_due(slot, now_ms) and self._stored_size(slot) <= largest[queue.entry]:
                    taken[queue.entry] = queue.pop_first()

    def _is_due(self, slot: int, now_ms: int) -> bool:
        """Say whether a first batch neither backs off nor is being compressed, by a producer at it for too long."""
        words, header = self._words, self._headers_at + slot * self._header_words
        sealing_since_ms = words[header + Slot.SEALING]
        if sealing_since_ms and now_ms < sealing_since_ms + SEALING_PATIENCE_MS:
            return False
        attempts = words[header + Slot.ATTEMPTS]
        if not attempts >> ATTEMPTS_SHIFT:
            return True
        backoff = self._backoff.after_last_attempt_ms(self._slab.headers[slot : slot + 1])
        return bool(now_ms - (attempts & TIME_MASK) >= backoff[0])

    def _stored_size(self, slot: int) -> int:
        words, header = self._words, self._headers_at + slot * self._header_words
        compressed = words[header + Slot.COMPRESSED]
        return compressed >> COMPRESSED_SIZE_SHIFT if compressed else words[header + Slot.COMMIT] >> COMMIT_SIZE_SHIFT

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
        self._words[batch.partition_at + Partition.IN_FLIGHT] -= 1
        self._sequences.review(batch.partition)

    def recover(self) -> None:
        """Go on where the last sender died: finish what was completing, put back what was in flight."""
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
