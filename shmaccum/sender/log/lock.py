"""The lock of a log directory: one sender writes to it at a time.

The file is ``.lock`` in the log directory, as in Kafka (``kafka.utils.FileLock``). It is locked with
``flock``, which the kernel undoes when the process ends in any way, holds the holder's pid for the error's
message, and is never removed: a second process could hold the lock of the removed one.

Only its owner can open it: who can read a file can lock it, and would keep every sender out.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from shmaccum.errors import SlabInUseError
from shmaccum.regularfile import open_regular

_NAME: Final = ".lock"
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.01


class DirectoryLock:
    """The exclusive lock of one log directory, held from creation to `close`."""

    def __init__(self, log_dir: Path) -> None:
        """Take the lock.

        Raises:
            SlabInUseError: another process has it; says which, where that is known.
            OSError: the file cannot be opened, or is not a regular one of this user.
        """
        self._descriptor = open_regular(log_dir / _NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.fchmod(self._descriptor, 0o600)  # one that version 0.1.0 made can be read by everybody
            if not self._take():
                raise SlabInUseError(
                    f"log.dir {log_dir} is in use by {self._holder()}: one sender writes to a log at a time; give "
                    f"this one a log.dir of its own, or the same settings as the other so that they share a sender"
                )
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take(self) -> bool:
        """Try for a tenth of a second: `has_writer` holds the lock for an instant."""
        for _ in range(_ATTEMPTS):
            if _try_flock(self._descriptor, fcntl.LOCK_EX):
                return True
            time.sleep(_PAUSE_S)
        return False

    def _holder(self) -> str:
        pid = os.pread(self._descriptor, 20, 0).strip()
        return f"process {pid.decode()}" if pid.isdigit() else "another process"


def has_writer(log_dir: Path) -> bool:
    """Say whether a sender has the directory now; for readers, who take no lock of their own."""
    try:
        descriptor = open_regular(log_dir / _NAME, os.O_RDONLY, any_owner=True)
    except OSError:  # nobody ever wrote here, or it is not ours to know
        return False
    try:
        return not _try_flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
