"""Takes batches out of their deques and back: ``RecordAccumulator.drain`` and ``reenqueue``.

Only the sender calls this, in one thread. `shmaccum._core.ReadyCheck` chooses and takes the batches of a request.
Deques change under their partition's lock. Partition.IN_FLIGHT and MUTED, and the header of a batch in flight, are the
sender's alone and need no lock. If the sender dies, `recover` of the next one puts the batches in flight back.
"""

from __future__ import annotations

import contextlib
from functools import partial

from shmaccum._core import STATE_MASK, Partition, Super
from shmaccum.accumulator.drain.completer import BatchCompleter
from shmaccum.accumulator.drain.compression_ahead import CompressionAhead
from shmaccum.accumulator.drain.ready_check import Cluster, ReadyCheck
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import Node
from shmaccum.errors import LockTimeoutError
from shmaccum.shm.layout import SlotState
from shmaccum.shm.slab import Slab


class BatchDrainer:
    """Takes batches out of the deques of a slab, and puts them back."""

    def __init__(
        self, slab: Slab, known: PartitionMap, check: ReadyCheck, completer: BatchCompleter, ahead: CompressionAhead
    ) -> None:
        self._slab = slab
        self._map = known
        self._ready_check = check
        self._sequences = check.sequences
        self._deferral = check.deferral
        self._returns = check.returns
        self._completer = completer
        self._ahead = ahead
        self._words = slab.words
        self._segment = slab.core
        self._drain_index: dict[int, int] = {}
        """Node id -> the partition entry to begin its next request at: one that its last request left out."""

    # --- drain --------------------------------------------------------------------------------------

    def drain(self, cluster: Cluster, node: Node, max_size: int, now_ms: int) -> list[RecordBatch]:
        """Take batches of a node out of the deques: at most one of a partition and ``max_size`` bytes.

        A first batch larger than ``max_size`` is still taken. The partitions of a node take turns in being first, so
        that none starves.
        """
        check, node_id = self._ready_check, node.id
        check.prepare(cluster)
        if self._sequences.need_producer_id:
            return []
        core = check.core
        begin, may_leave = self._drain_index.get(node_id, 0), check.room_to_leave(node_id, now_ms)
        busy, first_left, growing, last_growing, large = core.choose(node_id + 1, begin, max_size, may_leave, now_ms)
        if first_left >= 0:
            self._drain_index[node_id] = first_left
        if growing:
            check.throttle.take(node_id, growing, last_growing)
        for stripe in busy:
            with contextlib.suppress(LockTimeoutError):
                self._deferral.section(self._slab.stripe(stripe), partial(core.take, stripe))
        drained = []
        for slot in core.taken():
            batch = RecordBatch(self._segment, slot)
            self._sequences.drained(batch)
            drained.append(batch)
        if large:
            self._ahead.begin(large)
        return drained

    def mute(self, entry: int) -> None:
        """Send nothing of a partition until `unmute`, to keep order while a batch of it is in flight."""
        self._words[self._slab.geometry.partition(entry) + Partition.MUTED] = 1

    def unmute(self, entry: int) -> None:
        """Undo `mute`."""
        self._words[self._slab.geometry.partition(entry) + Partition.MUTED] = 0

    # --- back ---------------------------------------------------------------------------------------

    def reenqueue(self, batch: RecordBatch, now_ms: int, incident: int = 0) -> None:
        """Put a batch that can succeed later back in front of all later ones; with the number of its incident, or 0."""
        batch.note_attempt(now_ms, incident)
        self._words[Super.BATCHES_RETRIED] += 1
        self._words[batch.partition_at + Partition.BATCHES_RETRIED] += 1
        self._words[batch.partition_at + Partition.RECORDS_RETRIED] += batch.record_count - batch.completed
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

        Raises SlabDamagedError: a word of the slab is damaged.
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
        slots = self._slab.deques.slots_in(SlotState.OPEN, STATE_MASK)
        held = [RecordBatch(self._slab.core, slot) for slot in slots]
        completing = [batch for batch in held if batch.state == SlotState.COMPLETING]
        left = [batch for batch in held if batch.state != SlotState.COMPLETING]
        left += self._completer.finish(completing, again=True)
        for batch in left:
            if batch.state == SlotState.IN_FLIGHT:
                if batch.is_split:
                    batch.note_attempt(batch.last_attempt_ms)  # the broker may have stored the part
                if not self._returns.put_back(batch, self._is_back):
                    self._words[batch.partition_at + Partition.IN_FLIGHT] += 1
        self._sequences.recover(sorted(left, key=lambda batch: batch.position), len(self._map.by_entry))
