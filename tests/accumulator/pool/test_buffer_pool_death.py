"""The BufferPool when its processes are killed: no memory is lost, and no process waits for the dead."""

from __future__ import annotations

from multiprocessing.connection import Connection

import pytest
from faults import die
from pools import MakePool, join_pool
from processes import PATIENCE_S, Child, Start, wait_until

from shmaccum._core import Slot, Super
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.shm.layout import SlotState

FOREVER_MS = PATIENCE_S * 1000


def take(link: Connection, name: str, *sizes: int) -> None:
    """Take memory, report it, and wait to be killed."""
    pool = join_pool(name)
    for size in sizes:
        link.send(pool.allocate(size, FOREVER_MS))
    link.recv()


def in_the_queue(pool: BufferPool, child: Child, number: int = 1) -> Child:
    """Wait until a child waits as the last of this number of waiters, and has left the pool's lock; return it."""
    wait_until(lambda: pool.queued() == number and pool.slab.pool_lock.owner() < 0)
    return child


# --- memory of the dead ---------------------------------------------------------------------------


def test_only_memory_of_the_dead_is_reclaimed(make_pool: MakePool, start: Start, slab_name: str) -> None:
    pool = make_pool(80, 8)
    mine = pool.allocate(8, 0)
    dead, living = start(take, slab_name, 16, 8), start(take, slab_name, 24)
    for child in (dead, dead, living):
        child.hear()
    assert pool.reclaim() == 0

    dead.kill()

    assert pool.available_memory() == 24
    assert pool.reclaim() == 3
    assert pool.available_memory() == 48
    assert pool.slab.words[Super.RECLAIMED_SLOTS] == 3
    assert pool.is_taken(mine)
    assert pool.reclaim() == 0
    living.kill()
    assert pool.reclaim() == 3


def use_and_die(link: Connection, name: str) -> None:
    """Take memory; on a message, set its state as in a deque, and die."""
    pool = join_pool(name)
    buffer = pool.allocate(8, 0)
    link.send(buffer)
    link.recv()
    pool.slab.words[pool.slab.geometry.header(buffer.slot) + Slot.STATE] += SlotState.OPEN - SlotState.ALLOCATED
    die()


def test_memory_filled_just_before_its_owners_death_is_not_reclaimed(
    make_pool: MakePool, start: Start, slab_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool(32, 8)
    child = start(use_and_die, slab_name)
    buffer = child.hear()
    ask = pool.slab.owner_is_alive

    def use_it_while_asked(state: int) -> bool:
        child.tell()
        child.join()
        return ask(state)

    monkeypatch.setattr(pool.slab, "owner_is_alive", use_it_while_asked)
    assert pool.reclaim() == 0

    assert pool.is_taken(buffer)
    pool.deallocate(buffer)


def test_memory_is_reclaimed_although_another_process_has_the_entry_of_the_dead(
    make_pool: MakePool, start: Start, slab_name: str
) -> None:
    pool = make_pool(32, 8)
    dead = start(take, slab_name, 16).ready()
    dead.kill()
    successor = start(take, slab_name, 8)
    kept = successor.hear()
    assert list(pool.slab.processes.in_use()) == [0, 1]

    assert pool.reclaim() == 2

    assert pool.is_taken(kept)


def test_memory_of_the_dead_goes_to_waiters(make_pool: MakePool, start: Start, slab_name: str) -> None:
    pool = make_pool(16, 8)
    dead = start(take, slab_name, 16).ready()
    waiter = in_the_queue(pool, start(take, slab_name, 16))

    dead.kill()
    pool.reclaim()

    assert waiter.hear().slots == 2
    assert pool.queued() == 0


# --- the dead in the queue ------------------------------------------------------------------------


def test_dead_waiters_at_the_head_do_not_block_the_queue(make_pool: MakePool, start: Start, slab_name: str) -> None:
    pool = make_pool(16, 8)
    buffer = pool.allocate(16, 0)
    first = in_the_queue(pool, start(take, slab_name, 16))
    second = in_the_queue(pool, start(take, slab_name, 16), 2)
    third = in_the_queue(pool, start(take, slab_name, 8), 3)

    first.kill()
    second.kill()
    pool.deallocate(buffer)

    assert third.hear().slots == 1
    assert pool.queued() == 0


def test_a_dead_waiter_does_not_block_a_new_request(make_pool: MakePool, start: Start, slab_name: str) -> None:
    pool = make_pool(16, 8)
    buffer = pool.allocate(8, 0)
    child = in_the_queue(pool, start(take, slab_name, 16))
    child.kill()
    assert pool.is_exhausted()

    assert pool.allocate(8, 0).slots == 1

    assert not pool.is_exhausted()
    pool.deallocate(buffer)


def hold_and_wait(link: Connection, name: str) -> None:
    """Hold some memory and wait for more."""
    pool = join_pool(name)
    pool.allocate(8, 0)
    pool.allocate(16, FOREVER_MS)


def test_reclaiming_removes_a_dead_owner_from_the_queue(make_pool: MakePool, start: Start, slab_name: str) -> None:
    pool = make_pool(16, 8)
    child = in_the_queue(pool, start(hold_and_wait, slab_name))
    child.kill()

    assert pool.reclaim() == 1

    assert not pool.is_exhausted()
