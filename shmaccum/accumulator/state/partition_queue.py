"""One partition's deque of batches, linked through the slot headers.

Every word here is written under the partition's lock, by producers and the sender. The truth is in the slot headers:
state OPEN or CLOSED, partition, position. Links, ends and count of the deque are indexes. A state is stored before the
links that follow from it; after a death in between, `rebuild_stripe` recomputes the links. Modelled in
``tools/model/pool.pml``.
"""

from __future__ import annotations

from typing import Final

from shmaccum.accumulator.state import redo_log
from shmaccum.accumulator.state.record_batch import RecordBatch, batch_in
from shmaccum.cluster import TopicPartition
from shmaccum.errors import IllegalStateError, ProducerFencedError
from shmaccum.later import np
from shmaccum.shm.layout import LEASE_SHIFT, STATE_MASK, STRIPES, Lane, Partition, Slot, SlotState, lane_error, state_of
from shmaccum.shm.slab import Slab

# As numpy numbers: numpy looks up methods of an enum's members, and swallows a KeyboardInterrupt during that.

# Constants of this module: C numbers in the compiled form.
_LANE_GENERATION: Final = Lane.GENERATION
_LEASE_SHIFT: Final = LEASE_SHIFT
_LANE_PRODUCER_ID: Final = Lane.PRODUCER_ID
_LANE_ERROR: Final = Lane.ERROR
_HEAD: Final = Partition.HEAD
_TAIL: Final = Partition.TAIL
_QUEUED: Final = Partition.QUEUED
_STATE_WORD: Final = Slot.STATE
_PARTITION: Final = Slot.PARTITION
_POSITION: Final = Slot.POSITION
_PREVIOUS: Final = Slot.PREVIOUS
_NEXT: Final = Slot.NEXT
_SEALING: Final = Slot.SEALING
_STATE_BITS: Final = STATE_MASK
_WITHOUT_STATE: Final = (1 << 64) - 1 - STATE_MASK
_IS_OPEN: Final = int(SlotState.OPEN)
_IS_CLOSED: Final = int(SlotState.CLOSED)
_IN_FLIGHT: Final = int(SlotState.IN_FLIGHT)


class PartitionQueue:
    """The deque of one partition entry, as one process sees it."""

    __slots__ = (
        "_at",
        "_geometry",
        "_header_words",
        "_headers_at",
        "_memory",
        "_slab",
        "_slot_count",
        "_words",
        "entry",
        "head_at",
        "lane",
        "lane_at",
        "lease_generation",
        "lock",
        "open_at",
        "queued_at",
        "topic_partition",
    )

    def __init__(self, slab: Slab, entry: int, topic_partition: TopicPartition, lane: int = 0) -> None:
        self.entry = entry
        self.topic_partition = topic_partition
        self.lane = lane
        """Its lane's entry + 1; 0 outside of transactions."""
        self.lane_at = 0
        """Word index of the lane, if this object accepts records only for one transaction in it; else 0."""
        self.lease_generation = 0
        """The generation that the lane must have."""
        self.lock = slab.stripe(entry)
        self._slab = slab
        self._words = slab.words
        self._memory = slab.memory
        self._headers_at = slab.geometry.header(0)
        self._header_words = slab.geometry.slot_words
        self._geometry = slab.geometry
        self._at = slab.geometry.partition(entry)
        self._slot_count = slab.geometry.slot_count
        self.head_at = self._at + Partition.HEAD
        self.open_at = self._at + Partition.OPEN
        self.queued_at = self._at + Partition.QUEUED

    def __len__(self) -> int:
        """Number of batches in the deque."""
        return int(self._words[self.queued_at])

    def lease(self, lane_at: int, generation: int) -> None:
        """Accept records, through this object, only while the lane at an index of the slab has this generation."""
        self.lane_at = lane_at
        self.lease_generation = generation

    def check_lease(self) -> None:
        """Check, under the lock, that the lane still takes records of this lease and transaction.

        The sender closes a lane before it acquires the lock to empty it, so no record comes behind it.

        Raises:
            ProducerFencedError: the lane was leased again.
            KafkaError: a batch of the transaction has failed with this error.
            IllegalStateError: another thread has ended the transaction.
        """
        words, at = self._memory.words, self.lane_at
        newer = words[at + _LANE_GENERATION] ^ self.lease_generation
        if newer >> _LEASE_SHIFT:
            raise ProducerFencedError(
                f"no record of this transaction is accepted for {self.topic_partition} any more: another producer of "
                "this host has the same transactional.id"
            )
        if newer or not words[at + _LANE_PRODUCER_ID]:
            raise IllegalStateError(
                f"no record is accepted for {self.topic_partition}: the transaction in which it was sent has ended"
            )
        failed = words[at + _LANE_ERROR]
        if failed:
            error = lane_error(failed)
            raise error(f"{self.topic_partition}: a batch of the transaction failed, so abort it: {error.meaning()}")

    def first(self) -> RecordBatch | None:
        """Return the batch at the front."""
        head = self._words[self._at + Partition.HEAD]
        return batch_in(self._memory, head - 1) if head else None

    def pop_first(self) -> RecordBatch:
        """Remove the first batch from the deque; it is IN_FLIGHT."""
        memory = self._memory
        at = self._at
        slot = memory.words[at + _HEAD] - 1
        self._check_link(slot)
        batch = batch_in(self._memory, slot)
        header = batch.at
        following = memory.words[header + _NEXT]
        if following > self._slot_count:
            raise self._slab.damaged(f"slot {slot} links to slot {following - 1} in the deque of a partition")
        memory.words[header + _SEALING] = 0  # voids the claim of a producer that still compresses it
        memory.words[header + _STATE_WORD] = memory.words[header + _STATE_WORD] & _WITHOUT_STATE | _IN_FLIGHT
        if memory.words[self.open_at] == slot + 1:
            memory.words[self.open_at] = 0
        memory.words[at + _HEAD] = following
        if following:
            memory.words[self._headers_at + (following - 1) * self._header_words + _PREVIOUS] = 0
        else:
            memory.words[at + _TAIL] = 0
        memory.words[at + _QUEUED] -= 1
        return batch

    def put_back(self, batch: RecordBatch) -> None:
        """Put a batch that was taken out back in front of all later ones."""
        words = self._words
        at = self._at
        batch.state = SlotState.CLOSED
        before, behind = 0, words[at + Partition.HEAD]
        # Bounded by the number of slots: a damaged link could make this endless.
        for _ in range(self._geometry.slot_count):
            if not behind:
                break
            self._check_link(behind - 1)
            if words[self._geometry.header(behind - 1) + Slot.POSITION] > batch.position:
                break
            before, behind = behind, words[self._geometry.header(behind - 1) + Slot.NEXT]
        header = self._geometry.header(batch.slot)
        words[header + Slot.PREVIOUS] = before
        words[header + Slot.NEXT] = behind
        if behind:
            words[self._geometry.header(behind - 1) + Slot.PREVIOUS] = batch.slot + 1
        else:
            words[at + Partition.TAIL] = batch.slot + 1
        if before:
            words[self._geometry.header(before - 1) + Slot.NEXT] = batch.slot + 1
        else:
            words[at + Partition.HEAD] = batch.slot + 1
        words[at + Partition.QUEUED] += 1

    def _check_link(self, slot: int) -> None:
        """Validate that a link leads to a batch of this deque.

        Raises:
            SlabDamagedError: it does not. The lock is left unfinished, so its next holder rebuilds the links.
        """
        memory = self._memory
        if 0 <= slot < self._slot_count:
            header = self._headers_at + slot * self._header_words
            state = memory.words[header + _STATE_WORD] & _STATE_BITS
            if memory.words[header + _PARTITION] == self.entry and _IS_OPEN <= state <= _IS_CLOSED:
                return
        raise self._slab.damaged(f"a link in the deque of {self.topic_partition} leads to slot {slot}")


def rebuild_stripe(slab: Slab, stripe: int) -> None:
    """Finish replacements and rebuild a stripe's deques from the slot headers; under its lock."""
    words, geometry = slab.words, slab.geometry
    headers = slab.headers
    states = state_of(headers[:, Slot.STATE])
    partitions = headers[:, Slot.PARTITION]
    of_stripe = partitions % np.uint64(STRIPES) == stripe
    placed = of_stripe & (states >= np.uint64(_IS_OPEN))
    entries = len(slab.partitions)
    for slot in np.flatnonzero(placed & (partitions >= entries)).tolist():
        raise slab.damaged(f"slot {slot} holds a batch of partition entry {partitions[slot]}, of {entries}")
    for slot in np.flatnonzero(placed & (headers[:, Slot.REDO] != 0)).tolist():
        redo_log.finish(slab, slot)
    in_deque = np.flatnonzero(placed & (states <= np.uint64(_IS_CLOSED)))
    in_deque = in_deque[np.lexsort((headers[in_deque, Slot.POSITION], partitions[in_deque]))]

    for entry in range(stripe, entries, STRIPES):
        at = geometry.partition(entry)
        for word in (Partition.HEAD, Partition.TAIL, Partition.OPEN, Partition.QUEUED):
            words[at + word] = 0
        positions = headers[placed & (partitions == entry), Slot.POSITION]
        if len(positions):
            next_position = int(positions.max()) + 1
            words[at + Partition.NEXT_POSITION] = max(words[at + Partition.NEXT_POSITION], next_position)

    for slot in in_deque.tolist():
        header = geometry.header(slot)
        at = geometry.partition(words[header + Slot.PARTITION])
        tail = words[at + Partition.TAIL]
        words[header + Slot.PREVIOUS] = tail
        words[header + Slot.NEXT] = 0
        if tail:
            before = geometry.header(tail - 1)
            words[before + Slot.NEXT] = slot + 1
            # Only the last batch of a deque can be open.
            words[before + Slot.STATE] = words[before + Slot.STATE] & ~STATE_MASK | SlotState.CLOSED
        else:
            words[at + Partition.HEAD] = slot + 1
        words[at + Partition.TAIL] = slot + 1
        words[at + Partition.QUEUED] += 1
        is_open = state_of(words[header + Slot.STATE]) == SlotState.OPEN
        words[at + Partition.OPEN] = slot + 1 if is_open else 0
