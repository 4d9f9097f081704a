"""Completion rings: how the sender tells each producer what became of the batches it contributed to.

One ring a process, written by the sender and read by the process. It is as long as the slab has slots and one
more, and so cannot overflow: a producer reads its ring before it appends, so at any time it has contributed to at
most as many batches, done or not, as there are slots. (The one more is for the sender's death between a completion
and freeing its slot: the next sender tells it again, unless it is still the newest in the ring.)
"""

from __future__ import annotations

from typing import NamedTuple

from shmaccum.errors import KafkaError, error_for_code
from shmaccum.shm.layout import COMPLETION_WORDS, WORD, Completion, Geometry, Process

_CODE_MASK = 0xFFFF


class Outcome(NamedTuple):
    """One completion as read from a ring."""

    batch: int
    """(generation, slot) in one word: names the batch for ever."""
    base_offset: int
    append_time_ms: int
    error: type[KafkaError] | None


def pack_result(append_time_ms: int, error: type[KafkaError] | None) -> int:
    """Return the result word: no error is 0 in its low 16 bits, Kafka's "none"."""
    return (append_time_ms + 1) << 16 | ((error.code & _CODE_MASK) if error is not None else 0)


def unpack_result(word: int) -> tuple[int, type[KafkaError] | None]:
    """Return (log append time, error) of a result word."""
    code = word & _CODE_MASK
    signed = code - 0x10000 if code & 0x8000 else code
    return (word >> 16) - 1, error_for_code(signed) if code else None


class RingWriter:
    """The sender's side of all the rings."""

    def __init__(self, words: memoryview, geometry: Geometry) -> None:
        self._words = words
        self._geometry = geometry

    def tell(self, entry: int, batch: int, base_offset_word: int, result_word: int) -> None:
        """Tell a process the outcome of a batch, once: what is the newest in its ring is not told again."""
        words, geometry = self._words, self._geometry
        tail_at = geometry.process(entry) + Process.RING_TAIL
        tail = words[tail_at]
        ring, length = geometry.ring(entry), geometry.ring_length
        newest = ring + (tail - 1) % length * COMPLETION_WORDS
        if tail and words[newest + Completion.BATCH] == batch:
            return
        cell = ring + tail % length * COMPLETION_WORDS
        words[cell + Completion.BATCH] = batch
        words[cell + Completion.BASE_OFFSET] = base_offset_word
        words[cell + Completion.RESULT] = result_word
        words[tail_at] = tail + 1


class RingReader:
    """One process's side of its own ring. One thread at a time."""

    def __init__(self, words: memoryview, geometry: Geometry, entry: int) -> None:
        self._words = words
        self._length = geometry.ring_length
        self._ring = geometry.ring(entry)
        self._head_at = geometry.process(entry) + Process.RING_HEAD
        self.tail_at = geometry.process(entry) + Process.RING_TAIL
        """Word index of the tail: differs from `head` when there is something to read."""
        self.head = int(words[self._head_at])

    def read(self) -> list[Outcome]:
        """Take all that is there."""
        words = self._words
        tail = words[self.tail_at]
        outcomes = []
        for index in range(self.head, tail):
            cell = self._ring + index % self._length * COMPLETION_WORDS
            append_time, error = unpack_result(words[cell + Completion.RESULT])
            outcomes.append(
                Outcome(words[cell + Completion.BATCH], words[cell + Completion.BASE_OFFSET] - 1, append_time, error)
            )
        self.head = int(tail)
        words[self._head_at] = tail
        return outcomes


assert WORD * COMPLETION_WORDS == 32
