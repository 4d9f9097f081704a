"""Plain file I/O: bounded open files, whole writes, durable directory entries.

Knows nothing of the files' contents.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shmaccum.shm.files import open_regular

logger = logging.getLogger(__name__)

_MOST_BUFFERS: Final = os.sysconf("SC_IOV_MAX")
"""Most views of one write."""
MAX_OPEN_FILES: Final = 512
"""Half of the usual limit of descriptors of a process (1,024)."""
SEGMENT_MODE: Final = 0o644
"""Permissions of a new file, less the umask: its owner writes it, other users of the directory read it."""


class OpenFiles:
    """Open files by path: at most ``limit``, or fewer if the system refuses more descriptors.

    A new file replaces the least recently used one. Closing does not sync: a later `os.fsync` by another descriptor
    covers the same data.
    """

    def __init__(self, limit: int = MAX_OPEN_FILES) -> None:
        self._limit = limit
        self._descriptors: OrderedDict[Path, int] = OrderedDict()

    def get(self, path: Path) -> int:
        """Return a descriptor, for reading and writing, of an existing file. Valid until the next call here.

        It never recreates a deleted file: a write at the old end would leave a hole in front.

        Raises OSError: the file cannot be opened, or is not a regular one of this user.
        """
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            return self._open(path, 0)
        self._descriptors.move_to_end(path)
        return descriptor

    def create(self, path: Path) -> None:
        """Create an empty file. Raises OSError: it exists, or cannot be created."""
        self._open(path, os.O_CREAT | os.O_EXCL)

    def close(self, path: Path) -> None:
        """Close the file if it is open."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            _close(path, descriptor)

    def close_all(self) -> None:
        """Close every file."""
        for path in list(self._descriptors):
            self.close(path)

    def _open(self, path: Path, flags: int) -> int:
        if len(self._descriptors) >= self._limit:
            _close(*self._descriptors.popitem(last=False))
        while True:
            try:
                descriptor = open_regular(path, os.O_RDWR | flags, SEGMENT_MODE)
                break
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._descriptors:
                    raise
                _close(*self._descriptors.popitem(last=False))
        self._descriptors[path] = descriptor
        return descriptor


def _close(path: Path, descriptor: int) -> None:
    """Close a file; log an error, which must not fail the caller's work on another file."""
    try:
        os.close(descriptor)
    except OSError as error:
        logger.error("%s: error on close: %s", path, os.strerror(error.errno or 0))


def write_fully(descriptor: int, data: Sequence[memoryview], position: int) -> None:
    """Write all of ``data`` (bytes) at ``position``, straight from its memory, in as many calls as needed.

    Raises OSError: part of the data may have been written.
    """
    left = list(data)
    while left:
        written = os.pwritev(descriptor, left[:_MOST_BUFFERS], position)
        position += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left:
            left[0] = left[0][written:]


def sync_directory(path: Path) -> None:
    """Make created and removed entries of a directory durable. Raises OSError: it is gone, or could not be written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
