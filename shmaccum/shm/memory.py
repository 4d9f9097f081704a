"""A slab's mapped words and bytes, for Python code that reads and writes records.

An access after `close` raises an IndexError.
"""

from __future__ import annotations

from shmaccum._core import STATE_MASK, WORD, Geometry, Slot


class SlabMemory:
    """A slab's memory, as unsigned 8-byte words and as bytes; both are empty once the slab is unmapped."""

    def __init__(self, words: memoryview, geometry: Geometry) -> None:
        self.words = words
        self.buffer = words.cast("B")
        self._geometry = geometry

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

        Returns the slots; only the first one if the chain is damaged. Damaged: ``count`` is 0 or more than the slab's
        slots, there are fewer links, or a link leads out of the slab, back into the chain or to a slot that is not
        FREE.
        """
        words, geometry = self.words, self._geometry
        if not 1 < count <= geometry.slot_count:
            return [first]
        slots, slot, seen = [first], first, {first}
        while len(slots) < count:
            following = words[geometry.header(slot) + Slot.CHAIN]
            slot = following - 1
            if not 0 < following <= geometry.slot_count or slot in seen:
                return [first]
            if words[geometry.header(slot) + Slot.STATE] & STATE_MASK:
                return [first]
            slots.append(slot)
            seen.add(slot)
        return slots

    def places(self, slots: list[int], begin: int, end: int) -> list[tuple[int, int]]:
        """Return the byte ranges of bytes ``begin`` to ``end`` of a batch, with adjacent slots as one range.

        Raises ValueError: the slots have fewer bytes.
        """
        size = self._geometry.slot_size
        if end > len(slots) * size:
            raise ValueError(f"there are no bytes {begin} to {end} in {len(slots)} slots of {size}")
        places: list[tuple[int, int]] = []
        behind = -1
        for index in range(begin // size, (end + size - 1) // size):
            before, at = index * size, self._geometry.slot(slots[index])
            start, stop = at + max(begin - before, 0), at + min(end - before, size)
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
        self.words = memoryview(bytearray()).cast("Q")
        self.buffer = self.words.cast("B")
