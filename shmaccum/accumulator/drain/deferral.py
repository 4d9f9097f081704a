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
from functools import partial
from typing import Final, TypeVar

from shmaccum import _core
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import LockTimeoutError
from shmaccum.shm.locks import Outcome, SlabLock
from shmaccum.shm.slab import STOPPED_TIMEOUT_S

logger = logging.getLogger(__name__)

Done = TypeVar("Done")
RETRY_MS: Final = 1000
"""How long the sender skips a lock whose acquire timed out."""


class Deferral:
    """Locks whose last acquire timed out, by number, and when each can be tried again. One thread uses it."""

    def __init__(self) -> None:
        self.until_ms: dict[int, int] = {}

    def held_up(self) -> list[int]:
        """Return the numbers of the locks to skip now, and forget those that can be tried again."""
        now_ms = _now_ms()
        self.until_ms = {number: until_ms for number, until_ms in self.until_ms.items() if until_ms > now_ms}
        return list(self.until_ms)

    def retry_delay_ms(self) -> float:
        """Return how long until one of them can be tried again; infinite if there is none."""
        return max(0.0, min(self.until_ms.values(), default=float("inf")) - _now_ms())

    def section(self, lock: SlabLock, section: Callable[[], Outcome]) -> Outcome:
        """Run a section that takes a lock; return and raise as `run`."""
        return self.run(lock, partial(lock.run, section))

    def run(self, lock: SlabLock, work: Callable[[float], Done]) -> Done:
        """Do work that begins with a wait for a lock, and gets its timeout; return what it returns.

        Raises LockTimeoutError: a living process has held it for `STOPPED_TIMEOUT_S`, or did less than `RETRY_MS` ago.
        """
        if self.until_ms and self.until_ms.get(lock.number, 0) > _now_ms():
            raise LockTimeoutError(f"lock {lock.number} skipped: the last acquire timed out less than 1 s ago")
        try:
            return work(STOPPED_TIMEOUT_S)
        except LockTimeoutError as error:
            self.until_ms[lock.number] = _now_ms() + RETRY_MS
            logger.warning(
                "%s; deferring the work that needs this lock for 1 s",
                error,
                extra={"seldom": ("deferred", lock.number)},
            )
            raise


class BatchReturns:
    """Puts batches back into their deques, now or later.

    ``waiting``: slot -> a batch that still waits to be put back, and what to call then.
    """

    def __init__(self, deques: _core.PartitionDeques, known: PartitionMap, deferral: Deferral) -> None:
        self._deques = deques
        self._map = known
        self.deferral: Final = deferral
        self.waiting: dict[int, tuple[RecordBatch, Callable[[RecordBatch], None]]] = {}

    def put_back(self, batch: RecordBatch, if_later: Callable[[RecordBatch], None]) -> bool:
        """Put a batch back into its deque; return False if that is later, with a call of ``if_later``."""
        if self._try(batch):
            return True
        self.waiting[batch.slot] = batch, if_later
        return False

    def retry(self) -> None:
        """Put back batches whose return was deferred."""
        for batch, is_back in list(self.waiting.values()):
            if self._try(batch):
                del self.waiting[batch.slot]
                is_back(batch)

    def _try(self, batch: RecordBatch) -> bool:
        queue = self._map.by_entry[batch.partition]
        try:
            self.deferral.section(queue.lock, partial(self._deques.put_back, queue.entry, batch.slot))
        except LockTimeoutError:
            return False
        return True

    def partitions(self) -> list[int]:
        """Return the partition entries of these batches: nothing behind one may be sent before it."""
        return [batch.partition for batch, _ in self.waiting.values()]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
