"""Sequence numbers: how a broker knows a batch that comes again (KIP-98), and how to go on after a gap (KIP-360).

The counterpart of the idempotent half of Kafka's ``TransactionManager``, with its state in the slab, so that it
survives the sender. A batch is numbered when it is drained for the first time and keeps its number over retries and
over the death of senders. The invariants:

* A partition's epoch and next sequence are one word. A batch's number counts only if its producer id is the slab's
  and its epoch the partition's. So the store of a new epoch, with sequence 0, makes void all the numbers that were
  given before, at once: this is a *bump*. What is still queued is numbered again as it is drained.
* A batch is numbered anew only if the broker is certain not to have it: nothing of the partition is in flight, and
  the first batch was refused when there was no other before it, and so were those behind it that it may have stored.
  A broker stores no number without the one before it, so it has none of those behind them either.
* Batches that have a number and are tried again go one at a time, in order; and nothing is numbered while the first
  batch without an answer is not the one that the broker expects next, as far as is known. Hence all batches that a
  broker may see again are among its last five. It knows these five, unless it has come back from an unclean end: then
  it knows the last one only (``LogLoader.recoverSegment`` takes a snapshot, which has no more), and answers
  `OUT_OF_ORDER_SEQUENCE_NUMBER` for those before, as for what does not follow. So a batch that is refused is set
  *aside* while there are others behind it that were sent before: if the broker has one of them, it has all before it.
* A broker that does not know a producer id takes any sequence number (since Kafka 2.5). So nothing follows a
  partition's first batch before that is acknowledged: else the second would be stored in front of it if it failed.
* A batch that is sent in pieces has the numbers that it was given as a whole. A record that was never stored takes none
  of them, and what is left over in the end goes to the next batch, if that is not numbered yet.

Where this differs from Kafka: Kafka numbers batches anew as soon as one before them has failed, although they may be
in flight and stored, and as soon as the first is refused. Here they are sent again under their old number first.

What a broker stores of a request whose connection has long been closed, after it has answered the same batch on another
one, nobody can know; an idempotent producer of Kafka has this gap, too.

Only the one sender uses this module, in one thread.

That a batch is numbered once, whenever senders die, is modelled in ``tools/model/pool.pml``; epochs are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shmaccum.accumulator.state.record_batch import SEQUENCES, RecordBatch, next_sequence
from shmaccum.shm.layout import Partition, Slot, SlotState, Super
from shmaccum.shm.slab import Slab

MAX_EPOCH: Final = (1 << 15) - 1
"""A producer id's last epoch (``Short.MAX_VALUE``): behind it comes a new producer id."""

_SUPER_PRODUCER_ID: Final = Super.PRODUCER_ID
_IN_FLIGHT: Final = Partition.IN_FLIGHT
_NEXT_SEQUENCE: Final = Partition.NEXT_SEQUENCE
_ACKED_SEQUENCE: Final = Partition.ACKED_SEQUENCE
_HELD: Final = Partition.HELD
_SEQUENCE: Final = Slot.SEQUENCE
_PRODUCER_ID: Final = Slot.PRODUCER_ID
_PIECE: Final = Slot.PIECE

_EPOCH_SHIFT: Final = 32
_SEQUENCE_MASK: Final = 0xFFFF_FFFF
_LAST_SEQUENCE: Final = SEQUENCES - 1
_HALF_OF_SEQUENCES: Final = SEQUENCES // 2


class _Outstanding:
    """What is known of a partition besides its words. A new sender finds it out again.

    Attributes:
        entry: the partition's.
        at: word index of that entry.
        returned: whether one of the batches may be back in the deque.
        batches: in order, those that are numbered and neither acknowledged nor given up; a few.
        alone: slot of the first of them if it was last sent when it was the first one already, else -1.
        refused: whether the broker, asked for it like this, said that it does not follow what is stored.
        aside: those that were refused and may be stored all the same, in order; in flight as far as others know.
    """

    __slots__ = ("alone", "aside", "at", "batches", "entry", "refused", "returned")

    def __init__(self, entry: int, at: int) -> None:
        self.entry = entry
        self.at = at
        self.returned = False
        self.batches: list[RecordBatch] = []
        self.alone = -1
        self.refused = False
        self.aside: list[RecordBatch] = []

    def to_try(self) -> list[RecordBatch]:
        """Return the batches that are not set aside."""
        if not self.aside:
            return self.batches
        aside = {batch.slot for batch in self.aside}
        return [batch for batch in self.batches if batch.slot not in aside]

    def remove(self, slot: int) -> bool:
        """Take the batch in a slot out of `batches`; say whether it was among them."""
        for index in range(len(self.batches)):
            batch = self.batches[index]
            if batch.slot == slot:
                self.batches.pop(index)
                return True
        return False


class Sequences:
    """The producer id of a slab, and the sequence numbers of its partitions.

    Args:
        slab: where they are.
        enabled: ``enable.idempotence``; without it no batch is numbered and nothing is held.
    """

    def __init__(self, slab: Slab, *, enabled: bool) -> None:
        self._slab = slab
        self._words = slab.words
        self._memory = slab.memory
        self._geometry = slab.geometry
        self._enabled = enabled
        self._partitions: list[_Outstanding | None] = []
        """By entry, as far as there was reason to look."""
        self._forget()
        self._id_is_spent = False
        self.aside_count = 0
        """How many batches are set aside, of all partitions."""

    # --- the producer id ----------------------------------------------------------------------------

    @property
    def need_producer_id(self) -> bool:
        """Whether nothing can be numbered, and so nothing sent, before there is a producer id."""
        return self._enabled and not self._memory.words[_SUPER_PRODUCER_ID]

    def use_producer_id(self, producer_id: int, epoch: int) -> None:
        """Number batches under a new producer id from now on; all numbers under an old one are void."""
        words = self._words
        words[Super.PRODUCER_ID] = 0
        table = self._slab.all_partitions
        table[:, [Partition.NEXT_SEQUENCE, Partition.ACKED_SEQUENCE]] = epoch << _EPOCH_SHIFT
        table[:, Partition.HELD] = 0
        words[Super.PRODUCER_EPOCH] = epoch
        words[Super.PRODUCER_ID] = producer_id + 1
        self._forget()

    def replace_producer_id(self) -> None:
        """Have the producer id replaced as soon as the broker can have nothing more that is not known of.

        Until then no new batch is numbered; those that are numbered go on.
        """
        if not self._id_is_spent:
            self._id_is_spent = True
            for partition in self._partitions:
                if partition is not None:
                    self.review(partition.entry)

    # --- the life of a number -----------------------------------------------------------------------

    def is_numbered(self, batch: RecordBatch) -> bool:
        """Say whether a batch has a number that counts."""
        memory = self._memory
        number = memory.words[batch.at + _SEQUENCE]
        return (
            number != 0
            and memory.words[batch.at + _PRODUCER_ID] == memory.words[_SUPER_PRODUCER_ID] != 0
            and (number >> _EPOCH_SHIFT) - 1 == memory.words[batch.partition_at + _NEXT_SEQUENCE] >> _EPOCH_SHIFT
        )

    def drained(self, batch: RecordBatch) -> None:
        """Give a batch that is about to be sent its number, unless it has one."""
        if not self._enabled:
            return
        partition = self._of(batch.partition)
        if not self.is_numbered(batch):
            memory, at = self._memory, partition.at
            next_word = memory.words[at + _NEXT_SEQUENCE]
            epoch = next_word >> _EPOCH_SHIFT
            batch.set_sequence(memory.words[_SUPER_PRODUCER_ID] - 1, epoch, next_word & _SEQUENCE_MASK)
            end = batch.end_sequence()
            memory.words[at + _NEXT_SEQUENCE] = epoch << _EPOCH_SHIFT | end
            partition.batches.append(batch)
        to_try = partition.to_try()
        if to_try:
            first = to_try[0]
            if first.slot == batch.slot:
                partition.alone, partition.refused = first.slot, False
        self._go_on(batch.partition, partition)

    def stored(self, batch: RecordBatch, records: int) -> None:
        """Note that the broker has so many more records of a batch, before anybody is told."""
        if not self.is_numbered(batch):
            return
        memory = self._memory
        number = memory.words[batch.at + _SEQUENCE] & _SEQUENCE_MASK
        end = next_sequence(batch.piece_sequence if memory.words[batch.at + _PIECE] else number, records)
        partition = self._of(batch.partition)
        if 0 < (end - self._acked(partition)) & _LAST_SEQUENCE < _HALF_OF_SEQUENCES:
            epoch = memory.words[partition.at + _NEXT_SEQUENCE] >> _EPOCH_SHIFT
            memory.words[partition.at + _ACKED_SEQUENCE] = epoch << _EPOCH_SHIFT | end
            partition.refused = False

    def refused(self, batch: RecordBatch) -> None:
        """Note that the broker says that a batch does not follow what is stored, or that it knows nothing before it.

        With another one in flight that may still change: the batch is sent again, and refused again if it is true.
        """
        partition = self._of(batch.partition)
        if self._is_asked_for_alone(partition, batch):
            partition.refused = True

    def is_stored(self, batch: RecordBatch) -> bool:
        """Say whether the broker has a batch for certain, whatever it answers: it has one behind it."""
        if batch.in_pieces or not self.is_numbered(batch):
            return False
        return (self._acked(self._of(batch.partition)) - batch.end_sequence()) & _LAST_SEQUENCE < _HALF_OF_SEQUENCES

    def set_aside(self, batch: RecordBatch) -> bool:
        """Set aside a batch of which the broker says that it does not follow what is stored, or say that it cannot be.

        It can if others behind it were sent before, and are to be sent again. It stays in flight, in no deque, until
        `take_aside`: after the next answer for one of the partition's batches that is not set aside in its turn.
        """
        partition = self._of(batch.partition)
        behind = [each for each in partition.to_try() if each.slot != batch.slot]
        if (
            not behind
            or not self._is_asked_for_alone(partition, batch)
            or any(each.in_pieces for each in (batch, *behind))
        ):
            return False
        partition.aside.append(batch)
        partition.alone = -1
        self.aside_count += 1
        self.review(batch.partition)
        return True

    def is_aside(self, batch: RecordBatch) -> bool:
        """Say whether a batch is set aside."""
        return any(each.slot == batch.slot for each in self._of(batch.partition).aside)

    def take_aside(self, entry: int) -> list[RecordBatch]:
        """Return the batches of a partition that are set aside, in order; they are it no more."""
        partition = self._of(entry)
        aside, partition.aside = partition.aside, []
        self.aside_count -= len(aside)
        return aside

    def left_aside(self) -> list[int]:
        """Return the entries of partitions with batches set aside and none left that would tell of them."""
        return [
            partition.entry
            for partition in self._partitions
            if partition is not None and partition.aside and not partition.to_try()
        ]

    def finished(self, batch: RecordBatch) -> None:
        """Note that a batch is acknowledged or given up; what became of it, if it is still in flight, is not known."""
        if not self._enabled:
            return
        partition = self._of(batch.partition)
        if partition.remove(batch.slot) and partition.alone == batch.slot:
            partition.alone, partition.refused = -1, False
        self._go_on(batch.partition, partition)

    def give_back(self, batch: RecordBatch) -> None:
        """Let the next batch have the numbers that one kept for records that were never stored, if it has none yet.

        A sender that died after this has left another number: the second time changes nothing.
        """
        epoch, end = batch.producer_epoch, batch.end_sequence()
        if batch.skipped and self.is_numbered(batch) and self._next(batch.partition) & _SEQUENCE_MASK == end:
            self._set_next(batch.partition, epoch, next_sequence(end, -batch.skipped))

    def log_replaced(self, entry: int) -> None:
        """Note that a partition's topic was made again: its log is empty, and knows nobody.

        The broker takes any number then, so that the next batch must travel alone, as a partition's first. Batches that
        are numbered keep their numbers: one of them may be in the new log already. With none, the partition is bumped.
        """
        if self._enabled:
            at = self._geometry.partition(entry)
            self._words[at + _ACKED_SEQUENCE] = self._next(entry) >> _EPOCH_SHIFT << _EPOCH_SHIFT
            self.review(entry)

    def recover(self, held: Iterable[RecordBatch], entries: int) -> None:
        """Go on where the last sender died.

        Args:
            held: all batches of the slab, those in flight put back.
            entries: number of partitions.
        """
        if not self._enabled:
            return
        self._forget()
        for batch in sorted(held, key=lambda batch: batch.position):
            if self.is_numbered(batch):
                next_word = batch.producer_epoch << _EPOCH_SHIFT | batch.piece_sequence
                if self._next(batch.partition) == next_word:  # died between the two stores of drained
                    self._set_next(batch.partition, batch.producer_epoch, batch.end_sequence())
                self._of(batch.partition).batches.append(batch)
        for entry in range(entries):
            self.review(entry)

    # --- what may go on -----------------------------------------------------------------------------

    def review(self, entry: int) -> None:
        """After anything else that concerns a partition: bump it if that is due, and say whether it may go on."""
        if not self._words[Super.PRODUCER_ID]:
            return
        partition = self._of(entry)
        if self._leads_nowhere(partition):
            self._bump(partition)
        states = [batch.state for batch in partition.to_try()]
        partition.returned = SlotState.CLOSED in states
        self._words[partition.at + Partition.HELD] = self._is_held(partition, states)
        if self._id_is_spent and self._nothing_is_unknown():
            self._words[Super.PRODUCER_ID] = 0
            self._forget()
            self._id_is_spent = False

    def _is_asked_for_alone(self, partition: _Outstanding, batch: RecordBatch) -> bool:
        """Say whether a batch in flight was sent as the first, and no other is but those that are set aside."""
        in_flight = self._words[partition.at + Partition.IN_FLIGHT]
        return partition.alone == batch.slot and in_flight == len(partition.aside) + 1

    def _go_on(self, entry: int, partition: _Outstanding) -> None:
        """Review a partition after a batch of it was sent or answered: in the usual case there is little to see."""
        memory = self._memory
        if (
            partition.returned
            or partition.refused
            or partition.aside
            or self._id_is_spent
            or not self._is_settled(partition)
        ):
            self.review(entry)
        elif memory.words[_SUPER_PRODUCER_ID]:
            memory.words[partition.at + _HELD] = 1 if partition.batches and not self._is_known(partition) else 0

    def _leads_nowhere(self, partition: _Outstanding) -> bool:
        """Say whether the numbers that were given lead nowhere, and the broker has none of those that are queued."""
        if self._words[partition.at + Partition.IN_FLIGHT]:
            return False
        return partition.refused if partition.batches else not self._is_settled(partition)

    def _bump(self, partition: _Outstanding) -> None:
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
            return states[0] != SlotState.CLOSED  # the first in the deque is tried again, after those before it
        if partition.aside:
            return True  # until it is known what has become of them
        if partition.batches and not self._is_known(partition):
            return True
        return self._id_is_spent or not self._is_settled(partition)

    def _is_settled(self, partition: _Outstanding) -> bool:
        """Say whether the first batch without an answer, or else the next one, is what the broker expects."""
        memory = self._memory
        expected = memory.words[partition.at + _NEXT_SEQUENCE] & _SEQUENCE_MASK
        if partition.batches:
            first = partition.batches[0]
            number = memory.words[first.at + _SEQUENCE] & _SEQUENCE_MASK
            expected = first.piece_sequence if memory.words[first.at + _PIECE] else number
        return expected == self._acked(partition)

    def _is_known(self, partition: _Outstanding) -> bool:
        """Say whether the broker has acknowledged anything of the producer id in a partition."""
        return self._memory.words[partition.at + _ACKED_SEQUENCE] & _SEQUENCE_MASK != 0

    def _nothing_is_unknown(self) -> bool:
        return all(
            self._words[partition.at + Partition.IN_FLIGHT] == 0 and (partition.refused or not partition.batches)
            for partition in self._partitions
            if partition is not None
        )

    # --- words --------------------------------------------------------------------------------------

    def _of(self, entry: int) -> _Outstanding:
        partition = self._partitions[entry]
        if partition is None:
            partition = self._partitions[entry] = _Outstanding(entry, self._geometry.partition(entry))
        return partition

    def _forget(self) -> None:
        self._partitions = [None] * self._geometry.max_partitions

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
