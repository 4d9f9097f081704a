"""A dead process can have released its lock or lost its entry: no new process is mistaken for it.

In each test, other processes act while this one asks the kernel whether one of them is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
from faults import before, die
from processes import Child, Start

from shmaccum.shm.layout import Process
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.locks import SlabLock
from shmaccum.shm.slab import Slab
from shmaccum.shm.takeover import LockState, LockWait, Look

NUMBER = 5
Act = Callable[[], object]


def hold(link: Connection, name: str, number: int = NUMBER) -> None:
    """Attach; hold a lock after one message, and leave after the next."""
    slab = attach(name)
    for lock in slab.locks:
        lock.rebuild = lambda: None
    link.send(slab.me)
    link.recv()
    with slab.locks[number]:
        link.send("holding")
        link.recv()
    detach(slab)


def take_and_die(link: Connection, name: str) -> None:
    """Attach; on a message, die with a lock, before this process is named as its holder."""
    slab = attach(name)
    link.send(slab.me)
    link.recv()
    before(SlabLock.acquire, "unfinished = self.words", die)
    with slab.locks[NUMBER]:
        pass


def holding(start: Start, slab: Slab, number: int = NUMBER) -> tuple[Child, int]:
    child = start(hold, slab.name, number)
    entry = child.hear()
    child.tell()
    assert child.hear() == "holding"
    return child, entry


def leave(child: Child) -> None:
    child.tell()
    assert child.join() == 0


def state(slab: Slab) -> LockState:
    lock = slab.locks[NUMBER]
    return LockState(NUMBER, lock.semaphore, slab.words, slab.geometry, slab.processes, slab.lock_file)


def while_asking(monkeypatch: pytest.MonkeyPatch, slab: Slab, *acts: tuple[Act, Act]) -> None:
    """Run functions just before and just after the next checks of other processes' liveness."""
    ask = slab.processes.is_alive
    remaining = list(acts)

    def is_alive(entry: int) -> bool:
        if entry == slab.me or not remaining:
            return ask(entry)
        just_before, just_after = remaining.pop(0)
        just_before()
        alive = ask(entry)
        just_after()
        return alive

    monkeypatch.setattr(slab.processes, "is_alive", is_alive)


def nothing() -> None:
    pass


def test_a_holder_that_released_and_left_did_not_die_holding(
    slab: Slab, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = [holding(start, slab)]
    entry = children[0][1]

    def next_one() -> None:
        children.append(holding(start, slab))

    while_asking(
        monkeypatch, slab, (lambda: leave(children[-1][0]), next_one), (lambda: leave(children[-1][0]), next_one)
    )
    assert not LockWait(state(slab)).take_over()

    assert [entry for _, entry in children] == [entry] * 3, "all in the same entry of the table"
    assert slab.locks[NUMBER].owner() == entry
    leave(children[-1][0])
    assert slab.locks[NUMBER].semaphore.value == 1


def test_a_look_distinguishes_a_new_process_from_the_dead_one(
    slab: Slab, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, entry = holding(start, slab)
    words, at = slab.words, slab.geometry.process(entry) + Process.INCARNATION
    while_asking(monkeypatch, slab, (lambda: leave(first), lambda: holding(start, slab)))

    look = Look(state(slab))

    assert words[at] == 2
    assert look.dead == {entry: 1}


@pytest.mark.parametrize("number", [NUMBER, NUMBER + 1])
def test_forget_dead_keeps_the_wants_of_a_new_process(
    slab: Slab, start: Start, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    first, entry = holding(start, slab)
    new: list[Child] = []

    def wants_too() -> None:
        new.append(holding(start, slab, number)[0])

    while_asking(monkeypatch, slab, (lambda: leave(first), wants_too))
    released = slab.words[slab.geometry.process(entry) + Process.RELEASED + NUMBER]

    slab.locks[NUMBER].forget_dead(entry)

    assert slab.words[slab.geometry.process(entry) + Process.WANTS] == number + 1
    assert slab.words[slab.geometry.process(entry) + Process.RELEASED + NUMBER] == released + 1
    leave(new[0])


@pytest.mark.plain  # a process dies before a line
def test_an_entry_whose_process_dies_with_a_lock_is_not_freed(
    slab: Slab, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    slab.locks[NUMBER].rebuild = nothing
    child = start(take_and_die, slab.name)
    entry = child.hear()

    def take_it_along() -> None:
        child.tell()
        child.join()

    while_asking(monkeypatch, slab, (take_it_along, nothing))
    with slab.lock_file.lifecycle():
        slab.processes.free_dead(entry)

    assert entry in slab.processes.in_use()
    with slab.locks[NUMBER].within(10):
        assert slab.locks[NUMBER].owner() == slab.me


@pytest.mark.plain  # a process dies before a line
def test_the_entry_of_a_process_that_dies_with_a_lock_meanwhile_is_not_taken(
    slab: Slab, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its WANTS, in a new process's entry, would hide the death from all who wait for the lock."""
    child = start(take_and_die, slab.name)
    entry = child.hear()

    def take_it_along() -> None:
        child.tell()
        child.join()

    while_asking(monkeypatch, slab, (take_it_along, nothing))
    assert entry not in list(slab.processes._places())
