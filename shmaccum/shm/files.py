"""Opening the files of a slab safely, and keeping their descriptors.

Any user can create any name in /dev/shm. So a file is opened without following links, and its owner, mode, type and
link count are checked.

A program can close our descriptors: a daemon closes all that it does not know, and their numbers are then reused. So
`Descriptor.is_ours` checks before each use that would change the file or that only our own file can answer. The check
is one system call; no such use is on the path of every record.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from shmaccum.errors import SlabPermissionError

_NOT_OURS: Final = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO)
_KINDS: Final = {stat.S_IFREG: "regular file", stat.S_IFIFO: "FIFO"}


def open_own(path: str, flags: int, *, look: bool = False, kind: int = stat.S_IFREG) -> int:
    """Open a file that belongs to this user alone, and return its descriptor.

    Args:
        path: where it is.
        flags: as `os.open` takes them; with ``O_CREAT`` it is made, of mode 0600, if it is not there.
        look: to look at a slab or to remove it, which root can do with everybody's.
        kind: its type, ``S_IFREG`` or ``S_IFIFO``.

    Raises:
        FileNotFoundError: it is not there.
        SlabPermissionError: it is another user's, others may open it, it has another name, or is of another type; says
            whose it is.
    """
    try:
        # Nothing that somebody else put there may lead elsewhere, as a link, or keep us waiting, as a FIFO.
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        raise _in_the_way(path, os.lstat(path), kind, error.strerror) from None
    try:
        check_status(path, os.fstat(descriptor), look=look, kind=kind)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_own(path: str) -> os.stat_result:
    """Make sure of a regular file that something else is to open by its name; return what it is.

    Raises:
        FileNotFoundError: it is not there.
        SlabPermissionError: as `open_own`.
    """
    status = os.lstat(path)
    check_status(path, status)
    return status


def check_status(path: str, status: os.stat_result, *, look: bool = False, kind: int = stat.S_IFREG) -> None:
    """Make sure that a file belongs to this user alone, has one name and is of a type.

    Raises:
        SlabPermissionError: as `open_own`.
    """
    is_ours = status.st_uid == os.geteuid() or (look and os.geteuid() == 0)
    # No link at all: it was removed as we opened it.
    if not is_ours or status.st_mode & 0o077 or stat.S_IFMT(status.st_mode) != kind or status.st_nlink > 1:
        raise _in_the_way(path, status, kind)


def is_of_others(path: str) -> bool:
    """Return whether a file is another user's, which only root can remove."""
    try:
        return os.lstat(path).st_uid != os.geteuid() != 0
    except FileNotFoundError:
        return False


def in_the_way(path: str) -> SlabPermissionError:
    """Return the error for a file that is where one of ours is to be."""
    return _in_the_way(path, os.lstat(path), stat.S_IFREG)


def _in_the_way(path: str, status: os.stat_result, kind: int, reason: str | None = None) -> SlabPermissionError:
    links = f" and {status.st_nlink} links" if status.st_nlink > 1 else ""
    return SlabPermissionError(
        f"{path} must be a {_KINDS[kind]} of user id {os.geteuid()} with mode 0600 and one link, but is one of user id "
        f"{status.st_uid} with mode {stat.filemode(status.st_mode)}{links}{f' ({reason})' if reason else ''}; have "
        f"user id {status.st_uid} or root remove it, or choose another shmaccum.name"
    )


class Descriptor:
    """An open file, by its number.

    Args:
        number: of the descriptor; -1 for none.
    """

    def __init__(self, number: int = -1) -> None:
        self.number = number
        self.file = file_of(os.fstat(number)) if number >= 0 else (-1, -1)
        """The device and inode."""

    def is_ours(self) -> bool:
        """Return whether the number is still that of the file that was opened."""
        try:
            return self.number >= 0 and file_of(os.fstat(self.number)) == self.file
        except OSError:
            return False

    def close(self) -> None:
        """Close it, unless it is closed already, or its number is another file's."""
        is_ours = self.is_ours()
        number, self.number = self.number, -1  # in this order: an interrupt may have it called again
        if is_ours:
            os.close(number)


def file_of(status: os.stat_result) -> tuple[int, int]:
    """Return which file it is, of all there are."""
    return status.st_dev, status.st_ino
