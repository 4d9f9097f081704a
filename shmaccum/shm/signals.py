"""Waiting for a semaphore, undisturbed by signals.

`posix_ipc` gives up a wait when any signal comes, with an error of its own, and the exception that the signal's
handler raised is lost unless it is a KeyboardInterrupt. So the waiting thread has signals wait instead, until it
has done waiting; then their handlers run and raise as everywhere else. Wait in slices.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
from collections.abc import Callable
from typing import Final, TypeVar

# `signal` has the same, but makes enums of the masks, and that takes twenty times as long as the call.
pthread_sigmask = _signal.pthread_sigmask

_ALL: Final = tuple(map(int, signal.valid_signals()))
_BLOCK: Final = int(signal.SIG_BLOCK)
_SET: Final = int(signal.SIG_SETMASK)

Argument = TypeVar("Argument")


def undisturbed(wait: Callable[[Argument], object], argument: Argument) -> None:
    """Call ``wait(argument)`` with all signals held back in this thread; raises what it raises."""
    before = pthread_sigmask(_BLOCK, ())
    try:
        pthread_sigmask(_BLOCK, _ALL)
        wait(argument)
    finally:
        try:
            pthread_sigmask(_SET, before)
        except BaseException:
            # A signal that another thread received: its handler may have run, and raised, before the mask was set.
            pthread_sigmask(_SET, before)
            raise
