"""The core's mapping of a slab, and the arrays over it."""

from __future__ import annotations

import copy
import gc
import os
import pickle

import pytest
from core_producers import SLOT_SIZE, Producer, body_of
from core_slabs import Damaged, Slab, empty_segment

from shmaccum._core import (
    FutureRecordMetadata,
    Geometry,
    PartitionDeques,
    ProduceRequestResult,
    ReadyCheck,
    RecordBatch,
    RecordPath,
    Segment,
    Sequences,
    SlabLock,
    Tables,
)
from shmaccum.accumulator.state.record_batch import RecordBatch as SubBatch
from shmaccum.producer.record_path import RecordPath as SubPath

SMALL = Geometry(64, 8, max_processes=4, max_topics=4, max_partitions=4, max_lanes=4)


def test_what_looks_at_the_memory_keeps_it_mapped() -> None:
    headers, memory = empty_segment(SMALL).view("headers"), empty_segment(SMALL).writable()
    slab = Slab(3, slot_size=SLOT_SIZE)
    Producer(slab).append(body_of(b"x"))
    batch = RecordBatch(slab.segment, 0)
    views = batch.views()
    slab.close()
    del slab
    assert not headers["state"].any()
    memory[:8] = b"SHMACCUM"
    assert bytes(memory[:8]) == b"SHMACCUM"
    assert (batch.record_count, [len(view) for view in views or ()]) == (1, [batch.size])


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
    with pytest.raises(KeyError, match="nowhere"):
        segment.view("nowhere")


def test_a_file_that_is_too_short_or_read_only_or_closed_is_refused() -> None:
    descriptor = os.memfd_create("short")
    os.ftruncate(descriptor, SMALL.total_size - 1)
    with pytest.raises(ValueError, match=f"has {SMALL.total_size - 1} bytes, but its layout needs {SMALL.total_size}"):
        Segment(descriptor, SMALL)
    os.ftruncate(descriptor, SMALL.total_size)
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    with pytest.raises(PermissionError):
        Segment(reader, SMALL)
    os.close(reader)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        Segment(descriptor, SMALL)


def test_nothing_that_knows_an_address_can_be_pickled() -> None:
    slab = Slab(1, slot_size=SLOT_SIZE)
    producer = Producer(slab)
    producer.append(body_of(b"x"))
    future = FutureRecordMetadata(ProduceRequestResult("t-3", 0, object), 0, 0)
    for thing in (
        *(slab.segment, slab.lock, slab.pool, producer.core, future),
        *(PartitionDeques(slab.segment, Damaged), Tables(slab.segment, Damaged), Sequences(slab.segment, True)),
        *(ReadyCheck(slab.segment, slab.pool, Damaged, 1), RecordBatch(slab.segment, 0), SubBatch(slab.segment, 0)),
        *(RecordPath.__new__(RecordPath), SubPath.__new__(SubPath)),
    ):
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=r"cannot (be pickled|pickle)"):
                copied(thing)


def test_gates_locks_and_tickets_that_cannot_be_are_errors(slab_name: str) -> None:
    segment = empty_segment(SMALL)
    with pytest.raises(FileNotFoundError):
        SlabLock(segment, 3, f"/{slab_name}")
    for number in (-1, 18):
        with pytest.raises(IndexError, match="18 locks"):
            SlabLock(segment, number)
    for entry, incarnation in ((4, 1), (0, 1 << 48)):
        with pytest.raises(ValueError, match="incarnation"):
            segment.join(entry, incarnation)
