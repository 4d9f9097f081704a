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


class Death:
    """Kill this process at the n-th line of the traced code; never, for 0.

    Args:
        line: the number n.
        last_words: called right before.
    """

    def __init__(self, line: int, last_words: Callable[[], None] | None = None) -> None:
        self._left = line
        self._last_words = last_words

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
                if self._last_words is not None:
                    self._last_words()
                os.kill(os.getpid(), signal.SIGKILL)
        return self._trace
