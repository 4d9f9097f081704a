"""Waiting for a named semaphore: by the monotonic clock, and undisturbed by signals.

`posix_ipc` waits by the wall clock, which can be set. It also ends a wait when any signal arrives, with an error of its
own, and loses the exception that the signal's handler raised unless that is a KeyboardInterrupt. So a wait blocks all
signals of its thread; their handlers run after it. Wait in slices.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Callable
from itertools import filterfalse
from typing import Final, TypeVar

import posix_ipc

from shmaccum._compiled import COMPILED
from shmaccum.shm.files import check_own
from shmaccum.shm.names import semaphore_path

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


if COMPILED:
    from shmaccum.shm.fastwait import HAS_CLOCKWAIT as _IS_FAST
    from shmaccum.shm.fastwait import wait_into as _wait_into
else:
    _IS_FAST = False

_CLOCK_MONOTONIC: Final = (time.CLOCK_MONOTONIC,)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc_with_gil: Final = ctypes.PyDLL(None, use_errno=True)
"""For what has a lock of the C library's own, which a forked child inherits as it is: if another thread could fork the
process meanwhile, that child would hang as soon as it opens a semaphore. `posix_ipc` keeps the GIL over these, too."""
_HAS_CLOCKWAIT: Final = hasattr(_libc, "sem_clockwait")
if _HAS_CLOCKWAIT:
    _libc_with_gil.sem_open.restype = ctypes.c_void_p
    _libc_with_gil.sem_open.argtypes = (ctypes.c_char_p, ctypes.c_int)
    _libc_with_gil.sem_close.argtypes = (ctypes.c_void_p,)
    _libc.sem_clockwait.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Timespec))


class ClockWait:
    """Waits for one semaphore. Nothing is opened before the first wait: many are never waited for.

    Args:
        semaphore: open; stays the caller's to close.
    """

    def __init__(self, semaphore: posix_ipc.Semaphore) -> None:
        self._semaphore = semaphore
        self._address: int | None = None

    def into(self, unit: list[None], timeout_s: float) -> None:
        """Put an item into ``unit`` if the semaphore was to be had within ``timeout_s``.

        In C from the wait to the item: no interrupt comes between getting the semaphore and ``unit`` telling of it.
        Signals may be held back meanwhile, so wait in slices.
        """
        address = self._opened() if _HAS_CLOCKWAIT else None
        if address is None:
            with contextlib.suppress(posix_ipc.BusyError):
                undisturbed(unit.extend, map(self._semaphore.acquire, (max(0.0, timeout_s),)))
            return
        if _IS_FAST:
            _wait_into(address, unit, timeout_s)
            return
        end = time.monotonic_ns() + round(timeout_s * 1e9)
        deadline = _Timespec(*divmod(end, 1_000_000_000))
        waiting = map(_libc.sem_clockwait, (address,), _CLOCK_MONOTONIC, (ctypes.pointer(deadline),))
        # 0 where it came, which is kept; -1 where the time ran out.
        undisturbed(unit.extend, filterfalse(None, waiting))

    def close(self) -> None:
        """Let go of it; nobody waits any more."""
        address, self._address = self._address, None  # in this order: an interrupt may have it called again
        if address is not None:
            _libc_with_gil.sem_close(address)

    def _opened(self) -> int | None:
        """Return where the C library has the semaphore; it maps a name once, however often it is opened.

        None while there is no descriptor for that: to wait by the other clock is better than not to wait.
        """
        if self._address is None:
            check_own(semaphore_path(self._semaphore.name))
            self._address = _libc_with_gil.sem_open(self._semaphore.name.encode(), 0)
            if self._address is None:
                error = ctypes.get_errno()
                if error in (errno.EMFILE, errno.ENFILE):
                    return None
                raise OSError(error, f"semaphore {self._semaphore.name}: {os.strerror(error)}")
        return self._address
