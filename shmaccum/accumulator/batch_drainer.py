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

_MANY: Final = 32
"""Partitions with something in their deques from which on to look at all of them at once pays."""

_OPEN: Final = int(SlotState.OPEN)
_STATE: Final = np.uint64(STATE_MASK)


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
        self._is_urgent: bool | None = None
        self.closed = False
        """Whether everything is to be sent at once, because the sender is about to leave."""

    # --- ready --------------------------------------------------------------------------------------

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Find the nodes to which something can be sent now (see `RecordAccumulator.ready`)."""
        self._sync(cluster)
        words = self._words
        can_number = not self._sequences.need_producer_id
        delay_ms = FOREVER_MS
        unknown: set[str] = set()
        leaders: set[int] = set()
        self._is_urgent = None
        waiting = self._slab.partitions[:, Partition.HEAD].nonzero()[0]
        if can_number and len(waiting) >= _MANY:
            waiting, delay_ms = self._without_lingering(waiting, now_ms)
        for entry in waiting.tolist():
            at = self._partitions_at + entry * PARTITION_WORDS
            leader = words[at + Partition.LEADER]
            if leader in leaders:
                continue
            if not leader:
                unknown.add(self._map.by_entry[entry].topic_partition.topic)
            elif can_number and self._may_send(at):
                left_ms = self._left_ms(at, now_ms)
                if left_ms > 0:
                    delay_ms = min(delay_ms, left_ms)
                else:
                    leaders.add(leader)
        return ReadyCheckResult({cluster.nodes[leader - 1] for leader in leaders}, delay_ms, unknown)

    def _may_send(self, at: int) -> bool:
        """Say whether a partition neither waits for an answer nor has all the requests in flight that it may have."""
        words = self._words
        waits = words[at + Partition.MUTED] or words[at + Partition.HELD]
        return not waits and words[at + Partition.IN_FLIGHT] < self._max_in_flight

    def _left_ms(self, at: int, now_ms: int) -> float:
        """Return how long a partition's first batch is not to be sent yet.

        Only this thread takes batches from the front, so what the head says stays true without the lock.
        """
        words = self._words
        slot = words[at + Partition.HEAD] - 1
        left_ms = self._not_due_ms(slot, now_ms)
        if left_ms > 0 or words[at + Partition.QUEUED] > 1:
            return left_ms
        header = self._headers_at + slot * self._header_words
        if words[header + Slot.STATE] & STATE_MASK != _OPEN:
            return 0
        left_ms = self._linger_ms - max(0, now_ms - (words[header + Slot.ATTEMPTS] & TIME_MASK))
        return 0 if left_ms > 0 and self._all_is_urgent() else left_ms

    def _not_due_ms(self, slot: int, now_ms: int) -> float:
        """Return how long a first batch still backs off, or is left to the producer that compresses it."""
        words, header = self._words, self._headers_at + slot * self._header_words
        sealing_since_ms = words[header + Slot.SEALING]
        left_ms = sealing_since_ms + SEALING_PATIENCE_MS - now_ms if sealing_since_ms else 0
        attempts = words[header + Slot.ATTEMPTS]
        if left_ms > 0 or not attempts >> ATTEMPTS_SHIFT:
            return left_ms
        backoff_ms = self._backoff.after_last_attempt_ms(self._slab.headers[slot : slot + 1])[0]
        return float(backoff_ms) - max(0, now_ms - (attempts & TIME_MASK))

    def _all_is_urgent(self) -> bool:
        """Say whether nothing may linger, which does not change in the middle of a look."""
        if self._is_urgent is None:
            self._is_urgent = self._pool.is_exhausted() or self.closed or self.flush_in_progress()
        return self._is_urgent

    def _without_lingering(self, waiting: npt.NDArray[np.int64], now_ms: int) -> tuple[npt.NDArray[np.int64], float]:
        """Leave out of many partitions, at once, those of which nothing can be said but that they linger.

        Returns:
            The others; and how long to wait for the first of those left out.
        """
        rows = self._slab.partitions[waiting]
        heads = self._slab.headers[rows[:, Partition.HEAD].astype(np.int64) - 1]
        waits = rows[:, Partition.MUTED] | rows[:, Partition.HELD] | rows[:, Partition.IN_FLIGHT]
        is_plain = (waits == 0) & (rows[:, Partition.LEADER] != 0) & (rows[:, Partition.QUEUED] == 1)
        left_ms = heads[:, Slot.CREATED_MS].astype(np.float64) + (self._linger_ms - now_ms)
        lingers = is_plain & ((heads[:, Slot.STATE] & _STATE) == _OPEN) & (left_ms > 0)
        if not lingers.any() or self._all_is_urgent():
            return waiting, FOREVER_MS
        return waiting[~lingers], float(left_ms[lingers].min())

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
        if self._sequences.need_producer_id:
            return {node.id: [] for node in nodes}
        return {node.id: self._drain_node(node, max_size, now_ms) for node in nodes}

    def _drain_node(self, node: Node, max_size: int, now_ms: int) -> list[RecordBatch]:
        table = self._slab.partitions
        entries = (table[:, Partition.HEAD] * (table[:, Partition.LEADER] == node.id + 1)).nonzero()[0].tolist()
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
            at = self._partitions_at + entry * PARTITION_WORDS
            head = self._words[at + Partition.HEAD]
            if not self._may_send(at) or not head or self._not_due_ms(head - 1, now_ms) > 0:
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
                if (
                    slot >= 0
                    and self._not_due_ms(slot, now_ms) <= 0
                    and self._stored_size(slot) <= largest[queue.entry]
                ):
                    taken[queue.entry] = queue.pop_first()

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
