"""The monotonic clock in milliseconds, and the backoff between attempts.

Source of the backoff: Kafka's ``ExponentialBackoff`` (KIP-144, KIP-580).
"""

from __future__ import annotations

import math
import random
import time
from typing import Final

from shmaccum._compiled import COMPILED
from shmaccum.accumulator.drain.backoff import JITTER, LARGEST_EXPONENT, MULTIPLIER

if COMPILED:
    from shmaccum.sender.kafka.fastcalls import FastCalls

FOREVER_MS: Final = math.inf

_fast_calls = FastCalls() if COMPILED else None


def monotonic_ms() -> float:
    """Return the time of the monotonic clock."""
    return time.monotonic_ns() / 1_000_000 if _fast_calls is None else _fast_calls.monotonic_ms()


class ExponentialBackoff:
    """Waits that double with each attempt up to a maximum, with a random jitter of 20%.

    Args:
        initial_ms: the first wait.
        max_ms: the longest one, before the jitter.
    """

    def __init__(self, initial_ms: float, max_ms: float) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)

    def wait_ms(self, attempts: int) -> float:
        """Return how long to wait after this number of failed attempts in a row, at least 1."""
        wait_ms = self._initial_ms * MULTIPLIER ** min(attempts - 1, LARGEST_EXPONENT)
        return min(wait_ms, self._max_ms) * random.uniform(1 - JITTER, 1 + JITTER)
