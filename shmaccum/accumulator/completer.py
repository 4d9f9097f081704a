"""The end of a batch: everybody who contributed is told, once, and the memory is free again.

A result counts from the store of the state COMPLETING on. What follows is the same for the sender that stored it and,
if that one dies, for its successor: tell those who have not been told, then free the slot. Only a batch that is given
up while it is in flight keeps its slot after that, until the transport has let go of its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shmaccum.accumulator.completion import RingWriter, pack_result
from shmaccum.accumulator.record_batch import RecordBatch
from shmaccum.accumulator.sequences import Sequences
from shmaccum.errors import KafkaError
from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.shm.layout import Partition, SlotState, Super
from shmaccum.shm.slab import Slab


class BatchOutcome(NamedTuple):
    """What became of a batch."""

    batch: RecordBatch
    base_offset: int = -1
    append_time_ms: int = -1
    error: type[KafkaError] | None = None


class BatchCompleter:
    """Completes batches of a slab.

    Args:
        slab: where they are.
        pool: takes their memory.
        sequences: hears which batches the broker has, and which are done with.
    """

    def __init__(self, slab: Slab, pool: BufferPool, sequences: Sequences) -> None:
        self._slab = slab
        self._words = slab.words
        self._pool = pool
        self._sequences = sequences
        self._rings = RingWriter(slab.words, slab.geometry)

    def complete(self, outcomes: Iterable[BatchOutcome]) -> None:
        """Tell everybody who contributed what became of their batches, which come from flight; free the slots."""
        batches = []
        for outcome in outcomes:
            batch = outcome.batch
            if outcome.error is None:
                self._sequences.stored(batch)
            self._conclude(outcome)
            self._words[self._partition(batch) + Partition.IN_FLIGHT] -= 1
            self._sequences.finished(batch)
            batches.append(batch)
        self.finish(batches)

    def give_up_in_flight(self, outcomes: Sequence[BatchOutcome]) -> None:
        """Tell everybody who contributed to batches in flight that they are given up. `release` frees the slots."""
        told: set[int] = set()
        for outcome in outcomes:
            self._conclude(outcome)
            self._sequences.finished(outcome.batch)
            told.update(self._tell(outcome.batch))
        with self._slab.pool_lock:
            pass  # a full barrier, see finish
        self._ring(told)

    def release(self, batch: RecordBatch, *, stored: bool) -> None:
        """Free a batch that was given up in flight, now that it is answered; ``stored`` if it came through."""
        if stored:
            self._sequences.stored(batch)
        self._words[self._partition(batch) + Partition.IN_FLIGHT] -= 1
        self._sequences.review(batch.partition)
        self.deallocate(batch)

    def finish(self, batches: Sequence[RecordBatch], *, again: bool = False) -> None:
        """Take batches from COMPLETING to FREE; ``again`` if a sender before this one may have begun to."""
        told: set[int] = set()
        for batch in batches:
            told.update(self._tell(batch, again=again))
        self.deallocate(*batches)
        # After the pool's lock, a full barrier: whoever is not seen listening now will see the ring.
        self._ring(told)

    def deallocate(self, *batches: RecordBatch) -> None:
        """Give the memory of batches back to the pool, telling nobody."""
        if batches:
            self._pool.deallocate(*(batch.buffer for batch in batches))

    def _conclude(self, outcome: BatchOutcome) -> None:
        batch = outcome.batch
        batch.set_result(outcome.base_offset + 1, pack_result(outcome.append_time_ms, outcome.error))
        batch.state = SlotState.COMPLETING
        self._count(outcome)

    def _tell(self, batch: RecordBatch, *, again: bool = False) -> list[int]:
        contributors = batch.contributors()
        for entry in contributors:
            if not (again and self._rings.has_told(entry, batch.batch_id)):
                self._rings.tell(entry, batch.batch_id, *batch.result)
        return contributors

    def _ring(self, entries: Iterable[int]) -> None:
        for entry in entries:
            self._slab.bells.ring(entry)

    def _count(self, outcome: BatchOutcome) -> None:
        words, batch = self._words, outcome.batch
        at = self._partition(batch)
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

    def _partition(self, batch: RecordBatch) -> int:
        return self._slab.geometry.partition(batch.partition)
