"""How a waiter proves an unnamed holder dead, and which process a timeout names."""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
from faults import before, die, is_stopped, stop
from processes import Start, finish, wait_until

from shmaccum.errors import LockTimeoutError
from shmaccum.shm.layout import Lock, Process
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.lockfile import TAKEOVER
from shmaccum.shm.locks import SlabLock
from shmaccum.shm.slab import Slab
from shmaccum.shm.takeover import LockState, LockWait, Look

NUMBER = 5
OTHER = 6
PATIENCE_S = 60.0
"""Most seconds for a takeover: many times what it takes."""


def prepare(slab: Slab) -> Slab:
    for lock in slab.locks:
        lock.rebuild = lambda: None
    return slab


def state(slab: Slab) -> LockState:
    lock = slab.locks[NUMBER]
    return LockState(NUMBER, lock.semaphore, slab.words, slab.geometry, slab.processes, slab.lock_file)


def take_in_the_window(link: Connection, name: str, action: Callable[[], None]) -> None:
    """Take the semaphore, and die or stop before this process is named as its holder."""
    slab = prepare(attach(name))
    link.send(slab.me)
    before(SlabLock.acquire, "unfinished = self.words", action)
    with slab.locks[NUMBER].within(PATIENCE_S):
        pass
    detach(slab)


def use_all_the_time(link: Connection, name: str, number: int) -> None:
    slab = prepare(attach(name))
    link.send("ready")
    while not link.poll():
        with slab.locks[number].within(PATIENCE_S):
            pass
    detach(slab)


def give_up_all_the_time(link: Connection, name: str) -> int:
    """Wait for the lock with short timeouts, until it is acquired; return the number of timeouts."""
    slab = prepare(attach(name))
    link.send("ready")
    in_vain = 0
    while True:
        try:
            with slab.locks[NUMBER].within(0.012):
                break
        except LockTimeoutError:
            in_vain += 1
    detach(slab)
    return in_vain


def wait_and_leave(link: Connection, name: str) -> None:
    slab = prepare(attach(name))
    link.send(slab.me)
    link.recv()
    with slab.locks[NUMBER].within(PATIENCE_S):
        pass
    detach(slab)


def lose(slab: Slab, start: Start) -> None:
    """Let a process die with the lock, without being named as its holder."""
    dead = start(take_in_the_window, slab.name, die).ready()
    assert dead.join() == -signal.SIGKILL
    assert slab.locks[NUMBER].owner() == -1
    assert slab.locks[NUMBER].semaphore.value == 0


def word(slab: Slab, entry: int, number: int) -> int:
    value: int = slab.words[slab.geometry.process(entry) + number]
    return value


# --- what does not hide a death -------------------------------------------------------------------


@pytest.mark.plain  # a process dies or stops before a line
def test_traffic_on_other_locks_does_not_hide_a_death(slab: Slab, start: Start) -> None:
    prepare(slab)
    busy = [start(use_all_the_time, slab.name, OTHER) for _ in range(2)]
    for child in busy:
        child.hear()
    lose(slab, start)

    with slab.locks[NUMBER].within(PATIENCE_S):
        assert slab.locks[NUMBER].owner() == slab.me

    finish(*busy)


@pytest.mark.plain  # a process dies or stops before a line
def test_repeated_timeouts_do_not_hide_a_death(slab: Slab, start: Start) -> None:
    prepare(slab)
    lose(slab, start)
    first = start(wait_and_leave, slab.name).ready()
    hasty = start(give_up_all_the_time, slab.name).ready()

    first.finish()
    hasty.result()
    assert slab.words[slab.geometry.lock(NUMBER) + Lock.TAKEOVERS] == 1


@pytest.mark.plain  # a process dies or stops before a line
def test_a_waiter_that_dies_after_a_look_does_not_hide_a_death_for_long(slab: Slab, start: Start) -> None:
    """It never parks again; a new look knows that it is dead, and the old one stays valid for the others."""
    prepare(slab)
    lose(slab, start)
    waiter = start(wait_and_leave, slab.name)
    entry = waiter.hear()
    stopped = start(take_in_the_window, slab.name, stop)
    other = stopped.hear()
    wait_until(lambda: word(slab, other, Process.PARKED + NUMBER) > 0)
    stopped.signal(signal.SIGSTOP)  # prevents every conclusion
    waiter.tell()
    wait_until(lambda: word(slab, entry, Process.PARKED + NUMBER) > 3)

    waiter.kill()
    stopped.kill()

    with slab.locks[NUMBER].within(PATIENCE_S):
        assert slab.locks[NUMBER].owner() == slab.me
    slab.reap_dead()
    assert list(slab.processes.in_use()) == [slab.me]


# --- looks ----------------------------------------------------------------------------------------


def test_a_look_is_valid_until_a_release(slab: Slab) -> None:
    look = Look(state(slab))

    with slab.locks[OTHER]:
        pass
    assert not look.is_spoiled()

    with slab.locks[NUMBER]:
        pass
    assert look.is_spoiled()


@pytest.mark.plain  # a process dies or stops before a line
def test_a_timed_out_wait_is_no_release(slab: Slab, start: Start) -> None:
    prepare(slab)
    holder = start(take_in_the_window, slab.name, stop)
    entry = holder.hear()
    wait_until(lambda: word(slab, entry, Process.WANTS) != 0 and slab.locks[NUMBER].semaphore.value == 0)
    look = Look(state(slab))

    for _ in range(2):
        with pytest.raises(LockTimeoutError):
            slab.locks[NUMBER].acquire(0.02)

    assert not look.is_spoiled()
    assert word(slab, slab.me, Process.PARKED + NUMBER) >= 2
    assert word(slab, slab.me, Process.PARKED + OTHER) == 0


@pytest.mark.plain  # a process dies or stops before a line
def test_slices_are_short_at_first_and_after_a_death(slab: Slab, start: Start) -> None:
    wait = LockWait(state(slab))
    first = wait.slice_s
    for _ in range(2):
        assert not wait.take_over()
    later = wait.slice_s
    assert first < later

    lose(slab, start)
    assert not wait.take_over()
    assert wait.slice_s == first
    assert wait.take_over()
    assert slab.locks[NUMBER].owner() == slab.me
    slab.words[slab.geometry.lock(NUMBER) + Lock.OWNER] = 0
    slab.locks[NUMBER].semaphore.release()


# --- processes named in a timeout -----------------------------------------------------------------


@pytest.mark.plain  # a process dies or stops before a line
def test_a_process_stopped_before_it_is_the_owner_is_named(slab: Slab, start: Start) -> None:
    holder = start(take_in_the_window, slab.name, stop).ready()
    wait_until(lambda: is_stopped(holder.pid))

    with pytest.raises(LockTimeoutError, match=f"no process is named as its holder; perhaps process {holder.pid} is,"):
        slab.locks[NUMBER].acquire(0.2)

    assert slab.words[slab.geometry.lock(NUMBER) + Lock.TAKEOVERS] == 0
    holder.signal(signal.SIGCONT)
    holder.result()
    with slab.locks[NUMBER].within(PATIENCE_S):
        pass


@pytest.mark.plain  # a process dies or stops before a line
def test_a_stopped_waiter_that_blocks_a_takeover_is_named(slab: Slab, start: Start) -> None:
    """It looks like a holder: the others wait for it, and take over the lock when it continues."""
    prepare(slab)
    holder = start(take_in_the_window, slab.name, stop).ready()
    wait_until(lambda: slab.locks[NUMBER].semaphore.value == 0)
    waiter = start(wait_and_leave, slab.name)
    entry = waiter.hear()
    waiter.tell()
    wait_until(lambda: word(slab, entry, Process.PARKED + NUMBER) > 0)
    waiter.signal(signal.SIGSTOP)
    holder.kill()

    with pytest.raises(LockTimeoutError, match=f"perhaps process {waiter.pid} is, and is stopped"):
        slab.locks[NUMBER].acquire(0.3)

    waiter.signal(signal.SIGCONT)
    with slab.locks[NUMBER].within(PATIENCE_S):
        pass
    waiter.result()
    assert slab.words[slab.geometry.lock(NUMBER) + Lock.TAKEOVERS] == 1


def stop_taking_over(link: Connection, name: str) -> None:
    slab = prepare(attach(name))
    link.send("ready")
    before(LockState.set_owner, "self._words", stop)
    with slab.locks[NUMBER].within(PATIENCE_S):
        pass
    detach(slab)


@pytest.mark.plain  # a process dies or stops before a line
def test_a_process_stopped_during_a_takeover_is_named(slab: Slab, start: Start) -> None:
    prepare(slab)
    lose(slab, start)
    taker = start(stop_taking_over, slab.name).ready()
    wait_until(lambda: is_stopped(taker.pid))
    assert slab.lock_file.holder(TAKEOVER) == taker.pid

    with pytest.raises(LockTimeoutError, match=f"process {taker.pid} is taking it over from a dead process"):
        slab.locks[NUMBER].acquire(0.3)

    taker.signal(signal.SIGCONT)
    taker.result()
