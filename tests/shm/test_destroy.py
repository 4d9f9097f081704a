"""Removing a slab of another version, or an unfinished one, by hand; ``tests/cli/test_destroy.py`` has the others."""

from __future__ import annotations

import pytest
from processes import Start
from slab_helpers import leave_records, overwrite, stay, whats_there

from shmaccum._core import Geometry, Super
from shmaccum.errors import SlabInUseError, SlabNotFoundError
from shmaccum.shm.lifecycle import destroy
from shmaccum.shm.segment import Segment


def test_a_slab_of_another_version_in_use_is_not_destroyed(slab_name: str, geometry: Geometry, start: Start) -> None:
    """By force neither."""
    child = start(stay, slab_name, geometry).ready()
    overwrite(slab_name, Super.ABI, 99)
    with pytest.raises(SlabInUseError, match=f"in use by process {child.pid}"):
        destroy(slab_name, force=True)
    child.kill()
    assert destroy(slab_name, force=True) == 0
    assert whats_there(slab_name) == []
    with pytest.raises(SlabNotFoundError, match=slab_name):
        destroy(slab_name)


def test_a_slab_of_another_version_is_destroyed_by_force_only(
    slab_name: str, geometry: Geometry, start: Start
) -> None:
    """Its records cannot be counted: after an upgrade, the old version must still be able to deliver them."""
    start(leave_records, slab_name, geometry).result()
    overwrite(slab_name, Super.ABI, 99)
    with pytest.raises(
        SlabInUseError, match="can hold undelivered records, .* ABI version 99, .* use --force to lose"
    ):
        destroy(slab_name)
    assert whats_there(slab_name)
    assert destroy(slab_name, force=True) == 0
    assert whats_there(slab_name) == []


def test_the_remains_of_an_unfinished_creator_are_destroyed(slab_name: str, geometry: Geometry) -> None:
    Segment.create(slab_name, geometry, 0).close()
    assert destroy(slab_name) == 0
    assert whats_there(slab_name) == []
