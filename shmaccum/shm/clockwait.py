"""Waits for a named semaphore by the monotonic clock, with signals blocked.

`posix_ipc` waits by the wall clock, which can be set. Any signal ends its wait with an error of its own, and it loses
the exception that the signal's handler raised unless that is a KeyboardInterrupt. So a wait blocks all signals of its
thread; their handlers run after it. Wait in slices.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Callable
from typing import Final, TypeVar

import posix_ipc

from shmaccum import _core
from shmaccum.shm.files import check_own
from shmaccum.shm.names import semaphore_path

# `signal.pthread_sigmask` turns the masks into enums, which takes twenty times as long as the call.
pthread_sigmask = _signal.pthread_sigmask

_ALL: Final = tuple(map(int, signal.valid_signals()))
_BLOCK: Final = int(signal.SIG_BLOCK)
_SET: Final = int(signal.SIG_SETMASK)

Argument = TypeVar("Argument")


def undisturbed(wait: Callable[[Argument], object], argument: Argument) -> None:
    """Call ``wait(argument)`` with all signals of this thread blocked; raise what it raises."""
    before = pthread_sigmask(_BLOCK, ())
    try:
        pthread_sigmask(_BLOCK, _ALL)
        wait(argument)
    finally:
        try:
            pthread_sigmask(_SET, before)
        except BaseException:
            # The handler of a signal that another thread received can run, and raise, before the mask is restored.
            pthread_sigmask(_SET, before)
            raise


_HAS_CLOCKWAIT: Final = _core.HAS_CLOCKWAIT
_libc_with_gil: Final = ctypes.PyDLL(None, use_errno=True)
"""Keeps the GIL over calls that take a lock inside the C library, as `posix_ipc` does. If another thread could fork
during one, the child would inherit the lock held, and would hang when it opens a semaphore."""
_libc_with_gil.sem_open.restype = ctypes.c_void_p
_libc_with_gil.sem_open.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc_with_gil.sem_close.argtypes = (ctypes.c_void_p,)


class ClockWait:
    """Waits for one semaphore; opens it again at the first wait, since many are never waited for.

    Args:
        semaphore: open; the caller closes it.
    """

    def __init__(self, semaphore: posix_ipc.Semaphore) -> None:
        self._semaphore = semaphore
        self._address: int | None = None

    def into(self, unit: list[None], timeout_s: float) -> None:
        """Put an item into ``unit`` if the semaphore was acquired within ``timeout_s``.

        The wait and the item are one C call: an interrupt between them would lose the acquired unit. Signals can be
        blocked meanwhile, so wait in slices.
        """
        address = self._opened() if _HAS_CLOCKWAIT else None
        if address is None:
            with contextlib.suppress(posix_ipc.BusyError):
                undisturbed(unit.extend, map(self._semaphore.acquire, (max(0.0, timeout_s),)))
            return
        _core.wait_into(address, unit, timeout_s)

    def close(self) -> None:
        """Close our handle of the semaphore; no thread waits for it any more."""
        address, self._address = self._address, None  # in this order: after an interrupt, it can be called again
        if address is not None:
            _libc_with_gil.sem_close(address)

    def _opened(self) -> int | None:
        """Return the C library's address of the semaphore; it maps a name once, however often it is opened.

        None while this process has no descriptor left: then `into` waits by the wall clock.
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
