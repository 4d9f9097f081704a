"""Stores into shared memory, as steps at which a victim can die: those of the shipped core, too (``stores.c``)."""

from __future__ import annotations

import ctypes
import platform
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shmaccum._core import WORD, Geometry
from shmaccum.shm import segment, slab, wakeup
from tools.support.compiling import compile_shared
from tools.support.regions import regions

SOURCE: Final = Path(__file__).with_name("stores.c")
_MAPPING: Final = re.compile(r"(\w+)-(\w+) r.-s .* (/dev/shm/\S+)")
SLAB, SEMAPHORE = 0, 1
"""Numbers of mappings in an account."""


def build(directory: Path) -> ctypes.CDLL:
    """Compile the code that stops at stores, and load it.

    Raises:
        NotImplementedError: this is no x86-64, whose processor traps after one instruction.
    """
    if platform.machine() != "x86_64":
        raise NotImplementedError(f"stores are found by the trap flag of x86-64, and this is {platform.machine()}")
    library = directory / "stores.so"
    compile_shared(SOURCE, library, "-O1")
    return ctypes.CDLL(str(library))


class Stores:
    """Counts the stores of this process into a slab's words and semaphores.

    Records' bytes do not count: a batch's words say which of them are there.

    Args:
        library: from `build`.
        name: of the slab.
        size: bytes of its words.
        at: the number of the store to end at.
        end: the signal that ends the process there, or stops it.
        account: gets the place.
    """

    def __init__(self, library: ctypes.CDLL, name: str, size: int, at: int, end: signal.Signals, account: int) -> None:
        self._library = library
        self._name = name
        self._size = size
        self._counts = (ctypes.c_uint64 * 2)(0, at)
        library.stores_begin(self._counts, account, int(end))

    @property
    def count(self) -> int:
        """Stores so far."""
        return self._counts[0]

    def run(self, operation: Callable[[], object]) -> None:
        """Run an operation; watch the mappings that there are, and those that the process makes from now on."""
        self._watch()
        for each in (segment.Segment, slab.Slab, wakeup.Wakeup):
            _after_init(each, self._watch)
        operation()

    def _watch(self) -> None:
        self._library.stores_forget()
        for line in Path("/proc/self/maps").read_text().splitlines():
            found = _MAPPING.match(line)
            if found is None:
                continue
            begin, end = int(found[1], 16), int(found[2], 16)
            is_semaphore = found[3].startswith("/dev/shm/sem.")  # glibc makes them by other names
            if not is_semaphore and not found[3].endswith(self._name):
                continue
            size = end - begin if is_semaphore else min(end - begin, self._size)
            number = SEMAPHORE if is_semaphore else SLAB
            if not self._library.stores_watch(ctypes.c_void_p(begin), ctypes.c_size_t(size), number):
                raise RuntimeError(f"the mapping of {found[3]} cannot be watched")


def _after_init(cls: Any, act: Callable[[], object]) -> None:
    """Have a function called after each object of a class is made."""
    init = cls.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        act()

    cls.__init__ = __init__


def place_of(told: str, geometry: Geometry) -> str:
    """Return the place in an account; that of a store by the word's name."""
    if not told.startswith("store "):
        return told
    kind, offset = map(int, told.split()[1:])
    if kind == SEMAPHORE:
        return "store to a semaphore"
    index = offset // WORD
    name, table = next((name, of) for name, of in reversed(regions(geometry).items()) if of.start <= index)
    entry, number = divmod(index - table.start, table.words)
    words = {at: word for word, at in table.names.items() if at <= number}
    return f"store to {name} {entry}.{words[max(words)]}" if words else f"store to {name}"
