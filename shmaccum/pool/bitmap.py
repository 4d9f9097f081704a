"""The free-list bitmap: which slots are free, one bit each, set where free.

It is an index: the slot headers say the same, and the pool rebuilds the bitmap from them after a death. All of
it is read as one integer, so that finding a free slot or a run of them is a few operations on whole machine
words, done by the interpreter's own big-integer code. The caller holds the pool's lock.
"""

from __future__ import annotations

from shmaccum.shm.layout import Geometry, Super


class FreeBitmap:
    """The bitmap of one slab."""

    def __init__(self, buffer: memoryview, words: memoryview, geometry: Geometry) -> None:
        self._buffer = buffer
        self._start = geometry.bitmap
        self._end = geometry.bitmap + geometry.bitmap_size
        self._words = words
        self._slot_count = geometry.slot_count

    def find(self, count: int) -> int:
        """Return the first of the lowest ``count`` adjacent free slots, -1 if there are none."""
        if self._words[Super.FREE_SLOTS] < count:
            return -1
        starts = self._load()
        # A bit survives the shifts where the run that begins there has `length` free slots; double it each turn.
        length = 1
        while length < count:
            step = min(length, count - length)
            starts &= starts >> step
            length += step
        return (starts & -starts).bit_length() - 1

    def find_run(self, most: int) -> tuple[int, int]:
        """Return the lowest free slot and how many are free from there on, up to ``most``: (-1, 0) if there is none."""
        free = self._load()
        first = (free & -free).bit_length() - 1
        if first < 0:
            return -1, 0
        is_taken = ~(free >> first)
        return first, min(most, (is_taken & -is_taken).bit_length() - 1)

    def take(self, first: int, count: int) -> None:
        """Mark a run of free slots as taken."""
        self._store(self._load() & ~(((1 << count) - 1) << first))

    def give(self, runs: list[tuple[int, int]]) -> None:
        """Mark runs of taken slots, each (first, count), as free."""
        free = self._load()
        for first, count in runs:
            free |= ((1 << count) - 1) << first
        self._store(free)

    def rebuild(self, taken: list[tuple[int, int]]) -> None:
        """Make the bitmap anew: all is free but the runs given."""
        free = (1 << self._slot_count) - 1
        for first, count in taken:
            free &= ~(((1 << count) - 1) << first)
        self._store(free)

    def _load(self) -> int:
        return int.from_bytes(self._buffer[self._start : self._end], "little")

    def _store(self, free: int) -> None:
        self._buffer[self._start : self._end] = free.to_bytes(self._end - self._start, "little")
        self._words[Super.FREE_SLOTS] = free.bit_count()
