"""The lock of a log directory: one sender at a time.

The sender locks ``.lock`` in the log directory, as Kafka does (``kafka.utils.FileLock``), with ``flock``: the kernel
unlocks it when the process ends in any way. The file holds the holder's pid, for errors. It is never removed, since a
second process could lock the removed file.

Only its owner can open it: any process that can read a file can lock it, and would keep every sender out.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from shmaccum.errors import SlabInUseError
from shmaccum.sender.regularfile import open_regular

_NAME: Final = ".lock"
"""Every log directory has it, from the first sender on."""
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.01


class DirectoryLock:
    """The exclusive lock of one log directory, held from creation to `close`."""

    def __init__(self, log_dir: Path) -> None:
        """Acquire the lock.

        Raises:
            SlabInUseError: another process holds it; says which, if known.
            OSError: the file cannot be opened, or is not a regular one of this user.
        """
        self._descriptor = open_regular(log_dir / _NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.fchmod(self._descriptor, 0o600)  # version 0.1.0 created it readable by all users
            if not self._take():
                raise SlabInUseError(
                    f"log.dir {log_dir} is in use by {self._holder()}: one sender writes to a log at a time; set "
                    f"another log.dir, or use the other's settings so that both share a sender"
                )
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
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


def is_log_directory(path: Path) -> bool:
    """Return whether a sender has ever used a directory as its ``log.dir``."""
    return os.path.lexists(path / _NAME)


def has_writer(log_dir: Path) -> bool:
    """Return whether a sender holds the directory's lock now; for readers, which hold none."""
    try:
        descriptor = open_regular(log_dir / _NAME, os.O_RDONLY, any_owner=True)
    except OSError:  # no sender ever wrote here, or this user cannot open the file
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
