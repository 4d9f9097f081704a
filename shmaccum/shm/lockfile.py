"""The lock file: what the kernel knows of a slab's processes, and lets go of when one dies.

Every fact here is a POSIX record lock (``fcntl``) on one byte. The kernel drops it with the process; it is
not inherited by ``fork`` and does not care about pid reuse or pid namespaces; ``F_GETLK`` asks without
disturbing.

========== ===========================================================================
byte       held by
========== ===========================================================================
LIFECYCLE  whoever creates, attaches to, leaves or removes the slab, while doing it
SENDER     the one sender
TAKEOVER   whoever takes a semaphore over from a dead holder, while doing it
START      whoever starts a sender, while doing it
PROCESS+i  the process of entry *i* of the process table, as long as it lives
========== ===========================================================================

A record lock goes when *any* descriptor of the file is closed in the process, so a process has exactly one
descriptor of it: `LockFile` objects are shared through the slab, and nothing else may open the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Final

from shmaccum.errors import LockTimeoutError, SlabNotFoundError
from shmaccum.shm import names
from shmaccum.shm.ownfile import open_own

LIFECYCLE: Final = 0
SENDER: Final = 1
TAKEOVER: Final = 2
START: Final = 3
PROCESS: Final = 16

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_LIFECYCLE_PATIENCE_S: Final = 30.0


class LockFile:
    """This process's one descriptor of a slab's lock file."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor
        # In C from end to end, for a `finally`: no interrupt comes before they have let go.
        let_go = partial(fcntl.fcntl, descriptor, fcntl.F_SETLK)
        self._end_lifecycle = partial(let_go, _request(fcntl.F_UNLCK, LIFECYCLE))
        self._end_start = partial(let_go, _request(fcntl.F_UNLCK, START))
        self.end_takeover = partial(let_go, _request(fcntl.F_UNLCK, TAKEOVER))
        """Let go of the takeover byte."""
        # Record locks do not exclude threads of one process. The same thread may come again: after an interrupt, a
        # context manager lets go only when the traceback goes.
        self._threads = threading.RLock()
        self._starting = threading.Lock()

    @classmethod
    def open(cls, name: str, *, create: bool) -> LockFile:
        """Open the file of slab ``name``; with ``create``, make it if it is not there.

        Raises:
            SlabNotFoundError: there is none, and ``create`` is false.
            SlabPermissionError: it is another user's, or others may open it.
        """
        try:
            descriptor = open_own(names.lock_path(name), os.O_RDWR | (os.O_CREAT if create else 0))
        except FileNotFoundError:
            raise SlabNotFoundError(f"there is no slab {name!r}") from None
        return cls(name, descriptor)

    def close(self) -> None:
        """Close the descriptor; the kernel drops all that this process held in the file."""
        descriptor, self._descriptor = self._descriptor, -1  # in this order: another thread may be about to use it
        if descriptor >= 0:
            os.close(descriptor)

    def forked(self) -> None:
        """Be the file of a forked child: none of the parent's locks are its own, nor is its mutex."""
        self._threads = threading.RLock()
        self._starting = threading.Lock()

    def is_current(self) -> bool:
        """Say whether the path still names this file: the last one out may have removed it meanwhile."""
        try:
            there = os.stat(names.lock_path(self.name))
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._descriptor))

    def try_lock(self, byte: int) -> bool:
        """Take a byte; False if another process has it. Taking what one has already is True."""
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETLK, _request(fcntl.F_WRLCK, byte))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def unlock(self, byte: int) -> None:
        """Let go of a byte."""
        fcntl.fcntl(self._descriptor, fcntl.F_SETLK, _request(fcntl.F_UNLCK, byte))

    def holder(self, byte: int, length: int = 1) -> int:
        """Return the pid of *another* process that holds the byte, 0 if none does.

        The pid is as this process's pid namespace sees it; a holder it cannot see is -1. With ``length``, one that
        holds any of so many bytes; 0 means all that follow.
        """
        answer = fcntl.fcntl(self._descriptor, fcntl.F_GETLK, _request(fcntl.F_WRLCK, byte, length))
        kind, _, _, _, pid = _FLOCK.unpack(answer)
        if kind == fcntl.F_UNLCK:
            return 0
        return int(pid) or -1

    @contextmanager
    def lifecycle(self, patience_s: float = _LIFECYCLE_PATIENCE_S) -> Iterator[None]:
        """Hold the lifecycle byte: nobody else comes or goes meanwhile.

        Raises:
            LockTimeoutError: another process has held it for ``patience_s`` (stopped, perhaps): says which.
        """
        deadline = time.monotonic() + patience_s
        with self._threads:
            try:
                # Not a `while` with a condition: an interrupt at its jump back passes the `finally` by (CPython 3.12).
                while True:
                    if self.try_lock(LIFECYCLE):
                        break
                    if time.monotonic() > deadline:
                        raise LockTimeoutError(
                            f"slab {self.name!r}: process {self.holder(LIFECYCLE)} has been coming or going for "
                            f"{patience_s:g} s; is it stopped? Continue or kill it"
                        )
                    time.sleep(0.002)
                yield
            finally:
                if self._descriptor >= 0:
                    self._end_lifecycle()

    @contextmanager
    def try_start(self) -> Iterator[bool]:
        """Hold the start byte, if nobody else does: yields whether this is who starts a sender now."""
        mine = self._starting.acquire(blocking=False)
        try:
            yield mine and self.try_lock(START)
        finally:
            if mine:
                self._end_start()
                self._starting.release()


@cache
def _request(kind: int, byte: int, length: int = 1) -> bytes:
    """Make the kernel's request for a lock of a kind."""
    return _FLOCK.pack(kind, os.SEEK_SET, byte, length, 0)
