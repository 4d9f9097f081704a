"""The monotonic clock in milliseconds."""

from __future__ import annotations

import math
import time
from typing import Final

FOREVER_MS: Final = math.inf


def monotonic_ms() -> float:
    """Return the time of the monotonic clock."""
    return time.monotonic_ns() / 1_000_000
