"""A BufferPool without the accumulator around it."""

from __future__ import annotations

from collections.abc import Callable

from shmaccum._core import Geometry, Slot
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.shm.lifecycle import attach
from shmaccum.shm.slab import Slab


def join_pool(name: str, geometry: Geometry | None = None) -> BufferPool:
    """Attach to a slab, or create it, and return its pool; detach ``pool.slab``."""
    return BufferPool(attach(name, geometry))


MakePool = Callable[[int, int], BufferPool]
"""The fixture ``make_pool``: ``make_pool(memory, poolable_size)``."""


def slots_of(slab: Slab, first: int) -> list[int]:
    """Return the slots of a chain, by its links."""
    words, geometry, slots = slab.words, slab.geometry, [first]
    while len(slots) < words[geometry.header(first) + Slot.SLOTS]:
        slots.append(words[geometry.header(slots[-1]) + Slot.CHAIN] - 1)
    return slots
