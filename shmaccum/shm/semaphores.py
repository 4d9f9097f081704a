"""Makes and opens the named semaphores of a slab, and no others.

The C library maps a semaphore by its name, whatever user made it. Another user that makes one under a name of ours
could truncate it while we use it, which is a SIGBUS, not an exception. So the names cannot be guessed
(`shmaccum.shm.names.PrivateNames`), each semaphore is made exclusively, and each open checks the file before and after.
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
"""Names to try for a wake-up semaphore. No other user can guess one: a used name is what a death left."""


def make_semaphore(name: str, value: int) -> posix_ipc.Semaphore:
    """Make a semaphore under an unused name.

    Raises:
        FileExistsError: the name is used.
        SlabPermissionError: /dev/shm is not writable.
        OSError: there is no room, or no descriptor.
    """
    try:
        return posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=value)
    except posix_ipc.ExistentialError:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), semaphore_path(name)) from None
    except posix_ipc.PermissionsError as error:
        raise SlabPermissionError(
            f"{semaphore_path(name)} cannot be created: {error}; /dev/shm must be writable"
        ) from None


def open_semaphore(name: str) -> posix_ipc.Semaphore:
    """Open an existing semaphore that belongs to this user alone.

    Raises:
        FileNotFoundError: there is none.
        SlabPermissionError: it is another user's, other users can open it, or it is no regular file of one link.
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
        # Checked before the first access: if our file was removed meanwhile, we can have mapped another user's.
        if file_of(check_own(path)) != file_of(before):
            raise _gone(path)
    except BaseException:
        semaphore.close()
        raise
    return semaphore


def open_wakeup(private: PrivateNames, entry: int, words: memoryview, number_at: int) -> posix_ipc.Semaphore:
    """Open or make this process's wake-up semaphore; the caller holds the lifecycle byte.

    ``number_at`` is the index of the entry's word `Process.WAKEUP`.

    Raises:
        SlabPermissionError: all names that were tried are another user's.
        OSError: there is no room, or no descriptor.
    """
    for _ in range(_ATTEMPTS):
        name = private.wakeup_semaphore(entry, words[number_at])
        try:
            return make_semaphore(name, 0)
        except FileExistsError:
            pass
        try:
            return open_semaphore(name)  # made by an earlier process of this entry
        except (FileNotFoundError, SlabPermissionError):
            # Not ours, or with a second link: its maker died inside the C library, which makes it by a link.
            words[number_at] += 1
    raise in_the_way(semaphore_path(name))


def _gone(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
