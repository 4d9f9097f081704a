"""Defers work blocked by a stopped process, so that it cannot stall the sender.

A producer that is stopped (SIGSTOP, a debugger, a frozen container) keeps its lock. The sender waits for it longer than
any live process holds a lock, then skips all work that needs it for `RETRY_MS` and serves the other partitions. What
cannot be skipped it remembers: batches to put back, and slots to free. They keep the state that they have in the slab,
which the next sender recovers from. All of this is private to the sender's one thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import LockTimeoutError
from shmaccum.shm.locks import SlabLock
from shmaccum.shm.slab import STOPPED_TIMEOUT_S

logger = logging.getLogger(__name__)

RETRY_MS: Final = 1000
"""How long the sender skips a lock whose acquire timed out."""


class Deferral:
    """Locks whose last acquire timed out. Used by the sender's one thread."""

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Return whether any lock is remembered as timed out."""
        return bool(self._until_ms)

    def with_lock(self, lock: SlabLock) -> DeferringLock:
        """Use as ``with deferral.with_lock(lock): ...``.

        Raises:
            LockTimeoutError: a living process has held it for `STOPPED_TIMEOUT_S`, or did less than `RETRY_MS` ago.
        """
        return DeferringLock(self, lock)

    def held_up(self) -> list[int]:
        """Return the numbers of the locks to skip now."""
        if not self._until_ms:
            return []
        now_ms = _now_ms()
        return [number for number, until_ms in self._until_ms.items() if until_ms > now_ms]

    def retry_delay_ms(self) -> float:
        """Return how long until one of them can be tried again; infinite if there is none."""
        if not self._until_ms:
            return float("inf")
        now_ms = _now_ms()
        return min((until_ms - now_ms for until_ms in self._until_ms.values() if until_ms > now_ms), default=0.0)

    def acquire(self, lock: SlabLock) -> None:
        """Acquire a lock as `with_lock` does, which is too slow for some; its own `leave` releases it."""
        if self._until_ms:
            self._check(lock)
        try:
            lock.acquire(STOPPED_TIMEOUT_S)
        except LockTimeoutError as error:
            self._remember(lock, error)
            raise
        if self._until_ms:
            self._until_ms.pop(lock.number, None)

    def run(self, lock: SlabLock, work: Callable[[float], object]) -> None:
        """Do work that begins with a wait for a lock.

        Args:
            lock: which one.
            work: gets the timeout of that wait.

        Raises:
            LockTimeoutError: as of `with_lock`.
        """
        self._check(lock)
        try:
            work(STOPPED_TIMEOUT_S)
        except LockTimeoutError as error:
            self._remember(lock, error)
            raise
        self._until_ms.pop(lock.number, None)

    def _check(self, lock: SlabLock) -> None:
        if self._until_ms.get(lock.number, 0) > _now_ms():
            raise LockTimeoutError(f"lock {lock.number} skipped: the last acquire timed out less than 1 s ago")

    def _remember(self, lock: SlabLock, error: LockTimeoutError) -> None:
        self._until_ms[lock.number] = _now_ms() + RETRY_MS
        logger.warning(
            "%s; deferring the work that needs this lock for 1 s", error, extra={"seldom": ("deferred", lock.number)}
        )


class DeferringLock:
    """A lock as returned by `Deferral.with_lock`."""

    __slots__ = ("_deferral", "_lock")

    def __init__(self, deferral: Deferral, lock: SlabLock) -> None:
        self._deferral = deferral
        self._lock = lock

    def __enter__(self) -> None:
        self._deferral.acquire(self._lock)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._lock.leave(kind is not None)


class BatchReturns:
    """Puts batches back into their deques, now or later.

    Args:
        partition_map: the deques.
        deferral: of work that a stopped process blocks.
    """

    def __init__(self, partition_map: PartitionMap, deferral: Deferral) -> None:
        self._map = partition_map
        self._deferral = deferral
        self._waiting: dict[int, tuple[RecordBatch, Callable[[RecordBatch], None]]] = {}

    def __bool__(self) -> bool:
        """Return whether any batch still waits to be put back."""
        return bool(self._waiting)

    def put_back(self, batch: RecordBatch, if_later: Callable[[RecordBatch], None]) -> bool:
        """Put a batch back to its place in its deque, now or as soon as its lock is available.

        Args:
            batch: in a state outside of the deque.
            if_later: called when it is back, if that is not now.

        Returns:
            Whether it is back.
        """
        if self._try(batch):
            return True
        self._waiting[batch.slot] = batch, if_later
        return False

    def retry(self) -> None:
        """Put back batches whose return was deferred."""
        for batch, is_back in list(self._waiting.values()):
            if self._try(batch):
                del self._waiting[batch.slot]
                is_back(batch)

    def _try(self, batch: RecordBatch) -> bool:
        queue = self._map.by_entry[batch.partition]
        try:
            with self._deferral.with_lock(queue.lock):
                queue.put_back(batch)
        except LockTimeoutError:
            return False
        return True

    def is_waiting(self, batch: RecordBatch) -> bool:
        """Return whether a batch still waits to be put back."""
        return batch.slot in self._waiting

    def partitions(self) -> list[int]:
        """Return the partition entries of these batches: nothing behind one may be sent before it."""
        return [batch.partition for batch, _ in self._waiting.values()]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
