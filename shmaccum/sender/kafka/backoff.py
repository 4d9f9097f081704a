"""How long to wait before the next attempt: exponential, with jitter (KIP-144, KIP-580; ``ExponentialBackoff``)."""

from __future__ import annotations

import random
from typing import Final

_JITTER: Final = 0.2
_LARGEST_EXPONENT: Final = 32


class ExponentialBackoff:
    """Waits that double from one attempt to the next, up to a maximum, each a little more or less at random.

    Args:
        initial_ms: the first wait.
        max_ms: the longest one, before the jitter.
    """

    def __init__(self, initial_ms: float, max_ms: float) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)

    def wait_ms(self, attempts: int) -> float:
        """Return how long to wait after so many attempts, 1 at least, that failed in a row."""
        wait_ms = self._initial_ms * 2.0 ** min(attempts - 1, _LARGEST_EXPONENT)
        return min(wait_ms, self._max_ms) * random.uniform(1 - _JITTER, 1 + _JITTER)
