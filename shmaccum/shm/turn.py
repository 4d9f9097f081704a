"""The turn: which thread of this process, and which of its greenlets, uses the locks of one slab.

A process holds one lock at a time, so its threads take turns on a local mutex. It is memory of the process: a death
leaves nothing of it.

Greenlets (gevent, eventlet) of one thread share the mutex, which belongs to the thread. So a greenlet must not be
switched out during its turn, and `SlabLock` sleeps without it. A finalizer or a tracer can switch all the same. So the
turn also knows its greenlet, and the others wait until that one has continued.
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

DEFAULT_TIMEOUT_S: Final = 60.0
"""How long ``with lock:`` waits for a living holder, which can be stopped, by default (`Slab.set_lock_timeout`)."""

_PACKAGE: Final = __name__.partition(".")[0]

_PAUSE_S: Final = 0.001
"""Between two checks whether a greenlet that was switched out with a lock has continued."""


class Held(Protocol):
    """A lock of the slab that this process waits for or holds."""

    def abandon(self) -> None:
        """Release it, if it is held, with what it guards unfinished."""

    def abandon_interrupted(self) -> None:
        """Abandon it if an interrupt kept this thread from releasing it; raise IllegalStateError if it is in use."""


class Turn:
    """The state that a slab's locks share within one process.

    Attributes:
        mutex: between threads; `fast` is the same in the compiled form.
        timeout_s: how long ``with lock:`` waits.
        holding: the lock that this process waits for or holds; guarded by the mutex.
        current: returns the current greenlet; None where greenlets are not imported.
        keeper: the greenlet that has the turn; guarded by the mutex.
    """

    # No `__dict__`: eventlet replaces each RLock that it finds in one, and `SlabLock` keeps methods of this one.
    __slots__ = ("current", "fast", "holding", "keeper", "mutex", "timeout_s")

    def __init__(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.fast = _FastMutex() if COMPILED else None
        self.mutex = self.fast or native.RLock()
        self.timeout_s = timeout_s
        self.holding: Held | None = None
        self.current: Callable[[], Any] | None = native.current_greenlet()
        self.keeper: Any = None

    def wait(self, slab_name: str, timeout_s: float | None) -> None:
        """Wait for the mutex, and take it.

        Raises:
            LockTimeoutError: another thread still has it after ``timeout_s``.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        if native.is_green():
            taken = native.poll(lambda: self.mutex.acquire(False), timeout_s)
        else:
            taken = self.mutex.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))
        if not taken:
            raise LockTimeoutError(
                f"slab {slab_name!r}: another thread of this process has waited for a lock, or held it, for "
                f"{timeout_s:.1f} s"
            )

    def is_switched_out(self) -> bool:
        """Return whether another greenlet of this thread has the turn, and lives; the caller has the mutex."""
        current, keeper = self.current, self.keeper
        if self.holding is None or current is None or keeper is None:
            return False
        return keeper is not current() and not keeper.dead

    def is_mine(self) -> bool:
        """Return whether the current greenlet of this thread has the turn."""
        return self.mutex._is_owned() and not self.is_switched_out()

    def clear_holding(self, slab_name: str, timeout_s: float | None) -> None:
        """Wait until no greenlet of this thread holds a lock; abandon a lock that an interrupt left.

        Raises:
            IllegalStateError: the lock is in use by a call that a signal's handler or finalizer interrupts with this
                one. Or its greenlet cannot continue, since the program is not patched for greenlets.
            LockTimeoutError: the greenlet has not continued within ``timeout_s``.
        """
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while self.is_switched_out():
            self.mutex.release()
            if not native.is_green():
                raise IllegalStateError(
                    "another greenlet of this thread was switched out in the middle of a call of the producer; it "
                    "cannot continue while this one waits, unless gevent or eventlet has patched the program"
                )
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"slab {slab_name!r}: another greenlet of this thread has been switched out with a lock for "
                    f"{timeout_s:.1f} s"
                )
            native.pause(_PAUSE_S)
            self.wait(slab_name, timeout_s)
        if self.holding is not None:
            self.holding.abandon_interrupted()

    def end(self) -> None:
        """Wait until no thread of this process uses one of the locks, and refuse them from now on."""
        with self.mutex:
            if self.holding is not None:
                self.holding.abandon()  # by a greenlet that is switched out: it finds the slab detached
            self.holding = _Detached(self)
            self.keeper = None

    def has_ended(self) -> bool:
        """Return whether this process has left the slab."""
        return isinstance(self.holding, _Detached)


class _Detached:
    """Refuses the turn in a slab that this process has left, in place of a lock that is held."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def abandon(self) -> None:
        """Do nothing."""

    def abandon_interrupted(self) -> None:
        """Refuse the turn."""
        self._turn.mutex.release()
        raise IllegalStateError("the slab has been detached by another thread")


def is_reentrant() -> bool:
    """Return whether this thread is inside the package twice, with other code in between.

    It walks the stack, because only the stack is exact in the face of interrupts. Markers that were considered:

    * A count in the lock, raised by ``__enter__`` and lowered by ``__exit__``. CPython also runs signal handlers at the
      start of ``__exit__``, before its first line. After such an interrupt the count stays up, and the process refuses
      every later call as reentrant.
    * A count in each method of the package that users call, by ``try`` and ``finally``. Between a store and the ``try``
      no handler runs, so that is exact. But it costs every record, and a method without it breaks the rule silently.
    * An object that only the value stack of the ``with`` statement refers to. That costs an allocation for each use.

    The walk is needed only after an interrupt and in a reentrant call.
    """
    left = False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        inside = frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE
        if inside and left:
            return True
        left = left or not inside
        frame = frame.f_back
    return False
