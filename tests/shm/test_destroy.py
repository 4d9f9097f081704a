"""Removing a slab by hand: not while processes use it, and its records only by force."""

from __future__ import annotations

from contextlib import suppress

import pytest
from processes import Start
from slab_helpers import leave_records, overwrite, stay, whats_there

from shmaccum._core import Geometry, Super
from shmaccum.abi import ABI_VERSION
from shmaccum.errors import SlabInUseError, SlabNotFoundError
from shmaccum.shm.lifecycle import destroy
from shmaccum.shm.segment import Segment
from shmaccum.shm.slab import Slab


@pytest.mark.parametrize("abi", [ABI_VERSION, 99])
def test_a_slab_in_use_is_not_destroyed(slab_name: str, geometry: Geometry, start: Start, abi: int) -> None:
    """Whatever its version, and by force neither."""
    child = start(stay, slab_name, geometry).ready()
    overwrite(slab_name, Super.ABI, abi)
    with pytest.raises(SlabInUseError, match=f"in use by process {child.pid}"):
        destroy(slab_name, force=True)
    child.kill()
    with suppress(SlabNotFoundError):  # another test's producer can have swept the empty slab away
        assert destroy(slab_name, force=abi != ABI_VERSION) == 0
    assert whats_there(slab_name) == []
    with pytest.raises(SlabNotFoundError, match=slab_name):
        destroy(slab_name)


def test_a_slab_of_this_process_is_not_destroyed(slab: Slab) -> None:
    with pytest.raises(SlabInUseError, match="this process itself"):
        destroy(slab.name, force=True)


@pytest.mark.parametrize(
    ("abi", "lost", "said"),
    [
        (ABI_VERSION, 3, "3 undelivered records"),
        (99, 0, "can hold undelivered records, .* ABI version 99, .* use --force to lose"),
    ],
)
def test_a_slab_with_records_is_destroyed_by_force_only(
    slab_name: str, geometry: Geometry, start: Start, abi: int, lost: int, said: str
) -> None:
    """Those of another version cannot be counted: after an upgrade, the old one must still be able to deliver them."""
    start(leave_records, slab_name, geometry).result()
    overwrite(slab_name, Super.ABI, abi)
    with pytest.raises(SlabInUseError, match=said):
        destroy(slab_name)
    assert whats_there(slab_name)
    assert destroy(slab_name, force=True) == lost
    assert whats_there(slab_name) == []


def test_the_remains_of_an_unfinished_creator_are_destroyed(slab_name: str, geometry: Geometry) -> None:
    Segment.create(slab_name, geometry, 0).close()
    assert destroy(slab_name) == 0
    assert whats_there(slab_name) == []
