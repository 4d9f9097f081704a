"""The core's mapping of a slab, and the arrays over it."""

from __future__ import annotations

import gc
import os
import pickle

import numpy as np
import pytest
from core_slabs import empty_segment

from shmaccum._core import Geometry, Segment, SlabLock

SMALL = Geometry(64, 8, max_processes=4, max_topics=4, max_partitions=4, max_lanes=4)


def test_an_array_sees_what_is_stored_into_the_file() -> None:
    descriptor = os.memfd_create("segment")
    os.ftruncate(descriptor, SMALL.total_size)
    segment = Segment(descriptor, SMALL)
    superblock = segment.view("superblock")
    assert int(superblock["magic"]) == 0
    os.pwrite(descriptor, b"SHMACCUM", 0)
    os.close(descriptor)
    assert superblock["magic"].tobytes() == b"SHMACCUM"


def test_an_array_keeps_the_memory_mapped() -> None:
    headers = empty_segment(SMALL).view("headers")
    gc.collect()
    assert not headers["state"].any()


def test_the_memory_is_unmapped_with_the_last_array() -> None:
    def mapped() -> int:
        with open("/proc/self/maps") as maps:
            return sum("memfd:segment" in line for line in maps)

    before = mapped()
    headers = empty_segment(SMALL).view("headers")
    assert mapped() == before + 1
    del headers
    assert mapped() == before


def test_the_garbage_collector_does_not_clear_a_mapping() -> None:
    """A cleared one would not know how much to unmap, and would unmap its neighbours."""
    segment = empty_segment(SMALL)
    assert not any(map(gc.is_tracked, (segment, segment.geometry, SlabLock(segment, 0))))


def test_arrays_are_read_only() -> None:
    segment = empty_segment(SMALL)
    with pytest.raises(ValueError, match="read-only"):
        segment.view("headers")["state"][0] = 1
    with pytest.raises(TypeError, match="read-only"):
        memoryview(segment)[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        segment.view("superblock").flags.writeable = True


def test_an_unknown_region_is_an_error() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        empty_segment(SMALL).view("nowhere")


def test_a_file_that_is_too_short_is_refused() -> None:
    descriptor = os.memfd_create("short")
    os.ftruncate(descriptor, SMALL.total_size - 1)
    with pytest.raises(ValueError, match=f"has {SMALL.total_size - 1} bytes, but its layout needs {SMALL.total_size}"):
        Segment(descriptor, SMALL)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        Segment(descriptor, SMALL)


def test_a_file_that_cannot_be_written_is_refused() -> None:
    descriptor = os.memfd_create("segment")
    os.ftruncate(descriptor, SMALL.total_size)
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    with pytest.raises(PermissionError):
        Segment(reader, SMALL)
    os.close(reader)
    os.close(descriptor)


def test_a_segment_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(empty_segment(SMALL))


def test_a_geometry_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(SMALL)) == SMALL


def test_large_tables_are_whole() -> None:
    segment = empty_segment(Geometry(16384, 64))
    assert segment.view("rings").shape == (128, 128)
    assert segment.view("rings").dtype == np.dtype(
        [(name, "<u8") for name in ("batch", "base_offset", "result", "range")]
    )
