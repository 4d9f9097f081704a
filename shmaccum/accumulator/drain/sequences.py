"""Sequence numbers of an idempotent producer, kept in the slab (KIP-98, KIP-360).

The counterpart of the idempotent half of Kafka's ``TransactionManager``. A broker recognizes a batch that comes again
by its number. A batch is numbered at its first drain, and keeps the number over retries and deaths of senders.

Only the sender uses this module, in one thread, and alone writes these words, without a lock: Super.PRODUCER_ID and
PRODUCER_EPOCH, a partition's NEXT_SEQUENCE, ACKED_SEQUENCE and HELD, a batch's PRODUCER_ID and SEQUENCE. After its
death `recover` completes a half-done numbering; what else is known (`_Outstanding`) the next sender finds out again.

Partitions of a lane have the lane's producer id and epoch, which its holder stores in an empty lane, with the first
two of a partition's words. There is no bump for them: what a bump would mend fails the transaction (Lane.ERROR).

The invariants:

* A partition's epoch and next sequence are one word. A number counts only if its producer id is the slab's and its
  epoch the partition's. So one store of a new epoch, with sequence 0, voids all numbers given before: a *bump*.
  Queued batches get new numbers as they are drained.
* A bump needs certainty that the broker has none of the numbered batches. Nothing of the partition may be in flight.
  The first batch must have been refused when no other preceded it, and so must the later ones that the broker can have
  stored. A broker stores no number without the one before it, so it has none of the later batches either.
* Numbered batches that are sent again go one at a time, in order. No batch is numbered while the first unanswered one
  is not, as far as is known, the one that the broker expects next. Hence every batch that a broker can see again is
  among its last five.
* A broker knows these five, but after an unclean shutdown only the last one (``LogLoader.recoverSegment`` takes a
  snapshot of just that). It then answers `OUT_OF_ORDER_SEQUENCE_NUMBER` for the earlier ones, as for a gap. So a
  refused batch is *undecided* while later ones that were sent before remain: if the broker has one of them, it has
  all before it (`shmaccum.accumulator.drain.sequence_doubt`).
* A broker that does not know a producer id accepts any sequence number (since Kafka 2.5). So nothing follows a
  partition's first batch until that is acknowledged: if it failed, the second would be stored in front of it.
* A split batch keeps the numbers that it got as a whole. A record that was never stored uses none of them; unused
  numbers go to the next batch in the end, if that is not numbered yet.

Unlike here, Kafka renumbers batches as soon as one before them has failed, even if they are in flight and stored, and
as soon as the first is refused. Here they are sent again under their old number first.

One gap remains, as in Kafka's idempotent producer. A broker can store a request of a connection closed long ago, after
it has answered the same batch on another one. No producer can know that.

``tools/model/pool.pml`` models that a batch is numbered once, whenever senders die; it does not model epochs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from shmaccum.accumulator.drain.undecided_batches import UndecidedBatches
from shmaccum.accumulator.state.record_batch import SEQUENCES, RecordBatch, next_sequence
from shmaccum.errors import KafkaError, OutOfOrderSequenceError
from shmaccum.shm.layout import KEY_LANE_SHIFT, LANE_ERROR, Lane, Partition, Slot, SlotState, Super
from shmaccum.shm.slab import Slab
from shmaccum.shm.validation import MAX_EPOCH

_SUPER_PRODUCER_ID: Final = Super.PRODUCER_ID
_LANE_PRODUCER_ID: Final = Lane.PRODUCER_ID
_NEXT_SEQUENCE: Final = Partition.NEXT_SEQUENCE
_ACKED_SEQUENCE: Final = Partition.ACKED_SEQUENCE
_HELD: Final = Partition.HELD
_SEQUENCE: Final = Slot.SEQUENCE
_PRODUCER_ID: Final = Slot.PRODUCER_ID
_PART: Final = Slot.PART

_EPOCH_SHIFT: Final = 32
_CODE_MASK: Final = 0xFFFF
_SEQUENCE_MASK: Final = 0xFFFF_FFFF
_LAST_SEQUENCE: Final = SEQUENCES - 1
_HALF_OF_SEQUENCES: Final = SEQUENCES // 2


class _Outstanding:
    """What the sender knows of a partition besides its words. A new sender finds it out again.

    Attributes:
        entry: the partition's.
        at: word index of that entry.
        lane_at: word index of its lane; 0 outside of transactions.
        id_at: word index of its producer id.
        returned: whether one of the batches may be back in the deque.
        batches: in order, the few that are numbered and neither acknowledged nor failed.
        alone: slot of the first of them if it already was the first when it was last sent, else -1.
        refused: whether the broker then answered that it does not follow what is stored.
    """

    __slots__ = ("alone", "at", "batches", "entry", "id_at", "lane_at", "refused", "returned")

    def __init__(self, entry: int, at: int, lane_at: int) -> None:
        self.entry = entry
        self.at = at
        self.lane_at = lane_at
        self.id_at = lane_at + _LANE_PRODUCER_ID if lane_at else _SUPER_PRODUCER_ID
        self.returned = False
        self.batches: list[RecordBatch] = []
        self.alone = -1
        self.refused = False

    def remove(self, slot: int) -> bool:
        """Remove the batch in a slot from `batches`; return whether it was among them."""
        for index in range(len(self.batches)):
            batch = self.batches[index]
            if batch.slot == slot:
                self.batches.pop(index)
                return True
        return False


class Sequences:
    """The producer id of a slab, and the sequence numbers of its partitions.

    Args:
        slab: the slab.
        undecided: the batches not to be sent until they are decided.
        enabled: ``enable.idempotence``; without it no batch is numbered and nothing is held.

    Attributes:
        lanes_failed: whether any transaction has failed since the caller last set this to False.
    """

    def __init__(self, slab: Slab, undecided: UndecidedBatches, *, enabled: bool) -> None:
        self._slab = slab
        self._words = slab.words
        self._memory = slab.memory
        self._geometry = slab.geometry
        self._undecided = undecided
        self._enabled = enabled
        self._partitions: list[_Outstanding | None] = []
        """By entry; None until first used."""
        self._forget()
        self._id_is_spent = False
        self.lanes_failed = False

    # --- the producer id ----------------------------------------------------------------------------

    @property
    def need_producer_id(self) -> bool:
        """Whether numbering, and so sending, must wait for a producer id."""
        return self._enabled and not self._memory.words[_SUPER_PRODUCER_ID]

    def use_producer_id(self, producer_id: int, epoch: int) -> None:
        """Number batches under a new producer id from now on; all numbers under an old one are void."""
        words = self._words
        words[Super.PRODUCER_ID] = 0
        table = self._slab.all_partitions
        of_lanes = (table[:, Partition.KEY] >> np.uint64(KEY_LANE_SHIFT)) != 0
        for word in (Partition.NEXT_SEQUENCE, Partition.ACKED_SEQUENCE):
            table[~of_lanes, word] = epoch << _EPOCH_SHIFT
        table[~of_lanes, Partition.HELD] = 0
        words[Super.PRODUCER_EPOCH] = epoch
        words[Super.PRODUCER_ID] = producer_id + 1
        self._forget()

    def replace_producer_id(self) -> None:
        """Replace the producer id once the outcome of every numbered batch is known.

        Until then no new batch is numbered; numbered ones are sent on.
        """
        if not self._id_is_spent:
            self._id_is_spent = True
            for partition in self._partitions:
                if partition is not None:
                    self.review(partition.entry)

    # --- the life of a number -----------------------------------------------------------------------

    def is_numbered(self, batch: RecordBatch) -> bool:
        """Return whether a batch has a number of the current producer id and epoch."""
        return self._is_numbered(batch, self._of(batch.partition))

    def _is_numbered(self, batch: RecordBatch, partition: _Outstanding) -> bool:
        memory = self._memory
        number = memory.words[batch.at + _SEQUENCE]
        return (
            number != 0
            and memory.words[batch.at + _PRODUCER_ID] == memory.words[partition.id_at] != 0
            and (number >> _EPOCH_SHIFT) - 1 == memory.words[batch.partition_at + _NEXT_SEQUENCE] >> _EPOCH_SHIFT
        )

    def drained(self, batch: RecordBatch) -> None:
        """Number a batch that is about to be sent, unless it is numbered.

        One of a lane that its holder has closed meanwhile stays as it is: it must not be sent.
        """
        if not self._enabled:
            return
        partition = self._of(batch.partition)
        if not self._is_numbered(batch, partition):
            memory, at = self._memory, partition.at
            producer_id = memory.words[partition.id_at]
            if not producer_id:
                return
            next_word = memory.words[at + _NEXT_SEQUENCE]
            epoch = next_word >> _EPOCH_SHIFT
            batch.set_sequence(producer_id - 1, epoch, next_word & _SEQUENCE_MASK)
            end = batch.end_sequence()
            memory.words[at + _NEXT_SEQUENCE] = epoch << _EPOCH_SHIFT | end
            partition.batches.append(batch)
        to_try = self._to_try(partition)
        if to_try:
            first = to_try[0]
            if first.slot == batch.slot:
                partition.alone, partition.refused = first.slot, False
        self._go_on(batch.partition, partition)

    def stored(self, batch: RecordBatch, records: int) -> None:
        """Note that the broker has stored ``records`` more of a batch; before its producers can see that."""
        partition = self._of(batch.partition)
        if not self._is_numbered(batch, partition):
            return
        memory = self._memory
        number = memory.words[batch.at + _SEQUENCE] & _SEQUENCE_MASK
        end = next_sequence(batch.part_sequence if memory.words[batch.at + _PART] else number, records)
        if 0 < (end - self._acked(partition)) & _LAST_SEQUENCE < _HALF_OF_SEQUENCES:
            epoch = memory.words[partition.at + _NEXT_SEQUENCE] >> _EPOCH_SHIFT
            memory.words[partition.at + _ACKED_SEQUENCE] = epoch << _EPOCH_SHIFT | end
            partition.refused = False

    def refused(self, batch: RecordBatch) -> None:
        """Note that the broker refused a batch: it does not follow what is stored, or nothing is known before it.

        With another batch in flight that can still change: the batch is sent again, and refused again if it is true.
        """
        partition = self._of(batch.partition)
        if self._is_asked_for_alone(partition, batch):
            partition.refused = True

    def is_stored(self, batch: RecordBatch) -> bool:
        """Return whether the broker certainly has a batch, because it has a later one."""
        if batch.is_split or not self.is_numbered(batch):
            return False
        return (self._acked(self._of(batch.partition)) - batch.end_sequence()) & _LAST_SEQUENCE < _HALF_OF_SEQUENCES

    def can_be_decided(self, batch: RecordBatch) -> bool:
        """Return whether batches behind a refused one were sent before, so that their answers can decide it."""
        partition = self._of(batch.partition)
        behind = [each for each in self._to_try(partition) if each.slot != batch.slot]
        return (
            bool(behind)
            and not partition.lane_at
            and self._is_asked_for_alone(partition, batch)
            and not any(each.is_split for each in (batch, *behind))
        )

    def suspended(self, batch: RecordBatch) -> None:
        """Note that a batch has become undecided: it stays in flight, and the next one is sent."""
        self._of(batch.partition).alone = -1
        self.review(batch.partition)

    def to_try(self, entry: int) -> list[RecordBatch]:
        """Return the numbered batches of a partition that are neither complete nor undecided, in order."""
        return self._to_try(self._of(entry))

    def finished(self, batch: RecordBatch) -> None:
        """Note that a batch is acknowledged or has failed; while in flight, the broker can still store a failed one."""
        if not self._enabled:
            return
        partition = self._of(batch.partition)
        if partition.remove(batch.slot) and partition.alone == batch.slot:
            partition.alone, partition.refused = -1, False
        self._go_on(batch.partition, partition)

    def give_back(self, batch: RecordBatch) -> None:
        """Give the numbers that a split batch did not use to the next batch, if that has none yet.

        Idempotent: a sender that died after this has changed the next number.
        """
        epoch, end = batch.producer_epoch, batch.end_sequence()
        if batch.skipped and self.is_numbered(batch) and self._next(batch.partition) & _SEQUENCE_MASK == end:
            self._set_next(batch.partition, epoch, next_sequence(end, -batch.skipped))

    def log_replaced(self, entry: int) -> None:
        """Note that a partition's topic was recreated: its log is empty and knows no producer.

        The broker then accepts any number, so the next batch must travel alone, as a partition's first. Numbered
        batches keep their numbers: one of them may be in the new log already. Without any, the epoch is bumped.
        """
        if self._enabled:
            at = self._geometry.partition(entry)
            self._words[at + _ACKED_SEQUENCE] = self._next(entry) >> _EPOCH_SHIFT << _EPOCH_SHIFT
            self.review(entry)

    def recover(self, held: Iterable[RecordBatch], entries: int) -> None:
        """Recover from the last sender's death.

        Args:
            held: all batches of the slab, those in flight put back.
            entries: number of partitions.
        """
        if not self._enabled:
            return
        self._forget()
        for batch in sorted(held, key=lambda batch: batch.position):
            if self.is_numbered(batch):
                next_word = batch.producer_epoch << _EPOCH_SHIFT | batch.part_sequence
                if self._next(batch.partition) == next_word:  # a death between the two stores of `drained`
                    self._set_next(batch.partition, batch.producer_epoch, batch.end_sequence())
                self._of(batch.partition).batches.append(batch)
        for entry in range(entries):
            self.review(entry)

    # --- lanes --------------------------------------------------------------------------------------

    def fail_lane(self, entry: int, error: type[KafkaError]) -> None:
        """Fail the transaction of a partition's lane, if it has one and no earlier batch has failed."""
        lane_at = self._of(entry).lane_at
        if lane_at and not self._words[lane_at + Lane.ERROR]:
            self._words[lane_at + Lane.ERROR] = LANE_ERROR | error.code & _CODE_MASK
            self.lanes_failed = True

    def is_closed(self, batch: RecordBatch) -> bool:
        """Return whether a drained batch belongs to a lane that was closed before the batch got a number."""
        partition = self._of(batch.partition)
        return partition.lane_at != 0 and not self._is_numbered(batch, partition)

    def review_lanes(self) -> None:
        """Review all partitions of lanes, because lanes were opened or closed."""
        for partition in self._partitions:
            if partition is not None and partition.lane_at:
                self.review(partition.entry)

    # --- what may go on -----------------------------------------------------------------------------

    def review(self, entry: int) -> None:
        """Bump a partition's epoch if that is due, and store whether it is held; after any other change of it."""
        partition = self._of(entry)
        if not self._words[partition.id_at]:
            return
        if self._leads_nowhere(partition):
            self._bump(partition)
        states = [batch.state for batch in self._to_try(partition)]
        partition.returned = SlotState.CLOSED in states
        self._words[partition.at + Partition.HELD] = self._is_held(partition, states)
        if self._id_is_spent and self._nothing_is_unknown():
            self._words[Super.PRODUCER_ID] = 0
            self._forget()
            self._id_is_spent = False

    def _is_asked_for_alone(self, partition: _Outstanding, batch: RecordBatch) -> bool:
        """Return whether a batch was sent as the first, with none but undecided ones in flight."""
        in_flight = self._words[partition.at + Partition.IN_FLIGHT]
        return partition.alone == batch.slot and in_flight == self._undecided.number_of(partition.entry) + 1

    def _to_try(self, partition: _Outstanding) -> list[RecordBatch]:
        undecided = self._undecided
        if not undecided.number_of(partition.entry):
            return partition.batches
        return [batch for batch in partition.batches if not undecided.has(batch)]

    def _go_on(self, entry: int, partition: _Outstanding) -> None:
        """Review a partition after a batch of it was sent or answered; skips the work in the usual case."""
        memory = self._memory
        if (
            partition.returned
            or partition.refused
            or self._undecided.number_of(entry)
            or self._id_is_spent
            or not self._is_settled(partition)
        ):
            self.review(entry)
        elif memory.words[partition.id_at]:
            memory.words[partition.at + _HELD] = 1 if partition.batches and not self._is_known(partition) else 0

    def _leads_nowhere(self, partition: _Outstanding) -> bool:
        """Return whether the broker certainly has none of the queued batches and cannot accept their numbers."""
        if self._words[partition.at + Partition.IN_FLIGHT]:
            return False
        return partition.refused if partition.batches else not self._is_settled(partition)

    def _bump(self, partition: _Outstanding) -> None:
        if partition.lane_at:
            self.fail_lane(partition.entry, OutOfOrderSequenceError)
            return
        epoch = self._words[partition.at + Partition.NEXT_SEQUENCE] >> _EPOCH_SHIFT
        if epoch < MAX_EPOCH:
            self._words[partition.at + Partition.NEXT_SEQUENCE] = epoch + 1 << _EPOCH_SHIFT
            self._words[Super.EPOCH_BUMPS] += 1
            partition.batches.clear()
            partition.alone, partition.refused = -1, False
        else:
            self.replace_producer_id()

    def _is_held(self, partition: _Outstanding, states: list[SlotState]) -> bool:
        if partition.refused:
            return True  # until nothing is in flight
        if SlotState.CLOSED in states:
            return states[0] != SlotState.CLOSED  # the first one must be back in the deque before it is sent again
        if self._undecided.number_of(partition.entry):
            return True  # until they are decided
        if partition.batches and not self._is_known(partition):
            return True
        return (self._id_is_spent and not partition.lane_at) or not self._is_settled(partition)

    def _is_settled(self, partition: _Outstanding) -> bool:
        """Return whether the broker expects the first unanswered batch, or else the next one."""
        memory = self._memory
        expected = memory.words[partition.at + _NEXT_SEQUENCE] & _SEQUENCE_MASK
        if partition.batches:
            first = partition.batches[0]
            number = memory.words[first.at + _SEQUENCE] & _SEQUENCE_MASK
            expected = first.part_sequence if memory.words[first.at + _PART] else number
        return expected == self._acked(partition)

    def _is_known(self, partition: _Outstanding) -> bool:
        """Return whether the broker has acknowledged any batch of this producer id in a partition."""
        return self._memory.words[partition.at + _ACKED_SEQUENCE] & _SEQUENCE_MASK != 0

    def _nothing_is_unknown(self) -> bool:
        return all(
            self._words[partition.at + Partition.IN_FLIGHT] == 0 and (partition.refused or not partition.batches)
            for partition in self._partitions
            if partition is not None and not partition.lane_at
        )

    # --- words --------------------------------------------------------------------------------------

    def _of(self, entry: int) -> _Outstanding:
        partition = self._partitions[entry]
        if partition is None:
            at = self._geometry.partition(entry)
            lane = self._words[at + Partition.KEY] >> KEY_LANE_SHIFT
            partition = _Outstanding(entry, at, self._geometry.lane(lane - 1) if lane else 0)
            self._partitions[entry] = partition
        return partition

    def _forget(self) -> None:
        """Forget all partitions but those of lanes, which have other producer ids."""
        self._undecided.clear()
        kept = [partition for partition in self._partitions if partition is not None and partition.lane_at]
        self._partitions = [None] * self._geometry.max_partitions
        for partition in kept:
            self._partitions[partition.entry] = partition

    def _next(self, entry: int) -> int:
        return self._words[self._geometry.partition(entry) + Partition.NEXT_SEQUENCE]

    def _set_next(self, entry: int, epoch: int, sequence: int) -> None:
        self._words[self._geometry.partition(entry) + Partition.NEXT_SEQUENCE] = epoch << _EPOCH_SHIFT | sequence

    def _acked(self, partition: _Outstanding) -> int:
        """Return the sequence number that the broker expects next, as far as is known."""
        memory, at = self._memory, partition.at
        acked = memory.words[at + _ACKED_SEQUENCE]
        same_epoch = acked >> _EPOCH_SHIFT == memory.words[at + _NEXT_SEQUENCE] >> _EPOCH_SHIFT
        return acked & _SEQUENCE_MASK if same_epoch else 0
