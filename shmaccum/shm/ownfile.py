"""Opening the files of a slab: in /dev/shm anybody may have put anything under any name."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from shmaccum.errors import SlabPermissionError
from shmaccum.regularfile import open_regular

_NOT_OURS: Final = (errno.EACCES, errno.EPERM, errno.EISDIR)


def open_own(path: str, flags: int, *, look: bool = False) -> int:
    """Open a regular file that belongs to this user alone, and return its descriptor.

    Args:
        path: where it is.
        flags: as `os.open` takes them; with ``O_CREAT`` it is made, of mode 0600, if it is not there.
        look: to look at a slab or to remove it, which root can do with everybody's.

    Raises:
        FileNotFoundError: it is not there.
        SlabPermissionError: it is another user's, or others may open it, or it is no regular file.
    """
    try:
        descriptor = open_regular(path, flags, 0o600, any_owner=True)  # whose it is, is told below
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        raise SlabPermissionError(
            f"{path} may not be opened, for it is another user's or no regular file ({error.strerror}); choose another "
            "shmaccum.name"
        ) from None
    status = os.fstat(descriptor)
    is_ours = status.st_uid == os.geteuid() or (look and os.geteuid() == 0)
    if not is_ours or status.st_mode & 0o077:
        os.close(descriptor)
        raise SlabPermissionError(
            f"{path} must be a regular file of user id {os.geteuid()} with mode 0600, but is one of user id "
            f"{status.st_uid} with mode {stat.filemode(status.st_mode)}; choose another shmaccum.name"
        )
    return descriptor
