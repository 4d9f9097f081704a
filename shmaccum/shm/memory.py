"""The words of a slab, for the code that every record passes through, as long as they are mapped.

Compiled, this code reads and writes them by typed memoryviews (`memory.pxd`): bounds are checked, and a view that is
held keeps the memory mapped. So what is used by chance behind a `close` is an IndexError, and never memory that is not
there. Nothing else holds such views: with `SlabMemory.close` and `SlabLock.close` all of them are let go of.
"""

from __future__ import annotations

from typing import Final

from shmaccum.shm.layout import WORD, Geometry

# Says it for every module, since setup.py compiles all of them or none. Who needs a kernel imports it where this is so,
# and must find it: one that is missing is an error then, and no reason to go on as plain Python among compiled modules.
COMPILED: Final = __file__.endswith(".so")
"""Whether the package is compiled, or the same as plain Python."""

_WORD: Final = WORD  # for this module alone: a number of C where it is compiled

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
        slots_at: byte offset of the first slot's memory, and `slot_size` the bytes in each.
        contributor_words: words of the contributors' bitmap in a slot header.
        max_processes: entries in the process table.
    """

    def __init__(self, words: memoryview, geometry: Geometry) -> None:
        self.words = words
        self.buffer = words.cast("B")
        self.partitions_at = geometry.partition(0)
        self.headers_at = geometry.header(0)
        self.header_words = geometry.slot_words
        self.slots_at = geometry.slot(0)
        self.slot_size = geometry.slot_size
        self.contributor_words = geometry.contributor_words
        self.max_processes = geometry.max_processes

    def fault_in(self, place: int) -> int:
        """Return the word of a byte that is about to be written, perhaps for the first time by this process.

        Of memory that others have used, the kernel maps many pages around the one that is read, but only the one that
        is written: to read first costs next to nothing where the pages are mapped, and saves a fault for each where
        they are not.
        """
        return self.words[place // _WORD]

    def close(self) -> None:
        """Let go of it; the slab is about to be unmapped."""
        self.words = NO_WORDS
        self.buffer = _NO_BYTES
