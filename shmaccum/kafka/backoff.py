"""The waits between attempts: Kafka's ``ExponentialBackoff`` (KIP-144, KIP-580)."""

from __future__ import annotations

import random
from typing import Final

MULTIPLIER: Final = 2.0
JITTER: Final = 0.2
"""Spreads the retries of what failed together: each wait is up to 20% longer or shorter."""
LARGEST_EXPONENT: Final = 32


class ExponentialBackoff:
    """Waits that double with each attempt up to a maximum, with a random jitter of 20%."""

    def __init__(self, initial_ms: float, max_ms: float) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)

    def wait_ms(self, attempts: int) -> float:
        """Return how long to wait after this number of failed attempts in a row, at least 1."""
        wait_ms = self._initial_ms * MULTIPLIER ** min(attempts - 1, LARGEST_EXPONENT)
        return min(wait_ms, self._max_ms) * random.uniform(1 - JITTER, 1 + JITTER)
