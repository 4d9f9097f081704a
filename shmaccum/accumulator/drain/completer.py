"""Completes batches: pushes their outcome to each contributor once, then frees their slots.

`shmaccum._core.Completer` stores and pushes. If a result covers only a part of a split batch, that part counts as
complete, and the batch is put back. A batch that fails while in flight keeps its slot until the transport has released
its memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from shmaccum import _core
from shmaccum._core import STATE_MASK, Buffer, Partition, Sequences, Super
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.accumulator.drain.deferral import BatchReturns
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import KafkaError, LockTimeoutError, TransactionAbortedError, error_for_code
from shmaccum.shm.layout import SlotState

logger = logging.getLogger(__name__)


class BatchOutcome(NamedTuple):
    """Outcome of a batch, or of its records from the first incomplete one to ``end``."""

    batch: RecordBatch
    base_offset: int = -1
    """Offset of the first of the records, -1 if not known."""
    append_time_ms: int = -1
    """The broker's log append time, -1 where the log has the records' own time."""
    error: type[KafkaError] | None = None
    """Why they were not stored."""
    end: int = 0
    """The record behind the last one that it covers; 0 for all that are left."""
    incident: int = 0
    """Number of the incident with the details of the error, 0 for none."""


class BatchCompleter:
    """Completes batches of a slab; its `core` stores and pushes outcomes, and counts."""

    def __init__(
        self, pool: BufferPool, known: PartitionMap, returns: BatchReturns, sequences: Sequences, header_size: int
    ) -> None:
        slab = pool.slab
        self.core: Final = _core.Completer(slab.core, sequences, header_size)
        self._slab = slab
        self._words = slab.words
        self._pool = pool
        self._map = known
        self._returns = returns
        self._sequences = sequences
        self.to_free: list[Buffer] = []
        """Those whose release is deferred."""

    def complete(self, outcomes: Iterable[BatchOutcome]) -> None:
        """Complete batches in flight: push their outcomes to all contributors, free the slots of whole ones."""
        batches = []
        for outcome in outcomes:
            self._conclude(outcome)
            self.core.land(outcome.batch)
            batches.append(outcome.batch)
        self.core.count()
        for batch in self.finish(batches):
            self._sequences.review(batch.partition)

    def give_up_in_flight(self, outcomes: Sequence[BatchOutcome]) -> None:
        """Fail batches that are in flight: push the outcomes. Their slots stay until `release`."""
        contributors: set[int] = set()
        for outcome in outcomes:
            self._conclude(outcome)
            self._sequences.finished(outcome.batch)
            self.core.push(outcome.batch, contributors)
        self.core.count()
        self._wake(contributors)

    def release(self, batch: RecordBatch, *, stored: bool) -> None:
        """Free a batch that failed in flight, once it is answered; ``stored`` if the broker has it after all."""
        if stored:
            self._sequences.stored(batch, (batch.part_end or batch.record_count) - batch.completed)
        self._words[batch.partition_at + Partition.IN_FLIGHT] -= 1
        self._sequences.review(batch.partition)
        self.deallocate([batch])

    def finish(self, batches: Sequence[RecordBatch], again: bool = False) -> list[RecordBatch]:
        """Free batches that are COMPLETING, or put them back; ``again`` if an earlier sender may have begun to.

        Returns those with records left, back in their deques.
        """
        contributors: set[int] = set()
        done: list[RecordBatch] = []
        left: list[RecordBatch] = []
        for batch in batches:
            if not batch.is_split:
                self.core.push(batch, contributors, again)
                done.append(batch)
                continue
            if batch.completed < batch.result_end:
                self.core.push(batch, contributors, again)
                # Its records are certainly not in the log if a broker refused them permanently on the first attempt
                # that it can have seen.
                code = batch.error_code
                never_stored = code > 0 and not error_for_code(code).retriable and batch.attempts == 0
                batch.complete_part(never_stored=never_stored)
            if batch.completed < batch.record_count:
                self._returns.put_back(batch, lambda batch: self._sequences.review(batch.partition))
                left.append(batch)
                continue
            self._sequences.give_back(batch)
            if not again:
                self._sequences.finished(batch)
            done.append(batch)
        self.completed(done, contributors)
        return left

    def completed(self, batches: Sequence[RecordBatch], contributors: Iterable[int]) -> None:
        """Free batches whose outcomes have been pushed to their contributors."""
        self.deallocate(batches)
        self._wake(contributors)

    def has_room_for_part(self, batch: RecordBatch, parts_in_flight: int) -> bool:
        """Return whether every living contributor's ring has room for one more part: ``core/complete.pxi`` has why."""
        owed = len(self._slab.deques.slots_in(SlotState.ALLOCATED, STATE_MASK)) + parts_in_flight
        alive = filter(self._slab.processes.is_alive, batch.contributors())
        return all(self.core.has_room(entry, owed) for entry in alive)

    def is_orphan(self, batch: RecordBatch) -> bool:
        """Return whether all contributors of a batch are dead: no process waits for its outcome."""
        return not any(map(self._slab.processes.is_alive, batch.contributors()))

    def deallocate(self, batches: Sequence[RecordBatch]) -> None:
        """Free the slots of batches without a completion, now or when the pool's lock is available."""
        self.to_free += [batch.buffer() for batch in batches]
        if self.to_free:
            self.retry()

    def retry(self) -> None:
        """Free slots whose release was deferred."""
        to_free, self.to_free = self.to_free, []
        try:
            self._returns.deferral.run(
                self._slab.pool_lock, lambda timeout_s: self._pool.deallocate(*to_free, timeout_s=timeout_s)
            )
        except LockTimeoutError:
            self.to_free = to_free

    def _conclude(self, outcome: BatchOutcome) -> None:
        """Store the outcome of a batch or part."""
        batch, error = outcome.batch, outcome.error
        is_aborted = error is TransactionAbortedError
        if error is not None:
            self._sequences.fail_lane(batch.partition, error.code)  # first: who sees the result sees that
            if not is_aborted and self.is_orphan(batch):
                self._report_loss(batch, (outcome.end or batch.record_count) - batch.completed, error)
        code = 0 if error is None else error.code
        self.core.conclude(
            batch, outcome.base_offset, outcome.append_time_ms, outcome.end, code, outcome.incident, is_aborted
        )

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

    def _wake(self, entries: Iterable[int]) -> None:
        _core.memory_fence()  # a process that is not seen listening after this will see its completions
        for entry in entries:
            self._slab.wakeups.wake_for_completions(entry)
