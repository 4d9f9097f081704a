"""Whose turn it is: which thread of this process, and which greenlet of that thread, uses the locks of one slab.

A process wants one lock at a time, so its threads take turns on a local mutex.

The mutex belongs to a thread, and greenlets (gevent, eventlet) of one thread share it. So none is switched out while it
has the turn: `SlabLock` naps without the turn. Other code can switch it all the same, such as a finalizer or a tracer.
Therefore the turn also knows its greenlet, and the others wait until that one has gone on.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Protocol

from shmaccum._compiled import COMPILED
from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.shm import native

if COMPILED:
    from shmaccum.shm.fastlocks import FastMutex as _FastMutex

DEFAULT_PATIENCE_S: Final = 60.0
"""How long ``with lock:`` waits for a holder that lives (stopped, perhaps) before it fails, where nobody has said."""

_NAP_S: Final = 0.001
"""Between two looks whether a greenlet that was switched out with a lock has gone on."""


class Held(Protocol):
    """A lock of the slab that this process waits for or holds."""

    def mend(self) -> None:
        """Stop wanting or holding it; what it guards is unfinished."""

    def mend_interrupted(self) -> None:
        """Leave it, which an interrupt kept this thread from leaving, or raise IllegalStateError."""


class Turn:
    """What the locks of one slab share within one process.

    Attributes:
        mutex: of the threads; `fast` is the same where it is compiled.
        patience_s: how long ``with lock:`` waits.
        holding: the lock that this process waits for or holds; only the mutex's owner reads or writes it.
        unit: holds an item between a semaphore's unit coming to us and the owner word saying so.
        current: returns the greenlet that runs; None where there are none.
        keeper: the greenlet that has the turn; only the mutex's owner reads or writes it.
    """

    # Without a `__dict__`: eventlet replaces each RLock that it finds in one, and `SlabLock` keeps methods of this one.
    __slots__ = ("current", "fast", "holding", "keeper", "mutex", "patience_s", "unit")

    def __init__(self, patience_s: float = DEFAULT_PATIENCE_S) -> None:
        self.fast = _FastMutex() if COMPILED else None
        self.mutex = self.fast or native.RLock()
        self.patience_s = patience_s
        self.holding: Held | None = None
        self.unit: list[None] = []
        self.current: Callable[[], Any] | None = native.current_greenlet()
        self.keeper: Any = None

    def wait(self, slab_name: str, patience_s: float | None) -> None:
        """Take the mutex, which another thread has.

        Raises:
            LockTimeoutError: it has it still after ``patience_s``.
        """
        patience_s = self.patience_s if patience_s is None else patience_s
        if native.is_green():
            taken = native.poll(lambda: self.mutex.acquire(False), patience_s)
        else:
            taken = self.mutex.acquire(timeout=min(patience_s, threading.TIMEOUT_MAX))
        if not taken:
            raise LockTimeoutError(
                f"slab {slab_name!r}: another thread of this process has been waiting for or holding a lock for "
                f"{patience_s:.1f} s"
            )

    def is_switched_out(self) -> bool:
        """Return whether another greenlet of this thread has the turn, and can go on; the caller owns the mutex."""
        current, keeper = self.current, self.keeper
        if self.holding is None or current is None or keeper is None:
            return False
        return keeper is not current() and not keeper.dead

    def is_mine(self) -> bool:
        """Return whether this thread has the turn, and no other greenlet of it."""
        return self.mutex._is_owned() and not self.is_switched_out()

    def follow(self, slab_name: str, patience_s: float | None) -> None:
        """Come after this very thread, which has a lock: wait for its other greenlet, or mend what was interrupted.

        Raises:
            IllegalStateError: this call came in the middle of that one, by a signal's handler or a finalizer; or the
                greenlet cannot go on, since the program is not patched for greenlets.
            LockTimeoutError: the greenlet has not gone on within ``patience_s``.
        """
        patience_s = self.patience_s if patience_s is None else patience_s
        deadline = time.monotonic() + patience_s
        while self.is_switched_out():
            self.mutex.release()
            if not native.is_green():
                raise IllegalStateError(
                    "another greenlet of this thread was switched out in the middle of a call of the producer, and "
                    "without gevent's or eventlet's patches nothing here lets it go on"
                )
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"slab {slab_name!r}: another greenlet of this thread has been switched out with a lock for "
                    f"{patience_s:.1f} s"
                )
            native.pause(_NAP_S)
            self.wait(slab_name, patience_s)
        if self.holding is not None:
            self.holding.mend_interrupted()

    def end(self) -> None:
        """Wait until no thread of this process is about any of the locks; from now on none takes one any more."""
        with self.mutex:
            if self.holding is not None:
                self.holding.mend()  # of a greenlet that is switched out: it finds the slab detached as it goes on
            self.holding = _Left(self)
            self.keeper = None


class _Left:
    """Stands for the lock that is held, in a slab that this process has left: nobody else has a turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def mend(self) -> None:
        """Do nothing."""

    def mend_interrupted(self) -> None:
        """Refuse the turn."""
        self._turn.mutex.release()
        raise IllegalStateError("the slab has been detached by another thread")


def is_reentrant() -> bool:
    """Say whether this thread is inside the package twice, with somebody else's code in between."""
    left = False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        inside = frame.f_globals.get("__name__", "").startswith("shmaccum.")
        if inside and left:
            return True
        left = left or not inside
        frame = frame.f_back
    return False
