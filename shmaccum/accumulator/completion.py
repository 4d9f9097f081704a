"""Completion rings: how the sender tells each producer what became of the batches it contributed to.

One ring a process, written by the sender and read by the process. It is as long as the slab has slots and one
more, and so cannot overflow: a process reads its ring before it contributes to one more batch, and until it does so
again nothing can be told but the batches that are in the slots at that time, each of them once. (A sender that takes
over tells what the one before may not have told; see `RingWriter.has_told`.)

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        """Tell a process the outcome of a batch."""
        words = self._words
        tail_at = self._geometry.process(entry) + Process.RING_TAIL
        tail = words[tail_at]
        cell = self._cell(entry, tail)
        words[cell + Completion.BATCH] = batch
        words[cell + Completion.BASE_OFFSET] = base_offset_word
        words[cell + Completion.RESULT] = result_word
        words[tail_at] = tail + 1

    def has_told(self, entry: int, batch: int) -> bool:
        """Say whether a process has been told of a batch and has not read it yet."""
        words = self._words
        base = self._geometry.process(entry)
        tail = words[base + Process.RING_TAIL]
        # Nobody reads a dead process's ring.
        first = max(words[base + Process.RING_HEAD], tail - self._geometry.ring_length)
        return any(words[self._cell(entry, index) + Completion.BATCH] == batch for index in range(first, tail))

    def _cell(self, entry: int, index: int) -> int:
        return self._geometry.ring(entry) + index % self._geometry.ring_length * COMPLETION_WORDS


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

    def read(self) -> Iterator[Outcome]:
        """Yield what is there. Each is taken only when the next is asked for: an interrupt in between loses none."""
        words = self._words
        while (index := self.head) < words[self.tail_at]:
            cell = self._ring + index % self._length * COMPLETION_WORDS
            append_time, error = unpack_result(words[cell + Completion.RESULT])
            yield Outcome(words[cell + Completion.BATCH], words[cell + Completion.BASE_OFFSET] - 1, append_time, error)
            # A signal's handler may have read on meanwhile.
            self.head = words[self._head_at] = max(self.head, index + 1)


assert WORD * COMPLETION_WORDS == 32
