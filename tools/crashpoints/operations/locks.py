"""Operations on locks: acquire, release, wait, take over, rebuild."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from shmaccum.accumulator.state import redo_log
from shmaccum.shm.layout import LOCK_POOL, LOCK_STRIPES, LOCK_TABLES, Partition, Slot, Super
from shmaccum.shm.locks import SlabLock
from shmaccum.shm.semaphores import open_semaphore
from shmaccum.shm.slab import Slab
from tools.crashpoints.operation import Operation
from tools.crashpoints.settings import HALF, PARTITIONS, value
from tools.crashpoints.survivor import Survivor
from tools.crashpoints.victim import Victim, die
from tools.support.accumulators import Accumulators

_TORN_BYTES: Final = 20
"""Fewer than the records of a batch."""


def _take(number: int) -> Callable[[Victim], Callable[[], object]]:
    """Acquire a lock, with whatever that involves, and release it."""

    def begin(victim: Victim) -> Callable[[], object]:
        lock = victim.attach().slab.locks[number]

        def take_and_leave() -> None:
            with lock:
                pass

        return take_and_leave

    return begin


# --- waiting --------------------------------------------------------------------------------------------------


def _hold(survivor: Survivor) -> None:
    survivor.slab.tables_lock.acquire()


def _leave_once_wanted(survivor: Survivor) -> None:
    slab = survivor.slab
    if slab.tables_lock.owner() != slab.me:
        return
    if survivor.victim_lives:
        time.sleep(0.06)  # the victim's slices run out
    slab.tables_lock.leave(False)


# --- dead holders ---------------------------------------------------------------------------------------------


def _die_holding_pool(accumulator: Accumulators) -> None:
    accumulator.pool.allocate(1, 0)
    with accumulator.slab.pool_lock:
        _scramble_bitmap(accumulator.slab)
        die()


def _die_with_the_unit(accumulator: Accumulators) -> None:
    """Die with the pool's semaphore acquired, before the owner word."""
    open_semaphore(accumulator.slab.private.pool_semaphore()).acquire()
    die()


def _die_replacing(accumulator: Accumulators) -> None:
    """Die while compressed records overwrite a batch's own."""

    def tear_and_die(slab: Slab, slot: int) -> None:
        records = slab.geometry.slot(slot) + accumulator.format.header_size
        slab.buffer[records : records + _TORN_BYTES] = bytes(_TORN_BYTES)
        die()

    redo_log.finish = tear_and_die
    accumulator.append(PARTITIONS[0], 0, None, value("never", HALF).encode())


# --- what is left half-changed --------------------------------------------------------------------------------


class _InterruptedError(Exception):
    """Stands for a KeyboardInterrupt."""


@contextlib.contextmanager
def _interrupted(lock: SlabLock) -> Iterator[None]:
    """Release a lock in mid-change after the block, so that the next holder rebuilds."""
    with contextlib.suppress(_InterruptedError), lock:
        yield
        raise _InterruptedError


def _scramble_bitmap(slab: Slab) -> None:
    geometry = slab.geometry
    slab.buffer[geometry.bitmap : geometry.bitmap + geometry.bitmap_size] = bytes(geometry.bitmap_size)
    slab.words[Super.FREE_SLOTS] = 1


def _leave_pool_unfinished(survivor: Survivor) -> None:
    survivor.have_died(lambda accumulator: accumulator.pool.allocate(3 * survivor.config.batch_size, 0))
    survivor.append(0, "queued")
    with _interrupted(survivor.slab.pool_lock):
        _scramble_bitmap(survivor.slab)


def _leave_deque_unfinished(survivor: Survivor) -> None:
    for number in range(3):
        survivor.append(0, f"queued {number}", HALF)
    slab = survivor.slab
    with _interrupted(slab.locks[LOCK_STRIPES]):
        at = slab.geometry.partition(0)
        for word in (Partition.HEAD, Partition.TAIL, Partition.OPEN, Partition.QUEUED):
            slab.words[at + word] = 1
        for slot in range(slab.geometry.slot_count):
            slab.words[slab.geometry.header(slot) + Slot.NEXT] = slot + 1
            slab.words[slab.geometry.header(slot) + Slot.PREVIOUS] = 0


def _leave_tables_unfinished(survivor: Survivor) -> None:
    with _interrupted(survivor.slab.tables_lock):
        pass


def _leave_replacing_unfinished(survivor: Survivor) -> None:
    survivor.append(0, "to be compressed", HALF)
    survivor.have_died(_die_replacing)


OPERATIONS: Final = (
    Operation("lock", _take(LOCK_POOL)),
    Operation("lock-wait", _take(LOCK_TABLES), _hold, _leave_once_wanted),
    Operation("takeover-named", _take(LOCK_POOL), lambda survivor: survivor.have_died(_die_holding_pool)),
    Operation("lock-without-unit", _take(LOCK_POOL), lambda survivor: survivor.have_died(_die_with_the_unit)),
    Operation("rebuild-pool", _take(LOCK_POOL), _leave_pool_unfinished),
    Operation("rebuild-tables", _take(LOCK_TABLES), _leave_tables_unfinished),
    Operation("rebuild-deque", _take(LOCK_STRIPES), _leave_deque_unfinished),
    Operation(
        "rebuild-replacing",
        _take(LOCK_STRIPES),
        _leave_replacing_unfinished,
        settings={"compression.type": "gzip"},
    ),
)
