"""Completes batches: pushes their outcome to each contributor once, then frees their slots.

The result words and the state of a batch in flight are the sender's; no lock guards them. A result counts from the
store of the state COMPLETING on. From there, the sender that stored it and one that takes over after its death do the
same: push the completions that are missing, then free the slot. If the result covers only a part of a split batch,
they count that part as complete and put the batch back. A batch that fails while in flight keeps its slot until the
transport has released its memory. The slab's counters are stored after the states: a death in between loses counts.

Modelled, but for parts and for failures in flight, in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np

from shmaccum._core import Buffer
from shmaccum.accumulator.drain.deferral import BatchReturns, Deferral
from shmaccum.accumulator.drain.sequences import Sequences
from shmaccum.accumulator.state.completion_ring import RingWriter, pack_result, unpack_error
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import KafkaError, LockTimeoutError, TransactionAbortedError
from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.shm import native
from shmaccum.shm.layout import (
    BATCH_SLOT_BITS,
    COMMIT_COUNT_MASK,
    COMMIT_SIZE_SHIFT,
    PROGRESS_MASK,
    STATE_MASK,
    Partition,
    Slot,
    SlotState,
    Super,
)
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)

_COMPLETING: Final = int(SlotState.COMPLETING)

_ALL_BATCHES_FAILED: Final = Super.BATCHES_FAILED
_ALL_RECORDS_FAILED: Final = Super.RECORDS_FAILED
_ALL_BATCHES_SENT: Final = Super.BATCHES_SENT
_ALL_RECORDS_SENT: Final = Super.RECORDS_SENT
_FILL_BYTES: Final = Super.FILL_BYTES
_CAPACITY_BYTES: Final = Super.CAPACITY_BYTES
_IN_FLIGHT: Final = Partition.IN_FLIGHT
_RECORDS_SENT: Final = Partition.RECORDS_SENT
_BATCHES_SENT: Final = Partition.BATCHES_SENT
_RECORDS_FAILED: Final = Partition.RECORDS_FAILED
_BATCHES_FAILED: Final = Partition.BATCHES_FAILED
_LAST_OFFSET: Final = Partition.LAST_OFFSET
_STATE: Final = Slot.STATE
_GENERATION: Final = Slot.GENERATION
_COMMIT: Final = Slot.COMMIT
_BASE_OFFSET: Final = Slot.BASE_OFFSET
_RESULT: Final = Slot.RESULT
_SETTLED: Final = Slot.SETTLED
_PART: Final = Slot.PART
_SLOTS: Final = Slot.SLOTS
_STATE_BITS: Final = STATE_MASK
_COUNT_MASK: Final = COMMIT_COUNT_MASK
_SIZE_SHIFT: Final = COMMIT_SIZE_SHIFT
_PROGRESS_MASK: Final = PROGRESS_MASK
_BATCH_SLOT_BITS: Final = BATCH_SLOT_BITS


class BatchOutcome:
    """Outcome of a batch, or of its records from the first incomplete one to ``end``.

    Attributes:
        batch: the batch.
        base_offset: offset of the first of the records, -1 if not known.
        append_time_ms: the broker's log append time, -1 where the log has the records' own time.
        error: why they were not stored.
        end: the record behind the last one that it covers; 0 for all that are left.
        incident: number of the incident with the details of the error, 0 for none.
    """

    __slots__ = ("append_time_ms", "base_offset", "batch", "end", "error", "incident")

    def __init__(
        self,
        batch: RecordBatch,
        base_offset: int = -1,
        append_time_ms: int = -1,
        error: type[KafkaError] | None = None,
        end: int = 0,
        incident: int = 0,
    ) -> None:
        self.batch = batch
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.error = error
        self.end = end
        self.incident = incident


def stored_at(batch: RecordBatch, base_offset: int, append_time_ms: int, end: int) -> BatchOutcome:
    """Return the outcome of a stored batch or part; bypasses the constructor because there are many."""
    outcome = BatchOutcome.__new__(BatchOutcome)
    outcome.batch = batch
    outcome.base_offset = base_offset
    outcome.append_time_ms = append_time_ms
    outcome.error = None
    outcome.end = end
    outcome.incident = 0
    return outcome


class BatchCompleter:
    """Completes batches of a slab.

    Args:
        slab: the slab.
        pool: where their slots are freed.
        partition_map: the names of their partitions, for logs.
        returns: puts split batches with records left back into their deques.
        sequences: notified of which batches the broker has, and which are complete.
        deferral: of work that a stopped process blocks.
    """

    def __init__(
        self,
        slab: Slab,
        pool: BufferPool,
        partition_map: PartitionMap,
        returns: BatchReturns,
        sequences: Sequences,
        deferral: Deferral,
    ) -> None:
        self._slab = slab
        self._words = slab.words
        self._memory = slab.memory
        self._pool = pool
        self._map = partition_map
        self._returns = returns
        self._sequences = sequences
        self._deferral = deferral
        self._to_free: list[Buffer] = []
        self._barrier = native.Lock()
        self._rings = RingWriter(slab.memory, slab.geometry)

    def complete(self, outcomes: Iterable[BatchOutcome]) -> None:
        """Complete batches in flight: push their outcomes to all contributors, free the slots of whole ones."""
        words = self._memory.words
        batches = []
        tally = _Tally()
        for outcome in outcomes:
            batch = outcome.batch
            self._conclude(batch, outcome, tally)
            words[batch.partition_at + _IN_FLIGHT] -= 1
            if not words[batch.at + _PART]:
                self._sequences.finished(batch)
            batches.append(batch)
        self._count(tally)
        for batch in self.finish(batches):
            self._sequences.review(batch.partition)

    def give_up_in_flight(self, outcomes: Sequence[BatchOutcome]) -> None:
        """Fail batches that are in flight: push the outcomes. Their slots stay until `release`."""
        contributors: set[int] = set()
        tally = _Tally()
        for outcome in outcomes:
            self._conclude(outcome.batch, outcome, tally)
            self._sequences.finished(outcome.batch)
            self._push(outcome.batch, contributors)
        self._count(tally)
        self._wake(contributors)

    def release(self, batch: RecordBatch, *, stored: bool) -> None:
        """Free a batch that failed in flight, once it is answered; ``stored`` if the broker has it after all."""
        if stored:
            self._sequences.stored(batch, (batch.part_end or batch.record_count) - batch.settled)
        self._words[batch.partition_at + Partition.IN_FLIGHT] -= 1
        self._sequences.review(batch.partition)
        self.deallocate([batch])

    def finish(self, batches: Sequence[RecordBatch], again: bool = False) -> list[RecordBatch]:
        """Free batches that are COMPLETING, or put them back; ``again`` if an earlier sender may have begun to.

        Returns:
            Those with records left, back in their deques.
        """
        words = self._memory.words
        contributors: set[int] = set()
        done: list[RecordBatch] = []
        left: list[RecordBatch] = []
        for batch in batches:
            if not words[batch.at + _PART]:
                self._push(batch, contributors, again)
                done.append(batch)
                continue
            if batch.settled < batch.result_end:
                self._push(batch, contributors, again)
                batch.settle(never_stored=_was_never_stored(batch))
            if batch.settled < batch.record_count:
                self._returns.put_back(batch, self._is_back)
                left.append(batch)
                continue
            self._sequences.give_back(batch)
            if not again:
                self._sequences.finished(batch)
            done.append(batch)
        self.deallocate(done)
        self._wake(contributors)
        return left

    def _is_back(self, batch: RecordBatch) -> None:
        self._sequences.review(batch.partition)

    def has_room_for_part(self, batch: RecordBatch, parts_in_flight: int) -> bool:
        """Return whether one more part can be sent: every living contributor's ring has room for its completion.

        `shmaccum.accumulator.state.completion_ring` explains why this is enough.
        """
        states = self._slab.headers[:, Slot.STATE] & np.uint64(STATE_MASK)
        owed = int(np.count_nonzero(states != SlotState.FREE)) + parts_in_flight
        alive = filter(self._slab.processes.is_alive, batch.contributors())
        return all(self._rings.has_room(entry, owed) for entry in alive)

    def is_orphan(self, batch: RecordBatch) -> bool:
        """Return whether all contributors of a batch are dead: no process waits for its outcome."""
        return not any(map(self._slab.processes.is_alive, batch.contributors()))

    def deallocate(self, batches: Sequence[RecordBatch]) -> None:
        """Free the slots of batches without a completion, now or when the pool's lock is available."""
        self._to_free += [batch.buffer() for batch in batches]
        self.retry()

    def retry(self) -> None:
        """Free slots whose release was deferred."""
        to_free, self._to_free = self._to_free, []
        if to_free:
            try:
                self._deferral.run(self._slab.pool_lock, partial(self._free, to_free))
            except LockTimeoutError:
                self._to_free = to_free

    def _free(self, buffers: list[Buffer], timeout_s: float) -> None:
        self._pool.deallocate(*buffers, timeout_s=timeout_s)

    def _conclude(self, batch: RecordBatch, outcome: BatchOutcome, tally: _Tally) -> None:
        """Store the outcome of a batch or part, and add it to a tally."""
        memory = self._memory
        base_offset, error = outcome.base_offset, outcome.error
        at, partition_at = batch.at, batch.partition_at
        commit, state = memory.words[at + _COMMIT], memory.words[at + _STATE]
        count = commit >> 1 & _COUNT_MASK
        end = outcome.end or count
        records = end - (memory.words[at + _SETTLED] & _PROGRESS_MASK)
        if error is None:
            self._sequences.stored(batch, records)
        else:
            self._sequences.fail_lane(batch.partition, error)  # first: who sees the result sees that
            if error is not TransactionAbortedError and self.is_orphan(batch):
                self._report_loss(batch, records, error)
        if memory.words[at + _PART]:
            batch.set_result_end(end)
        batch.set_result(base_offset + 1, pack_result(outcome.append_time_ms, error, outcome.incident))
        memory.words[at + _STATE] = state & ~_STATE_BITS | _COMPLETING
        # Records are counted when their part completes, a batch when its last part does.
        batches = 1 if end == count else 0
        if error is not None:
            tally.batches_failed += batches
            tally.records_failed += records
            memory.words[partition_at + _RECORDS_FAILED] += records
            memory.words[partition_at + _BATCHES_FAILED] += batches
            return
        tally.batches_sent += batches
        tally.records_sent += records
        tally.fill_bytes += batches * (commit >> _SIZE_SHIFT)
        slots = memory.words[at + _SLOTS]
        if slots <= memory.slot_count:  # a damaged number would overflow the sum
            tally.slots += batches * slots
        memory.words[partition_at + _BATCHES_SENT] += batches
        memory.words[partition_at + _RECORDS_SENT] += records
        if base_offset >= 0:
            memory.words[partition_at + _LAST_OFFSET] = base_offset + records

    def _report_loss(self, batch: RecordBatch, records: int, error: type[KafkaError]) -> None:
        """Log records lost with no living contributor; before the state counts, so that no death skips it."""
        self._words[Super.RECORDS_LOST] += records
        logger.error(
            "%s: lost %d records of a batch of %d records and %d bytes; all processes that sent them are dead, so no "
            "future or callback reports this: %s: %s",
            self._map.by_entry[batch.partition].topic_partition,
            records,
            batch.record_count,
            batch.size,
            error.__name__,
            error.meaning(),
        )

    def _push(self, batch: RecordBatch, contributors: set[int], again: bool = False) -> None:
        """Push a batch's result to all of its contributors, and add them to ``contributors``."""
        memory, at = self._memory, batch.at
        batch_id = memory.words[at + _GENERATION] << _BATCH_SLOT_BITS | batch.slot
        range_word = batch.result_range if memory.words[at + _PART] else 0
        entry = batch.next_contributor(0)
        while entry >= 0:
            if not (again and self._rings.has_pushed(entry, batch_id, range_word)):
                self._rings.push(
                    entry, batch_id, range_word, memory.words[at + _BASE_OFFSET], memory.words[at + _RESULT]
                )
            contributors.add(entry)
            entry = batch.next_contributor(entry + 1)

    def _wake(self, entries: Iterable[int]) -> None:
        with self._barrier:
            pass  # A full barrier: a process that is not seen listening after this will see its completions.
        for entry in entries:
            self._slab.wakeups.wake_for_completions(entry)

    def _count(self, tally: _Tally) -> None:
        words = self._memory.words
        if tally.batches_failed or tally.records_failed:
            words[_ALL_BATCHES_FAILED] += tally.batches_failed
            words[_ALL_RECORDS_FAILED] += tally.records_failed
        words[_ALL_BATCHES_SENT] += tally.batches_sent
        words[_ALL_RECORDS_SENT] += tally.records_sent
        words[_FILL_BYTES] += tally.fill_bytes
        words[_CAPACITY_BYTES] += tally.slots * self._memory.slot_size


class _Tally:
    """Sums of some outcomes, added to the slab's counters at once."""

    __slots__ = ("batches_failed", "batches_sent", "fill_bytes", "records_failed", "records_sent", "slots")

    def __init__(self) -> None:
        self.batches_sent = 0
        self.records_sent = 0
        self.batches_failed = 0
        self.records_failed = 0
        self.fill_bytes = 0
        self.slots = 0


def _was_never_stored(batch: RecordBatch) -> bool:
    """Return whether the records of the completing part are certainly not in the log.

    True if a broker refused them permanently on the first attempt that it can have seen.
    """
    error = unpack_error(batch.result[1])
    return error is not None and error.code > 0 and not error.retriable and batch.attempts == 0
