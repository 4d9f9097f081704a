"""Locks: one holder at a time among processes and threads, and rebuilds after unfinished changes."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from functools import partial
from multiprocessing.connection import Connection

import pytest
from faults import is_stopped, stop
from processes import Start, finish, in_threads, wait_until
from slab_helpers import NUMBER, rebuilding, scratch, takeovers

from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.shm.layout import Lock, Super
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab


def owners(slab: Slab) -> list[int]:
    """Return the owner words of all locks."""
    return [slab.words[slab.geometry.lock(lock.number) + Lock.OWNER] for lock in slab.locks]


# --- one at a time --------------------------------------------------------------------------------


def test_a_lock_names_its_holder_until_the_release(slab: Slab) -> None:
    lock = slab.locks[NUMBER]

    with lock:
        assert lock.owner() == slab.me
        assert owners(slab)[NUMBER] == slab.processes.ticket

    assert lock.owner() == -1
    assert not any(owners(slab))


def test_locks_are_independent_of_each_other(slab: Slab, start: Start) -> None:
    child = start(hold, slab.name, NUMBER).ready()

    for lock in slab.locks:
        if lock.number != NUMBER:
            with lock.within(0.5):
                pass

    child.finish()


def add_up(link: Connection, name: str, turns: int) -> None:
    slab = attach(name)
    link.send("ready")
    link.recv()
    add_turns(slab, turns)
    detach(slab)


def add_turns(slab: Slab, turns: int) -> None:
    lock, words, total = slab.locks[NUMBER], slab.words, scratch(slab)
    for turn in range(turns):
        with lock:
            before = words[total]
            if turn % 64 == 0:
                time.sleep(0)  # lets another process in, if exclusion fails
            words[total] = before + 1


def test_processes_exclude_each_other(slab: Slab, start: Start) -> None:
    children = [start(add_up, slab.name, 5000) for _ in range(4)]
    for child in children:
        child.hear()
    finish(*children)

    assert slab.words[scratch(slab)] == 20_000
    assert takeovers(slab) == 0


def test_threads_and_processes_exclude_each_other(slab: Slab, start: Start) -> None:
    child = start(add_up, slab.name, 2000).ready()
    with in_threads(*[lambda: add_turns(slab, 1000)] * 3):
        child.finish()

    assert slab.words[scratch(slab)] == 5000
    assert takeovers(slab) == 0


def test_a_process_holds_one_lock_at_a_time_whatever_its_threads_do(slab: Slab) -> None:
    seen: set[int] = set()
    inside = 0

    def take_turns(number: int) -> None:
        nonlocal inside
        for _ in range(200):
            with slab.locks[number]:
                inside += 1
                seen.add(inside)
                time.sleep(0)
                inside -= 1

    with in_threads(*(partial(take_turns, number) for number in (3, 4, 5))):
        pass

    assert seen == {1}


# --- patience -------------------------------------------------------------------------------------


def hold(link: Connection, name: str, number: int) -> None:
    slab = attach(name)
    with slab.locks[number]:
        link.send("holding")
        link.recv()
    detach(slab)


def test_a_timeout_names_the_living_holder(slab: Slab, start: Start) -> None:
    child = start(hold, slab.name, NUMBER).ready()

    with pytest.raises(LockTimeoutError, match=f"lock {NUMBER} .*process {child.pid} holds it"):
        slab.locks[NUMBER].acquire(0.3)

    child.tell()
    with slab.locks[NUMBER]:
        pass
    child.result()
    assert takeovers(slab) == 0


@pytest.mark.parametrize("garbage", [(1 << 64) - 1, 0xFFFE, 1 << 16, 1, 1 << 40])
def test_an_owner_word_that_names_no_process_is_a_dead_holders(slab: Slab, garbage: int) -> None:
    """Damage: no living process has such a ticket, so the lock is taken over, and rebuilt."""
    rebuilt = rebuilding(slab)
    slab.words[slab.geometry.lock(NUMBER) + Lock.OWNER] = garbage

    with slab.locks[NUMBER].within(10):
        assert rebuilt == [slab.me]
    assert takeovers(slab) == 1


def fork_in_c(link: Connection, name: str) -> None:
    slab = attach(name)
    child = ctypes.CDLL(None).fork()
    if not child:
        try:
            slab.locks[NUMBER].acquire()
        except IllegalStateError as error:
            os._exit("fork hooks" not in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not any(owners(slab))
    detach(slab)


def test_a_child_forked_without_pythons_hooks_gets_no_lock(slab: Slab, start: Start) -> None:
    """It would use its parent's ticket, and be in a lock together with it."""
    # In a process with one thread: if another one had the GIL, the child would wait for it for ever.
    start(fork_in_c, slab.name).result()


def hold_and_stop(link: Connection, name: str) -> None:
    slab = attach(name)
    with slab.locks[NUMBER]:
        slab.words[scratch(slab)] = 1
        link.send("stopping")
        stop()
        slab.words[scratch(slab)] = 2
    detach(slab)


def test_a_stopped_holder_keeps_its_lock(slab: Slab, start: Start) -> None:
    child = start(hold_and_stop, slab.name).ready()
    wait_until(lambda: is_stopped(child.pid))

    with pytest.raises(LockTimeoutError, match=f"process {child.pid} holds it; is it stopped"):
        slab.locks[NUMBER].acquire(0.5)

    child.signal(signal.SIGCONT)
    child.result()
    with slab.locks[NUMBER]:
        assert slab.words[scratch(slab)] == 2
    assert takeovers(slab) == 0


def test_a_timeout_names_the_thread_in_the_way(slab: Slab) -> None:
    errors: list[str] = []

    def wait() -> None:
        try:
            slab.locks[3].acquire(0.1)
        except LockTimeoutError as error:
            errors.append(str(error))

    with slab.locks[NUMBER], in_threads(wait):
        pass

    assert "another thread of this process" in errors[0]


# --- changes that are not finished ----------------------------------------------------------------


def fail_inside(slab: Slab) -> None:
    with pytest.raises(ZeroDivisionError), slab.locks[NUMBER]:
        raise ZeroDivisionError


def test_nothing_is_rebuilt_without_need(slab: Slab) -> None:
    rebuilt = rebuilding(slab)

    for _ in range(3):
        with slab.locks[NUMBER]:
            pass

    assert rebuilt == []
    assert slab.words[Super.REBUILDS] == 0


def test_the_next_holder_rebuilds_what_an_error_left_unfinished(slab: Slab) -> None:
    rebuilt = rebuilding(slab)

    fail_inside(slab)
    assert rebuilt == []
    assert slab.locks[NUMBER].owner() == -1

    for _ in range(2):
        with slab.locks[NUMBER]:
            assert rebuilt == [slab.me]
    assert slab.words[Super.REBUILDS] == 1


def rebuild_next(link: Connection, name: str) -> list[int]:
    slab = attach(name)
    rebuilt = rebuilding(slab)
    for _ in range(2):
        with slab.locks[NUMBER]:
            pass
    detach(slab)
    return rebuilt


def test_the_next_holder_may_be_another_process(slab: Slab, start: Start) -> None:
    rebuilt = rebuilding(slab)
    fail_inside(slab)

    assert len(start(rebuild_next, slab.name).result()) == 1

    with slab.locks[NUMBER]:
        assert rebuilt == []


def test_a_failed_rebuild_is_repeated_by_the_next_holder(slab: Slab) -> None:
    fail_inside(slab)

    with pytest.raises(IllegalStateError, match="lock 5 was left unfinished"):
        slab.locks[NUMBER].acquire()
    assert slab.locks[NUMBER].owner() == -1

    rebuilt = rebuilding(slab)
    with slab.locks[NUMBER]:
        assert rebuilt == [slab.me]


def test_a_reentrant_use_is_refused_and_harms_nothing(slab: Slab) -> None:
    """A signal's handler or a finalizer can reenter the package; here, a rebuild does."""
    refusals: list[str] = []

    def come_back() -> None:
        try:
            with slab.locks[3]:
                pass
        except IllegalStateError as error:
            refusals.append(str(error))

    slab.locks[NUMBER].rebuild = come_back
    fail_inside(slab)

    with slab.locks[NUMBER]:
        assert slab.locks[NUMBER].owner() == slab.me
        assert "reentrant" in refusals[0]

    assert not any(owners(slab))
    with in_threads(lambda: add_turns(slab, 1)):
        pass
    assert slab.words[scratch(slab)] == 1
