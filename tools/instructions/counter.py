"""Instructions of a call."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.support.compiling import compile_shared

_SOURCE: Final = Path(__file__).with_name("counter.c")


class Counter:
    """Counts the instructions of calls, on x86-64 only; the directory is for the compiled code."""

    def __init__(self, directory: Path) -> None:
        if platform.machine() != "x86_64":
            raise NotImplementedError(f"instructions are counted on x86-64, and this is {platform.machine()}")
        library = directory / "counter.so"
        if not library.exists():
            # Code that pushes must not have locals below the stack pointer.
            compile_shared(_SOURCE, library, "-O1", "-mno-red-zone")
        loaded = ctypes.PyDLL(str(library))  # which keeps the GIL: taking it again is no part of a call
        self._begin, self._end = loaded.counter_begin, loaded.counter_end
        self._begin.restype, self._end.restype = None, ctypes.c_uint64
        self._begin.argtypes = self._end.argtypes = ()
        self._own = min(self._count(_nothing) for _ in range(100))

    def count(self, call: Callable[[], object]) -> int:
        return self._count(call) - self._own

    def _count(self, call: Callable[[], object]) -> int:
        begin, end = self._begin, self._end
        begin()
        call()
        return int(end())


def _nothing() -> None:
    pass
