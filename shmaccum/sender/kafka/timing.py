"""Time in the Kafka transport: the monotonic clock in milliseconds, and the wait between attempts.

Source of the wait: Kafka's ``ExponentialBackoff`` (KIP-144, KIP-580).
"""

from __future__ import annotations

import math
import random
import time
from typing import Final

from shmaccum._compiled import COMPILED

if COMPILED:
    from shmaccum.sender.kafka.fastcalls import FastCalls

FOREVER_MS: Final = math.inf

_fast_calls = FastCalls() if COMPILED else None


def monotonic_ms() -> float:
    """Return the time."""
    return time.monotonic_ns() / 1_000_000 if _fast_calls is None else _fast_calls.monotonic_ms()


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
