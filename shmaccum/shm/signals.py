"""Waiting for a semaphore, undisturbed by signals.

`posix_ipc` gives up a wait when any signal comes, with an error of its own, and the exception that the signal's
handler raised is lost unless it is a KeyboardInterrupt. So the waiting thread has signals wait instead, until it
has done waiting; then their handlers run and raise as everywhere else. Wait in slices.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final, TypeVar

_ALL: Final = signal.valid_signals()

Argument = TypeVar("Argument")


def undisturbed(wait: Callable[[Argument], object], argument: Argument) -> None:
    """Call ``wait(argument)`` with all signals held back in this thread; raises what it raises."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
        wait(argument)
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:
            # A signal that another thread received: its handler may have run, and raised, before the mask was set.
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
