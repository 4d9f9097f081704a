"""A slab that is not at rest is recognised, by each kind of unrest."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fixture_types import Link, Start

from shmaccum._core import Geometry, Partition, Process, Super
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.shm.files import open_semaphore
from shmaccum.shm.lifecycle import attach, detach, look
from shmaccum.shm.slab import Slab
from tools.support.locks import held
from tools.support.slabcheck import figures, shared_files, unrest

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
    assert len(shared_files(slab.name)) > 3
    pool = BufferPool(slab)
    buffer = pool.allocate(3 * SLOT, 0)
    assert seen(slab) == ["slots are not free: 1 ALLOCATED", "20 slots, but the bitmap has 17 free and the count 17"]
    pool.deallocate(buffer)
    assert seen(slab) == []
    slab.words[Super.FREE_SLOTS] = 19
    assert seen(slab) == ["20 slots, but the bitmap has 20 free and the count 19"]


def test_locks(slab: Slab) -> None:
    with held(slab.stripe(0)):
        assert seen(slab) == [f"lock 2 is not free: its owner word is {slab.processes.ticket}"]
    semaphore = open_semaphore(slab.private.pool_semaphore())
    semaphore.acquire()
    assert seen(slab) == ["the pool's semaphore is 0, not 1"]
    semaphore.close()


@pytest.mark.parametrize(
    ("region", "word", "line"),
    [
        ("superblock", Super.WAITER_TAIL, "1 tickets wait for memory"),
        ("partition", Partition.HEAD, "HEAD of partition entries [1] is not 0"),
        ("partition", Partition.IN_FLIGHT, "IN_FLIGHT of partition entries [1] is not 0"),
        ("process", Process.FLUSHING, "a flush is still noted as in progress"),
    ],
)
def test_words(slab: Slab, region: str, word: int, line: str) -> None:
    slab.words[Super.PARTITION_COUNT] = 2
    starts = {"superblock": 0, "partition": slab.geometry.partition(1), "process": slab.geometry.process(3)}
    slab.words[starts[region] + word] += 1
    assert seen(slab) == [line]


def join_and_wait(link: Link, name: str) -> None:
    attach(name)
    link.send(None)
    link.recv()


def test_dead_processes(slab: Slab, start: Start) -> None:
    child = start(join_and_wait, slab.name)
    child.hear()
    assert seen(slab) == []
    child.kill()
    assert [re.sub(r"\d+", "N", line) for line in seen(slab)] == ["dead process N is still in the table"]
    slab.reap_dead()
    assert seen(slab) == []


def test_figures(slab: Slab) -> None:
    for process, waits in {0: 3, 5: 4}.items():
        slab.words[slab.geometry.process(process) + Process.WAITS] = waits
    with look(slab.name) as view:
        assert figures(view).memory_waits == 7
