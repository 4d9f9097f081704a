"""Locks: one holder at a time among processes, waits with an end, and rebuilds after unfinished changes.

`tests/core/test_lock.py` kills at every step within the lock itself.
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
from processes import PATIENCE_S, Child, Start, finish, in_threads
from slab_helpers import NUMBER, scratch, take, takeovers

from shmaccum._core import Lock, Super
from shmaccum.errors import IllegalStateError, LockTimeoutError
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


def hold(link: Connection, name: str, number: int) -> None:
    slab = attach(name)
    with held(slab.locks[number]):
        link.send("holding")
        link.recv()
    link.send("left")
    detach(slab)


def holding(start: Start, slab: Slab) -> Child:
    """Start a child that holds the lock until it is told."""
    return start(hold, slab.name, NUMBER).ready("holding")


def test_a_timeout_names_the_living_holder(slab: Slab, start: Start) -> None:
    child = holding(start, slab)
    with pytest.raises(LockTimeoutError, match=f"lock {NUMBER} .*process {child.pid} holds it"):
        take(slab, 0.3)
    for lock in slab.locks:
        if lock.number != NUMBER:
            take(slab, 0.5, lock.number)
    child.tell()
    take(slab)
    assert child.hear() == "left"
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
    child = ctypes.CDLL(None).fork()
    if not child:
        try:
            take(slab)
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


def test_who_has_left_the_slab_gets_no_lock(slab_name: str, slab: Slab) -> None:
    other = attach(slab.name)
    detach(other)
    detach(other)
    with pytest.raises(IllegalStateError, match="has been detached"):
        take(other)


# --- interrupts -----------------------------------------------------------------------------------


def test_an_interrupt_ends_a_wait_and_leaves_nothing_behind(slab: Slab, start: Start) -> None:
    child = holding(start, slab)
    for moment in range(90):
        with InterruptAt(moment) as interrupt:
            take(slab, PATIENCE_S)
        assert interrupt.came
    child.tell()
    child.hear()
    take(slab, PATIENCE_S)
    assert not any(owners(slab))
    child.result()


def test_a_signals_handler_uses_locks_while_its_thread_waits_for_one(slab: Slab, start: Start) -> None:
    """And the wait goes on behind it."""
    child = holding(start, slab)
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
    assert child.hear() == "left"
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
