"""Kills a process at a line of the code that makes a write exactly once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_TRACED: Final = ("/shmaccum/transactions/", "/shmaccum/spark/exactly_once.py")
"""Code in which a process can be killed at each line."""


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


class Death:
    """Do something at the n-th line of the traced code; never, for 0.

    Args:
        line: the number n.
        deed: what to do; kills this process by default.
    """

    def __init__(self, line: int, deed: Callable[[], None] = die) -> None:
        self._left = line
        self._deed = deed

    def __enter__(self) -> None:
        if self._left:
            sys.settrace(self._trace)

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not any(part in frame.f_code.co_filename for part in _TRACED):
            return None
        if event == "line":
            self._left -= 1
            if not self._left:
                self._deed()
        return self._trace
