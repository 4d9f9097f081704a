"""Operations that attach to a slab and leave it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from shmaccum.shm.lifecycle import detach
from tools.step.operation import Operation
from tools.step.survivor import Survivor
from tools.step.victim import Victim, die
from tools.support.processes import die_with_parent


def _attach(victim: Victim) -> Callable[[], object]:
    return victim.attach


def _leave_an_entry(survivor: Survivor) -> None:
    """Leave the entry of a dead process with completions to push to it; the next process takes the entry."""
    survivor.have_died(lambda accumulator: accumulator.pool.allocate(1, 0))


def _detach(victim: Victim) -> Callable[[], object]:
    slab = victim.attach().slab
    return lambda: detach(slab)


def _append_in_child(victim: Victim) -> Callable[[], object]:
    accumulator = victim.attach()
    victim.append(accumulator, 0, "parent's")
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        die()
    die_with_parent()
    return lambda: victim.append(accumulator, 0, "child's")


OPERATIONS: Final = (
    Operation("attach-first", _attach, alone=True),
    Operation("attach", _attach),
    Operation("attach-in-place-of-dead", _attach, _leave_an_entry),
    Operation("append-in-forked-child", _append_in_child),
    Operation("detach", _detach),
    Operation("detach-last", _detach, alone=True),
)
