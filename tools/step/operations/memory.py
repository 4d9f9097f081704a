"""Operations on the pool: allocate, wait for memory, free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tools.step.operation import Operation
from tools.step.settings import SLOT
from tools.step.survivor import PATIENCE_MS, Survivor
from tools.step.victim import Victim


def _allocate(slots: int) -> Callable[[Victim], Callable[[], object]]:
    def begin(victim: Victim) -> Callable[[], object]:
        pool = victim.attach().pool
        return lambda: pool.allocate(slots * SLOT, PATIENCE_MS)

    return begin


def _deallocate(victim: Victim) -> Callable[[], object]:
    pool = victim.attach().pool
    buffers = [pool.allocate(slots * SLOT, PATIENCE_MS) for slots in (1, 3)]
    return lambda: pool.deallocate(*buffers)


def _clean_up(victim: Victim) -> Callable[[], object]:
    accumulator = victim.attach()

    def reclaim_and_reap() -> None:
        accumulator.pool.reclaim()
        accumulator.slab.reap_dead()

    return reclaim_and_reap


def take_everything(survivor: Survivor) -> None:
    """Leave no free slot."""
    while survivor.accumulator.pool.available_memory():
        survivor.take()


def give_back_once_wanted(survivor: Survivor) -> None:
    """Free a slot if the victim waits for one."""
    if survivor.accumulator.pool.slab.pool.is_exhausted() or not survivor.victim_lives:
        survivor.give_one_back()


def _leave_dead(survivor: Survivor) -> None:
    survivor.scatter()
    survivor.have_died(lambda accumulator: accumulator.pool.allocate(2 * SLOT, 0))


OPERATIONS: Final = (
    Operation("allocate", _allocate(1), pairs=True),
    Operation("allocate-adjacent", _allocate(3)),
    Operation("allocate-chain", _allocate(3), Survivor.scatter, pairs=True),
    Operation("allocate-waiting", _allocate(1), take_everything, give_back_once_wanted),
    Operation("allocate-chain-waiting", _allocate(3), take_everything, give_back_once_wanted),
    Operation("deallocate", _deallocate, Survivor.scatter),
    Operation("clean-up", _clean_up, _leave_dead, pairs=True),
)
