"""The lock file: locks that the kernel releases when their process dies.

Each is a POSIX record lock (``fcntl``) on one byte. The kernel releases it when the process dies. ``fork`` does not
inherit it, pid reuse and pid namespaces do not matter, and ``F_GETLK`` queries it without side effects.

* ``LIFECYCLE``: held by a process that creates, attaches to, leaves or removes the slab.
* ``SENDER``: held by the one sender.
* ``START`` to ``PROCESS - 1``: the first one is held by a process that starts a sender. If a signal or a debugger has
  stopped that process, the next one counts, so that the slab need not wait for it.
* ``PROCESS + i``: held by the process of entry *i* of the process table, as long as it lives.

The kernel drops a process's record locks when it closes *any* descriptor of the file. So a process has exactly one:
users of the slab share its `LockFile`, and nothing else must open the file.

A program that closes all its descriptors loses these locks without dying. The next use reopens the file and retakes
the process's byte (`LockFile.on_reopen`). Until then other processes identify it by its pid (`ProcessTable.is_alive`).
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
from shmaccum.procfs import is_stopped
from shmaccum.shm import names, native
from shmaccum.shm.files import Descriptor, file_of, open_own

LIFECYCLE: Final = 0
SENDER: Final = 1
START: Final = 2
PROCESS: Final = 16

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_LIFECYCLE_TIMEOUT_S: Final = 30.0


class LockFile:
    """This process's one descriptor of a slab's lock file.

    ``on_reopen`` is called after the file was reopened, to retake the byte of the process.
    """

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._is_closed = False
        self._lost: str | None = None
        """Why the file cannot be reopened. It is permanent: the file of a new slab can have its name."""
        self.forked()
        self._use(Descriptor(descriptor))

    def _use(self, opened: Descriptor) -> None:
        self._opened = opened
        # Pure C calls, for a `finally`: an interrupt cannot prevent the unlock.
        let_go = partial(fcntl.fcntl, opened.number, fcntl.F_SETLK)
        self._end_lifecycle = partial(let_go, _request(fcntl.F_UNLCK, LIFECYCLE))
        self._end_start = partial(let_go, _request(fcntl.F_UNLCK, START, PROCESS - START))

    @classmethod
    def open(cls, name: str, *, create: bool, look: bool = False) -> LockFile:
        """Open the file of a slab, or create it.

        ``look`` is for inspecting or removing the slab, which root can do with every user's.

        Raises:
            SlabNotFoundError: there is none, and ``create`` is false.
            SlabPermissionError: it is another user's, or other users can open it.
        """
        path = names.lock_path(name)
        while True:
            try:
                # First without O_CREAT: Linux can refuse that for another user's file in /dev/shm, even to root.
                return cls(name, open_own(path, os.O_RDWR, look=look))
            except FileNotFoundError:
                if not create:
                    raise SlabNotFoundError(f"there is no slab {name!r}") from None
            with contextlib.suppress(FileExistsError):  # another process has just made it
                return cls(name, open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, look=look))

    def close(self) -> None:
        """Close the descriptor; the kernel drops all locks of this process in the file."""
        self._is_closed = True
        self._opened.close()

    def forked(self) -> None:
        """Reset in a forked child, which inherits neither the parent's record locks nor its threads."""
        # Record locks do not exclude threads of one process. Reentrant: after an interrupt, a context manager can
        # keep its lock until the traceback is freed.
        self._threads = native.RLock()
        self._starting = native.Lock()
        self._reopening = native.RLock()
        self.on_reopen: Callable[[], None] = lambda: None

    def is_current(self) -> bool:
        """Return whether the path still names this file; the last user can have removed it."""
        try:
            return file_of(os.stat(names.lock_path(self.name))) == self._opened.file
        except FileNotFoundError:
            return False

    def make_sure(self) -> int:
        """Return the descriptor; reopen the file if the program has closed it.

        Raises:
            DeadOwnerError: the slab was removed, or another process has this one's entry.
            SlabError: the file cannot be reopened now.
        """
        if not self._is_closed and not self._opened.is_ours():
            with self._reopening:  # one thread: closing a second descriptor would drop the locks
                if not self._opened.is_ours():
                    self._reopen()
        return self._opened.number

    def _reopen(self) -> None:
        self._opened.close()  # first forget the number: by it, we would lock or unlock another file
        # Check before opening: closing a descriptor of another slab's lock file would drop our locks there.
        if self._lost is None and not self.is_current():
            self._lost = "the slab was removed meanwhile"
        if self._lost is None:
            try:
                self._use(Descriptor(open_own(names.lock_path(self.name), os.O_RDWR)))
            except OSError as error:
                raise SlabError(
                    f"slab {self.name!r}: this program has closed the descriptors of its producer, and the lock file "
                    f"cannot be reopened: {error}; that needs a free descriptor (ulimit -n)"
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
        """Lock a byte; return False if another process has it, True if this process already has it."""
        try:
            fcntl.fcntl(self.make_sure(), fcntl.F_SETLK, _request(fcntl.F_WRLCK, byte))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def unlock(self, byte: int) -> None:
        """Release a byte."""
        fcntl.fcntl(self.make_sure(), fcntl.F_SETLK, _request(fcntl.F_UNLCK, byte))

    def holder(self, byte: int, length: int = 1) -> int:
        """Return the pid of *another* process that holds the byte, 0 if none does.

        The pid is that of this process's pid namespace; -1 for a holder outside of it. With a length, any byte of that
        range counts; 0 is for all that follow.
        """
        answer = fcntl.fcntl(self.make_sure(), fcntl.F_GETLK, _request(fcntl.F_WRLCK, byte, length))
        kind, _, _, _, pid = _FLOCK.unpack(answer)
        if kind == fcntl.F_UNLCK:
            return 0
        return int(pid) or -1

    @contextmanager
    def lifecycle(self, timeout_s: float = _LIFECYCLE_TIMEOUT_S) -> Iterator[None]:
        """Hold the lifecycle byte: no other process attaches or detaches meanwhile.

        Raises LockTimeoutError: another process, perhaps stopped, has held it for ``timeout_s``; names it.
        """
        deadline = time.monotonic() + timeout_s
        with self._threads:
            try:
                # Not a `while` with a condition: an interrupt at its jump back skips the `finally` (CPython 3.12).
                while True:
                    if self.try_lock(LIFECYCLE):
                        break
                    if time.monotonic() > deadline:
                        raise LockTimeoutError(
                            f"slab {self.name!r}: process {self.holder(LIFECYCLE)} has been attaching or detaching for "
                            f"{timeout_s:g} s; is it stopped? Continue or kill it"
                        )
                    native.sleep(0.002)  # not `pause`: the thread, not the greenlet, owns the caller's locks
                yield
            finally:
                if self._opened.number >= 0:
                    self._end_lifecycle()

    @contextmanager
    def try_start(self) -> Iterator[bool]:
        """Try to hold a start byte; yield whether this caller starts the sender."""
        mine = self._starting.acquire(blocking=False)
        try:
            yield mine and self._try_to_start()
        finally:
            if mine:
                self._end_start()
                self._starting.release()

    def _try_to_start(self) -> bool:
        for byte in range(START, PROCESS):
            if self.try_lock(byte):
                return True
            if not is_stopped(self.holder(byte)):
                return False
        return False


@cache
def _request(kind: int, byte: int, length: int = 1) -> bytes:
    """Return the kernel's request for a lock of a kind."""
    return _FLOCK.pack(kind, os.SEEK_SET, byte, length, 0)
