"""The end of a batch, or of a part of it: everybody who contributed is told, once, and the memory is free again.

A result counts from the store of the state COMPLETING on. What follows is the same for the sender that stored it and,
if that one dies, for its successor: tell those who have not been told, then free the slot; or, where the result is
only of a part, count that part as settled and put the batch back, to go on with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from shmaccum.accumulator.completion import RingWriter, pack_result, unpack_result
from shmaccum.accumulator.record_batch import RecordBatch, next_sequence
from shmaccum.errors import KafkaError
from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.shm.layout import STATE_MASK, Partition, Slot, SlotState, Super
from shmaccum.shm.slab import Slab


class BatchOutcome(NamedTuple):
    """What became of a batch, or of its records from the first that is not settled up to ``end``."""

    batch: RecordBatch
    base_offset: int = -1
    append_time_ms: int = -1
    error: type[KafkaError] | None = None
    end: int = 0
    """The record behind the last one that it is of; 0 for all records that are left."""


class BatchCompleter:
    """Completes batches of a slab.

    Args:
        slab: where they are.
        pool: takes their memory.
        put_back: puts a batch, of which records are left, back to its place in its deque.
    """

    def __init__(self, slab: Slab, pool: BufferPool, put_back: Callable[[RecordBatch], None]) -> None:
        self._slab = slab
        self._words = slab.words
        self._pool = pool
        self._put_back = put_back
        self._rings = RingWriter(slab.words, slab.geometry)

    def complete(self, outcomes: Iterable[BatchOutcome]) -> None:
        """Tell everybody who contributed what became of their batches; free the slots of those that are done."""
        batches = []
        for outcome in outcomes:
            batch = outcome.batch
            if batch.state == SlotState.IN_FLIGHT:
                self._words[self._partition(batch) + Partition.IN_FLIGHT] -= 1
            if batch.in_pieces:
                batch.set_part(outcome.end or batch.record_count)
            batch.set_result(outcome.base_offset + 1, pack_result(outcome.append_time_ms, outcome.error))
            batch.state = SlotState.COMPLETING
            self._count(outcome)
            batches.append(batch)
        self.finish(batches)

    def finish(self, batches: list[RecordBatch], *, again: bool = False) -> None:
        """Take batches on from COMPLETING; ``again`` if a sender before this one may have begun to."""
        told: set[int] = set()
        done: list[RecordBatch] = []
        for batch in batches:
            if not batch.in_pieces:
                told.update(self._tell(batch, again))
                done.append(batch)
                continue
            if batch.settled < batch.part_end:
                told.update(self._tell(batch, again))
                batch.settle(never_stored=_was_never_stored(batch))
            if batch.settled < batch.record_count:
                self._put_back(batch)
            else:
                self._give_back_sequences(batch)
                done.append(batch)
        self.deallocate(*done)
        # After a lock, a full barrier: whoever is not seen listening now will see the ring.
        for entry in told:
            self._slab.bells.ring(entry)

    def _tell(self, batch: RecordBatch, again: bool) -> list[int]:
        contributors = batch.contributors()
        range_word = batch.part_range
        for entry in contributors:
            if not (again and self._rings.has_told(entry, batch.batch_id, range_word)):
                self._rings.tell(entry, batch.batch_id, range_word, *batch.result)
        return contributors

    def can_tell_of_a_piece(self, batch: RecordBatch, pieces_in_flight: int) -> bool:
        """Say whether one more piece can be sent: all who wait for the batch have room in their rings for its end.

        See `shmaccum.accumulator.completion` for why this is enough.
        """
        states = self._slab.headers[:, Slot.STATE] & np.uint64(STATE_MASK)
        owed = int(np.count_nonzero(states != SlotState.FREE)) + pieces_in_flight
        alive = filter(self._slab.processes.is_alive, batch.contributors())
        return all(self._rings.has_room(entry, owed) for entry in alive)

    def deallocate(self, *batches: RecordBatch) -> None:
        """Give the memory of batches back to the pool, telling nobody."""
        if batches:
            self._pool.deallocate(*(batch.buffer for batch in batches))

    def _give_back_sequences(self, batch: RecordBatch) -> None:
        """Let the next batch have the sequence numbers that this one kept for records that were never stored.

        Where the batches behind it are numbered already there is a gap, and the broker will say so.
        """
        at = self._partition(batch) + Partition.NEXT_SEQUENCE
        kept = next_sequence(batch.base_sequence, batch.record_count)
        # A sender that died after this store left another number there: the second time changes nothing.
        if batch.has_sequence and batch.skipped and self._words[at] == kept:
            self._words[at] = next_sequence(batch.base_sequence, batch.record_count - batch.skipped)

    def _count(self, outcome: BatchOutcome) -> None:
        """Count records as they are told of, and a batch as its last part went."""
        words, batch = self._words, outcome.batch
        at = self._partition(batch)
        end = outcome.end or batch.record_count
        records = end - batch.settled
        batches = int(end == batch.record_count)
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
