"""Making and opening the named semaphores of a slab, and no others.

The C library maps a semaphore by its name, whoever made it. Who makes one under a name of ours could cut it short while
we use it: that is a SIGBUS, and no exception. So the names cannot be guessed (`shmaccum.shm.names.PrivateNames`), each
is made exclusively, and what is opened is looked at before and after.
"""

from __future__ import annotations

import errno
import os
from typing import Final

import posix_ipc

from shmaccum.errors import SlabPermissionError
from shmaccum.shm.files import check_own, file_of, in_the_way
from shmaccum.shm.names import PrivateNames, semaphore_path

_ATTEMPTS: Final = 4
"""Names for a wakeup. No other user can guess one, so each but the first is for what a death left under the others."""


def make_semaphore(name: str, value: int) -> posix_ipc.Semaphore:
    """Make a semaphore under a name that nothing has.

    Raises:
        FileExistsError: something has it.
        SlabPermissionError: it may not be made.
        OSError: there is no room, or no descriptor.
    """
    try:
        return posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=value)
    except posix_ipc.ExistentialError:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), semaphore_path(name)) from None
    except posix_ipc.PermissionsError as error:
        raise SlabPermissionError(
            f"{semaphore_path(name)} may not be made: {error}; /dev/shm must be writable"
        ) from None


def open_semaphore(name: str) -> posix_ipc.Semaphore:
    """Open a semaphore that is there and belongs to this user alone.

    Raises:
        FileNotFoundError: it is not there.
        SlabPermissionError: it is another user's, others may open it, or it is no regular file of one link.
        OSError: there is no descriptor.
    """
    path = semaphore_path(name)
    before = check_own(path)
    try:
        semaphore = posix_ipc.Semaphore(name)
    except posix_ipc.ExistentialError:
        raise _gone(path) from None
    except posix_ipc.PermissionsError:
        raise in_the_way(path) from None
    try:
        # Mapped, but not touched yet: if it was removed in between, what we have can be another user's.
        if file_of(check_own(path)) != file_of(before):
            raise _gone(path)
    except BaseException:
        semaphore.close()
        raise
    return semaphore


def open_wakeup(private: PrivateNames, entry: int, words: memoryview, number_at: int) -> posix_ipc.Semaphore:
    """Open the wakeup of a process entry as its process, or make it; the caller holds the lifecycle byte.

    Args:
        private: the slab's names.
        entry: of this process.
        words: the slab's.
        number_at: index of the entry's word `Process.WAKEUP`.

    Raises:
        SlabPermissionError: whatever name it could have is another user's.
        OSError: there is no room, or no descriptor.
    """
    for _ in range(_ATTEMPTS):
        name = private.wakeup_semaphore(entry, words[number_at])
        try:
            return make_semaphore(name, 0)
        except FileExistsError:
            pass
        try:
            return open_semaphore(name)  # that of the entry's process before us
        except (FileNotFoundError, SlabPermissionError):
            # Not ours, or with a second link: its maker died inside the C library, which links it to its name.
            words[number_at] += 1
    raise in_the_way(semaphore_path(name))


def _gone(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
