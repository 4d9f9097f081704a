"""The BufferPool among processes: fair to all of them; the killed lose no memory, and no process waits for them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection

import pytest
from faults import die, is_stopped, stop
from pools import MakePool, join_pool
from processes import PATIENCE_S, Child, Start, finish, in_threads, wait_until
from runs import interrupts

from shmaccum._core import Buffer, Slot, Super
from shmaccum.accumulator import buffer_pool
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.errors import BufferExhaustedError
from shmaccum.shm.layout import SlotState, owner_of
from shmaccum.shm.lifecycle import detach

FOREVER_MS = PATIENCE_S * 1000


@pytest.fixture
def no_waiter_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process, and those that it forks, pass over no waiter, however slow the machine is."""
    monkeypatch.setattr(buffer_pool, "ABSENT_S", FOREVER_MS)


def serve(link: Connection, name: str, wait_slice_s: float = 600.0, stops: bool = False) -> None:
    """Use the pool: allocate at each message (size, max_block_ms), deallocate at each message with buffers.

    A waiter does not look until it is woken, unless ``wait_slice_s`` is short.

    Args:
        link: to the test.
        name: of the slab.
        wait_slice_s: seconds between two looks of a waiter; after ten of them without a look, others are absent.
        stops: whether to stop itself in the first wait, without a lock.
    """
    buffer_pool.WAIT_SLICE_S = wait_slice_s  # type: ignore[misc]
    buffer_pool.ABSENT_S = 10 * wait_slice_s  # type: ignore[misc]
    pool = join_pool(name)

    stops_to_come = [stop] if stops else []
    pool.while_waiting = lambda: stops_to_come.pop()() if stops_to_come else None
    while request := link.recv():
        if isinstance(request, Buffer):
            pool.deallocate(request)
            link.send("freed")
        else:
            try:
                link.send(pool.allocate(*request))
            except BufferExhaustedError as error:
                link.send(type(error).__name__)
    detach(pool.slab)


def queue_up(pool: BufferPool, requests: list[tuple[Child, int]], max_block_ms: float = FOREVER_MS) -> None:
    """Let each child wait for a number of bytes, in this order."""
    words = pool.slab.words
    for child, size in requests:
        tickets = words[Super.WAITER_TAIL]  # it can have left the queue before this process sees it there
        child.tell((size, max_block_ms))
        wait_until(lambda tickets=tickets: words[Super.WAITER_TAIL] == tickets + 1)  # type: ignore[misc]


@contextlib.contextmanager
def waiting_thread(pool: BufferPool, taken: list[Buffer]) -> Iterator[None]:
    """Let a thread wait for a slot, which is free before the end of the block; it goes into ``taken``."""
    with in_threads(lambda: pool.allocate(8, FOREVER_MS, taken)):
        wait_until(lambda: pool.queued() == 1)
        yield


def stop_in_the_queue(pool: BufferPool, child: Child, size: int = 8, max_block_ms: float = FOREVER_MS) -> None:
    """Let a child that stops wait for a number of bytes, until it is stopped."""
    queue_up(pool, [(child, size)], max_block_ms)
    wait_until(lambda: is_stopped(child.pid))


def pass_over(pool: BufferPool, child: Child) -> Buffer:
    """Let a child that stops enter the queue, and take all memory, which it waits for."""
    buffer = pool.allocate(8, 0)
    stop_in_the_queue(pool, child)
    pool.deallocate(buffer)
    buffer = pool.allocate(8, FOREVER_MS)
    assert pool.queued() == 1
    return buffer


# --- fairness -------------------------------------------------------------------------------------


def test_the_order_of_arrival_is_the_order_of_service(make_pool: MakePool, start: Start, slab_name: str) -> None:
    pool = make_pool(8, 8)
    buffer = pool.allocate(8, 0)
    children = [start(serve, slab_name) for _ in range(5)]
    order = [children[number] for number in (3, 0, 4, 1, 2)]
    queue_up(pool, [(child, 8) for child in order])

    for turn, child in enumerate(order):
        pool.deallocate(buffer)
        buffer = child.hear()
        assert pool.queued() == len(order) - turn - 1

    pool.deallocate(buffer)
    finish(*children)


def test_a_timed_out_waiter_lets_the_next_continue(make_pool: MakePool, start: Start, slab_name: str) -> None:
    pool = make_pool(16, 8)
    pool.allocate(8, 0)
    large, small = start(serve, slab_name, FOREVER_MS, True), start(serve, slab_name)
    stop_in_the_queue(pool, large, 16, max_block_ms=1000)
    queue_up(pool, [(small, 8)])
    large.signal(signal.SIGCONT)

    assert large.hear() == "BufferExhaustedError"

    assert small.hear().slot == 1
    assert pool.queued() == 0
    finish(large, small)


def test_a_stopped_waiter_is_passed_over_and_keeps_its_place(make_pool: MakePool, start: Start, slab_name: str) -> None:
    pool = make_pool(8, 8)
    buffer = pool.allocate(8, 0)
    stopped, first, last = start(serve, slab_name, 0.1, True), start(serve, slab_name, 0.1), start(serve, slab_name)
    stop_in_the_queue(pool, stopped)
    queue_up(pool, [(first, 8)])

    pool.deallocate(buffer)
    taken = first.hear()
    assert taken.slot == 0
    queue_up(pool, [(last, 8)])
    stopped.signal(signal.SIGCONT)
    wait_until(lambda: not any(is_passed_over for _, _, is_passed_over in pool.slab.pool.waiters()))
    first.tell(taken)

    taken = stopped.hear()
    assert taken.slot == 0
    assert pool.queued() == 1
    stopped.tell(taken)
    assert last.hear().slot == 0
    finish(stopped, first, last)


def test_a_waiter_killed_after_being_passed_over_leaves_the_queue(
    make_pool: MakePool, start: Start, slab_name: str
) -> None:
    pool = make_pool(8, 8)
    stopped = start(serve, slab_name, 0.1, True)
    buffer = pass_over(pool, stopped)

    stopped.kill()
    pool.reclaim()

    assert pool.queued() == 0
    pool.deallocate(buffer)


# --- interrupts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_block_ms", [0, 2])
def test_an_interrupt_anywhere_in_a_wait_leaves_nothing_behind(make_pool: MakePool, max_block_ms: int) -> None:
    pool = make_pool(16, 8)
    taken = pool.allocate(8, 0)

    for moment, interrupt in enumerate(interrupts()):
        with contextlib.suppress(BufferExhaustedError), interrupt:
            pool.allocate(16, max_block_ms)
        assert pool.queued() == 0, moment
        assert pool.available_memory() == 8
        assert not pool.slab.wakeup.waiting

    assert moment > 20
    pool.deallocate(taken)
    assert pool.allocate(16, 0).slots == 2


def test_an_interrupt_anywhere_in_a_wait_that_succeeds_leaves_nothing_behind(make_pool: MakePool) -> None:
    pool = make_pool(16, 8)

    for moment, interrupt in enumerate(interrupts()):
        taken = pool.allocate(16, 0)
        pool.while_waiting = partial(free_once, pool, taken)
        waited: list[Buffer] = []
        with interrupt:
            pool.allocate(8, FOREVER_MS, waited)
        pool.while_waiting = lambda: None
        assert pool.queued() == 0, moment
        left = [buffer for buffer in (taken, *waited) if pool.is_taken(buffer)]
        assert len(left) <= 1
        pool.deallocate(*left)
        assert pool.available_memory() == 16

    assert moment > 60


def free_once(pool: BufferPool, buffer: Buffer) -> None:
    if pool.is_taken(buffer):
        pool.deallocate(buffer)


# --- fork -----------------------------------------------------------------------------------------


def allocate_inherited(link: Connection, pool: BufferPool, size: int) -> tuple[Buffer, int, int]:
    buffer = pool.allocate(size, FOREVER_MS)
    owner = owner_of(pool.slab.words[pool.slab.geometry.header(buffer.slot) + Slot.STATE])
    link.send((buffer, owner, pool.slab.me))
    link.recv()
    pool.deallocate(buffer)
    return buffer, owner, pool.slab.me


def test_a_forked_child_waits_in_the_same_queue(make_pool: MakePool, start: Start) -> None:
    pool = make_pool(32, 8)
    mine, rest = pool.allocate(8, 0), pool.allocate(24, 0)
    child = start(allocate_inherited, pool, 16, how="fork")
    wait_until(lambda: pool.queued() == 1)

    pool.deallocate(rest)

    buffer, owner, entry = child.hear()
    assert buffer.slot == mine.slot + 1
    assert owner == entry != pool.slab.me
    assert pool.available_memory() == 8
    child.finish()
    assert pool.available_memory() == 24
    assert pool.is_taken(mine)


@pytest.mark.usefixtures("no_waiter_is_absent")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_its_parents_wait_is_not_in_the_queue(make_pool: MakePool, start: Start) -> None:
    pool = make_pool(8, 8)
    mine = pool.allocate(8, 0)
    got: list[Buffer] = []
    with waiting_thread(pool, got):
        child = start(allocate_inherited, pool, 8, how="fork")
        wait_until(lambda: pool.queued() == 2)
        pool.deallocate(mine)
    assert pool.queued() == 1

    pool.deallocate(*got)
    child.hear()
    child.finish()
    assert pool.slab.headers[0, Slot.STATE] == SlotState.FREE


# --- killed processes ----------------------------------------------------------------------------


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
    assert pool.slab.pool.is_exhausted()

    assert pool.allocate(8, 0).slots == 1

    assert not pool.slab.pool.is_exhausted()
    pool.deallocate(buffer)
