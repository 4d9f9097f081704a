"""A slab that is not at rest is recognised, by each kind of unrest."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fixture_types import Link, Start

from shmaccum._core import Geometry, Lock, Partition, Process, Super
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.shm.lifecycle import attach, detach, look
from shmaccum.shm.slab import Slab
from tools.support.slabcheck import unrest

SLOT = 1024


@pytest.fixture
def slab(slab_name: str) -> Iterator[Slab]:
    slab = attach(slab_name, Geometry(SLOT, 20, max_processes=8, max_topics=4, max_partitions=4))
    yield slab
    detach(slab)


def seen(slab: Slab) -> list[str]:
    with look(slab.name) as view:
        return unrest(view)


def test_slots(slab: Slab) -> None:
    assert seen(slab) == []
    pool = BufferPool(slab)
    buffer = pool.allocate(3 * SLOT, 0)
    assert seen(slab) == ["slots are not free: 1 ALLOCATED", "20 slots, but the bitmap has 17 free and the count 17"]
    pool.deallocate(buffer)
    assert seen(slab) == []


@pytest.mark.parametrize(
    ("region", "word", "line"),
    [
        ("superblock", Super.FREE_SLOTS, "20 slots, but the bitmap has 20 free and the count 21"),
        ("superblock", Super.WAITER_TAIL, "1 tickets wait for memory"),
        ("lock", Lock.OWNER, "lock 2 is not free: its owner word is 1"),
        ("partition", Partition.HEAD, "HEAD of partition entries [1] is not 0"),
        ("partition", Partition.IN_FLIGHT, "IN_FLIGHT of partition entries [1] is not 0"),
        ("process", Process.FLUSHING, "a flush is still noted as in progress"),
    ],
)
def test_words(slab: Slab, region: str, word: int, line: str) -> None:
    slab.words[Super.PARTITION_COUNT] = 2
    geometry = slab.geometry
    tables = {"lock": geometry.lock(2), "partition": geometry.partition(1), "process": geometry.process(3)}
    at = tables.get(region, 0) + word
    slab.words[at] += 1
    assert seen(slab) == [line]
    slab.words[at] -= 1


def join_and_wait(link: Link, name: str) -> None:
    attach(name)
    link.send(None)
    link.recv()


def test_dead_processes(slab: Slab, start: Start) -> None:
    child = start(join_and_wait, slab.name).ready()
    assert seen(slab) == []
    child.kill()
    assert [re.sub(r"\d+", "N", line) for line in seen(slab)] == ["dead process N is still in the table"]
    slab.reap_dead()
    assert seen(slab) == []
