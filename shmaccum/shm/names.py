"""Names of a slab's files. All of them are in /dev/shm.

Slab ``NAME`` has the segment ``shmaccum-NAME`` and the lock file ``shmaccum-NAME.lock``. The other names cannot be
guessed (`PrivateNames`): semaphores ``sem.shmaccum-NAME.*``, and the doorbells of the sender and of event loops, the
FIFOs ``shmaccum-NAME.wakeup.*``.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from typing import Final

from shmaccum._core import TOKEN_WORDS, WORD, Super
from shmaccum.abi import SHARD_PATTERN, SLAB_NAME_PATTERN, SLAB_NAME_RULE, shard_name, shard_of
from shmaccum.errors import SlabError, SlabMemoryError
from shmaccum.later import blake2b

SHM_DIRECTORY: Final = "/dev/shm"
PREFIX: Final = "shmaccum-"

_IS_MUSL: Final = str(getattr(sys.implementation, "_multiarch", "")).endswith("musl")
"""The C library is musl: its semaphores have the file of their whole name, and other words than those of glibc."""

_LEGAL_NAME = re.compile(f"{SLAB_NAME_PATTERN}(?:{SHARD_PATTERN})?")
_OF_A_SLAB: Final = rf"{PREFIX}({_LEGAL_NAME.pattern})(?:\.lock|\.wakeup(?:\.[0-9a-f]+)?)?"
_TOKEN_BYTES: Final = TOKEN_WORDS * WORD


def check_name(name: str) -> str:
    """Return a slab's name if it is legal. Raises SlabError: the name is not legal; has the rule for names."""
    if not _LEGAL_NAME.fullmatch(name):
        raise SlabError(f"{name!r} cannot be a slab's name: use {SLAB_NAME_RULE}")
    return name


def segment_path(name: str) -> str:
    """Path of the segment's memory."""
    return f"{SHM_DIRECTORY}/{PREFIX}{name}"


def lock_path(name: str) -> str:
    """Path of the lock file."""
    return f"{SHM_DIRECTORY}/{PREFIX}{name}.lock"


def before_semaphores() -> str:
    """Return how names of semaphores begin: glibc itself puts ``sem.`` before the name of the file."""
    return "/sem." if _IS_MUSL else "/"


def semaphore_path(name: str) -> str:
    """Path of a semaphore's memory, by its name as `posix_ipc` takes it."""
    return f"{SHM_DIRECTORY}/sem.{name.removeprefix(before_semaphores())}"


class PrivateNames:
    """Names that only processes that can read the slab can know.

    Each has a digest keyed with the slab's random token. So another user cannot create a file of that name first, nor
    derive one name from another. The sticky bit of /dev/shm keeps other users from removing or replacing our files.
    """

    def __init__(self, name: str, token: bytes) -> None:
        self._name = name
        self._token = token

    @classmethod
    def of(cls, name: str, words: memoryview) -> PrivateNames:
        """Return the names of a slab with this memory, as 8-byte words."""
        return cls(name, words[Super.TOKEN : Super.TOKEN + TOKEN_WORDS].tobytes())

    def doorbell_path(self) -> str:
        """Path of the sender's doorbell, a FIFO."""
        return f"{SHM_DIRECTORY}/{PREFIX}{self._name}.wakeup.{self._digest('wakeup')}"

    def loop_doorbell_path(self, entry: int, number: int) -> str:
        """Path of the doorbell, a FIFO, of a process entry's event loops; the number is its word `LOOP_DOORBELL`."""
        return f"{SHM_DIRECTORY}/{PREFIX}{self._name}.wakeup.{self._digest(f'loop{entry}.{number}')}"

    def pool_semaphore(self) -> str:
        """Name of the semaphore that guards the pool, as `posix_ipc` takes it."""
        return self._semaphore("pool")

    def wakeup_semaphore(self, entry: int, number: int) -> str:
        """Name of the wake-up semaphore of a process entry; the number is its word `Process.WAKEUP`."""
        return self._semaphore(f"p{entry}.{number}" if number else f"p{entry}")

    def _semaphore(self, what: str) -> str:
        # Other names, so that a process with the other C library finds none, and does not share them.
        digest = self._digest(f"{what}.musl" if _IS_MUSL else what)
        return f"{before_semaphores()}{PREFIX}{self._name}.{what}.{digest}"

    def _digest(self, what: str) -> str:
        return blake2b(what.encode(), key=self._token, digest_size=8).hexdigest()


def new_token() -> memoryview:
    """Return a random token for a new slab, as 8-byte words."""
    return memoryview(os.urandom(_TOKEN_BYTES)).cast("Q")


def _entries() -> list[str]:
    """Return the names in /dev/shm. Raises SlabMemoryError: it does not exist, or cannot be read."""
    try:
        return os.listdir(SHM_DIRECTORY)
    except OSError as error:
        is_limit = error.errno in (errno.EMFILE, errno.ENFILE)
        cure = (
            "raise this process's limit (ulimit -n)" if is_limit else f"mount a tmpfs at {SHM_DIRECTORY} with mode 1777"
        )
        raise SlabMemoryError(f"{SHM_DIRECTORY}: {error.strerror}; slabs are there: {cure}") from error


def slab_names() -> list[str]:
    """Return the names of all slabs of all users that have a lock file or a segment; raise as `_entries`."""
    return sorted({found[1] for entry in _entries() if (found := re.fullmatch(_OF_A_SLAB, entry))})


def slabs_of(name: str) -> list[str]:
    """Return the slabs that a user's name stands for: that slab, or else the shards that have this name before the '@'.

    Raises:
        SlabError: the name is not legal.
        SlabMemoryError: /dev/shm does not exist, or cannot be read.
    """
    there = slab_names()
    if check_name(name) in there:
        return [name]
    numbers = (number for base, number in map(shard_of, there) if base == name and number is not None)
    return [shard_name(name, number) for number in sorted(numbers)]


def leftovers(name: str) -> list[str]:
    """Return the paths of a slab's files, in the order of their removal.

    The segment is first: a death during the removal must not leave a segment without semaphores. The lock file is
    last, because other processes wait for it. Other users' files are not included.
    """
    own = PREFIX + name
    others = [
        path
        for entry in _entries()
        if entry.startswith((f"{own}.wakeup", f"sem.{own}.p")) and _can_be_removed(path := f"{SHM_DIRECTORY}/{entry}")
    ]
    return [segment_path(name), *sorted(others), lock_path(name)]


def _can_be_removed(path: str) -> bool:
    """Return whether a file exists and this user can remove it; directories are never ours."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(status.st_mode) and os.geteuid() in (status.st_uid, 0)
