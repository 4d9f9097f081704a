"""Completion rings: how the sender tells each producer what became of the batches it contributed to.

One ring a process, written by the sender and read by the process. A batch is told as a whole or, where it had to be
sent in pieces, in parts: from its front to its end, each part a completion of its own.

A ring cannot overflow. It is as long as the slab has slots, and `PIECES_IN_FLIGHT` more. Let *unread* be the
completions that the process has not read, *owed* the batches in the slots that it contributed to, and *pieces* those
in flight. Then unread + owed + pieces never exceeds the length: the end of a batch turns one that is owed into an
unread one, and any other part of it does so with a piece; a piece is sent only if there is room for it
(`RingWriter.has_room`); and a process owes itself one batch more only after it has read its ring, when the other
two are within the length by themselves. What is read between two steps of another process only makes it shorter. (A
sender that takes over tells what the one before may not have told; see `RingWriter.has_told`.)

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

from typing import Final

from shmaccum.errors import KafkaError, error_for_code
from shmaccum.shm.layout import (
    COMPLETION_WORDS,
    PROCESS_WORDS,
    RANGE_MASK,
    RANGE_SHIFT,
    WORD,
    Completion,
    Geometry,
    Process,
)
from shmaccum.shm.memory import SlabMemory
from shmaccum.shm.validation import MAX_COUNT, damaged

_CODE_MASK: Final = 0xFFFF
_RESULT_SHIFT: Final = 16
_RANGE_SHIFT: Final = RANGE_SHIFT
_RANGE_MASK: Final = RANGE_MASK

_PROCESS_WORDS: Final = PROCESS_WORDS
_RING_HEAD: Final = Process.RING_HEAD
_RING_TAIL: Final = Process.RING_TAIL
_COMPLETION_WORDS: Final = COMPLETION_WORDS
_BATCH: Final = Completion.BATCH
_BASE_OFFSET: Final = Completion.BASE_OFFSET
_RESULT: Final = Completion.RESULT
_RANGE: Final = Completion.RANGE


NOWHERE: Final = (1 << 64) - 1
"""In place of where a ring is read to, unlike any place where it is written to."""
_LAST_INDEX: Final = MAX_COUNT


class Outcome:
    """One completion as read from a ring.

    Attributes:
        index: its place in the order of all that were ever told.
        batch: (generation, slot) in one word: names the batch for ever.
        first: the first record that it is of.
        records: how many records it is of; 0 for all that follow: then it is the last one of its batch.
        base_offset: offset of the first of them.
        append_time_ms: as in Kafka's response, -1 where there is none.
        error: why they were given up.
        incident: number of the incident that says more of it, 0 for none.
    """

    __slots__ = ("append_time_ms", "base_offset", "batch", "error", "first", "incident", "index", "records")

    # Without a constructor: compiled, it would be handed its numbers as Python's.
    index: int
    batch: int
    first: int
    records: int
    base_offset: int
    append_time_ms: int
    error: type[KafkaError] | None
    incident: int


def pack_result(append_time_ms: int, error: type[KafkaError] | None, incident: int = 0) -> int:
    """Return the result word: no error is 0 in its low 16 bits, Kafka's "none".

    Args:
        append_time_ms: what the log says; of no interest where there is an error.
        error: why there is no such time.
        incident: number of the incident that says more of the error.
    """
    if error is None:
        return (append_time_ms + 1) << _RESULT_SHIFT
    return incident << _RESULT_SHIFT | (error.code & _CODE_MASK)


def unpack_error(word: int) -> type[KafkaError] | None:
    """Return the error of a result word."""
    code = word & _CODE_MASK
    signed = code - 0x10000 if code & 0x8000 else code
    return error_for_code(signed) if code else None


def pack_range(first: int, records: int) -> int:
    """Return the range word of so many records from number ``first`` on; 0 for all that follow."""
    return first << RANGE_SHIFT | records


class RingWriter:
    """The sender's side of all the rings."""

    def __init__(self, memory: SlabMemory, geometry: Geometry) -> None:
        self._memory = memory
        self._geometry = geometry
        self._processes_at = geometry.process(0)
        self._rings_at = geometry.ring(0)
        self._length = geometry.ring_length

    def tell(self, entry: int, batch: int, range_word: int, base_offset_word: int, result_word: int) -> None:
        """Tell a process the outcome of a batch, or of a part of it."""
        memory = self._memory
        tail_at = self._processes_at + entry * _PROCESS_WORDS + _RING_TAIL
        tail = memory.words[tail_at]
        cell = self._cell(entry, tail)
        memory.words[cell + _BATCH] = batch
        memory.words[cell + _BASE_OFFSET] = base_offset_word
        memory.words[cell + _RESULT] = result_word
        memory.words[cell + _RANGE] = range_word
        memory.words[tail_at] = tail + 1

    def has_told(self, entry: int, batch: int, range_word: int) -> bool:
        """Say whether a process has been told of these records of a batch, and has not read it yet."""
        words = self._memory.words
        tail = words[self._processes_at + entry * _PROCESS_WORDS + _RING_TAIL]
        for index in range(tail - self._unread(entry), tail):
            cell = self._cell(entry, index)
            if words[cell + _BATCH] == batch and words[cell + _RANGE] == range_word:
                return True
        return False

    def has_room(self, entry: int, owed: int) -> bool:
        """Say whether there is room in a process's ring for one more than ``owed`` completions."""
        return self._unread(entry) + owed < self._geometry.ring_length

    def _unread(self, entry: int) -> int:
        """Return how many completions a process has not read; nobody reads a dead process's ring."""
        words, base = self._memory.words, self._processes_at + entry * _PROCESS_WORDS
        return min(words[base + _RING_TAIL] - words[base + _RING_HEAD], self._length)

    def _cell(self, entry: int, index: int) -> int:
        return self._rings_at + (entry * self._length + index % self._length) * _COMPLETION_WORDS


class RingReader:
    """One process's side of its own ring. One thread at a time."""

    def __init__(self, name: str, memory: SlabMemory, geometry: Geometry, entry: int) -> None:
        self._name = name
        self._memory = memory
        self._length = geometry.ring_length
        self._ring = geometry.ring(entry)
        self._head_at = geometry.process(entry) + _RING_HEAD
        self.tail_at = geometry.process(entry) + _RING_TAIL
        """Word index of the tail: differs from `head` when there is something to read."""
        self.head = self._memory.words[self._head_at]

    def check(self) -> None:
        """Make sure that what there is to read can be so.

        Raises:
            SlabDamagedError: there is more than the ring can hold, or less than nothing.
        """
        tail = self._memory.words[self.tail_at]
        if self.head > tail or tail > _LAST_INDEX or tail - self.head > self._length:
            raise damaged(self._name, f"a completion ring of {self._length} is read to {self.head}, written to {tail}")

    def first(self) -> Outcome | None:
        """Return the first completion that is not taken, None if there is none."""
        words = self._memory.words
        index = self.head
        if index >= words[self.tail_at]:
            return None
        cell = self._ring + index % self._length * _COMPLETION_WORDS
        span, result = words[cell + _RANGE], words[cell + _RESULT]
        outcome = Outcome()
        outcome.index = index
        outcome.batch = words[cell + _BATCH]
        outcome.first = span >> _RANGE_SHIFT
        outcome.records = span & _RANGE_MASK
        outcome.base_offset = words[cell + _BASE_OFFSET] - 1
        is_error = result & _CODE_MASK != 0
        outcome.append_time_ms = -1 if is_error else (result >> _RESULT_SHIFT) - 1
        outcome.error = unpack_error(result) if is_error else None
        outcome.incident = result >> _RESULT_SHIFT if is_error else 0
        return outcome

    def take(self, outcome: Outcome) -> None:
        """Take a completion that has been seen to. Only then: an interrupt in between loses none."""
        # A signal's handler may have read on meanwhile.
        self.head = self._memory.words[self._head_at] = max(self.head, outcome.index + 1)


assert WORD * COMPLETION_WORDS == 32
