"""Death of a lock's holder: a survivor takes over and rebuilds.

`tests/core/test_lock.py` kills at every step within the lock itself, `tools.step` within what it guards.
"""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection

import pytest
from faults import die
from processes import Start
from slab_helpers import NUMBER, take

from shmaccum._core import LOCK_POOL, LOCK_TABLES, Lock, Super
from shmaccum.shm.lifecycle import attach
from shmaccum.shm.slab import Slab
from tools.support.locks import held


def die_inside(link: Connection, name: str, number: int) -> None:
    slab = attach(name)
    with held(slab.locks[number]):
        link.send(slab.me)
        die()


def die_with(start: Start, slab: Slab, number: int = NUMBER) -> int:
    """Let a process take a lock and die; return its entry."""
    dying = start(die_inside, slab.name, number)
    entry: int = dying.hear()
    assert dying.join() == -signal.SIGKILL
    return entry


def come(link: Connection, name: str) -> None:
    link.send(attach(name).me)
    link.recv()


@pytest.mark.parametrize("number", [NUMBER, LOCK_POOL, LOCK_TABLES])
def test_a_waiter_takes_over_a_dead_holders_lock(slab: Slab, start: Start, number: int) -> None:
    die_with(start, slab, number)
    for _ in range(2):
        take(slab, 60, number)
    assert slab.words[slab.geometry.lock(number) + Lock.TAKEOVERS] == 1
    assert slab.words[Super.REBUILDS] == 1


def test_reaping_rebuilds_what_the_dead_left(slab: Slab, start: Start) -> None:
    """No other process may ever need that lock. Until then no process gets the entry that it names."""
    entry = die_with(start, slab)
    with held(slab.locks[NUMBER + 1], unfinished=True):
        pass
    assert start(come, slab.name).hear() != entry
    assert slab.locks[NUMBER].owner() == entry
    slab.reap_dead()
    assert [lock.core.owner for lock in slab.locks] == [0] * len(slab.locks)
    assert slab.words[Super.REBUILDS] == 2
    assert entry not in list(slab.processes.in_use())
    assert start(come, slab.name).hear() == entry
