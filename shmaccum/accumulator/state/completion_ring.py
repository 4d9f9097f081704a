"""Completion rings: how the sender returns the outcome of batches to producers.

The sender pushes completions: ``core/complete.pxi`` says why a ring cannot overflow. The process owns RING_HEAD. A
batch completes as a whole or, after batch splitting, in parts from front to end, one completion each.

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
"""No read position: differs from every RING_TAIL."""
_LAST_INDEX: Final = MAX_COUNT


class Outcome:
    """One completion as read from a ring.

    Attributes:
        index: its number in the order of all completions ever pushed.
        batch: (generation, slot) in one word: names the batch for ever.
        first: number of the first record that it covers.
        records: how many records it covers; 0 for all that follow: then it is the batch's last completion.
        base_offset: offset of the first of them.
        append_time_ms: as in Kafka's response, -1 for none.
        error: why they failed.
        incident: number of the incident with the details, 0 for none.
    """

    __slots__ = ("append_time_ms", "base_offset", "batch", "error", "first", "incident", "index", "records")

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
        append_time_ms: the broker's log append time; ignored with an error.
        error: why the records failed.
        incident: number of the incident with the details of the error.
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
    """Return the range word of ``records`` records from number ``first`` on; 0 for all that follow."""
    return first << RANGE_SHIFT | records


class RingReader:
    """A process's side of its own ring. One thread at a time."""

    def __init__(self, name: str, memory: SlabMemory, geometry: Geometry, entry: int) -> None:
        self._name = name
        self._memory = memory
        self._length = geometry.ring_length
        self._ring = geometry.ring(entry)
        self._head_at = geometry.process(entry) + _RING_HEAD
        self.tail_at = geometry.process(entry) + _RING_TAIL
        """Word index of RING_TAIL, which differs from `head` when there is something to read."""
        self.head = self._memory.words[self._head_at]

    def check(self) -> None:
        """Validate head and tail; store the head again, which looks like unread completions where it is damaged.

        Raises:
            SlabDamagedError: tail - head is negative or larger than the ring.
        """
        tail = self._memory.words[self.tail_at]
        if self.head > tail or tail > _LAST_INDEX or tail - self.head > self._length:
            raise damaged(self._name, f"completion ring of {self._length}: head {self.head}, tail {tail}")
        self._memory.words[self._head_at] = self.head

    def first(self) -> Outcome | None:
        """Return the oldest unread completion, None if there is none."""
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
        """Pop a completion after it has been processed: an interrupt before this loses none."""
        # A signal handler can have popped further meanwhile.
        self.head = self._memory.words[self._head_at] = max(self.head, outcome.index + 1)


assert WORD * COMPLETION_WORDS == 32
