"""Removes empty slabs whose users have all died.

The last process out removes a slab, unless it is killed, or ends without leaving. Such a slab keeps its memory until
somebody of the same user comes by: the next producer or sender of any slab, or ``shmaccum status``. A slab that holds
records is never removed here: the next sender delivers them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Final

from shmaccum.errors import ShmaccumError
from shmaccum.shm import lifecycle, names, soundness
from shmaccum.shm.inspection import SlabView
from shmaccum.shm.lockfile import PROCESS, LockFile
from shmaccum.shm.ownfile import is_of_others
from shmaccum.shm.processes import ProcessTable
from shmaccum.shm.segment import Segment

logger = logging.getLogger(__name__)

_SEGMENT_AND_LOCK: Final = 2
"""Paths that a slab has in any case."""
_FRESH_S: Final = 60.0
"""How long a lock file alone is taken for the beginning of a slab, and not for the last of one."""


def sweep(spare: str | None = None) -> list[str]:
    """Remove the empty slabs of this user that no living process uses; waits for nobody.

    Args:
        spare: a slab to leave as it is: the caller is about to use it.

    Returns:
        The names of those removed.
    """
    return [name for name in names.slab_names() if name != spare and _removed(name)]


def _removed(name: str) -> bool:
    """Remove a slab if it is deserted; return whether it was."""
    try:
        status = os.lstat(names.lock_path(name))
        if status.st_uid != os.geteuid():
            return False
        is_new = time.time() - status.st_mtime < _FRESH_S
        if is_new and not os.path.lexists(names.segment_path(name)) and len(names.leftovers(name)) == _SEGMENT_AND_LOCK:
            return False  # a creator has only just made the lock file
        # A look closes the lock file, which would drop the locks that another thread has just taken by an attach.
        with lifecycle.attached_slabs() as attached:
            if name in attached:
                return False
            with contextlib.closing(LockFile.open(name, create=False)) as lock_file:
                if lock_file.holder(PROCESS, length=0):
                    return False  # nearly always: what follows is for the rest
                with lock_file.lifecycle(patience_s=0):
                    deserted = lock_file.is_current() and _is_deserted(name, lock_file)
                    if deserted:
                        lifecycle.unlink(name)
                    return deserted
    except (ShmaccumError, OSError) as error:
        # Damaged, of another version, just being removed: no reason for the caller to fail.
        logger.debug("left slab %r as it is: %s", name, error)
        return False


def _is_deserted(name: str, lock_file: LockFile) -> bool:
    """Say whether no living process uses a slab and nothing in it is undelivered; under the lifecycle byte."""
    segment = None
    if not is_of_others(names.segment_path(name)):  # else it is none of the slab's, of which only the rest is there
        segment = Segment.open(name)
    if segment is None:
        return not lock_file.holder(PROCESS, length=0)  # its creator died before it had finished
    try:
        soundness.check(name, segment.words, segment.geometry)
        processes = ProcessTable(segment.words, segment.geometry, lock_file)
        with contextlib.closing(SlabView(name, segment.words, segment.geometry, processes, lock_file)) as view:
            return not processes.others_alive() and view.undelivered() == (0, 0)
    finally:
        segment.close()
