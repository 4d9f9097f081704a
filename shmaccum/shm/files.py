"""Opens files where other users can make some, and the semaphores of a slab; guards their descriptors.

Any user can create any name in /dev/shm. So an open follows no links, and checks owner, mode, type and link count.
`open_regular` is for logs, in any directory: with a link that another user planted there, the sender would write to, or
truncate, any file of its user. A FIFO would block it for ever, and the other user could change a file of theirs while
we use it. Directories in the path can be links: those are the administrator's.

A program can close our descriptors: a daemon closes all that it does not know, and the kernel reuses their numbers. So
call `Descriptor.is_ours` before each use that changes the file, or needs an answer of our own file. The check is one
system call; the record path has no such use.

The C library maps a semaphore by its name, whatever user made it. Another user that makes one under a name of ours
could truncate it while we use it, which is a SIGBUS, not an exception. So the names cannot be guessed
(`shmaccum.shm.names.PrivateNames`), each semaphore is made exclusively, and each open checks the file before and after.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

import posix_ipc

from shmaccum.errors import SlabPermissionError
from shmaccum.shm.names import PrivateNames, semaphore_path

_NOT_OURS: Final = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO)
NAME_ATTEMPTS: Final = 4
"""Private names to try. No other user can guess one: a used name is what a death left."""
_KINDS: Final = {stat.S_IFREG: "regular file", stat.S_IFIFO: "FIFO"}
_NOT_REGULAR: Final = {
    errno.ELOOP: "it is a symbolic link, and shmaccum follows none here",
    errno.ENXIO: "it is no regular file",  # a FIFO without a reader, or a socket
}


def open_own(path: str, flags: int, *, look: bool = False, kind: int = stat.S_IFREG) -> int:
    """Open a file that belongs to this user alone, and return its descriptor.

    ``flags`` are those of `os.open`; with ``O_CREAT``, a missing file is made, with mode 0600. ``look`` is for
    inspecting or removing a slab, which root can do with every user's; ``kind`` is ``S_IFREG`` or ``S_IFIFO``.

    Raises:
        FileNotFoundError: there is no such file.
        SlabPermissionError: it is another user's, other users can open it, it has a second link, or another type; names
            its owner. Or the directory is not writable; names its mode.
    """
    try:
        # Another user's link would lead us elsewhere; their FIFO would block us.
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.EROFS or (error.errno == errno.EACCES and not os.path.lexists(path)):
            raise _not_writable(path, error) from None  # no file is in the way: the directory refuses a new one
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
    """Check a regular file that a library will open by its name; return its status, and raise as `open_own`."""
    status = os.lstat(path)
    check_status(path, status)
    return status


def check_status(path: str, status: os.stat_result, *, look: bool = False, kind: int = stat.S_IFREG) -> None:
    """Check that a file is this user's alone, with one link and the given type; raise as `open_own`."""
    is_ours = status.st_uid == os.geteuid() or (look and os.geteuid() == 0)
    # A file with no link was removed while we opened it: allowed.
    if not is_ours or status.st_mode & 0o077 or stat.S_IFMT(status.st_mode) != kind or status.st_nlink > 1:
        raise _in_the_way(path, status, kind)


def is_of_others(path: str) -> bool:
    """Return whether a file is another user's and this process cannot remove it."""
    try:
        return os.lstat(path).st_uid != os.geteuid() != 0
    except FileNotFoundError:
        return False


def in_the_way(path: str) -> SlabPermissionError:
    """Return the error for a foreign file under the name of one of ours."""
    return _in_the_way(path, os.lstat(path), stat.S_IFREG)


def _in_the_way(path: str, status: os.stat_result, kind: int, reason: str | None = None) -> SlabPermissionError:
    if (status.st_mode, status.st_nlink) == (kind | 0o600, 1) and status.st_uid != os.geteuid():
        return SlabPermissionError(
            f"{path} belongs to {_user(status.st_uid)}: slabs are not shared between users. That user and root can "
            f"look at it; a producer of user id {os.geteuid()} needs another shmaccum.name"
        )
    links = f" and {status.st_nlink} links" if status.st_nlink > 1 else ""
    return SlabPermissionError(
        f"{path} must be a {_KINDS[kind]} of user id {os.geteuid()} with mode 0600 and one link, but is one of user id "
        f"{status.st_uid} with mode {stat.filemode(status.st_mode)}{links}{f' ({reason})' if reason else ''}; let "
        f"user id {status.st_uid} or root remove it, or choose another shmaccum.name"
    )


def _not_writable(path: str, error: OSError) -> SlabPermissionError:
    directory = os.path.dirname(path)
    cure = f"mount a tmpfs at {directory} with mode 1777, or mount -o remount,rw {directory}"
    if error.errno != errno.EROFS:
        mode = stat.filemode(os.stat(directory).st_mode)
        cure = f"{directory} has mode {mode}: run chmod 1777 {directory} as root"
    return SlabPermissionError(f"user id {os.geteuid()} cannot make {path}: {error.strerror}; {cure}")


def _user(uid: int) -> str:
    import pwd  # which a process without such a file does not import

    try:
        return f"user {pwd.getpwuid(uid).pw_name} (user id {uid})"
    except (KeyError, OverflowError):
        return f"user id {uid}"


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o600, *, any_owner: bool = False) -> int:
    """Open a regular file of this user and return its descriptor; never wait, follow no link.

    ``flags`` are as `os.open` takes them; ``O_TRUNC`` truncates the file only after all checks. ``mode``: of a file
    that ``O_CREAT`` makes, less the umask. ``any_owner``: the caller only reads the file, and does not trust it.

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


class Descriptor:
    """A file descriptor that notices when the program has closed it.

    The number is -1 for none.
    """

    def __init__(self, number: int = -1) -> None:
        self.number = number
        self.file = file_of(os.fstat(number)) if number >= 0 else (-1, -1)
        """The device and inode."""

    def is_ours(self) -> bool:
        """Return whether the number still belongs to the file that was opened."""
        try:
            return self.number >= 0 and file_of(os.fstat(self.number)) == self.file
        except OSError:
            return False

    def close(self) -> None:
        """Close it, unless it is closed or its number belongs to another file."""
        is_ours = self.is_ours()
        number, self.number = self.number, -1  # in this order: after an interrupt, it can be called again
        if is_ours:
            os.close(number)


def file_of(status: os.stat_result) -> tuple[int, int]:
    """Return a file's device and inode."""
    return status.st_dev, status.st_ino


def read_presses(fifo: int) -> bool:
    """Read all bytes of a FIFO that does not block; return whether there were any."""
    found = False
    try:
        while True:
            size = len(os.read(fifo, 4096))
            found = True
            if size < 4096:
                return True
    except BlockingIOError:
        return found


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
    for _ in range(NAME_ATTEMPTS):
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
