"""The core's lock: it names its holder, is taken from a dead one only, and survives a death at every step."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType

import posix_ipc
import pytest
from core_slabs import empty_segment, kill_at

from shmaccum._core import LOCK_BUSY, LOCK_TAKEN, LOCK_UNFINISHED, WORD, Geometry, Segment, SlabLock

SMALL = Geometry(64, 8, max_processes=16, max_topics=4, max_partitions=4, max_lanes=4)
UNFINISHED = 0xFFFF
NUMBER = 3
GATES = pytest.mark.parametrize("gated", [False, True], ids=["word", "word and gate"])


@contextmanager
def semaphore(name: str) -> Iterator[posix_ipc.Semaphore]:
    """Make a semaphore of one unit, for the block."""
    made = posix_ipc.Semaphore(f"/{name}", posix_ipc.O_CREX, initial_value=1)
    try:
        yield made
    finally:
        made.unlink()
        made.close()


@pytest.fixture
def gate(slab_name: str, gated: bool) -> Iterator[str | None]:
    """Return the name of a new gate, or None."""
    with semaphore(slab_name) if gated else nullcontext() as made:
        yield made and made.name


@pytest.fixture
def segment() -> Segment:
    return empty_segment(SMALL)


@pytest.fixture
def lock(segment: Segment, gate: str | None) -> SlabLock:
    return SlabLock(segment, NUMBER, gate)


@GATES
def test_only_the_named_dead_holder_loses_the_lock(segment: Segment, lock: SlabLock) -> None:
    dead = segment.join(0, 1)
    assert lock.acquire_now() == LOCK_TAKEN
    lock.unblock(dead)
    assert lock.owner == dead, "our own ticket is never dead"
    segment.join(0, 2)  # the same entry, taken again
    lock.unblock(0)
    lock.unblock(3 | 1 << 16)
    assert lock.owner == dead
    lock.unblock(dead)
    assert lock.owner == UNFINISHED
    for ticket in (0, dead):
        lock.unblock(ticket)
        assert lock.owner == UNFINISHED
    assert segment.view("locks")["takeovers"].tolist()[NUMBER] == 1
    segment.join(2, 1)
    assert lock.acquire_now() == LOCK_UNFINISHED
    lock.release()


def test_a_lost_unit_of_the_gate_comes_back_with_the_next_release(slab_name: str, segment: Segment) -> None:
    with semaphore(slab_name) as gate:
        segment.join(0, 1)
        lock = SlabLock(segment, NUMBER, gate.name)
        gate.acquire()  # by a process that dies then
        assert lock.acquire_now() == LOCK_BUSY
        lock.unblock(0)
        assert gate.value == 1
        gate.release()  # one too many
        assert lock.acquire_now() == LOCK_TAKEN
        lock.release()
        assert gate.value == 1


OPERATIONS: dict[str, tuple[int, Callable[[SlabLock], object]]] = {
    "acquire": (0, lambda lock: lock.acquire_now()),
    "acquire and release": (0, lambda lock: (lock.acquire_now(), lock.release())),
    "acquire and leave unfinished": (0, lambda lock: (lock.acquire_now(), lock.release(unfinished=True))),
    "acquire an unfinished one": (UNFINISHED, lambda lock: (lock.acquire_now(), lock.release())),
    "unblock a free one": (0, lambda lock: lock.unblock(0)),
    "unblock a dead one": (1 | 9 << 16, lambda lock: lock.unblock(1 | 9 << 16)),
    "unblock an unfinished one": (UNFINISHED, lambda lock: lock.unblock(0)),
}
"""What a process does when it dies, behind the owner word that it finds."""


@GATES
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_death_at_any_step_leaves_a_lock_that_others_get(
    stepping: ModuleType, operation: str, gate: str | None
) -> None:
    found, operate = OPERATIONS[operation]
    geometry = stepping.Geometry(64, 8, max_processes=16, max_topics=4, max_partitions=4, max_lanes=4)
    for step in itertools.count(1):
        descriptor = os.memfd_create("segment")
        os.ftruncate(descriptor, geometry.total_size)
        segment = stepping.Segment(descriptor, geometry)
        lock = stepping.SlabLock(segment, NUMBER, gate)
        os.pwrite(descriptor, found.to_bytes(8, "little"), geometry.lock(NUMBER) * WORD)

        def as_a_process(lock: SlabLock = lock, segment: Segment = segment) -> None:
            segment.join(1, 1)
            operate(lock)

        was_killed = kill_at(stepping, step, as_a_process)
        segment.join(2, 1)
        named = lock.owner
        assert named in (0, UNFINISHED, 2 | 1 << 16, found)
        lock.unblock(named if named != UNFINISHED else 0)
        assert lock.acquire_now() == (LOCK_UNFINISHED if named else LOCK_TAKEN)  # the gate is open again
        lock.release()
        os.close(descriptor)
        if not was_killed:
            break
    assert step > 2
