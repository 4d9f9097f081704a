"""Delivery limits of batches: ``delivery.timeout.ms`` and ``retries`` of their producers.

A batch can hold records of several producers, and both limits are promises to each. So each process stores in its table
entry the largest ``delivery.timeout.ms`` and ``retries`` of its producers. A batch has the largest values of its
contributors, so no record fails before its own producer's time. Only the sender reads the words, when a batch is due to
expire or has failed.

Each process writes its own LIMITS word. After its death the word stays until another process takes the entry.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.shm.layout import LIMITS_MASK, LIMITS_SHIFT, Process, Super
from shmaccum.shm.slab import Slab

_MASK: Final = np.uint64(LIMITS_MASK)


class DeliveryLimits:
    """The limits of the batches of a slab.

    Args:
        slab: the slab.
        timeout_ms: ``delivery.timeout.ms`` of this process's producer; the sender's is for batches of unknown origin.
        retries: ``retries``, likewise.
    """

    def __init__(self, slab: Slab, timeout_ms: int, retries: int) -> None:
        self._slab = slab
        self._timeout_ms = timeout_ms
        self._retries = retries
        self._changed = -1
        slab.promise(timeout_ms, retries)

    def have_changed(self) -> bool:
        """Return whether a process has stored limits since the last call."""
        before, self._changed = self._changed, self._slab.words[Super.LIMITS_CHANGED]
        return before != self._changed

    def shortest_ms(self) -> int:
        """Return a lower bound for the timeout of present batches, and of new ones until limits change."""
        limits = self._slab.process_rows[:, Process.LIMITS]
        timeouts = limits[limits != 0] & _MASK
        return int(timeouts.min()) - 1 if len(timeouts) else self._timeout_ms

    def timeout_ms(self, batch: RecordBatch) -> int:
        """Return the age, in milliseconds, at which a batch expires."""
        longest = max((each & LIMITS_MASK for each in self._of(batch)), default=0)
        return longest - 1 if longest else self._timeout_ms

    def retries(self, batch: RecordBatch) -> int:
        """Return how often a batch may be sent again."""
        return max((each >> LIMITS_SHIFT for each in self._of(batch)), default=self._retries)

    def _of(self, batch: RecordBatch) -> list[int]:
        """Return the LIMITS words of a batch's contributors, as far as they are set."""
        words, geometry = self._slab.words, self._slab.geometry
        found = [words[geometry.process(entry) + Process.LIMITS] for entry in batch.contributors()]
        return [each for each in found if each]
