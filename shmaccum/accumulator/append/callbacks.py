"""The delivery callbacks of this process's records: kept until it is told what became of those, then run in order.

They are not kept by the futures or their results, to which callbacks may lead: see `futures`.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from shmaccum.accumulator.append.futures import DeliveryCallback, FutureRecordMetadata
from shmaccum.shm import native

logger = logging.getLogger(__name__)


class Callbacks:
    """Those that are to be called yet. Threads may share it.

    Attributes:
        due: the batches of which something has been told since their callbacks were last run.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[Any]] = {}
        """By batch: a callback, its future, another one, its future, and so on: a pair of its own would be one object
        more for every record."""
        self._running = native.Lock()
        self.due: deque[int] = deque()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def add(self, batch: int, callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
        """Take in a callback of a record in a batch."""
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting.setdefault(batch, [])
        waiting += (callback, future)

    def told_of(self, batch: int) -> None:
        """Note that something has been told of a batch: `run` goes by it."""
        if self._waiting and batch in self._waiting:
            self.due.append(batch)

    def run(self) -> None:
        """Run the callbacks of what has been told."""
        # One thread does, so that they come in order; without a lock that others wait for, so that they may append.
        while self.due and self._running.acquire(blocking=False):
            try:
                while self.due:
                    self.run_of(self.due.popleft())
            finally:
                self._running.release()

    def run_of(self, batch: int) -> None:
        """Run the callbacks of the records of a batch that are done, each once. One that raises harms nobody."""
        waiting = self._waiting.pop(batch, None)
        if waiting is None:
            return
        for at in range(0, len(waiting), 2):
            callback, future = waiting[at], waiting[at + 1]
            if future.is_done:
                _run(callback, future)
            else:
                self.add(batch, callback, future)


def _run(callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
    error, metadata = future.outcome()
    try:
        callback(error, metadata)
    except Exception:
        logger.exception("a delivery callback for %s raised", future.topic_partition)
