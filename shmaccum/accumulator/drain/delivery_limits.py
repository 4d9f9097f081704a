"""How long and how often the sender tries to deliver a batch: ``delivery.timeout.ms`` and ``retries`` of its producers.

Both are promises to a producer, and the batches of a slab hold records of several. So each process stores those of its
producers in its table entry, the largest of each, and a batch has the largest of the processes that appended to it: no
record is given up before its own producer's time. Only the sender reads the words, and only when a batch is due to
expire or has failed.

The words are written by their process alone. They stay when it dies, until another process takes the entry.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.shm.layout import LIMITS_MASK, LIMITS_SHIFT, Process, Super
from shmaccum.shm.slab import Slab

_LIMITS: Final = Process.LIMITS
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
        """Say whether a process has stored limits since the last call."""
        before, self._changed = self._changed, self._slab.words[Super.LIMITS_CHANGED]
        return before != self._changed

    def shortest_ms(self) -> int:
        """Return a time that no batch has less than: of those that are, and of those to come until limits change."""
        limits = self._slab.process_rows[:, _LIMITS]
        timeouts = limits[limits != 0] & _MASK
        return int(timeouts.min()) - 1 if len(timeouts) else self._timeout_ms

    def timeout_ms(self, batch: RecordBatch) -> int:
        """Return how old a batch may become."""
        longest = max((each & LIMITS_MASK for each in self._of(batch)), default=0)
        return longest - 1 if longest else self._timeout_ms

    def retries(self, batch: RecordBatch) -> int:
        """Return how often a batch may be sent again."""
        return max((each >> LIMITS_SHIFT for each in self._of(batch)), default=self._retries)

    def _of(self, batch: RecordBatch) -> list[int]:
        """Return the words of those that appended to a batch, as far as there are any."""
        words, geometry = self._slab.words, self._slab.geometry
        found = [words[geometry.process(entry) + _LIMITS] for entry in batch.contributors()]
        return [each for each in found if each]
