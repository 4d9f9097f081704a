"""A BufferPool without the accumulator around it."""

from __future__ import annotations

from collections.abc import Callable

from shmaccum._core import Geometry
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.shm.lifecycle import attach


def join_pool(name: str, geometry: Geometry | None = None) -> BufferPool:
    """Attach to a slab, or create it, and return its pool; detach ``pool.slab``."""
    return BufferPool(attach(name, geometry))


MakePool = Callable[[int, int], BufferPool]
"""The fixture ``make_pool``: ``make_pool(memory, poolable_size)``."""
