"""A dead process can have released its lock or lost its entry: no new process is mistaken for it.

In each test, other processes act while this one asks the kernel whether one of them is alive.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from processes import Child, Start
from slab_helpers import NUMBER, holding, takeovers

from shmaccum._core import Lock, Process, SlabLock
from shmaccum.shm.slab import Slab

Act = Callable[[], object]


def leave(child: Child) -> None:
    child.tell()
    assert child.join() == 0


def owner_word(slab: Slab) -> int:
    word: int = slab.words[slab.geometry.lock(NUMBER) + Lock.OWNER]
    return word


def while_asking(monkeypatch: pytest.MonkeyPatch, slab: Slab, just_before: Act) -> None:
    """Run a function just before the next check of another process's liveness."""
    ask = slab.processes.is_alive
    remaining = [just_before]

    def is_alive(entry: int) -> bool:
        if entry != slab.me and remaining:
            remaining.pop()()
        return ask(entry)

    monkeypatch.setattr(slab.processes, "is_alive", is_alive)


def test_a_holder_that_released_and_left_loses_no_lock_to_the_next(
    slab: Slab, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, entry = holding(start, slab)
    ticket = owner_word(slab)
    next_one: list[Child] = []

    def change_places() -> None:
        leave(first)
        child, in_entry = holding(start, slab)
        assert in_entry == entry
        next_one.append(child)

    while_asking(monkeypatch, slab, change_places)
    assert not slab.processes.is_dead(ticket), "its entry is in use, and was when its incarnation was read"
    assert slab.processes.is_dead(ticket), "another process has its entry now"
    core = slab._segment.core
    assert core is not None
    SlabLock(core, NUMBER).unblock(ticket)
    assert slab.locks[NUMBER].owner() == entry
    assert owner_word(slab) != ticket
    leave(next_one[0])
    assert takeovers(slab) == 0


def test_the_own_ticket_is_never_dead_but_that_of_an_earlier_process_of_the_entry(slab: Slab) -> None:
    """The kernel says of a byte that the asking process holds that nobody does."""
    assert not slab.processes.is_dead(slab.processes.ticket)
    assert slab.processes.is_dead(slab.processes.ticket - (1 << 16))


def test_an_entry_whose_process_dies_with_a_lock_is_not_freed(
    slab: Slab, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, entry = holding(start, slab)
    while_asking(monkeypatch, slab, child.kill)
    with slab.lock_file.lifecycle():
        slab.processes.free_dead(entry)
    assert entry in slab.processes.in_use()
    slab.reap_dead()
    assert entry not in slab.processes.in_use()
    assert takeovers(slab) == 1
    assert owner_word(slab) == 0


def test_a_dead_process_that_released_its_lock_frees_its_entry(slab: Slab, start: Start) -> None:
    child, entry = holding(start, slab)
    child.tell()
    child.join()
    incarnation = slab.words[slab.geometry.process(entry) + Process.INCARNATION]
    assert entry in list(slab.processes._places())
    assert slab.processes.is_dead(entry + 1 | incarnation << 16)
