"""The monotonic clock in milliseconds."""

from __future__ import annotations

import math
import time
from typing import Final

from shmaccum._compiled import COMPILED

if COMPILED:
    from shmaccum.sender.kafka.fastcalls import FastCalls

FOREVER_MS: Final = math.inf

_fast_calls = FastCalls() if COMPILED else None


def monotonic_ms() -> float:
    """Return the time of the monotonic clock."""
    return time.monotonic_ns() / 1_000_000 if _fast_calls is None else _fast_calls.monotonic_ms()
