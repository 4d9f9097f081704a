"""Room for a new slab in /dev/shm: slabs of this user that no program needs any more make way at once.

A sender stays for ``sender.idle.ms`` after its last producer, and its slab with it. That is good for the next producer
with the same settings, and bad for one with other settings where /dev/shm has no room for both. So a process that finds
no room asks the senders of idle slabs to leave: a word in their slab, and their doorbell. A slab that has a producer,
or records to deliver, stays, and the error names it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Final

from shmaccum.errors import ShmaccumError, SlabError, SlabMemoryError
from shmaccum.shm import names
from shmaccum.shm.bell import DoorbellRope
from shmaccum.shm.layout import Geometry, Role, Super
from shmaccum.shm.lifecycle import attach, look
from shmaccum.shm.names import PrivateNames
from shmaccum.shm.segment import Segment
from shmaccum.shm.settings import UserSettings
from shmaccum.shm.slab import Slab
from shmaccum.shm.sweep import sweep

ROOM_WANTED_MS: Final = 10_000
"""For how long a sender follows a request to leave: later it may be there for other producers."""
_LEAVING_S: Final = 3.0
"""How long to wait for the senders that were asked; each needs some milliseconds."""
_LOOK_S: Final = 0.05


def attach_making_room(name: str, geometry: Geometry, digest: int, mine: UserSettings, *, sender: bool = False) -> Slab:
    """Attach to a slab or make it, as `attach`; where there is no room for it, have unused slabs removed first.

    Raises:
        SlabMemoryError: there is no room even so; says which slabs take it, and why they stay.
        As `attach`.
    """
    try:
        return attach(name, geometry, digest, mine, sender=sender)
    except SlabMemoryError as error:
        if os.path.exists(names.segment_path(name)):
            raise  # the slab is there: room is not what is missing
        stay = make_room(name)
        try:
            return attach(name, geometry, digest, mine, sender=sender)
        except SlabMemoryError:
            if not stay:
                raise
            raise SlabMemoryError(f"{error}. These slabs are there: {'; '.join(stay)}") from error


def make_room(spare: str) -> list[str]:
    """Have the slabs of this user removed that no program needs, but for one; wait for their senders to leave.

    Returns:
        The slabs that stay, each with its size and the reason.
    """
    sweep(spare)
    reasons = {name: _ask_to_leave(name) for name in names.slab_names() if name != spare}
    deadline = time.monotonic() + _LEAVING_S
    while time.monotonic() < deadline:
        asked = [name for name, reason in reasons.items() if not reason and _size(name)]
        if not asked:
            break
        time.sleep(_LOOK_S)
        sweep(spare)  # a sender may have died
        reasons |= {name: _ask_to_leave(name) for name in asked}  # or a producer come
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
    """Ask the sender of a slab that no producer uses to leave; return why the slab has to stay, or nothing."""
    try:
        with look(name) as view:
            alive = [process for process in view.processes() if process.alive]
            records = view.undelivered()[1]
        if records:
            return f"holds {records} records that are not delivered"
        users = [process.pid for process in alive if Role.SENDER not in process.roles or Role.PRODUCER in process.roles]
        if users:
            return f"is in use by process {', '.join(map(str, users))}"
        if not alive:
            return ""  # for the next sweep
        with _words_of(name) as words:
            words[Super.ROOM_WANTED] = time.monotonic_ns() // 1_000_000
            rope = DoorbellRope(PrivateNames.of(name, words), words)
            rope.pull()
            rope.close()
    except SlabError as error:
        return f"stays: {error}" if _size(name) else ""
    except (ShmaccumError, OSError) as error:
        return f"stays: {error}"
    return ""


@contextlib.contextmanager
def _words_of(name: str) -> Iterator[memoryview]:
    """Yield the words of a slab that this process is no user of."""
    segment = Segment.open(name)
    if segment is None:
        yield memoryview(bytearray((Super.ROOM_WANTED + 1) * 8)).cast("Q")  # gone since
        return
    try:
        yield segment.words
    finally:
        segment.close()
