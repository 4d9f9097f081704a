"""The words of a slab, for the code that every record passes through, as long as they are mapped.

Compiled, this code reads and writes them by typed memoryviews (`memory.pxd`): bounds are checked, and a view that is
held keeps the memory mapped. So what is used by chance behind a `close` is an IndexError, and never memory that is not
there. Nothing else holds such views: with `SlabMemory.close` and `SlabLock.close` all of them are let go of.
"""

from __future__ import annotations

from typing import Final

from shmaccum.shm.layout import STATE_MASK, WORD, Geometry, Slot

# For this module alone: numbers of C where it is compiled.
_WORD: Final = WORD
_STATE: Final = Slot.STATE
_CHAIN: Final = Slot.CHAIN
_STATE_BITS: Final = STATE_MASK

NO_WORDS: Final = memoryview(bytearray()).cast("Q")
"""Stands for those of a slab that this process has left."""
_NO_BYTES: Final = memoryview(b"")


class SlabMemory:
    """A slab's memory.

    Attributes:
        words: all of it, as unsigned 8-byte words; none once the slab is unmapped.
        buffer: all of it, as bytes; the same holds for it.
        partitions_at: word index of the first partition entry.
        headers_at: word index of the first slot header, and `header_words` the words in each.
        slots_at: byte offset of the first slot's memory, `slot_size` the bytes in each, and `slot_count` how many.
        contributor_words: words of the contributors' bitmap in a slot header.
        max_processes, max_partitions: entries in the process and the partition table.
    """

    def __init__(self, words: memoryview, geometry: Geometry) -> None:
        self.words = words
        self.buffer = words.cast("B")
        self.partitions_at = geometry.partition(0)
        self.headers_at = geometry.header(0)
        self.header_words = geometry.slot_words
        self.slots_at = geometry.slot(0)
        self.slot_size = geometry.slot_size
        self.slot_count = geometry.slot_count
        self.contributor_words = geometry.contributor_words
        self.max_processes = geometry.max_processes
        self.max_partitions = geometry.max_partitions

    def fault_in(self, place: int) -> int:
        """Return the word of a byte that is about to be written, perhaps for the first time by this process.

        Of memory that others have used, the kernel maps many pages around the one that is read, but only the one that
        is written: to read first costs next to nothing where the pages are mapped, and saves a fault for each where
        they are not.
        """
        return self.words[place // _WORD]

    def chain(self, first: int, count: int) -> list[int]:
        """Return the slots of a large batch, in the order of its bytes.

        `shmaccum.pool.slots` stores the links (`Slot.CHAIN`) under the pool's lock before it allocates the batch, and
        no process changes them until the batch is free again. So the batch's owner reads them without a lock.

        Args:
            first: the batch's slot.
            count: how many its state word says.

        Returns:
            The slots; only the first one if the chain is damaged: a link leads out of the slab, back into the chain or
            to a slot that is not FREE, or there are fewer or more links than ``count``.
        """
        if count == 1:
            return [first]
        words = self.words
        slots, slot, following = [first], first, 0
        seen = {first}
        while True:
            following = words[self.headers_at + slot * self.header_words + _CHAIN]
            if len(slots) == count:
                return [first] if following else slots
            slot = following - 1
            if not 0 < following <= self.slot_count or slot in seen:
                return [first]
            if words[self.headers_at + slot * self.header_words + _STATE] & _STATE_BITS:
                return [first]
            slots.append(slot)
            seen.add(slot)

    def places(self, slots: list[int], begin: int, end: int) -> list[tuple[int, int]]:
        """Return where the bytes ``begin`` to ``end`` of a batch are: byte offsets, adjacent slots as one place.

        Args:
            slots: of the batch, in the order of its bytes.
            begin: of the bytes, counted from the batch's first.
            end: the byte behind them.

        Raises:
            ValueError: they are more than the slots have.
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
        """Write bytes to places that have room for them, the first ones to the first."""
        data = memoryview(data)
        for start, stop in places:
            self.fault_in(start)
            self.buffer[start:stop] = data[: stop - start]
            data = data[stop - start :]

    def close(self) -> None:
        """Let go of it; the slab is about to be unmapped."""
        self.words = NO_WORDS
        self.buffer = _NO_BYTES
