"""Names of everything that a slab has outside its memory. All of it lives in /dev/shm.

A slab ``NAME`` is the segment ``shmaccum-NAME``, its semaphores ``sem.shmaccum-NAME.*``, the lock file
``shmaccum-NAME.lock`` and the sender's doorbell ``shmaccum-NAME.bell``.
"""

from __future__ import annotations

import os
import re
from typing import Final

from shmaccum.errors import SlabError
from shmaccum.slabname import SLAB_NAME_PATTERN, SLAB_NAME_RULE

SHM_DIRECTORY: Final = "/dev/shm"
PREFIX: Final = "shmaccum-"

_LEGAL_NAME = re.compile(SLAB_NAME_PATTERN)


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


def doorbell_path(name: str) -> str:
    """Path of the sender's doorbell, a FIFO."""
    return f"{SHM_DIRECTORY}/{PREFIX}{name}.bell"


def lock_semaphore(name: str, number: int) -> str:
    """Name of the semaphore of lock ``number``, as `posix_ipc` takes it."""
    return f"/{PREFIX}{name}.l{number}"


def bell_semaphore(name: str, entry: int) -> str:
    """Name of the semaphore that is the bell of process entry ``entry``."""
    return f"/{PREFIX}{name}.p{entry}"


def slab_names() -> list[str]:
    """Return the names of all the slabs that have a lock file or a segment, whoever owns them."""
    found = set()
    for entry in os.listdir(SHM_DIRECTORY):
        if entry.startswith(PREFIX):
            name = entry[len(PREFIX) :].removesuffix(".lock").removesuffix(".bell")
            if _LEGAL_NAME.fullmatch(name):
                found.add(name)
    return sorted(found)


def leftovers(name: str) -> list[str]:
    """Return the paths of all that there can be of a slab, in the order to remove them in.

    The segment is first, so that whoever dies half-way leaves no segment whose semaphores are gone; the lock file
    is last, for it is what the others wait on.
    """
    own = PREFIX + name
    others = [
        f"{SHM_DIRECTORY}/{entry}"
        for entry in os.listdir(SHM_DIRECTORY)
        if entry == own + ".bell" or entry.startswith((f"sem.{own}.l", f"sem.{own}.p"))
    ]
    return [segment_path(name), *sorted(others), lock_path(name)]
