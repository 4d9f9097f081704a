"""Holds a lock of a slab, as a process does that dies or is stopped in the middle of a section."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shmaccum.shm.locks import SlabLock


@contextmanager
def held(lock: SlabLock, timeout_s: float | None = None, *, unfinished: bool = False) -> Iterator[None]:
    """Hold a lock during the block; if ``unfinished``, leave what it guards to be rebuilt by the next holder."""
    lock.run(lambda: (lock.core.acquire_now(),), timeout_s)
    try:
        yield
    finally:
        lock.core.release(unfinished)
