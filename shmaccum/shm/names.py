"""Names of everything that a slab has outside its memory. All of it lives in /dev/shm.

A slab ``NAME`` is the segment ``shmaccum-NAME`` and the lock file ``shmaccum-NAME.lock``. What else it has, no other
user can name before it is there (`PrivateNames`): its semaphores ``sem.shmaccum-NAME.*`` and the sender's doorbell, the
FIFO ``shmaccum-NAME.wakeup.*``.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import Final

from shmaccum.abi import SLAB_NAME_PATTERN, SLAB_NAME_RULE
from shmaccum.errors import SlabError
from shmaccum.shm.layout import TOKEN_WORDS, WORD, Super

SHM_DIRECTORY: Final = "/dev/shm"
PREFIX: Final = "shmaccum-"

_LEGAL_NAME = re.compile(SLAB_NAME_PATTERN)
_OF_A_SLAB = re.compile(rf"{PREFIX}({SLAB_NAME_PATTERN})(?:\.lock|\.wakeup(?:\.[0-9a-f]+)?)?")
_TOKEN_BYTES: Final = TOKEN_WORDS * WORD


def check_name(name: str) -> str:
    """Return a slab's name if it is a legal one.

    Raises:
        SlabError: says what a name may be made of.
    """
    if not _LEGAL_NAME.fullmatch(name):
        raise SlabError(f"{name!r} cannot be a slab's name: use {SLAB_NAME_RULE}")
    return name


def segment_name(name: str) -> str:
    """Name of the segment, as `multiprocessing.shared_memory` takes it."""
    return PREFIX + name


def segment_path(name: str) -> str:
    """Path of the segment's memory."""
    return f"{SHM_DIRECTORY}/{PREFIX}{name}"


def lock_path(name: str) -> str:
    """Path of the lock file."""
    return f"{SHM_DIRECTORY}/{PREFIX}{name}.lock"


def semaphore_path(name: str) -> str:
    """Path of a semaphore's memory, by its name as `posix_ipc` takes it."""
    return f"{SHM_DIRECTORY}/sem.{name[1:]}"


class PrivateNames:
    """Names that only those can know who can read the slab: each holds a digest under the slab's random token.

    So another user cannot have put anything under a name before we do, and knows none from one that is there already.
    Later nobody else can remove or replace what has it, in a directory with the sticky bit, as /dev/shm is.

    Args:
        name: the slab's name.
        token: the slab's, from its superblock.
    """

    def __init__(self, name: str, token: bytes) -> None:
        self._name = name
        self._token = token

    @classmethod
    def of(cls, name: str, words: memoryview) -> PrivateNames:
        """Return those of a slab by its memory, as 8-byte words."""
        return cls(name, words[Super.TOKEN : Super.TOKEN + TOKEN_WORDS].tobytes())

    def doorbell_path(self) -> str:
        """Path of the sender's doorbell, a FIFO."""
        return f"{SHM_DIRECTORY}/{PREFIX}{self._name}.wakeup.{self._digest('wakeup')}"

    def lock_semaphore(self, number: int) -> str:
        """Name of the semaphore of lock ``number``, as `posix_ipc` takes it."""
        return self._semaphore(f"l{number}")

    def wakeup_semaphore(self, entry: int, number: int) -> str:
        """Name of the semaphore that is the wakeup of process entry ``entry``.

        Args:
            entry: of the process table.
            number: the entry's word `Process.WAKEUP`.
        """
        return self._semaphore(f"p{entry}.{number}" if number else f"p{entry}")

    def _semaphore(self, what: str) -> str:
        return f"/{PREFIX}{self._name}.{what}.{self._digest(what)}"

    def _digest(self, what: str) -> str:
        return hashlib.blake2b(what.encode(), key=self._token, digest_size=8).hexdigest()


def new_token() -> memoryview:
    """Return a random token for a new slab, as 8-byte words."""
    return memoryview(os.urandom(_TOKEN_BYTES)).cast("Q")


def slab_names() -> list[str]:
    """Return the names of all the slabs that have a lock file or a segment, whoever owns them."""
    return sorted({found[1] for entry in os.listdir(SHM_DIRECTORY) if (found := _OF_A_SLAB.fullmatch(entry))})


def leftovers(name: str) -> list[str]:
    """Return the paths of all that there can be of a slab, in the order to remove them in.

    The segment is first, so that whoever dies half-way leaves no segment whose semaphores are gone; the lock file
    is last, for it is what the others wait on. What another user has put beside them is none of the slab's.
    """
    own = PREFIX + name
    others = [
        path
        for entry in os.listdir(SHM_DIRECTORY)
        if entry.startswith((f"{own}.wakeup", f"sem.{own}.l", f"sem.{own}.p"))
        and _can_be_removed(path := f"{SHM_DIRECTORY}/{entry}")
    ]
    return [segment_path(name), *sorted(others), lock_path(name)]


def _can_be_removed(path: str) -> bool:
    """Return whether a file is there, and this user may remove it; directories are never ours."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(status.st_mode) and os.geteuid() in (status.st_uid, 0)
