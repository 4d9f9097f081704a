"""A batch, read and written through its slot's header.

The header is the truth; this class only names its words. Each property is one read of shared memory. Producers write a
queued batch under its partition's lock. In flight, it is the sender's alone. `shmaccum.shm.layout.Slot` describes each
word, with the store that makes it count.
"""

from __future__ import annotations

from typing import Final

from shmaccum._core import Buffer
from shmaccum.accumulator.state.completion_ring import pack_range
from shmaccum.errors import CorruptRecordError
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchMemory
from shmaccum.shm.layout import (
    ATTEMPTS_SHIFT,
    COMMIT_COUNT_MASK,
    COMMIT_SIZE_SHIFT,
    COMPRESSED_SIZE_SHIFT,
    COMPRESSION_MASK,
    LINGER_SHIFT,
    PARTITION_WORDS,
    PROGRESS_MASK,
    PROGRESS_SHIFT,
    RENEWALS_SHIFT,
    STATE_MASK,
    TIME_MASK,
    Slot,
    SlotState,
)
from shmaccum.shm.memory import SlabMemory

_STATE: Final = Slot.STATE
_GENERATION: Final = Slot.GENERATION
_PARTITION: Final = Slot.PARTITION
_COMMIT: Final = Slot.COMMIT
_MAX_TIMESTAMP: Final = Slot.MAX_TIMESTAMP
_BASE_TIMESTAMP: Final = Slot.BASE_TIMESTAMP
_PRODUCER_ID: Final = Slot.PRODUCER_ID
_SEQUENCE: Final = Slot.SEQUENCE
_BASE_OFFSET: Final = Slot.BASE_OFFSET
_RESULT: Final = Slot.RESULT
_SETTLED: Final = Slot.SETTLED
_COMPRESSED: Final = Slot.COMPRESSED
_PART: Final = Slot.PART
_SLOTS: Final = Slot.SLOTS
_CONTRIBUTORS: Final = Slot.CONTRIBUTORS
_COUNT_MASK: Final = COMMIT_COUNT_MASK
_SIZE_SHIFT: Final = COMMIT_SIZE_SHIFT
_STORED_SIZE_SHIFT: Final = COMPRESSED_SIZE_SHIFT
_PROGRESS_MASK: Final = PROGRESS_MASK
_STATE_BITS: Final = STATE_MASK
_COMPRESSION_BITS: Final = COMPRESSION_MASK
_PARTITION_WORDS: Final = PARTITION_WORDS

_LAST_TIME: Final = (1 << 63) - 1
"""The latest time, in milliseconds, that a Kafka timestamp can hold."""
SEQUENCES: Final = 1 << 31
"""Sequence numbers wrap around to 0 after the largest."""
_LAST_SEQUENCE: Final = SEQUENCES - 1
_EPOCHS: Final = 1 << 15
_SEQUENCE_BITS: Final = 0xFFFF_FFFF

_COMPRESSIONS: Final = {int(compression): compression for compression in CompressionType}
_STATES: Final = {int(state): state for state in SlotState}


class RecordBatch:
    """The batch in one slot (``ProducerBatch`` in Kafka, ``RecordBatch`` before)."""

    __slots__ = ("_memory", "at", "partition", "partition_at", "slot")

    # Without a constructor, see `batch_in`: in the compiled form its numbers would be converted to Python objects.
    _memory: SlabMemory
    slot: int
    at: int
    """Word index of the header, for callers that read many of its words for every batch."""
    partition: int
    """Entry of the partition that it belongs to, as long as it is a batch."""
    partition_at: int
    """Word index of that entry."""

    def __repr__(self) -> str:
        settled = f", {self.settled} of them settled" if self.is_split else ""
        return f"<RecordBatch in slot {self.slot}: {self.state.name}, {self.record_count} records{settled}>"

    @property
    def state(self) -> SlotState:
        """State of the slot."""
        return _STATES[self._memory.words[self.at + _STATE] & _STATE_BITS]

    @state.setter
    def state(self, state: SlotState) -> None:
        at = self.at + Slot.STATE
        self._memory.words[at] = self._memory.words[at] & ~STATE_MASK | state

    def buffer(self) -> Buffer:
        """Return its slots, as the pool knows them."""
        memory, at = self._memory, self.at
        return Buffer(self.slot, memory.words[at + _SLOTS], memory.words[at + _GENERATION])

    @property
    def position(self) -> int:
        """Its place in the partition queue."""
        return self._memory.words[self.at + Slot.POSITION]

    @property
    def size(self) -> int:
        """Committed bytes, including the header's space, before any compression."""
        return self._memory.words[self.at + Slot.COMMIT] >> COMMIT_SIZE_SHIFT

    @property
    def compression(self) -> CompressionType | None:
        """How its producer compressed it, NONE where that gained nothing; None before any try."""
        compressed = self._memory.words[self.at + Slot.COMPRESSED]
        return _COMPRESSIONS[compressed & COMPRESSION_MASK] if compressed else None

    @property
    def wanted_compression(self) -> CompressionType:
        """The compression that the producer that opened it wants.

        Raises:
            CorruptRecordError: the header names an unknown compression.
        """
        return CompressionType.for_attributes(self._memory.words[self.at + Slot.LINGER] & COMPRESSION_MASK)

    @property
    def linger_ms(self) -> int:
        """How long it waits for more records: the least ``linger.ms`` of its contributors."""
        return self._memory.words[self.at + Slot.LINGER] >> LINGER_SHIFT

    @property
    def stored_size(self) -> int:
        """Bytes in the slab now: `size`, or less if its producer has compressed it."""
        compressed = self._memory.words[self.at + Slot.COMPRESSED]
        return compressed >> COMPRESSED_SIZE_SHIFT if compressed else self.size

    @property
    def sealing_since_ms(self) -> int:
        """When a producer began to compress it, in monotonic milliseconds; 0 if none does."""
        return self._memory.words[self.at + Slot.SEALING]

    @property
    def record_count(self) -> int:
        """Committed records."""
        return self._memory.words[self.at + _COMMIT] >> 1 & _COUNT_MASK

    @property
    def base_timestamp(self) -> int:
        """Timestamp of the first record."""
        return self._memory.words[self.at + Slot.BASE_TIMESTAMP]

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of the committed records."""
        cell = self._memory.words[self.at + Slot.COMMIT] & 1
        return self._memory.words[self.at + Slot.MAX_TIMESTAMP + cell]

    @property
    def max_record_size(self) -> int:
        """Bytes in its largest record."""
        return self._memory.words[self.at + Slot.MAX_RECORD]

    @property
    def created_ms(self) -> int:
        """When it was created, or last renewed (`renew`), in monotonic milliseconds."""
        return self._memory.words[self.at + Slot.CREATED_MS] & TIME_MASK

    @property
    def renewals(self) -> int:
        """How often `renew` has restarted its time."""
        return self._memory.words[self.at + Slot.CREATED_MS] >> RENEWALS_SHIFT

    def renew(self, now_ms: int) -> None:
        """Restart its ``delivery.timeout.ms``."""
        self._memory.words[self.at + Slot.CREATED_MS] = self.renewals + 1 << RENEWALS_SHIFT | now_ms

    def bring_back(self, now_ms: int) -> None:
        """Set a creation time that lies in our clock's future to now."""
        self._memory.words[self.at + Slot.CREATED_MS] = self.renewals << RENEWALS_SHIFT | now_ms

    @property
    def attempts(self) -> int:
        """How often it was sent and came back."""
        return self._memory.words[self.at + Slot.ATTEMPTS] >> ATTEMPTS_SHIFT

    @property
    def last_attempt_ms(self) -> int:
        """When it last came back, or was created, in monotonic milliseconds."""
        return self._memory.words[self.at + Slot.ATTEMPTS] & TIME_MASK

    @property
    def attempt_incident(self) -> int:
        """Number of the incident that ended its last attempt; 0 for none or unknown."""
        words, at = self._memory.words, self.at
        return words[at + Slot.RESULT] >> 16 if self.attempts and not words[at + Slot.RESULT] & 0xFFFF else 0

    def note_attempt(self, now_ms: int, incident: int = 0) -> None:
        """Count an attempt that came back because of an incident."""
        self._memory.words[self.at + Slot.RESULT] = incident << 16
        self._memory.words[self.at + Slot.ATTEMPTS] = self.attempts + 1 << ATTEMPTS_SHIFT | now_ms

    @property
    def producer_id(self) -> int:
        """Producer id assigned to it, -1 for none."""
        word = self._memory.words[self.at + Slot.PRODUCER_ID]
        return word - 1 if word else -1

    @property
    def has_sequence(self) -> bool:
        """Whether it has a sequence number."""
        return bool(self._memory.words[self.at + Slot.SEQUENCE])

    @property
    def producer_epoch(self) -> int:
        """Epoch assigned to it, -1 for none."""
        word = self._memory.words[self.at + Slot.SEQUENCE]
        return (word >> 32) - 1 if word else -1

    @property
    def base_sequence(self) -> int:
        """Sequence number of the first record, -1 for none."""
        word = self._memory.words[self.at + Slot.SEQUENCE]
        return word & 0xFFFFFFFF if word else -1

    def set_sequence(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Assign its identity; the last store commits it. An old identity is cleared first.

        Args:
            producer_id: of the slab.
            epoch: of the partition.
            sequence: of the first record that is not complete.
        """
        memory, at = self._memory, self.at
        memory.words[at + _SEQUENCE] = 0
        memory.words[at + _PRODUCER_ID] = producer_id + 1
        if memory.words[at + _PART]:
            # Under the new numbers no record is skipped yet, and nothing has been tried.
            settled = memory.words[at + Slot.SETTLED] = self.settled
            memory.words[at + Slot.ATTEMPTS] = self.last_attempt_ms
            sequence = next_sequence(sequence, -settled)
        memory.words[at + _SEQUENCE] = (epoch + 1) << 32 | sequence

    @property
    def is_split(self) -> bool:
        """Whether it is split: sent in parts because the broker refused the whole."""
        return bool(self._memory.words[self.at + _PART])

    @property
    def settled(self) -> int:
        """How many records, from the first on, are complete."""
        return self._memory.words[self.at + Slot.SETTLED] & PROGRESS_MASK

    @property
    def skipped(self) -> int:
        """How many of the complete records were never stored and so took no sequence number."""
        return self._memory.words[self.at + Slot.SETTLED] >> PROGRESS_SHIFT

    @property
    def part_sequence(self) -> int:
        """Sequence number of the first record that is not complete, -1 for none."""
        words, at = self._memory.words, self.at
        word = words[at + Slot.SEQUENCE]
        if not word:
            return -1
        sequence = word & 0xFFFFFFFF
        return next_sequence(sequence, self.settled - self.skipped) if words[at + Slot.PART] else sequence

    def identity(self) -> tuple[int, int, int]:
        """Return `producer_id`, `producer_epoch` and `part_sequence`, at once."""
        memory, at = self._memory, self.at
        number = memory.words[at + _SEQUENCE]
        if not number:
            return -1, -1, -1
        sequence = self.part_sequence if memory.words[at + _PART] else number & _SEQUENCE_BITS
        return memory.words[at + _PRODUCER_ID] - 1, (number >> 32) - 1, sequence

    def end_sequence(self) -> int:
        """Return the sequence number behind those reserved for it, -1 for none."""
        memory, at = self._memory, self.at
        number = memory.words[at + _SEQUENCE]
        return next_sequence(number & _SEQUENCE_BITS, memory.words[at + _COMMIT] >> 1 & _COUNT_MASK) if number else -1

    @property
    def part_end(self) -> int:
        """End (exclusive record number) of the part being sent; if that is complete, the next part is not cut yet."""
        return self._memory.words[self.at + _PART] & _PROGRESS_MASK

    def cut(self, end: int) -> None:
        """Send it in parts from now on, even under another sender; the next part ends before record ``end``."""
        self._memory.words[self.at + Slot.PART] = end

    @property
    def result_end(self) -> int:
        """End (exclusive record number) of the part that the result words cover."""
        return self._memory.words[self.at + Slot.PART] >> PROGRESS_SHIFT

    def set_result_end(self, end: int) -> None:
        """Store that the result will cover the records from the first incomplete one to ``end``, exclusive."""
        self._memory.words[self.at + Slot.PART] = end << PROGRESS_SHIFT | self.part_end

    @property
    def result_range(self) -> int:
        """The part that the result words cover, as the range word of a completion."""
        if not self._memory.words[self.at + Slot.PART]:
            return 0
        is_last = self.result_end == self.record_count
        return pack_range(self.settled, 0 if is_last else self.result_end - self.settled)

    def settle(self, *, never_stored: bool) -> None:
        """Mark the part that the result words cover as complete; the rest starts without attempts."""
        skipped = self.skipped + (self.result_end - self.settled if never_stored else 0)
        self._memory.words[self.at + Slot.SETTLED] = skipped << PROGRESS_SHIFT | self.result_end
        self._memory.words[self.at + Slot.ATTEMPTS] = self.last_attempt_ms

    @property
    def result(self) -> tuple[int, int]:
        """The result words: base offset + 1, and log append time + 1 with the error code."""
        return self._memory.words[self.at + Slot.BASE_OFFSET], self._memory.words[self.at + Slot.RESULT]

    def set_result(self, base_offset_word: int, result_word: int) -> None:
        """Store its outcome; the state COMPLETING, stored next, makes it count."""
        memory, at = self._memory, self.at
        memory.words[at + _BASE_OFFSET] = base_offset_word
        memory.words[at + _RESULT] = result_word

    @property
    def drained_ms(self) -> int:
        """When it was last drained, in monotonic milliseconds."""
        return self._memory.words[self.at + Slot.DRAINED_MS]

    @drained_ms.setter
    def drained_ms(self, now_ms: int) -> None:
        self._memory.words[self.at + Slot.DRAINED_MS] = now_ms

    def contributors(self) -> list[int]:
        """Return the process entries of its contributors."""
        entries: list[int] = []
        entry = self.next_contributor(0)
        while entry >= 0:
            entries.append(entry)
            entry = self.next_contributor(entry + 1)
        return entries

    def next_contributor(self, entry: int) -> int:
        """Return the first contributor's process entry from ``entry`` on, -1 if there is none."""
        memory = self._memory
        at, most = self.at + _CONTRIBUTORS, memory.max_processes
        while entry < most:  # bounded: after a damaged bit the sender would write outside the rings
            bits = memory.words[at + entry // 64] >> entry % 64
            if bits & 1:
                return entry
            entry += 1 if bits else 64 - entry % 64
        return -1

    def contents(self) -> tuple[int, int, int]:
        """Return `record_count`, `base_timestamp` and `max_timestamp`, at once."""
        memory, at = self._memory, self.at
        commit = memory.words[at + _COMMIT]
        return (
            commit >> 1 & _COUNT_MASK,
            memory.words[at + _BASE_TIMESTAMP],
            memory.words[at + _MAX_TIMESTAMP + (commit & 1)],
        )

    def check(self, header_size: int) -> None:
        """Validate what sealing needs of the header, before it is used.

        Args:
            header_size: bytes that the format reserves in front of the records.

        Raises:
            CorruptRecordError: a word is damaged.
        """
        memory, at = self._memory, self.at
        commit, compressed = memory.words[at + _COMMIT], memory.words[at + _COMPRESSED]
        count, size = commit >> 1 & _COUNT_MASK, commit >> _SIZE_SHIFT
        stored_size = compressed >> _STORED_SIZE_SHIFT if compressed else size
        settled = memory.words[at + _SETTLED] & _PROGRESS_MASK
        slots = memory.words[at + _SLOTS]
        # In the compiled form, the product of a damaged number could wrap around to a room that is large enough.
        room = slots * memory.slot_size if slots <= memory.slot_count else 0
        number = memory.words[at + _SEQUENCE]
        is_numbered = (
            number & _SEQUENCE_BITS <= _LAST_SEQUENCE
            and number >> 32 <= _EPOCHS
            and memory.words[at + _PRODUCER_ID] <= _LAST_TIME
        )
        has_times = memory.words[at + _BASE_TIMESTAMP] <= _LAST_TIME >= memory.words[at + _MAX_TIMESTAMP + (commit & 1)]
        is_sound = 0 < count >= settled and header_size < size <= room and header_size < stored_size <= room
        is_known = not compressed or compressed & _COMPRESSION_BITS in _COMPRESSIONS
        if not (is_sound and has_times and is_numbered and is_known):
            raise CorruptRecordError(
                f"slot {self.slot} is damaged: {count} records in {size} bytes, {stored_size} bytes stored, {slots} "
                f"slots of {memory.slot_size} bytes, of {memory.slot_count} in the slab; {settled} records complete; "
                f"first timestamp {self.base_timestamp} ms, largest {self.max_timestamp} ms; "
                f"sequence word {number:#x} of producer id {self.producer_id}"
            )

    def write_off(self) -> None:
        """Clear the split and compression words of a damaged header, so that the batch can fail as a whole."""
        words, at = self._memory.words, self.at
        words[at + Slot.PART] = 0
        words[at + Slot.SETTLED] = 0
        words[at + Slot.COMPRESSED] = 0

    def views(self) -> BatchMemory:
        """Return writable views of its `stored_size` bytes in the slab, one for each run of slots.

        Release the views before the slab is unmapped.

        Raises:
            CorruptRecordError: its chain of slots is broken.
        """
        memory, at = self._memory, self.at
        compressed = memory.words[at + _COMPRESSED]
        size = compressed >> _STORED_SIZE_SHIFT if compressed else memory.words[at + _COMMIT] >> _SIZE_SHIFT
        start = memory.slots_at + self.slot * memory.slot_size
        if size <= memory.slot_size:
            return (memory.buffer[start : start + size],)
        count = memory.words[at + _SLOTS]
        slots = memory.chain(self.slot, count)
        if len(slots) != count:
            raise CorruptRecordError(f"the chain of {count} slots from slot {self.slot} on is broken")
        return tuple([memory.buffer[begin:end] for begin, end in memory.places(slots, 0, size)])


def batch_in(memory: SlabMemory, slot: int) -> RecordBatch:
    """Return the batch in a slot of a slab.

    Raises:
        IndexError: no such slot, or its header names no such partition. The check comes first: in the compiled form, C
            arithmetic on such an index would wrap around.
    """
    if slot >= memory.slot_count:
        raise IndexError(f"slot {slot} of {memory.slot_count}")
    batch = RecordBatch.__new__(RecordBatch)
    batch._memory = memory
    batch.slot = slot
    batch.at = memory.headers_at + slot * memory.header_words
    partition = memory.words[batch.at + _PARTITION]
    if partition >= memory.max_partitions:
        raise IndexError(f"slot {slot} holds a batch of partition entry {partition}, of {memory.max_partitions}")
    batch.partition = partition
    batch.partition_at = memory.partitions_at + partition * _PARTITION_WORDS
    return batch


def next_sequence(sequence: int, records: int) -> int:
    """Return the sequence number ``records`` behind another (``DefaultRecordBatch.incrementSequence``)."""
    return (sequence + records) & _LAST_SEQUENCE
