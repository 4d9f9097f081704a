"""Opens files in directories that other users can write to.

It opens only regular files of this user, and follows no link. With a link that another user planted there, the sender
would write to, or truncate, any file of its user. A FIFO would block it for ever, and the other user could change
a file of theirs while we use it. Directories in the path can be links: those are the administrator's.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

_NOT_REGULAR: Final = {
    errno.ELOOP: "it is a symbolic link, and shmaccum follows none here",
    errno.ENXIO: "it is no regular file",  # a FIFO without a reader, or a socket
}


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o600, *, any_owner: bool = False) -> int:
    """Open a regular file of this user and return its descriptor; never wait, follow no link.

    Args:
        path: of the file.
        flags: as `os.open` takes them; ``O_TRUNC`` truncates the file only after all checks.
        mode: permissions of a file that ``O_CREAT`` makes, less the umask.
        any_owner: whether another user can own it: the caller only reads it, and does not trust it.

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
