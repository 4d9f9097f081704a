"""Removing a slab by hand: not while processes use it, and its records only by force."""

from __future__ import annotations

from contextlib import suppress

import pytest
from processes import Start
from slab_helpers import leave_records, overwrite, stay, whats_there

from shmaccum._core import Geometry, Super
from shmaccum.errors import SlabInUseError, SlabNotFoundError
from shmaccum.shm.lifecycle import destroy
from shmaccum.shm.segment import Segment
from shmaccum.shm.slab import Slab


def test_a_slab_in_use_is_not_destroyed(slab: Slab) -> None:
    with pytest.raises(SlabInUseError, match="this process itself"):
        destroy(slab.name, force=True)


def test_a_slab_that_others_use_is_not_destroyed(slab_name: str, geometry: Geometry, start: Start) -> None:
    child = start(stay, slab_name, geometry).ready()

    with pytest.raises(SlabInUseError, match=f"in use by process {child.pid}"):
        destroy(slab_name, force=True)

    child.kill()
    with suppress(SlabNotFoundError):  # another test's producer can have swept the empty slab away
        assert destroy(slab_name) == 0
    assert whats_there(slab_name) == []


def test_a_slab_with_records_is_destroyed_by_force_only(slab_name: str, geometry: Geometry, start: Start) -> None:
    start(leave_records, slab_name, geometry).result()

    with pytest.raises(SlabInUseError, match="3 undelivered records"):
        destroy(slab_name)
    assert whats_there(slab_name)

    assert destroy(slab_name, force=True) == 3
    assert whats_there(slab_name) == []


def test_a_missing_slab_is_not_destroyed(slab_name: str) -> None:
    with pytest.raises(SlabNotFoundError, match=slab_name):
        destroy(slab_name)

    assert whats_there(slab_name) == []


def test_the_remains_of_an_unfinished_creator_are_destroyed(slab_name: str, geometry: Geometry) -> None:
    segment = Segment.create(slab_name, geometry, 0)
    segment.close()

    assert destroy(slab_name) == 0
    assert whats_there(slab_name) == []


def test_an_unreadable_slab_is_destroyed_only_without_users(slab_name: str, geometry: Geometry, start: Start) -> None:
    child = start(stay, slab_name, geometry).ready()
    overwrite(slab_name, Super.ABI, 99)

    with pytest.raises(SlabInUseError, match=f"process {child.pid}"):
        destroy(slab_name, force=True)

    child.kill()
    destroy(slab_name, force=True)
    assert whats_there(slab_name) == []


def test_records_of_another_version_are_destroyed_by_force_only(
    slab_name: str, geometry: Geometry, start: Start
) -> None:
    """They cannot be counted: after an upgrade, the old version must still be able to deliver them."""
    start(leave_records, slab_name, geometry).result()
    overwrite(slab_name, Super.ABI, 99)

    with pytest.raises(
        SlabInUseError, match=r"can hold undelivered records, .* ABI version 99, .* use --force to lose"
    ):
        destroy(slab_name)
    assert whats_there(slab_name)

    destroy(slab_name, force=True)
    assert whats_there(slab_name) == []
