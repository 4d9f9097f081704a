"""The free-list bitmap: one bit a slot, set where free.

It is an index: after a death, the pool rebuilds the bitmap and its count, `Super.FREE_SLOTS`, from the slot headers.
The frequent operations, which take and free a few slots, work on words: one load and one store for all slots of a word.
A large record takes any free slots, adjacent ones if possible. To find these, the whole bitmap is read as one integer,
since few big-integer operations suffice. The caller holds the pool's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shmaccum.later import np
from shmaccum.shm.layout import WORD, Geometry, Super
from shmaccum.shm.memory import SlabMemory

if TYPE_CHECKING:
    import numpy.typing as npt

_FREE_SLOTS: Final = Super.FREE_SLOTS
_WORD_BITS: Final = 64
_ALL_BITS: Final = (1 << 64) - 1


class FreeBitmap:
    """The bitmap of one slab."""

    def __init__(self, buffer: memoryview, memory: SlabMemory, geometry: Geometry) -> None:
        self._buffer = buffer
        self._start = geometry.bitmap
        self._end = geometry.bitmap + geometry.bitmap_size
        self._memory = memory
        self._words_at = geometry.bitmap // WORD
        self._words_end = self._words_at + geometry.bitmap_size // WORD
        self._slot_count = geometry.slot_count

    def free_count(self) -> int:
        """Return how many slots are free."""
        return self._memory.words[_FREE_SLOTS]

    def find(self, count: int) -> list[int]:
        """Return ``count`` free slots in ascending order; none if fewer are free.

        They are the lowest adjacent ones, or the lowest of all if no ``count`` are adjacent.
        """
        if self.free_count() < count:
            return []
        starts = self._load()
        # Each turn doubles `length`: a bit stays set only if `length` slots from it on are free.
        length = 1
        while length < count:
            step = min(length, count - length)
            starts &= starts >> step
            length += step
        first = (starts & -starts).bit_length() - 1
        return list(range(first, first + count)) if first >= 0 else self._lowest(count)

    def _lowest(self, count: int) -> list[int]:
        """Return the lowest ``count`` free slots; none if there are fewer, against the free count."""
        words, slots = self._memory.words, []
        for at in range(self._words_at, self._words_end):
            free = words[at]
            while free:
                lowest = free & -free
                slots.append((at - self._words_at) * _WORD_BITS + lowest.bit_length() - 1)
                if len(slots) == count:
                    return slots
                free ^= lowest
        return []

    def find_some(self, most: int) -> tuple[int, int]:
        """Return the lowest free slot, and how many adjacent ones of its bitmap word are free.

        The number is at most ``most``. (-1, 0) if no slot is free.
        """
        words = self._memory.words
        for at in range(self._words_at, self._words_end):
            free = words[at]
            if free:
                bit = (free & -free).bit_length() - 1
                from_there = free >> bit
                adjacent = (from_there & ~(from_there + 1)).bit_length()  # number of trailing ones
                return (at - self._words_at) * _WORD_BITS + bit, min(adjacent, most)
        return -1, 0

    def take(self, first: int, count: int) -> None:
        """Mark adjacent free slots as taken."""
        self._mark(first, count, is_free=False)
        self._memory.words[_FREE_SLOTS] -= count

    def give(self, first: int, count: int) -> None:
        """Mark adjacent taken slots as free."""
        self._mark(first, count, is_free=True)
        self._memory.words[_FREE_SLOTS] += count

    def rebuild(self, taken: list[int] | npt.NDArray[np.intp]) -> None:
        """Rebuild bitmap and count: all slots but those given are free."""
        is_free = np.zeros((self._end - self._start) * 8, np.bool_)
        is_free[: self._slot_count] = True
        is_free[taken] = False
        self._buffer[self._start : self._end] = np.packbits(is_free, bitorder="little").tobytes()
        self._memory.words[_FREE_SLOTS] = int(np.count_nonzero(is_free))

    def _mark(self, first: int, count: int, is_free: bool) -> None:
        memory, end = self._memory, first + count
        if not 0 <= first <= end <= self._slot_count:
            raise IndexError(f"slots {first} to {end - 1} of {self._slot_count}")
        while first < end:
            at, bit = self._words_at + first // _WORD_BITS, first % _WORD_BITS
            here = min(_WORD_BITS - bit, end - first)
            mask = _ALL_BITS >> _WORD_BITS - here << bit
            memory.words[at] = memory.words[at] | mask if is_free else memory.words[at] & ~mask
            first += here

    def _load(self) -> int:
        return int.from_bytes(self._buffer[self._start : self._end], "little")
