"""Death of a lock's holder: a survivor takes over and rebuilds; a living holder keeps its lock.

These tests cover the two moments at which the semaphore is taken and no owner is named; `tools.crashpoints` covers all
others.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Literal

import pytest
from faults import before, die, is_stopped, stop
from processes import Start
from slab_helpers import NUMBER, rebuilding, scratch, takeovers

from shmaccum.errors import LockTimeoutError
from shmaccum.shm.layout import Process, Super
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.locks import SlabLock
from shmaccum.shm.slab import Slab

PATIENCE_S = 60.0
"""Most seconds for a takeover: many times what it takes."""

Moment = Literal["holding", "not named yet", "no longer named", "posted", "still wanted"]
MOMENTS: dict[str, tuple[Callable[..., object], str]] = {
    "not named yet": (SlabLock.acquire, "unfinished = self.words"),
    "no longer named": (SlabLock.leave, "self._post()"),
    "posted": (SlabLock.leave, "self.words[self._released_at]"),
    "still wanted": (SlabLock.leave, "self.words[self._wants_at]"),
}
"""The child dies just before these lines."""


def moments(*names: Moment) -> list[object]:
    """Return them as parameters; the compiled form has no lines to die before."""
    return [pytest.param(name, marks=pytest.mark.plain) if name in MOMENTS else name for name in names]


def wants(slab: Slab, entry: int) -> int:
    wanted: int = slab.words[slab.geometry.process(entry) + Process.WANTS]
    return wanted


def fail_at(link: Connection, name: str, moment: Moment, action: Callable[[], None]) -> None:
    """Take the lock once, and die or stop with it."""
    slab = attach(name)
    slab.locks[NUMBER].rebuild = lambda: None
    link.send(slab.me)
    link.recv()
    if moment != "holding":
        function, text = MOMENTS[moment]
        before(function, text, action)
    with slab.locks[NUMBER]:
        slab.words[scratch(slab)] = slab.me
        if moment == "holding":
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


# --- death at the moments that have a name --------------------------------------------------------


@pytest.mark.parametrize("moment", moments("holding", "not named yet", "no longer named", "posted", "still wanted"))
def test_a_waiter_takes_over_a_dead_holders_lock(slab: Slab, start: Start, moment: Moment) -> None:
    rebuilt = rebuilding(slab)
    dying = start(fail_at, slab.name, moment, die)
    entry = dying.hear()

    dying.tell()
    assert dying.join() == -signal.SIGKILL

    with slab.locks[NUMBER].within(PATIENCE_S):
        assert slab.locks[NUMBER].owner() == slab.me
    died_with_it = moment in ("holding", "not named yet", "no longer named")
    assert takeovers(slab) == slab.words[Super.REBUILDS] == len(rebuilt) == died_with_it
    assert rebuilt == [slab.me] * died_with_it
    if died_with_it:
        assert wants(slab, entry) == 0
    assert slab.locks[NUMBER].semaphore.value == 1


@pytest.mark.parametrize("moment", moments("holding", "not named yet", "no longer named"))
def test_one_waiter_takes_over_and_the_others_follow(slab: Slab, start: Start, moment: Moment) -> None:
    rebuilt_here = rebuilding(slab)
    dying = start(fail_at, slab.name, moment, die)
    survivors = [start(survive, slab.name) for _ in range(3)]
    dying_entry = dying.hear()
    entries = {survivor.hear() for survivor in survivors}

    with slab.locks[NUMBER]:
        for process in (dying, *survivors):
            process.tell()
        while not all(wants(slab, entry) for entry in (dying_entry, *entries)):
            pass
    results = [survivor.result() for survivor in survivors]

    assert dying.join() == -signal.SIGKILL
    with slab.locks[NUMBER].within(PATIENCE_S):  # where the dying process was its last holder
        pass
    assert {holder for _, holder in results} == entries
    assert takeovers(slab) == slab.words[Super.REBUILDS] == 1
    assert len([rebuilt for rebuilt, _ in results if rebuilt] + rebuilt_here) == 1


def test_a_waiter_that_dies_leaves_the_lock_alone(slab: Slab, start: Start) -> None:
    rebuilt = rebuilding(slab)
    dying = start(fail_at, slab.name, "holding", die)
    entry = dying.hear()

    with slab.locks[NUMBER]:
        dying.tell()
        while not wants(slab, entry):
            pass
        dying.kill()

    for _ in range(2):
        with slab.locks[NUMBER].within(PATIENCE_S):
            pass
    assert takeovers(slab) == 0
    assert rebuilt == []


# --- two deaths -----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", moments("holding", "not named yet", "no longer named"))
@pytest.mark.parametrize("second", moments("holding", "not named yet", "no longer named"))
def test_death_of_the_process_that_takes_over_is_survived(
    slab: Slab, start: Start, first: Moment, second: Moment
) -> None:
    rebuilt = rebuilding(slab)
    dying = [start(fail_at, slab.name, moment, die) for moment in (first, second)]
    for process in dying:
        process.hear()

    for process in dying:
        process.tell()
    exit_codes = [process.join() for process in dying]

    assert exit_codes == [-signal.SIGKILL] * 2
    with slab.locks[NUMBER].within(PATIENCE_S):
        assert rebuilt == [slab.me]
    assert slab.locks[NUMBER].semaphore.value == 1
    assert [wants(slab, entry) for entry in range(slab.geometry.max_processes)] == [0] * slab.geometry.max_processes


@pytest.mark.parametrize("moment", moments("holding", "not named yet", "no longer named"))
def test_a_waiters_death_does_not_hide_the_holders_death(slab: Slab, start: Start, moment: Moment) -> None:
    holder = start(fail_at, slab.name, moment, die)
    waiter = start(fail_at, slab.name, "holding", die)
    for process in (holder, waiter):
        process.hear()
    holder.tell()
    holder.join()
    rebuilt = rebuilding(slab)

    waiter.tell()
    waiter.kill()

    with slab.locks[NUMBER].within(PATIENCE_S):
        assert rebuilt == [slab.me]


# --- the living keep their lock -------------------------------------------------------------------


@pytest.mark.parametrize("moment", moments("holding", "not named yet", "no longer named"))
def test_a_stopped_process_keeps_its_lock_while_others_are_dead(slab: Slab, start: Start, moment: Moment) -> None:
    rebuilding(slab)
    stopped = start(fail_at, slab.name, moment, stop)
    dead = start(fail_at, slab.name, "holding", die)
    entry, dead_entry = stopped.hear(), dead.hear()
    stopped.tell()
    while not is_stopped(stopped.pid):
        pass
    dead.tell()
    while not wants(slab, dead_entry):
        pass
    dead.kill()

    with pytest.raises(LockTimeoutError, match=f"{stopped.pid} holds it" if moment == "holding" else "no process"):
        slab.locks[NUMBER].acquire(0.6)

    assert takeovers(slab) == 0
    if moment == "holding":
        assert slab.words[scratch(slab)] == entry
    stopped.signal(signal.SIGCONT)
    assert stopped.hear() == "over"
    with slab.locks[NUMBER].within(PATIENCE_S):
        assert slab.words[scratch(slab)] == 0
    assert takeovers(slab) == 0
    stopped.finish()
