"""The sender's deferral with those who are stopped: what one of them holds up, it does later, and all the rest now.

A producer that is stopped (SIGSTOP, a debugger, a frozen container) keeps its lock. The sender waits for it for a
moment, which is more than any lock is held for, and then leaves everything alone that needs this lock for a while: the
other partitions have to be served. What cannot be dropped, it remembers: batches on their way back into their deques,
and memory to be freed. They stay in the state that they are in, from which the next sender would take them up.
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

logger = logging.getLogger(__name__)

STOPPED_PATIENCE_S: Final = 0.25
"""How long the sender waits for a lock: long enough to take it over, had its holder died."""
RETRY_MS: Final = 1000
"""How long it does without a lock that was not to be had."""


class Deferral:
    """Which locks were not to be had lately. Of the one sender, in its one thread."""

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Say whether it is tried."""
        return bool(self._until_ms)

    def with_lock(self, lock: SlabLock) -> PatientLock:
        """Use as ``with deferral.with_lock(lock): ...``.

        Raises:
            LockTimeoutError: a living process has been in the way for `STOPPED_PATIENCE_S`, or was so a moment ago.
        """
        return PatientLock(self, lock)

    def held_up(self) -> list[int]:
        """Return the numbers of the locks that are left alone for now."""
        if not self._until_ms:
            return []
        now_ms = _now_ms()
        return [number for number, until_ms in self._until_ms.items() if until_ms > now_ms]

    def retry_delay_ms(self) -> float:
        """Return when to try again to get one of them; infinite if there is none."""
        if not self._until_ms:
            return float("inf")
        now_ms = _now_ms()
        return min((until_ms - now_ms for until_ms in self._until_ms.values() if until_ms > now_ms), default=0.0)

    def acquire(self, lock: SlabLock) -> None:
        """Take a lock, which is given back by its own `leave`: what `with_lock` does, where that is too slow.

        Raises:
            LockTimeoutError: as there.
        """
        if self._until_ms and self._until_ms.get(lock.number, 0) > _now_ms():
            raise LockTimeoutError(f"lock {lock.number} was not to be had a moment ago")
        try:
            lock.acquire(STOPPED_PATIENCE_S)
        except LockTimeoutError as error:
            self._until_ms[lock.number] = _now_ms() + RETRY_MS
            logger.warning("%s; going on with what does not need it", error)
            raise
        if self._until_ms:
            self._until_ms.pop(lock.number, None)


class PatientLock:
    """A lock, as `Deferral.with_lock` gives it."""

    __slots__ = ("_deferral", "_lock")

    def __init__(self, deferral: Deferral, lock: SlabLock) -> None:
        self._deferral = deferral
        self._lock = lock

    def __enter__(self) -> None:
        self._deferral.acquire(self._lock)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._lock.leave(kind is not None)


class BatchReturns:
    """The way of batches back into their deques.

    Args:
        partition_map: the deques.
        deferral: with those who hold their locks.
    """

    def __init__(self, partition_map: PartitionMap, deferral: Deferral) -> None:
        self._map = partition_map
        self._deferral = deferral
        self._waiting: dict[int, tuple[RecordBatch, Callable[[RecordBatch], None]]] = {}

    def __bool__(self) -> bool:
        """Say whether any batch is on its way."""
        return bool(self._waiting)

    def put_back(self, batch: RecordBatch, if_later: Callable[[RecordBatch], None]) -> bool:
        """Put a batch that was taken out of its deque back to its place, now or as soon as can be.

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
        """Put back what could not be until now."""
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
        """Say whether a batch is still on its way."""
        return batch.slot in self._waiting

    def partitions(self) -> list[int]:
        """Return the partition entries that miss batches: nothing behind those may be sent before them."""
        return [batch.partition for batch, _ in self._waiting.values()]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
