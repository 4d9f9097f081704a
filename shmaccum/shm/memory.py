"""A slab's mapped words and bytes, for Python code that reads and writes records.

An access after `close` raises an IndexError.
"""

from __future__ import annotations

from typing import Final

from shmaccum._core import STATE_MASK, WORD, Geometry, Slot

NO_WORDS: Final = memoryview(bytearray()).cast("Q")
"""Replaces the words of a slab that this process has left."""
_NO_BYTES: Final = memoryview(b"")


class SlabMemory:
    """A slab's memory.

    Attributes:
        words: all of it, as unsigned 8-byte words; empty once the slab is unmapped.
        buffer: all of it, as bytes; likewise.
        headers_at: word index of the first slot header, each of `header_words` words.
        slots_at: byte offset of the first of `slot_count` slots, each of `slot_size` bytes.
    """

    def __init__(self, words: memoryview, geometry: Geometry) -> None:
        self.words = words
        self.buffer = words.cast("B")
        self.headers_at = geometry.header(0)
        self.header_words = geometry.slot_words
        self.slots_at = geometry.slot(0)
        self.slot_size = geometry.slot_size
        self.slot_count = geometry.slot_count

    def fault_in(self, place: int) -> int:
        """Read the word of a byte that is about to be written, to save page faults.

        For a read of memory that others have used, the kernel maps many pages around it; for a write, only that page.
        So a read before the write saves a fault for each later page, and costs almost nothing once they are mapped.
        """
        return self.words[place // WORD]

    def chain(self, first: int, count: int) -> list[int]:
        """Return the slots of a large batch, in the order of its bytes.

        The pool stores the links (`Slot.CHAIN`) under its lock, before it counts them in `Slot.SLOTS`. No process
        changes a counted link until the batch is free again, so the batch's owner reads them without a lock. A link
        behind the last counted slot is of a growth that its process did not finish: it is ignored. ``count`` is the
        `Slot.SLOTS` word of the first slot, which can be damaged.

        Returns:
            The slots; only the first one if the chain is damaged. Damaged: ``count`` is 0 or more than the slab's
            slots, there are fewer links, or a link leads out of the slab, back into the chain or to a slot that is not
            FREE.
        """
        if not 1 < count <= self.slot_count:
            return [first]
        words = self.words
        slots, slot, seen = [first], first, {first}
        while len(slots) < count:
            following = words[self.headers_at + slot * self.header_words + Slot.CHAIN]
            slot = following - 1
            if not 0 < following <= self.slot_count or slot in seen:
                return [first]
            if words[self.headers_at + slot * self.header_words + Slot.STATE] & STATE_MASK:
                return [first]
            slots.append(slot)
            seen.add(slot)
        return slots

    def places(self, slots: list[int], begin: int, end: int) -> list[tuple[int, int]]:
        """Return the byte ranges of bytes ``begin`` to ``end`` of a batch, with adjacent slots as one range.

        Raises:
            ValueError: the slots have fewer bytes.
        """
        if end > len(slots) * self.slot_size:
            raise ValueError(f"there are no bytes {begin} to {end} in {len(slots)} slots of {self.slot_size}")
        places: list[tuple[int, int]] = []
        behind = -1
        for index in range(begin // self.slot_size, (end + self.slot_size - 1) // self.slot_size):
            before = index * self.slot_size
            at = self.slots_at + slots[index] * self.slot_size
            start, stop = at + max(begin - before, 0), at + min(end - before, self.slot_size)
            if start == behind:
                start = places.pop()[0]
            places.append((start, stop))
            behind = stop
        return places

    def write(self, places: list[tuple[int, int]], data: bytes | memoryview) -> None:
        """Write bytes to ranges that have room for them, in order."""
        data = memoryview(data)
        for start, stop in places:
            self.fault_in(start)
            self.buffer[start:stop] = data[: stop - start]
            data = data[stop - start :]

    def close(self) -> None:
        """Release the memory, before the slab is unmapped."""
        self.words = NO_WORDS
        self.buffer = _NO_BYTES
