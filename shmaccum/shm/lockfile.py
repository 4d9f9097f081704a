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

A program that closes all its descriptors loses these locks without dying. The next use opens the file again and takes
the process's byte again (`LockFile.on_reopen`). Until then the others go by its process id (`ProcessTable.is_alive`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Final

from shmaccum.errors import DeadOwnerError, LockTimeoutError, SlabError, SlabNotFoundError
from shmaccum.shm import names, native
from shmaccum.shm.files import Descriptor, file_of, open_own

LIFECYCLE: Final = 0
SENDER: Final = 1
TAKEOVER: Final = 2
START: Final = 3
PROCESS: Final = 16

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_LIFECYCLE_PATIENCE_S: Final = 30.0


class LockFile:
    """This process's one descriptor of a slab's lock file.

    Attributes:
        on_reopen: called when the file has been opened again, for the byte of the process.
    """

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._is_closed = False
        self._lost: str | None = None
        """Why the file cannot be opened again; then it never is, for a new slab's file can have its name."""
        self.forked()
        self._use(Descriptor(descriptor))

    def _use(self, opened: Descriptor) -> None:
        self._opened = opened
        # In C from end to end, for a `finally`: no interrupt comes before they have let go.
        let_go = partial(fcntl.fcntl, opened.number, fcntl.F_SETLK)
        self._end_lifecycle = partial(let_go, _request(fcntl.F_UNLCK, LIFECYCLE))
        self._end_start = partial(let_go, _request(fcntl.F_UNLCK, START))
        self.end_takeover = partial(let_go, _request(fcntl.F_UNLCK, TAKEOVER))
        """Let go of the takeover byte."""

    @classmethod
    def open(cls, name: str, *, create: bool, look: bool = False) -> LockFile:
        """Open the file of slab ``name``; with ``create``, make it if it is not there.

        Args:
            name: the slab's.
            create: whether to make it.
            look: to look at the slab or to remove it, which root can do with everybody's.

        Raises:
            SlabNotFoundError: there is none, and ``create`` is false.
            SlabPermissionError: it is another user's, or others may open it.
        """
        path = names.lock_path(name)
        while True:
            try:
                # First without O_CREAT: Linux can refuse that for another user's file in /dev/shm, even to root.
                return cls(name, open_own(path, os.O_RDWR, look=look))
            except FileNotFoundError:
                if not create:
                    raise SlabNotFoundError(f"there is no slab {name!r}") from None
            with contextlib.suppress(FileExistsError):  # somebody has made it just now
                return cls(name, open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, look=look))

    def close(self) -> None:
        """Close the descriptor; the kernel drops all that this process held in the file."""
        self._is_closed = True
        self._opened.close()

    def forked(self) -> None:
        """Be the file of a forked child: none of the parent's locks are its own, nor is its mutex."""
        # Record locks do not exclude threads of one process. The same thread may come again: after an interrupt, a
        # context manager lets go only when the traceback goes.
        self._threads = native.RLock()
        self._starting = native.Lock()
        self._reopening = native.RLock()
        self.on_reopen: Callable[[], None] = _do_nothing

    def is_current(self) -> bool:
        """Say whether the path still names this file: the last one out may have removed it meanwhile."""
        try:
            return file_of(os.stat(names.lock_path(self.name))) == self._opened.file
        except FileNotFoundError:
            return False

    def make_sure(self) -> int:
        """Return the descriptor, open: again, if the program has closed it.

        Raises:
            DeadOwnerError: the slab is gone, or this process's place in it is not its own any more.
            SlabError: the file cannot be opened again at the moment.
        """
        if not self._is_closed and not self._opened.is_ours():
            with self._reopening:  # one thread: to close a second descriptor would drop the locks
                if not self._opened.is_ours():
                    self._reopen()
        return self._opened.number

    def _reopen(self) -> None:
        self._opened.close()  # forget the number, whatever comes: others would lock or unlock another file by it
        # Looked at before it is opened: to close the descriptor of another slab's file would drop our locks there.
        if self._lost is None and not self.is_current():
            self._lost = "the slab was removed meanwhile"
        if self._lost is None:
            try:
                self._use(Descriptor(open_own(names.lock_path(self.name), os.O_RDWR)))
            except OSError as error:
                raise SlabError(
                    f"slab {self.name!r}: this program has closed the descriptors of its producer, and its lock file "
                    f"cannot be opened again: {error}; that takes a descriptor (ulimit -n)"
                ) from error
            try:
                self.on_reopen()
            except DeadOwnerError as error:
                self._lost = str(error)
                self._opened.close()
        if self._lost is not None:
            raise DeadOwnerError(
                f"slab {self.name!r}: this program has closed the descriptors of its producer, and {self._lost}; close "
                "the producer and make a new Producer"
            )

    def try_lock(self, byte: int) -> bool:
        """Take a byte; False if another process has it. Taking what one has already is True."""
        try:
            fcntl.fcntl(self.make_sure(), fcntl.F_SETLK, _request(fcntl.F_WRLCK, byte))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def unlock(self, byte: int) -> None:
        """Let go of a byte."""
        fcntl.fcntl(self.make_sure(), fcntl.F_SETLK, _request(fcntl.F_UNLCK, byte))

    def holder(self, byte: int, length: int = 1) -> int:
        """Return the pid of *another* process that holds the byte, 0 if none does.

        The pid is as this process's pid namespace sees it; a holder it cannot see is -1. With ``length``, one that
        holds any of so many bytes; 0 means all that follow.
        """
        answer = fcntl.fcntl(self.make_sure(), fcntl.F_GETLK, _request(fcntl.F_WRLCK, byte, length))
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
                    native.sleep(0.002)  # not `pause`: the caller's locks are this thread's, not its greenlet's
                yield
            finally:
                if self._opened.number >= 0:
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


def _do_nothing() -> None:
    pass


@cache
def _request(kind: int, byte: int, length: int = 1) -> bytes:
    """Make the kernel's request for a lock of a kind."""
    return _FLOCK.pack(kind, os.SEEK_SET, byte, length, 0)
