"""Decides what the broker has of the batches that it refused as out of order.

A broker that lost its memory of a producer refuses a batch that it has with the same answer as one behind a gap
(``core/sequences.pxi`` explains why). The refused batch becomes *undecided*. The sender keeps it in
flight, and sends the next batch that was sent before, alone:

* The broker has that one: it stores no batch without the one before it, so it has all undecided batches, too. Unless
  each of their answers was a refusal: then it had forgotten the producer, and does not have them.
* It refuses that one, too: that one becomes undecided in turn.
* Any other answer, or no batch left to send: the undecided ones go back into their deque, and are sent again.

Of shared memory this writes nothing itself.
"""

from __future__ import annotations

from shmaccum._core import ReadyCheck, Segment, Sequences
from shmaccum.accumulator.drain.batch_drainer import BatchDrainer
from shmaccum.accumulator.drain.completer import BatchCompleter, BatchOutcome
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.shm.layout import SlotState


class SequenceDoubt:
    """Makes batches undecided, and decides them by the answers for later ones."""

    def __init__(
        self,
        segment: Segment,
        sequences: Sequences,
        check: ReadyCheck,
        completer: BatchCompleter,
        drainer: BatchDrainer,
    ) -> None:
        self._segment = segment
        self._sequences = sequences
        self._check = check
        self._completer = completer
        self._drainer = drainer

    def suspend(self, batch: RecordBatch) -> bool:
        """Make a batch that was refused as out of order undecided; return False if it must be reenqueued instead."""
        if not self._sequences.can_be_decided(batch):
            self._sequences.refused(batch)
            return False
        self._sequences.suspend(batch)
        self._check.let_move(batch.partition)
        return True

    def confirm(self, batch: RecordBatch, now_ms: int) -> list[BatchOutcome]:
        """Note that the broker has a batch; return the undecided ones before it, in order, with unknown offsets.

        Those that it certainly does not have are sent again.
        """
        if not self._sequences.undecided_count:
            return []
        outcomes = []
        for each in self._take(batch.partition):
            is_stored = not self._sequences.is_missing(each)
            if self._release_expired(each, stored=is_stored):
                continue
            if is_stored:
                outcomes.append(BatchOutcome(each))
            else:
                self._drainer.reenqueue(each, now_ms)
        return outcomes

    def refute(self, batch: RecordBatch, now_ms: int) -> None:
        """Note that the broker refused a batch: unless this made it undecided, the ones before it are sent again."""
        if self._sequences.undecided_count and not self._sequences.is_undecided(batch):
            self._reenqueue(batch.partition, now_ms)

    def give_up(self, now_ms: int) -> None:
        """Reenqueue the undecided batches that no other batch is left to decide."""
        for entry in self._sequences.undecided_partitions():
            if not self._sequences.has_more_to_try(entry):
                self._reenqueue(entry, now_ms)

    def _reenqueue(self, entry: int, now_ms: int) -> None:
        for batch in self._take(entry):
            if not self._release_expired(batch, stored=False):
                self._drainer.reenqueue(batch, now_ms)

    def _take(self, entry: int) -> list[RecordBatch]:
        return [RecordBatch(self._segment, slot) for slot in self._sequences.take_undecided(entry)]

    def _release_expired(self, batch: RecordBatch, *, stored: bool) -> bool:
        """Free a batch that expired while it was undecided; return False if it did not expire."""
        if batch.state != SlotState.COMPLETING:
            return False
        self._completer.release(batch, stored=stored)
        return True
