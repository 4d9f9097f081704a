"""Pools to test with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pools import MakePool, join_pool

from shmaccum._core import Geometry
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.shm.lifecycle import detach


@pytest.fixture
def make_pool(slab_name: str) -> Iterator[MakePool]:
    """Return ``make_pool(memory, poolable_size)``: make the pool of this test's slab."""
    pools: list[BufferPool] = []

    def make(memory: int, poolable_size: int) -> BufferPool:
        pools.append(join_pool(slab_name, Geometry(poolable_size, max(1, memory // poolable_size))))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()
        detach(pool.slab)
