"""Delivery limits of batches: ``delivery.timeout.ms`` and ``retries`` of their producers.

A batch can hold records of several producers, and both limits are promises to each. So its header has the largest
values of the producers that appended to it. No record fails before its own producer's time. Only the sender reads them,
when a batch is due to expire or has failed.

Each process also stores the smallest ``delivery.timeout.ms`` of its producers in its table entry: the sender looks that
often for what has expired. After its death the word stays until another process takes the entry.
"""

from __future__ import annotations

from shmaccum._core import LIMITS_SHIFT, Process, Super
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.shm.layout import LIMITS_MASK, column_of
from shmaccum.shm.slab import Slab


class DeliveryLimits:
    """The limits of the batches of a slab.

    Args:
        slab: the slab.
    """

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._words = slab.words
        self._changed = -1

    def have_changed(self) -> bool:
        """Return whether a process has stored a timeout since the last call."""
        before, self._changed = self._changed, self._words[Super.TIMEOUTS_CHANGED]
        return before != self._changed

    def shortest_ms(self) -> int:
        """Return a lower bound for the timeout of new batches, until timeouts change."""
        geometry = self._slab.geometry
        timeouts = column_of(
            self._words, geometry.process(0) + Process.SHORTEST_TIMEOUT, geometry.max_processes, Process.length
        )
        return min(filter(None, timeouts), default=LIMITS_MASK) - 1

    def timeout_ms(self, batch: RecordBatch) -> int:
        """Return the age, in milliseconds, at which a batch expires."""
        return batch.limits & LIMITS_MASK

    def retries(self, batch: RecordBatch) -> int:
        """Return how often a batch may be sent again."""
        return batch.limits >> LIMITS_SHIFT
