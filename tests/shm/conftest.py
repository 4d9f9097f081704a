"""A small slab to test with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shmaccum._core import Geometry
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab

SMALL = Geometry(slot_size=64, slot_count=8, max_processes=8, max_topics=4, max_partitions=4)


@pytest.fixture
def geometry() -> Geometry:
    return SMALL


@pytest.fixture
def slab(slab_name: str, geometry: Geometry) -> Iterator[Slab]:
    """Attach to a new slab."""
    slab = attach(slab_name, geometry)
    yield slab
    detach(slab)
