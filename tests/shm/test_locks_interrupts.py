"""Interrupts during the use of a lock: no process is blocked for ever, and exclusion holds.

A KeyboardInterrupt stands for any exception that a signal's handler raises.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
from faults import InterruptAt, die
from processes import PATIENCE_S, Child, Start, in_threads, wait_until
from slab_helpers import NUMBER, scratch

from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab


def interrupt_everywhere(use: Callable[[], None], check: Callable[[], None]) -> int:
    """Interrupt ``use`` at each of its moments in turn, and check after each; return their number."""
    for moment in range(2000):
        with InterruptAt(moment) as interrupt:
            use()
        check()
        if not interrupt.came:
            return moment
    raise AssertionError("it has no end")


def assert_no_process_is_in_the_way(slab: Slab) -> None:
    """Check that this process holds no lock, and that another thread can take one."""
    assert [lock.owner() for lock in slab.locks] == [-1] * len(slab.locks)
    took: list[bool] = []

    def take() -> None:
        with slab.locks[3].within(PATIENCE_S):
            took.append(True)

    with in_threads(take):
        pass
    assert took == [True]


# --- at every moment ------------------------------------------------------------------------------


def use_another_lock(slab: Slab) -> None:
    with slab.locks[3]:
        assert slab.locks[3].owner() == slab.me
        assert slab.locks[NUMBER].owner() == -1


@pytest.mark.plain
@pytest.mark.parametrize("go_on", [use_another_lock, Slab.settle])
def test_after_an_interrupt_the_next_use_of_any_lock_or_settling_releases(
    slab: Slab, go_on: Callable[[Slab], None]
) -> None:
    for lock in slab.locks:
        lock.rebuild = lambda: None

    def use() -> None:
        with slab.locks[NUMBER]:
            slab.words[scratch(slab)] += 1

    def check() -> None:
        go_on(slab)
        assert_no_process_is_in_the_way(slab)

    assert interrupt_everywhere(use, check) >= 6


def test_settling_without_an_interrupt_changes_nothing(slab: Slab) -> None:
    before_it = bytes(slab.words)

    slab.settle()

    assert bytes(slab.words) == before_it
    assert_no_process_is_in_the_way(slab)


@pytest.mark.plain
def test_what_an_interrupted_holder_left_is_rebuilt(slab: Slab) -> None:
    """Two words that must be equal: no process sees the interrupt between the two stores."""
    first, second = scratch(slab), scratch(slab) + 1

    def rebuild() -> None:
        slab.words[second] = slab.words[first]

    slab.locks[NUMBER].rebuild = rebuild

    def store(word: int) -> None:
        slab.words[word] += 1

    def use() -> None:
        with slab.locks[NUMBER]:
            assert slab.words[first] == slab.words[second]
            store(first)
            store(second)

    def check() -> None:
        with slab.locks[NUMBER]:
            assert slab.words[first] == slab.words[second]

    assert interrupt_everywhere(use, check) >= 8


def hold_until_told(link: Connection, name: str) -> None:
    slab = attach(name)
    while link.recv() == "hold":
        with slab.locks[NUMBER]:
            link.send("holding")
            link.recv()
        link.send("left")
    detach(slab)


def holding(start: Start, slab: Slab) -> Child:
    """Start a child that holds the lock until the next message."""
    child = start(hold_until_told, slab.name)
    child.tell("hold")
    return child.ready("holding")


def test_an_interrupt_ends_a_wait_and_leaves_nothing_behind(slab: Slab, start: Start) -> None:
    slab.locks[NUMBER].rebuild = lambda: None
    child = holding(start, slab)

    for moment in range(90):
        with InterruptAt(moment) as interrupt, slab.locks[NUMBER].within(PATIENCE_S):
            pass
        assert interrupt.came
        slab.settle()

    child.tell("leave")
    child.hear()
    assert_no_process_is_in_the_way(slab)
    child.finish()


def die_inside(link: Connection, name: str) -> None:
    slab = attach(name)
    with slab.locks[NUMBER]:
        die()


def test_an_interrupt_over_a_takeover_leaves_it_to_the_next(slab: Slab, start: Start) -> None:
    slab.locks[NUMBER].rebuild = lambda: None

    for moment in (*range(0, 100, 11), *range(100, 400, 40)):
        start(die_inside, slab.name).join()
        with InterruptAt(moment), slab.locks[NUMBER].within(PATIENCE_S):
            pass
        with slab.locks[NUMBER].within(PATIENCE_S):
            assert slab.locks[NUMBER].owner() == slab.me
        slab.reap_dead()
        assert_no_process_is_in_the_way(slab)


# --- real signals ---------------------------------------------------------------------------------


def count_inside(slab: Slab) -> None:
    """Hold the lock for a moment and check exclusion; an interrupted holder no longer counts as inside."""
    inside, total = scratch(slab), scratch(slab) + 1
    with slab.locks[NUMBER]:
        assert slab.words[inside] == 0, "another one is inside"
        slab.words[inside] = 1
        slab.words[total] += 1
        slab.words[inside] = 0


def count(link: Connection, name: str) -> int:
    """Use the lock repeatedly until a message, despite interrupts; return their number."""
    slab = attach(name)
    inside, interrupts, over = scratch(slab), scratch(slab) + 2, scratch(slab) + 3

    def rebuild() -> None:
        slab.words[inside] = 0

    slab.locks[NUMBER].rebuild = rebuild
    came = 0
    going_on = iter(lambda: slab.words[over], 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until there is one who catches it
    link.send(slab.me)
    while True:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            # Said in here: the next interrupt comes as soon as this one is known of, and must find one who catches it.
            if came:  # the process without interrupts, which can get here last, has nothing to report
                slab.words[interrupts] = came
            # Not a `while` with a condition: an interrupt at its jump back is not caught (CPython 3.12, 3.13).
            for _ in going_on:
                count_inside(slab)
            break
        except KeyboardInterrupt:
            came += 1
    slab.settle()
    return came


def test_frequent_interrupts_keep_exclusion_and_progress(slab: Slab, start: Start) -> None:
    total, interrupts, over = scratch(slab) + 1, scratch(slab) + 2, scratch(slab) + 3
    slab.locks[NUMBER].rebuild = lambda: None
    calm, stormy = start(count, slab.name), start(count, slab.name)
    calm.hear()
    stormy.hear()
    wait_until(lambda: slab.words[total] > 20)
    randomness = random.Random(1)

    for sent in range(1, 301):
        stormy.signal(signal.SIGINT)
        wait_until(lambda sent=sent: slab.words[interrupts] == sent)  # type: ignore[misc]
        time.sleep(randomness.uniform(0, 0.0005))
    slab.words[over] = 1

    assert stormy.result() == 300
    assert calm.result() == 0
    assert slab.words[total] > 300
    assert_no_process_is_in_the_way(slab)


def test_what_a_signals_handler_raises_ends_a_wait(slab: Slab, start: Start) -> None:
    child = holding(start, slab)

    def leave(number: int, frame: object) -> None:
        raise SystemExit("enough")

    usual = signal.signal(signal.SIGUSR1, leave)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))

    def acquire_and_be_told_to_leave() -> None:
        timer.start()
        slab.locks[NUMBER].acquire(PATIENCE_S)

    with pytest.raises(SystemExit, match="enough"):
        acquire_and_be_told_to_leave()
    signal.signal(signal.SIGUSR1, usual)
    timer.join()

    child.tell("leave")
    child.hear()
    assert_no_process_is_in_the_way(slab)
    child.finish()


def test_a_signal_whose_handler_returns_does_not_end_a_wait(slab: Slab, start: Start) -> None:
    child = holding(start, slab)
    handled: list[int] = []

    def leave(number: int, frame: object) -> None:
        handled.append(number)
        child.tell("leave")

    usual = signal.signal(signal.SIGUSR1, leave)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    with slab.locks[NUMBER].within(PATIENCE_S):
        assert handled == [signal.SIGUSR1]
    signal.signal(signal.SIGUSR1, usual)
    timer.join()
    assert child.hear() == "left"
    child.finish()
