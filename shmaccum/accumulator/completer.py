"""The end of a batch, or of a part of it: everybody who contributed is told, once, and the memory is free again.

A result counts from the store of the state COMPLETING on. What follows is the same for the sender that stored it and,
if that one dies, for its successor: tell those who have not been told, then free the slot; or, where the result is
only of a part, count that part as settled and put the batch back, to go on with the rest. Only a batch that is given
up while it is in flight keeps its slot after that, until the transport has let go of its memory.

Modelled, but for parts and for what is given up in flight, in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from shmaccum.accumulator.completion import RingWriter, pack_result, unpack_result
from shmaccum.accumulator.patience import BatchReturns, Patience
from shmaccum.accumulator.record_batch import RecordBatch
from shmaccum.accumulator.sequences import Sequences
from shmaccum.errors import KafkaError, LockTimeoutError
from shmaccum.pool.buffer_pool import Buffer, BufferPool
from shmaccum.shm.layout import STATE_MASK, Partition, Slot, SlotState, Super
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)


class BatchOutcome(NamedTuple):
    """What became of a batch, or of its records from the first that is not settled up to ``end``."""

    batch: RecordBatch
    base_offset: int = -1
    append_time_ms: int = -1
    error: type[KafkaError] | None = None
    end: int = 0
    """The record behind the last one that it is of; 0 for all records that are left."""

    @property
    def records(self) -> int:
        """How many records it is of."""
        return (self.end or self.batch.record_count) - self.batch.settled


class BatchCompleter:
    """Completes batches of a slab.

    Args:
        slab: where they are.
        pool: takes their memory.
        partition_map: names their partitions.
        returns: the way back into the deques, for those of which records are left.
        sequences: hears which batches the broker has, and which are done with.
        patience: with those who hold a lock.
    """

    def __init__(
        self,
        slab: Slab,
        pool: BufferPool,
        partition_map: PartitionMap,
        returns: BatchReturns,
        sequences: Sequences,
        patience: Patience,
    ) -> None:
        self._slab = slab
        self._words = slab.words
        self._pool = pool
        self._map = partition_map
        self._returns = returns
        self._sequences = sequences
        self._patience = patience
        self._to_free: list[Buffer] = []
        self._barrier = threading.Lock()
        self._rings = RingWriter(slab.words, slab.geometry)

    def complete(self, outcomes: Iterable[BatchOutcome]) -> None:
        """Tell everybody who contributed what became of their batches, which come from flight; free those done."""
        batches = []
        for outcome in outcomes:
            batch = outcome.batch
            if outcome.error is None:
                self._sequences.stored(batch, outcome.records)
            self._conclude(outcome)
            self._words[self._partition(batch) + Partition.IN_FLIGHT] -= 1
            if not batch.in_pieces:
                self._sequences.finished(batch)
            batches.append(batch)
        for batch in self.finish(batches):
            self._sequences.review(batch.partition)

    def give_up_in_flight(self, outcomes: Sequence[BatchOutcome]) -> None:
        """Tell everybody who contributed to batches in flight that they are given up. `release` frees the slots."""
        told: set[int] = set()
        for outcome in outcomes:
            self._conclude(outcome)
            self._sequences.finished(outcome.batch)
            told.update(self._tell(outcome.batch))
        self._ring(told)

    def release(self, batch: RecordBatch, *, stored: bool) -> None:
        """Free a batch that was given up in flight, now that it is answered; ``stored`` if it came through."""
        if stored:
            self._sequences.stored(batch, (batch.piece_end or batch.record_count) - batch.settled)
        self._words[self._partition(batch) + Partition.IN_FLIGHT] -= 1
        self._sequences.review(batch.partition)
        self.deallocate(batch)

    def finish(self, batches: Sequence[RecordBatch], *, again: bool = False) -> list[RecordBatch]:
        """Take batches from COMPLETING to FREE, or put them back; ``again`` if a sender before may have begun to.

        Returns:
            Those of which records are left, back in their deques.
        """
        told: set[int] = set()
        done: list[RecordBatch] = []
        left: list[RecordBatch] = []
        for batch in batches:
            if not batch.in_pieces:
                told.update(self._tell(batch, again=again))
                done.append(batch)
                continue
            if batch.settled < batch.part_end:
                told.update(self._tell(batch, again=again))
                batch.settle(never_stored=_was_never_stored(batch))
            if batch.settled < batch.record_count:
                self._returns.put_back(batch, lambda batch: self._sequences.review(batch.partition))
                left.append(batch)
                continue
            self._sequences.give_back(batch)
            if not again:
                self._sequences.finished(batch)
            done.append(batch)
        self.deallocate(*done)
        self._ring(told)
        return left

    def can_tell_of_a_piece(self, batch: RecordBatch, pieces_in_flight: int) -> bool:
        """Say whether one more piece can be sent: all who wait for the batch have room in their rings for its end.

        See `shmaccum.accumulator.completion` for why this is enough.
        """
        states = self._slab.headers[:, Slot.STATE] & np.uint64(STATE_MASK)
        owed = int(np.count_nonzero(states != SlotState.FREE)) + pieces_in_flight
        alive = filter(self._slab.processes.is_alive, batch.contributors())
        return all(self._rings.has_room(entry, owed) for entry in alive)

    def is_orphan(self, batch: RecordBatch) -> bool:
        """Say whether all who appended to a batch are dead: nobody hears what becomes of it."""
        return not any(map(self._slab.processes.is_alive, batch.contributors()))

    def deallocate(self, *batches: RecordBatch) -> None:
        """Give the memory of batches back to the pool, telling nobody; now, or as soon as can be."""
        self._to_free += [batch.buffer for batch in batches]
        self.retry()

    def retry(self) -> None:
        """Give memory back that could not be until now."""
        to_free, self._to_free = self._to_free, []
        if to_free:
            try:
                self._pool.deallocate(*to_free, lock=self._patience.with_lock(self._slab.pool_lock))
            except LockTimeoutError:
                self._to_free = to_free

    def _conclude(self, outcome: BatchOutcome) -> None:
        batch = outcome.batch
        if outcome.error is not None and self.is_orphan(batch):
            self._report_loss(outcome, outcome.error)
        if batch.in_pieces:
            batch.set_part(outcome.end or batch.record_count)
        batch.set_result(outcome.base_offset + 1, pack_result(outcome.append_time_ms, outcome.error))
        batch.state = SlotState.COMPLETING
        self._count(outcome)

    def _report_loss(self, outcome: BatchOutcome, error: type[KafkaError]) -> None:
        """Say of records that are given up what nobody else will; before it counts, so that it is never left out."""
        batch = outcome.batch
        self._words[Super.RECORDS_LOST] += outcome.records
        logger.error(
            "%s: lost %d records, of a batch of %d records and %d bytes; those who sent them have died, nobody else "
            "hears of it: %s: %s",
            self._map.by_entry[batch.partition].topic_partition,
            outcome.records,
            batch.record_count,
            batch.size,
            error.__name__,
            error.meaning(),
        )

    def _tell(self, batch: RecordBatch, *, again: bool = False) -> list[int]:
        contributors = batch.contributors()
        range_word = batch.part_range
        for entry in contributors:
            if not (again and self._rings.has_told(entry, batch.batch_id, range_word)):
                self._rings.tell(entry, batch.batch_id, range_word, *batch.result)
        return contributors

    def _ring(self, entries: Iterable[int]) -> None:
        with self._barrier:
            pass  # A full barrier: whoever is not seen listening now will see what it was told.
        for entry in entries:
            self._slab.bells.ring(entry)

    def _count(self, outcome: BatchOutcome) -> None:
        """Count records as they are told of, and a batch as its last part went."""
        words, batch = self._words, outcome.batch
        at = self._partition(batch)
        records = outcome.records
        batches = int(batch.settled + records == batch.record_count)
        if outcome.error is not None:
            words[Super.BATCHES_FAILED] += batches
            words[Super.RECORDS_FAILED] += records
            words[at + Partition.RECORDS_FAILED] += records
            return
        words[Super.BATCHES_SENT] += batches
        words[Super.RECORDS_SENT] += records
        words[Super.FILL_BYTES] += batches * batch.size
        words[Super.CAPACITY_BYTES] += batches * batch.buffer.slots * self._slab.geometry.slot_size
        words[at + Partition.BATCHES_SENT] += batches
        words[at + Partition.RECORDS_SENT] += records
        if outcome.base_offset >= 0:
            words[at + Partition.LAST_OFFSET] = outcome.base_offset + records

    def _partition(self, batch: RecordBatch) -> int:
        return self._slab.geometry.partition(batch.partition)


def _was_never_stored(batch: RecordBatch) -> bool:
    """Say whether the records of the part that is completing are certain not to be in the log.

    They are if a broker refused them for good the first time that it may have seen them.
    """
    _, error = unpack_result(batch.result[1])
    return error is not None and error.code > 0 and not error.retriable and batch.attempts == 0
