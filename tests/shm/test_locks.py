"""Locks: one holder at a time among processes, waits with an end, and rebuilds after unfinished changes.

`tests/core/test_lock.py` kills at every step within the lock itself; `tools.explore` tries its schedules.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from multiprocessing.connection import Connection

import pytest
from faults import InterruptAt
from processes import PATIENCE_S, Start, finish, in_threads
from slab_helpers import NUMBER, holding, scratch, take, takeovers

from shmaccum._core import TICKET_SHIFT, Lock, Super
from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.shm import native
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab
from tools.support.locks import held


def owners(slab: Slab) -> list[int]:
    """Return the owner words of all locks."""
    return [slab.words[slab.geometry.lock(lock.number) + Lock.OWNER] for lock in slab.locks]


# --- one at a time --------------------------------------------------------------------------------


def add_up(link: Connection, name: str, turns: int) -> None:
    slab = attach(name)
    link.send("ready")
    link.recv()
    add_turns(slab, turns)
    detach(slab)


def add_turns(slab: Slab, turns: int) -> None:
    lock, words, total = slab.locks[NUMBER], slab.words, scratch(slab)
    for turn in range(turns):
        with held(lock):
            before = words[total]
            if turn % 64 == 0:
                time.sleep(0)  # lets another process in, if exclusion fails
            words[total] = before + 1


def test_threads_and_processes_exclude_each_other(slab: Slab, start: Start) -> None:
    children = [start(add_up, slab.name, 2000).ready() for _ in range(2)]
    with in_threads(*[lambda: add_turns(slab, 1000)] * 3):
        finish(*children)
    assert slab.words[scratch(slab)] == 7000
    assert takeovers(slab) == 0


# --- patience -------------------------------------------------------------------------------------


def test_a_timeout_names_the_living_holder(slab: Slab, start: Start) -> None:
    child, _ = holding(start, slab)
    with pytest.raises(LockTimeoutError, match=f"lock {NUMBER} .*process {child.pid} holds it; is it stopped"):
        take(slab, 0.3)
    for lock in slab.locks:
        if lock.number != NUMBER:
            take(slab, 0.5, lock.number)
    child.tell()
    take(slab)
    child.result()
    assert takeovers(slab) == 0


def test_an_owner_word_that_names_no_process_is_a_dead_holders(slab: Slab) -> None:
    """Damage: no living process has such a ticket, so the lock is taken over, and rebuilt."""
    for times, garbage in enumerate(((1 << 64) - 1, 0xFFFE, 1 << 16, 1, 1 << 40), 1):
        slab.words[slab.geometry.lock(NUMBER) + Lock.OWNER] = garbage
        take(slab, 10)
        assert slab.words[Super.REBUILDS] == takeovers(slab) == times


def fork_in_c(link: Connection, name: str) -> None:
    slab = attach(name)
    with held(slab.locks[NUMBER]):
        child = ctypes.CDLL(None).fork()
        if not child:
            slab.locks[NUMBER].core.release()
            try:
                take(slab, number=NUMBER + 1)
            except IllegalStateError as error:
                os._exit("fork hooks" not in str(error))
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert slab.locks[NUMBER].owner() == slab.me, "the child has not released its parent's lock"
    assert not any(owners(slab))
    detach(slab)


def test_a_child_forked_without_pythons_hooks_gets_no_lock(slab: Slab, start: Start) -> None:
    """It would use its parent's ticket, and be in a lock together with it, or release it."""
    # In a process with one thread: if another one had the GIL, the child would wait for it for ever.
    start(fork_in_c, slab.name).result()


def test_who_has_left_the_slab_gets_no_lock(slab_name: str, slab: Slab) -> None:
    other = attach(slab.name)
    detach(other)
    detach(other)
    with pytest.raises(IllegalStateError, match="has been detached"):
        take(other)


# --- interrupts -----------------------------------------------------------------------------------


def test_an_interrupt_ends_a_wait_and_leaves_nothing_behind(slab: Slab, start: Start) -> None:
    child, _ = holding(start, slab)
    for moment in range(90):
        with InterruptAt(moment) as interrupt:
            take(slab, PATIENCE_S)
        assert interrupt.came
    child.finish()
    take(slab, PATIENCE_S)
    assert not any(owners(slab))


def test_a_signals_handler_uses_locks_while_its_thread_waits_for_one(slab: Slab, start: Start) -> None:
    """And the wait goes on behind it."""
    child, _ = holding(start, slab)
    handled: list[int] = []

    def use_another_and_have_this_one_freed(number: int, frame: object) -> None:
        take(slab, PATIENCE_S, 3)
        handled.append(number)
        child.tell()

    usual = signal.signal(signal.SIGUSR1, use_another_and_have_this_one_freed)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    take(slab, PATIENCE_S)
    assert handled == [signal.SIGUSR1]
    signal.signal(signal.SIGUSR1, usual)
    timer.join()
    assert child.join() == 0


# --- changes that are not finished ----------------------------------------------------------------


def test_the_next_section_rebuilds_what_was_left_unfinished_and_nothing_else(slab: Slab) -> None:
    for rebuilds, lock in enumerate(slab.locks):
        take(slab, number=lock.number)
        assert slab.words[Super.REBUILDS] == rebuilds
        with held(lock, unfinished=True):
            assert lock.owner() == slab.me
        assert lock.owner() == -1
        for _ in range(2):
            take(slab, number=lock.number)
            assert slab.words[Super.REBUILDS] == rebuilds + 1


# --- rests ----------------------------------------------------------------------------------------


def test_a_rest_is_longer_the_less_there_was_to_do_since_the_last(slab: Slab, monkeypatch: pytest.MonkeyPatch) -> None:
    """But a process with a timeout does not rest, and none does while the sender has the lock."""
    words, owner_at, other = slab.words, slab.geometry.lock(NUMBER) + Lock.OWNER, 6
    lengths: list[float] = []
    now_s = 0.0

    def sleep(seconds: float) -> None:
        lengths.append(seconds)
        words[owner_at] = 0  # the other process has left

    def nap(ran_s: float, timeout_s: float | None = None) -> float:
        """Take the lock from another process, having run for a time; return for how long this one slept at last."""
        nonlocal now_s
        now_s += ran_s
        words[owner_at] = other + 1 | 1 << TICKET_SHIFT
        take(slab, timeout_s)
        return lengths[-1]

    monkeypatch.setattr(native, "sleep", sleep)
    monkeypatch.setattr(time, "process_time", lambda: now_s)
    naps = [nap(0.0005) for _ in range(8)]
    assert naps == sorted(naps)
    assert naps[0] < naps[1]
    assert naps[-2] == naps[-1] < 0.02, "there is a longest"
    again = nap(0.004)
    assert again < naps[-1]
    assert nap(0.000001) == again, "to have come at the wrong moment tells nothing"
    assert nap(10.0) < naps[0], "it was long ago that there was a crowd"
    rest = [nap(0.0005) for _ in range(8)][-1]
    assert nap(0, 5.0) < rest / 10
    words[Super.SENDER_ENTRY] = other + 1
    assert nap(0.0005) < rest / 10
    words[Super.SENDER_ENTRY] = 0
