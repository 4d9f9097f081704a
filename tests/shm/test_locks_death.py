"""Death of a lock's holder: a survivor takes over and rebuilds; a living holder keeps its lock.

`tests/core/test_lock.py` kills at every step within the lock itself.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
from faults import die, is_stopped, stop
from processes import Child, Start, wait_until
from slab_helpers import NUMBER, scratch, take, takeovers

from shmaccum._core import LOCK_POOL, LOCK_TABLES, Lock, Super
from shmaccum.errors import LockTimeoutError
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab
from tools.support.locks import held

PATIENCE_S = 60.0
"""Most seconds for a takeover: many times what it takes."""


def fail_inside(link: Connection, name: str, number: int, action: Callable[[], None]) -> None:
    """Take the lock once, and die or stop with it."""
    slab = attach(name)
    link.send(slab.me)
    link.recv()
    with held(slab.locks[number]):
        slab.words[scratch(slab)] = slab.me + 1
        action()
        slab.words[scratch(slab)] = 0
    link.send("over")
    link.recv()


def survive(link: Connection, name: str) -> None:
    """Wait for the lock and take it once."""
    slab = attach(name)
    link.send(slab.me)
    link.recv()
    take(slab, PATIENCE_S)
    detach(slab)


def die_with(start: Start, slab: Slab, number: int = NUMBER) -> int:
    """Let a process take a lock and die; return its entry."""
    dying = start(fail_inside, slab.name, number, die)
    entry: int = dying.hear()
    dying.tell()
    assert dying.join() == -signal.SIGKILL
    return entry


def stop_with(start: Start, slab: Slab) -> Child:
    """Let a process take the tested lock and be stopped."""
    stopping = start(fail_inside, slab.name, NUMBER, stop).ready()
    stopping.tell()
    wait_until(lambda: is_stopped(stopping.pid))
    return stopping


@pytest.mark.parametrize("number", [NUMBER, LOCK_POOL, LOCK_TABLES])
def test_a_waiter_takes_over_a_dead_holders_lock(slab: Slab, start: Start, number: int) -> None:
    die_with(start, slab, number)
    for _ in range(2):
        take(slab, PATIENCE_S, number)
    assert slab.words[slab.geometry.lock(number) + Lock.TAKEOVERS] == 1
    assert slab.words[Super.REBUILDS] == 1


def test_one_waiter_takes_over_and_the_others_follow(slab: Slab, start: Start) -> None:
    dying = stop_with(start, slab)
    survivors = [start(survive, slab.name).ready() for _ in range(3)]
    for survivor in survivors:
        survivor.tell()
    dying.kill()
    for survivor in survivors:
        survivor.result()
    assert takeovers(slab) == slab.words[Super.REBUILDS] == 1


def test_a_waiter_that_dies_leaves_the_lock_alone(slab: Slab, start: Start) -> None:
    dying = start(fail_inside, slab.name, NUMBER, die).ready()
    with held(slab.locks[NUMBER]):
        dying.tell()
        dying.kill()
    for _ in range(2):
        take(slab, PATIENCE_S)
    assert takeovers(slab) == slab.words[Super.REBUILDS] == 0


def die_after_taking_over(link: Connection, name: str) -> None:
    slab = attach(name)
    with held(slab.locks[NUMBER], PATIENCE_S):
        die()


def test_death_of_the_process_that_takes_over_is_survived(slab: Slab, start: Start) -> None:
    die_with(start, slab)
    assert start(die_after_taking_over, slab.name).join() == -signal.SIGKILL
    take(slab, PATIENCE_S)
    assert slab.words[Super.REBUILDS] == 1
    assert takeovers(slab) == 2


def test_reaping_rebuilds_what_the_dead_left(slab: Slab, start: Start) -> None:
    """No other process may ever need that lock. Until then no process gets the entry that it names."""
    entry = die_with(start, slab)
    with held(slab.locks[NUMBER + 1], unfinished=True):
        pass
    assert start(survive, slab.name).hear() != entry
    assert slab.locks[NUMBER].owner() == entry
    slab.reap_dead()
    assert [lock.core.owner for lock in slab.locks] == [0] * len(slab.locks)
    assert slab.words[Super.REBUILDS] == 2
    assert entry not in list(slab.processes.in_use())
    assert start(survive, slab.name).hear() == entry


def test_a_stopped_process_keeps_its_lock_while_others_are_dead(slab: Slab, start: Start) -> None:
    stopped = stop_with(start, slab)
    dead = start(fail_inside, slab.name, NUMBER, die).ready()
    dead.tell()
    dead.kill()
    with pytest.raises(LockTimeoutError, match=f"process {stopped.pid} holds it; is it stopped"):
        take(slab, 0.6)
    stopped.signal(signal.SIGCONT)
    assert stopped.hear() == "over"
    with held(slab.locks[NUMBER], PATIENCE_S):
        assert slab.words[scratch(slab)] == 0
    assert takeovers(slab) == 0
    stopped.finish()
