"""The rule by which files are opened that somebody else may have put there: regular ones of this user, and no links.

A log directory, or one for logs, can be writable by others. A link that one of them plants there would have the sender
write to, or cut off, any file of its user; a FIFO would keep it waiting for ever; and a file of their own they could
change under it. Directories on the way may be links: those are the administrator's.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

_NOT_REGULAR: Final = {
    errno.ELOOP: "it is a symbolic link, and none is followed here",
    errno.ENXIO: "it is no regular file",  # a FIFO that nobody reads, or a socket
}


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o600, *, any_owner: bool = False) -> int:
    """Open a regular file of this user, and return its descriptor. Never waits, follows no link at the path's end.

    Args:
        path: where it is.
        flags: as `os.open` takes them. With ``O_TRUNC`` it is emptied once it is known to be what it should be.
        mode: permissions of a file that ``O_CREAT`` makes, less the umask.
        any_owner: whether it may be another user's: to read it, and not to believe it.

    Raises:
        PermissionError: it is no regular file, or another user's; its ``strerror`` says which.
        OSError: it cannot be opened, or is a directory.
    """
    try:
        descriptor = os.open(path, flags & ~os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno in _NOT_REGULAR:
            raise _refusal(path, _NOT_REGULAR[error.errno]) from None
        raise
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(status.st_mode):
            raise _refusal(path, f"it is no regular file but {stat.filemode(status.st_mode)}")
        if status.st_uid != os.geteuid() and not any_owner:
            raise _refusal(path, f"it belongs to user id {status.st_uid}, and this process to user id {os.geteuid()}")
        if flags & os.O_TRUNC:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refusal(path: str | os.PathLike[str], reason: str) -> PermissionError:
    return PermissionError(errno.EPERM, reason, os.fspath(path))
