"""Retry back-off of failed batches: `shmaccum.backoff` over many slot headers at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from shmaccum.backoff import JITTER, LARGEST_EXPONENT, MULTIPLIER
from shmaccum.shm.layout import ATTEMPTS_SHIFT, Slot

_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: its products spread adjacent numbers apart


class RetryBackoff:
    """Computes the back-off of batches from their headers.

    Args:
        initial_ms: ``retry.backoff.ms``, after the first attempt.
        max_ms: ``retry.backoff.max.ms``; if not larger than ``initial_ms``, every back-off is this, without jitter.
    """

    def __init__(self, initial_ms: int, max_ms: int) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._jitter = JITTER if max_ms > initial_ms else 0.0

    def after_last_attempt_ms(self, headers: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
        """Return, for each row of a slot header, the time from its last attempt to the next; 0 before the first.

        The jitter is a hash of header words, so it stays the same until the next attempt.
        """
        words = headers[:, Slot.ATTEMPTS]
        attempts = words >> np.uint64(ATTEMPTS_SHIFT)
        exponent = np.minimum(attempts.astype(np.float64) - 1, LARGEST_EXPONENT)
        mixed = (words ^ headers[:, Slot.PARTITION] ^ headers[:, Slot.POSITION] << np.uint64(32)) * _MIXER
        mixed = (mixed ^ mixed >> np.uint64(32)) * _MIXER
        drawn = (mixed >> np.uint64(40)) / float(1 << 24)
        spread = 1 + self._jitter * (2 * drawn - 1)
        backoff = np.minimum(self._initial_ms * MULTIPLIER**exponent * spread, self._max_ms)
        return np.where(attempts > 0, np.floor(backoff), 0.0)
