"""Milliseconds of the monotonic clock, as all of the transport counts time."""

from __future__ import annotations

import math
import time
from typing import Final

from shmaccum.shm.memory import COMPILED

if COMPILED:
    from shmaccum.sender.kafka.fastcalls import FastCalls

FOREVER_MS: Final = math.inf

_fast_calls = FastCalls() if COMPILED else None


def monotonic_ms() -> float:
    """Return the time."""
    return time.monotonic_ns() / 1_000_000 if _fast_calls is None else _fast_calls.monotonic_ms()
