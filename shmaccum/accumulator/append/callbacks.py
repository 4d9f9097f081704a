"""Delivery callbacks of this process's records, run in order when their batches complete.

They live here and not in futures or results, which must not lead back to futures (see `futures`). All of it is private
to the process; a death loses it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from shmaccum.accumulator.append.futures import DeliveryCallback, FutureRecordMetadata
from shmaccum.shm import native

logger = logging.getLogger(__name__)


class Callbacks:
    """Callbacks that have not run yet. Threads may share it.

    Args:
        due: batches with completions since their callbacks last ran.
    """

    def __init__(self, due: deque[int]) -> None:
        self._waiting: dict[int, list[Any]] = {}
        """By batch: callback, future, callback, future, ...: a tuple per pair would be one more object a record."""
        self._running = native.Lock()
        self.due = due

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def add(self, batch: int, callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
        """Add the callback of a record in a batch."""
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting.setdefault(batch, [])
        waiting += (callback, future)

    def told_of(self, batch: int) -> None:
        """Make a batch's callbacks due after one of its completions was read."""
        if self._waiting and batch in self._waiting:
            self.due.append(batch)

    def run(self) -> None:
        """Run the callbacks that are due."""
        # One thread at a time, for their order. The others do not wait for it, so that they can append.
        while self.due and self._running.acquire(blocking=False):
            try:
                while self.due:
                    self.run_of(self.due.popleft())
            finally:
                self._running.release()

    def run_of(self, batch: int) -> None:
        """Run the callbacks of a batch's completed records, each once. One that raises stops no other."""
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
