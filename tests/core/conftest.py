"""A core that dies at a chosen step, for all tests of its sections."""

from __future__ import annotations

import os
from types import ModuleType

import pytest
from core_builds import build_core


@pytest.fixture(scope="session")
def stepping(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> ModuleType:
    """Return a core in which each access to a shared word is a step (`core_slabs.die_at`, `core_slabs.kill_at`).

    It makes checksums with tables, as on machines without an instruction for it.
    """
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("this build of the core has no sanitizers: the same test runs without them")
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"core-{testrun_uid}"
    return build_core(directory, "-DSHMACCUM_STEPS", "-DSHMACCUM_CRC_TABLES")
