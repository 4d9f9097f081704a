"""Removes slabs that no program needs, and chooses among those of several shards.

The last process to leave removes its slab, unless it is killed. Then the slab keeps its memory until a process of the
same user calls `sweep`: the next producer or sender of any slab, or ``shmaccum status``. A slab that holds records is
never removed here; the next sender delivers them.

A sender, and so its slab, stays for ``sender.idle.ms`` after its last producer. If /dev/shm then has no space for a new
slab, `attach_reclaiming` asks the senders of idle slabs to leave, by a word in their slab and their doorbell. A slab
with a producer or with undelivered records stays, and the error names it.

Producers with equal settings share one slab, or divide themselves among as many as ``shmaccum.shards`` says. A shard is
a slab like any other, ``NAME@0`` and so on. It has memory, locks, a process table and a sender, and no word of it knows
of the others. A shard whose users have all been killed keeps its records. Later processes can join other shards, so
every process looks after all of them (`tend`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from shmaccum._core import Geometry, Super, undelivered
from shmaccum.abi import shard_of
from shmaccum.errors import ShmaccumError, SlabError, SlabMemoryError
from shmaccum.shm import lifecycle, names, validation
from shmaccum.shm.files import is_of_others
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import attach, differences, look, other_settings
from shmaccum.shm.lockfile import PROCESS, LockFile
from shmaccum.shm.names import PrivateNames
from shmaccum.shm.processes import ProcessTable
from shmaccum.shm.segment import Segment, exceeded_limit
from shmaccum.shm.shared_settings import UserSettings
from shmaccum.shm.slab import Slab
from shmaccum.shm.wakeup import DoorbellButton

logger = logging.getLogger(__name__)

_SEGMENT_AND_LOCK: Final = 2
"""Number of paths that `names.leftovers` returns in any case."""
_FRESH_S: Final = 60.0
"""Up to this age, a lock file alone counts as a slab being created, not as the remains of one."""


def sweep(spare: str | None = None) -> list[str]:
    """Remove this user's empty slabs without living users, but not ``spare``; return their names. It never waits."""
    return [name for name in names.slab_names() if name != spare and _removed(name)]


def _removed(name: str) -> bool:
    """Remove a slab if it is deserted; return whether it was."""
    try:
        status = os.lstat(names.lock_path(name))
        if status.st_uid != os.geteuid():
            return False
        is_new = time.time() - status.st_mtime < _FRESH_S
        if is_new and not os.path.lexists(names.segment_path(name)) and len(names.leftovers(name)) == _SEGMENT_AND_LOCK:
            return False  # a creator has just made the lock file
        # Closing the lock file would drop the locks that another thread has just taken by an attach.
        with lifecycle.attached_slabs() as attached:
            if name in attached:
                return False
            with contextlib.closing(LockFile.open(name, create=False)) as lock_file:
                if lock_file.holder(PROCESS, length=0):
                    return False  # the usual case
                with lock_file.lifecycle(timeout_s=0):
                    deserted = lock_file.is_current() and _is_deserted(name, lock_file)
                    if deserted:
                        lifecycle.unlink(name)
                    return deserted
    except (ShmaccumError, OSError) as error:
        # Damaged, of another version, or being removed: the caller must not fail for it.
        logger.debug("slab %r not removed: %s", name, error)
        return False


def _is_deserted(name: str, lock_file: LockFile) -> bool:
    """Return whether a slab has no living user and no undelivered records; under the lifecycle byte."""
    segment = None
    if not is_of_others(names.segment_path(name)):  # another user's segment is not the slab's
        segment = Segment.open(name)
    if segment is None:
        return not lock_file.holder(PROCESS, length=0)  # its creator died before it had finished
    with contextlib.closing(segment):
        validation.check(name, segment.words, segment.geometry)
        is_used = ProcessTable(segment.words, segment.geometry, lock_file).others_alive()
        return not is_used and undelivered(segment.words, segment.geometry) == (0, 0)


LEAVE_REQUEST_MS: Final = 10_000
"""How long a request to leave is valid: later, the sender can have new producers."""
_LEAVING_S: Final = 3.0
"""How long to wait for the senders to leave; each needs some milliseconds."""
_LOOK_S: Final = 0.05


def attach_reclaiming(name: str, geometry: Geometry, digest: int, mine: UserSettings, *, sender: bool = False) -> Slab:
    """Attach to a slab or create it, as `attach`; if there is no room, first remove unused slabs.

    Raises:
        SlabMemoryError: there is still no room; names the slabs that use it, and why they stay.
        As `attach`.
    """
    try:
        return attach(name, geometry, digest, mine, sender=sender)
    except SlabMemoryError as error:
        if os.path.exists(names.segment_path(name)) or exceeded_limit(geometry):
            raise  # more room would not help
        stay = reclaim(name)
        try:
            return attach(name, geometry, digest, mine, sender=sender)
        except SlabMemoryError:
            if not stay:
                raise
            raise SlabMemoryError(f"{error}. Slabs in use: {'; '.join(stay)}") from error


def reclaim(spare: str) -> list[str]:
    """Remove this user's unneeded slabs but for one, as their senders leave; return those that stay, and why."""
    sweep(spare)
    reasons = {name: _ask_to_leave(name) for name in names.slab_names() if name != spare}
    deadline = time.monotonic() + _LEAVING_S
    while time.monotonic() < deadline:
        asked = [name for name, reason in reasons.items() if not reason and _size(name)]
        if not asked:
            break
        time.sleep(_LOOK_S)
        sweep(spare)  # if a sender has died
        reasons |= {name: _ask_to_leave(name) for name in asked}  # or a producer has attached
    return [
        f"{name} ({size / (1 << 20):.1f} MiB) {reason or 'is kept by its sender, which stays when idle'}"
        for name, reason in reasons.items()
        if (size := _size(name))
    ]


def _size(name: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(names.segment_path(name)).st_size
    return 0


def _ask_to_leave(name: str) -> str:
    """Ask the sender of a slab without producers to leave; return why the slab must stay, or "" if it can go."""
    try:
        if os.stat(names.segment_path(name)).st_uid != os.geteuid():
            return "is another user's"
        with look(name) as view:
            alive = [process for process in view.processes() if process.alive]
            records = view.undelivered()[1]
        if records:
            return f"holds {records} undelivered records"
        users = [process.pid for process in alive if Role.SENDER not in process.roles or Role.PRODUCER in process.roles]
        if users:
            return f"is in use by process {', '.join(map(str, users))}"
        if not alive:
            return ""  # the next sweep removes it
        segment = Segment.open(name)
        if segment is not None:
            with contextlib.closing(segment):
                segment.words[Super.LEAVE_REQUEST] = time.monotonic_ns() // 1_000_000
                with contextlib.closing(DoorbellButton(PrivateNames.of(name, segment.words), segment.words)) as button:
                    button.press()
    except SlabError as error:
        return f"stays: {error}" if _size(name) else ""
    except (ShmaccumError, OSError) as error:
        return f"stays: {error}"
    return ""


# --- shards ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def choose_shard(shards: Sequence[str]) -> Iterator[str]:
    """Yield the shard for this process: the one that it is in, or else the one with the fewest producers.

    Meanwhile no other thread of this process attaches or detaches: a process stays in one shard.
    """
    if len(shards) == 1:
        yield shards[0]
        return
    with lifecycle.attached_slabs() as attached:
        mine = [name for name in shards if name in attached]
        if not mine:
            # Processes that start together count the same producers: each begins with another shard.
            first = os.getpid() % len(shards)
            mine = [min((*shards[first:], *shards[:first]), key=_producers)]
        yield mine[0]


def check_shards(name: str, mine: UserSettings) -> None:
    """Check that all slabs that have a slab's name before the '@' were made with the same settings, and as many shards.

    Raises SlabAbiError: one was not; names it and what differs.
    """
    for other in names.slab_names():
        if other != name and shard_of(other)[0] == shard_of(name)[0]:
            found: list[str] = []
            with contextlib.suppress(SlabError):  # being removed, or of another version
                found = differences(other, mine)
            if found:
                raise other_settings(other, found)


def _producers(name: str) -> int:
    """Return how many living processes produce into a slab; 0 if it does not exist, or cannot be read."""
    try:
        with look(name) as view:
            return view.producers()
    except SlabError:
        return 0  # if it cannot be used either, the attach says why


def tend(name: str, start: Callable[[], None]) -> None:
    """Start a sender for another shard that holds records and that no process uses; one process of the host does."""
    if not os.path.exists(names.segment_path(name)):
        return
    with lifecycle.attached_slabs() as attached:
        if name in attached:
            return  # closing its lock file would drop the locks that this process has in it
        with contextlib.suppress(SlabError):  # not one of these settings, or being created or removed
            with contextlib.closing(LockFile.open(name, create=False)) as lock_file:
                if lock_file.holder(PROCESS, length=0):
                    return  # the usual case
            with look(name) as view:
                if view.undelivered() == (0, 0):
                    return
            with contextlib.closing(LockFile.open(name, create=False)) as lock_file, lock_file.try_start() as mine:
                if mine and not lock_file.holder(PROCESS, length=0):
                    start()
