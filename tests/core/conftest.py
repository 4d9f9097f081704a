"""A small slab of the core's, and a core that dies at a chosen step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from core_builds import build_core
from core_producers import SLOT_SIZE, Producer
from core_slabs import Slab


@pytest.fixture(scope="session")
def build_directory(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Path:
    """Return where the processes of this test run make the C of the core, and compile it."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"core-{testrun_uid}"


@pytest.fixture(scope="session")
def stepping(build_directory: Path) -> ModuleType:
    """Return a core in which each access to a shared word is a step (`core_slabs.die_at`, `core_slabs.kill_at`).

    It makes checksums with tables, as on machines without an instruction for it. It is compiled without optimization,
    which takes half the time: the steps are calls, in the order of the source.
    """
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("this build of the core has no sanitizers: the same test runs without them")
    return build_core(build_directory, "-DSHMACCUM_STEPS", "-DSHMACCUM_CRC_TABLES", "-O0")


@pytest.fixture
def slab() -> Iterator[Slab]:
    """Return a slab of four free slots."""
    slab = Slab(4, slot_size=SLOT_SIZE)
    yield slab
    slab.close()


@pytest.fixture
def producer(slab: Slab) -> Producer:
    """Return a producer of that slab."""
    return Producer(slab)
