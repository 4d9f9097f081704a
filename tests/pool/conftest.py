"""Pools to test with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shmaccum.pool.buffer_pool import BufferPool


@pytest.fixture
def make_pool(slab_name: str) -> Iterator[Callable[[int, int], BufferPool]]:
    """Return ``make_pool(memory, poolable_size)``: make the pool of this test's slab."""
    pools: list[BufferPool] = []

    def make(memory: int, poolable_size: int) -> BufferPool:
        pools.append(BufferPool(memory, poolable_size, name=slab_name))
        return pools[-1]

    yield make
    for pool in pools:
        pool.release()
