"""Death of a lock's holder: a survivor takes over and rebuilds; a living holder keeps its lock.

`tests/core/test_lock.py` kills at every step within the lock itself.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
from faults import die, is_stopped, stop
from processes import Start, wait_until
from slab_helpers import NUMBER, rebuilding, scratch, takeovers

from shmaccum.errors import LockTimeoutError
from shmaccum.shm.layout import LOCK_POOL, Super
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab

PATIENCE_S = 60.0
"""Most seconds for a takeover: many times what it takes."""


def fail_inside(link: Connection, name: str, number: int, action: Callable[[], None]) -> None:
    """Take the lock once, and die or stop with it."""
    slab = attach(name)
    slab.locks[number].rebuild = lambda: None
    link.send(slab.me)
    link.recv()
    with slab.locks[number]:
        slab.words[scratch(slab)] = slab.me + 1
        action()
        slab.words[scratch(slab)] = 0
    link.send("over")
    link.recv()


def survive(link: Connection, name: str) -> tuple[list[int], int]:
    """Wait for the lock and take it once; return which process rebuilt, and which is the owner then."""
    slab = attach(name)
    rebuilt = rebuilding(slab)
    link.send(slab.me)
    link.recv()
    with slab.locks[NUMBER].within(PATIENCE_S):
        holder = slab.locks[NUMBER].owner()
    detach(slab)
    return rebuilt, holder


@pytest.mark.parametrize("number", [NUMBER, LOCK_POOL])
def test_a_waiter_takes_over_a_dead_holders_lock(slab: Slab, start: Start, number: int) -> None:
    rebuilt: list[int] = []
    slab.locks[number].rebuild = lambda: rebuilt.append(slab.locks[number].owner())
    dying = start(fail_inside, slab.name, number, die)
    dying.hear()
    dying.tell()
    assert dying.join() == -signal.SIGKILL

    for _ in range(2):
        with slab.locks[number].within(PATIENCE_S):
            assert slab.locks[number].owner() == slab.me
    assert rebuilt == [slab.me]
    assert slab.words[Super.REBUILDS] == 1


def test_one_waiter_takes_over_and_the_others_follow(slab: Slab, start: Start) -> None:
    rebuilt_here = rebuilding(slab)
    dying = start(fail_inside, slab.name, NUMBER, stop)
    survivors = [start(survive, slab.name) for _ in range(3)]
    dying.hear()
    entries = {survivor.hear() for survivor in survivors}
    dying.tell()
    wait_until(lambda: slab.words[scratch(slab)] != 0)
    for survivor in survivors:
        survivor.tell()

    dying.kill()
    results = [survivor.result() for survivor in survivors]

    assert {holder for _, holder in results} == entries
    assert takeovers(slab) == slab.words[Super.REBUILDS] == 1
    assert len([rebuilt for rebuilt, _ in results if rebuilt] + rebuilt_here) == 1


def test_a_waiter_that_dies_leaves_the_lock_alone(slab: Slab, start: Start) -> None:
    rebuilt = rebuilding(slab)
    dying = start(fail_inside, slab.name, NUMBER, die)
    dying.hear()
    with slab.locks[NUMBER]:
        dying.tell()
        dying.kill()

    for _ in range(2):
        with slab.locks[NUMBER].within(PATIENCE_S):
            pass
    assert takeovers(slab) == 0
    assert rebuilt == []


def die_in_the_rebuild(link: Connection, name: str) -> None:
    slab = attach(name)
    slab.locks[NUMBER].rebuild = die
    with slab.locks[NUMBER].within(PATIENCE_S):
        pass


def test_death_of_the_process_that_takes_over_is_survived(slab: Slab, start: Start) -> None:
    rebuilt = rebuilding(slab)
    first = start(fail_inside, slab.name, NUMBER, die)
    first.hear()
    first.tell()
    assert first.join() == -signal.SIGKILL
    assert start(die_in_the_rebuild, slab.name).join() == -signal.SIGKILL

    with slab.locks[NUMBER].within(PATIENCE_S):
        assert rebuilt == [slab.me]
    assert takeovers(slab) == 2


def test_a_stopped_process_keeps_its_lock_while_others_are_dead(slab: Slab, start: Start) -> None:
    rebuilding(slab)
    stopped = start(fail_inside, slab.name, NUMBER, stop)
    dead = start(fail_inside, slab.name, NUMBER, die)
    stopped.hear()
    dead.hear()
    stopped.tell()
    wait_until(lambda: is_stopped(stopped.pid))
    dead.tell()
    dead.kill()

    with pytest.raises(LockTimeoutError, match=f"{stopped.pid} holds it"):
        slab.locks[NUMBER].acquire(0.6)

    assert takeovers(slab) == 0
    stopped.signal(signal.SIGCONT)
    assert stopped.hear() == "over"
    with slab.locks[NUMBER].within(PATIENCE_S):
        assert slab.words[scratch(slab)] == 0
    assert takeovers(slab) == 0
    stopped.finish()
