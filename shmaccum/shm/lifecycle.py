"""Creates, attaches, detaches, inspects and removes slabs.

All but inspection happens under the lifecycle byte of the lock file, one process at a time. A creator that dies leaves
a segment without READY, and the next process recreates the slab. The last process to leave unlinks everything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from shmaccum._core import Geometry, Super, undelivered
from shmaccum.errors import (
    IllegalStateError,
    LockTimeoutError,
    SlabAbiError,
    SlabError,
    SlabInUseError,
    SlabNotFoundError,
    SlabPermissionError,
)
from shmaccum.shm import names, native, shared_settings, validation
from shmaccum.shm.files import in_the_way, is_of_others, make_semaphore
from shmaccum.shm.lockfile import PROCESS, LockFile
from shmaccum.shm.processes import ProcessTable
from shmaccum.shm.segment import Segment, is_slab
from shmaccum.shm.shared_settings import UserSettings
from shmaccum.shm.slab import Slab, explained

if TYPE_CHECKING:
    from shmaccum.shm.inspection import SlabView

_slabs: dict[str, Slab] = {}
_lost: list[Slab] = []
"""Slabs in which this process has lost its entry (`Slab.is_lost`), as long as they have users here."""
_slabs_lock = native.RLock()
"""Between threads. Reentrant, since an interrupt or a signal's handler can lead the same thread here again."""


def attach(
    name: str,
    geometry: Geometry | None = None,
    digest: int = 0,
    mine: UserSettings | None = None,
    *,
    sender: bool = False,
) -> Slab:
    """Attach this process to a slab, or create it; each attach needs its `detach`.

    Args:
        name: the slab's name.
        geometry: its layout; None only opens an existing slab, whatever its layout and digest.
        digest: of the settings that all of its users must agree on; lower 32 bits: of the secret ones.
        mine: the settings that are not secret; our values of the shared ones replace the slab's for all users.
        sender: whether this process will be the sender, for which one process entry is reserved.

    Raises:
        IllegalStateError: uWSGI will fork this process, and the children would not notice it.
        SlabNotFoundError: there is none, and no geometry to create it with.
        SlabMemoryError: /dev/shm has no room for the slab or for this process's semaphore, or this process has no
            descriptor left.
        SlabPermissionError, SlabAbiError: a file of that name is another user's, is no slab, or has other settings;
            names the difference.
        ConfigError: the settings need more bytes than the slab has for them.
        SlabDamagedError: a word of it is damaged.
        SlabFullError: the process table is full, but for the entry that is reserved for the sender.
    """
    names.check_name(name)
    if native.forks_unseen():
        raise IllegalStateError(
            "uWSGI forks this process without Python's fork hooks, so its workers would all count as one process of "
            "the slab, or wait for ever for the GIL: set py-call-uwsgi-fork-hooks = true and enable-threads = true, "
            "or lazy-apps = true; py-call-osafterfork is not enough"
        )
    slab = None
    is_user = False
    try:
        with _slabs_lock:
            slab = _slabs.get(name)
            if slab is not None and not slab.users:
                _leave_unless_used(slab)  # an interrupt prevented it before
                slab = None
            if slab is not None and slab.is_lost():
                _lost.append(_slabs.pop(name))
                slab = None
            if slab is None:
                slab = _slabs[name] = _attach(name, geometry, digest, mine, sender)
            elif geometry is not None:
                _check_settings(slab, name, geometry, digest, mine)
                if mine is not None:
                    with slab.lock_file.lifecycle():
                        shared_settings.bring(name, slab.words, slab.buffer, slab.geometry, mine)
            slab.users += 1
            is_user = True
        return slab
    except BaseException:
        if slab is not None and is_user:
            detach(slab)
        raise


def detach(slab: Slab, ticket: list[None] | None = None) -> None:
    """Undo one `attach`; the last detach of a process leaves the slab.

    Once it has begun, it finishes despite an interrupt, and raises that afterwards. ``ticket`` holds an item until the
    attach is undone, so that a caller can repeat this after an interrupt.

    Raises LockTimeoutError: a process stopped while attaching or detaching; names it. We have left, but if we were the
    last, the slab's files stay for the next process.
    """
    ticket = [None] if ticket is None else ticket
    try:
        _give_back(slab, ticket)
    except Exception:
        raise
    except BaseException:
        _give_back(slab, ticket)
        raise


def _give_back(slab: Slab, ticket: list[None]) -> None:
    with _slabs_lock:
        if ticket:
            slab.users -= 1  # without a call before the next line: no interrupt comes between them
            del ticket[:]
        _leave_unless_used(slab)


def _leave_unless_used(slab: Slab) -> None:
    """Leave a slab without users in this process; can be repeated after an interrupt."""
    if slab.users or (_slabs.get(slab.name) is not slab and slab not in _lost):
        return
    slab.retire()
    in_the_way: LockTimeoutError | None = None
    if not slab.is_left and not slab.is_lost():
        try:
            _clean_up(slab)
        except LockTimeoutError as error:
            slab.processes.abandon()
            in_the_way = error
    slab.unmap()
    slab.lock_file.close()
    if slab in _lost:
        _lost.remove(slab)
    else:
        del _slabs[slab.name]
    if in_the_way is not None:
        raise in_the_way


def _clean_up(slab: Slab) -> None:
    """Leave the process table; the last one out removes everything."""
    with slab.lock_file.lifecycle():
        if slab.processes.me >= 0:
            slab.processes.leave()
            slab.button.press()  # if this was the last producer, the sender's idle time starts
        slab.button.close()  # frees a descriptor, which the removal needs
        last = not slab.processes.others_alive() and slab.undelivered() == (0, 0)
        if last and slab.lock_file.is_current():  # else it has been removed, and another slab can have the name
            unlink(slab.name)
        slab.is_left = True


@contextlib.contextmanager
def attached_slabs() -> Iterator[Collection[str]]:
    """Yield the names of the slabs that this process is attached to; meanwhile no other thread attaches or detaches."""
    with _slabs_lock:
        yield _slabs.keys()


@contextlib.contextmanager
def look(name: str) -> Iterator[SlabView]:
    """Inspect a slab without becoming a user: no process entry, no lock, no write. Root can inspect every user's.

    Keep the block short: meanwhile no other thread of this process can attach or detach. If one could, closing our
    descriptor of the lock file would drop the record locks that it has just taken.

    Raises:
        SlabNotFoundError: there is none of that name.
        SlabPermissionError, SlabAbiError: the files of that name cannot be read; says why.
    """
    from shmaccum.shm.inspection import SlabView

    names.check_name(name)
    with _slabs_lock, contextlib.ExitStack() as cleanup:
        slab = _slabs.get(name)
        if slab is not None:
            view = SlabView(name, slab.words, slab.geometry, slab.processes, slab.lock_file)
        else:
            segment = None
            with contextlib.suppress(SlabNotFoundError):
                lock_file = LockFile.open(name, create=False, look=True)
                cleanup.callback(lock_file.close)
                segment = Segment.open(name, look=True)
            if segment is None:
                raise _not_there(name)
            cleanup.callback(segment.close)
            processes = ProcessTable(segment.words, segment.geometry, lock_file)
            view = SlabView(name, segment.words, segment.geometry, processes, lock_file)
        cleanup.callback(view.close)
        yield view


def destroy(name: str, *, force: bool = False) -> int:
    """Remove a slab without living users; return how many records were lost, 0 if that is unknown.

    ``force`` removes it even if it holds undelivered records. Root can remove every user's.

    Raises:
        SlabNotFoundError: there is nothing of that name.
        SlabInUseError: living processes use it, or it holds records and ``force`` is not given. A slab that cannot be
            read counts as one with records.
        SlabPermissionError: another user's file has the name of its segment or lock file. If the lock file is ours,
            the slab's other files are removed nevertheless.
    """
    names.check_name(name)
    segment_path = names.segment_path(name)
    with _slabs_lock:
        if name in _slabs:
            raise SlabInUseError(f"slab {name!r} is in use by this process itself")
        with _coming_or_going(name, create=os.path.lexists(segment_path), look=True) as lock_file:
            pids, records = _users(name, lock_file, force=force)
            if pids:
                raise SlabInUseError(f"slab {name!r} is in use by process {', '.join(map(str, pids))}; end it first")
            if records and not force:
                raise SlabInUseError(
                    f"slab {name!r} holds {records} undelivered records; start a producer or `shmaccum sender` with "
                    "its settings to deliver them, or use --force to lose them"
                )
            unlink(name)
            lock_file.close()
        if is_of_others(segment_path):
            raise in_the_way(segment_path)
    return records


@contextlib.contextmanager
def _coming_or_going(name: str, *, create: bool, look: bool = False) -> Iterator[LockFile]:
    """Open a slab's current lock file and hold its lifecycle byte.

    The file stays open unless an error occurs; then it is closed, and removed if this made it.
    """
    while True:
        is_new = create and not os.path.lexists(names.lock_path(name))
        lock_file = LockFile.open(name, create=create, look=look)
        try:
            with lock_file.lifecycle():
                if lock_file.is_current():
                    try:
                        yield lock_file
                    except BaseException:
                        if is_new and not lock_file.holder(PROCESS, length=0):
                            _remove(names.lock_path(name))
                        raise
                    return
        except BaseException:
            lock_file.close()
            raise
        lock_file.close()  # the last user removed it meanwhile: begin again


def _not_there(name: str) -> SlabError:
    """Return the error for a slab that is missing or incomplete."""
    for path in names.segment_path(name), names.lock_path(name):
        if is_of_others(path):
            return in_the_way(path)
    if not any(map(os.path.exists, names.leftovers(name))):
        return SlabNotFoundError(f"there is no slab {name!r}")
    return SlabAbiError(
        f"slab {name!r} is incomplete: a process is creating or removing it, or died doing so; the next producer "
        f"recreates it, `shmaccum destroy {name}` removes it"
    )


def _users(name: str, lock_file: LockFile, *, force: bool) -> tuple[list[int], int]:
    """Return the pids of a slab's living users, and how many records it holds.

    Raises SlabInUseError: it has no users, its records cannot be counted, and ``force`` is not given.
    """
    try:
        segment = Segment.open(name, look=True)
    except (SlabAbiError, SlabPermissionError) as error:
        if isinstance(error, SlabPermissionError) and not is_of_others(names.segment_path(name)):
            raise
        pids = _holders(lock_file)
        if not pids and not force and isinstance(error, SlabAbiError) and is_slab(name):
            raise SlabInUseError(
                f"slab {name!r} can hold undelivered records, but cannot be read: {error}; use --force to lose them"
            ) from error
        return pids, 0
    if segment is None:  # it is unfinished, or was removed from outside
        return _holders(lock_file), 0
    with contextlib.closing(segment):
        processes = ProcessTable(segment.words, segment.geometry, lock_file)
        pids = [info.pid for info in map(processes.info, processes.in_use()) if info.alive]
        return pids, undelivered(segment.words, segment.geometry)[1]


def _holders(lock_file: LockFile) -> list[int]:
    """Return a living user of a slab whose process table cannot be read: those of every version lock their bytes."""
    pid = lock_file.holder(PROCESS, length=0)
    return [pid] if pid else []


def _attach(name: str, geometry: Geometry | None, digest: int, mine: UserSettings | None, sender: bool) -> Slab:
    made: list[Slab] = []
    try:
        with _coming_or_going(name, create=geometry is not None) as lock_file:
            made.append(_attach_locked(name, geometry, digest, mine, sender, lock_file))
        return made[0]
    except BaseException as error:
        for slab in made:
            slab.processes.disown()
            slab.unmap()
        if isinstance(error, OSError) and (refusal := explained(name, error)):
            raise refusal from error
        raise


def _attach_locked(
    name: str, geometry: Geometry | None, digest: int, mine: UserSettings | None, sender: bool, lock_file: LockFile
) -> Slab:
    segment = Segment.open(name)
    if segment is not None:
        try:
            if geometry is not None:
                _check_settings(segment, name, geometry, digest, mine)
            validation.check(name, segment.words, segment.geometry)
            if mine is not None:
                shared_settings.bring(name, segment.words, segment.buffer, segment.geometry, mine)
            return Slab(name, segment, lock_file, sender=sender)
        except BaseException:
            ProcessTable(segment.words, segment.geometry, lock_file).disown()
            segment.close()
            raise
    if geometry is None:
        raise SlabNotFoundError(f"there is no slab {name!r}")
    user = lock_file.holder(PROCESS, length=0)
    if user:
        # While a creator works there are no other users, so a death of it leaves none.
        raise validation.damaged(name, f"process {user} uses it, but its superblock says that it is unfinished")
    unlink(name, keep_lock_file=True)
    try:
        segment = Segment.create(name, geometry, digest)
        if mine is not None:
            shared_settings.bring(name, segment.words, segment.buffer, geometry, mine)
        private = names.PrivateNames.of(name, segment.words)
        try:
            make_semaphore(private.pool_semaphore(), 1).close()
            os.mkfifo(private.doorbell_path(), 0o600)
        except FileExistsError as error:
            raise in_the_way(error.filename) from None
        free = (1 << geometry.slot_count) - 1  # all slots are free
        start, size = geometry.bitmap, geometry.bitmap_size
        segment.buffer[start : start + size] = free.to_bytes(size, "little")
        segment.words[Super.FREE_SLOTS] = geometry.slot_count
        slab = Slab(name, segment, lock_file, sender=sender)
    except BaseException:
        if segment is not None:
            segment.close()
        unlink(name)
        raise
    segment.words[Super.READY] = 1
    return slab


def _check_settings(slab: Segment | Slab, name: str, wanted: Geometry, digest: int, mine: UserSettings | None) -> None:
    """Check that a user's settings are those of the slab."""
    there = slab.geometry
    difference = slab.words[Super.DIGEST] ^ digest
    known = shared_settings.read(slab.words, slab.buffer, there)
    found = [] if mine is None else shared_settings.differences(known, mine)
    if found or wanted != there or difference >> 32:
        raise other_settings(name, found or [f"it has {there.slot_count} slots of {there.slot_size} bytes"])
    if difference:
        raise SlabAbiError(
            f"slab {name!r} is in use with other passwords or keys; if they were changed, end the programs with the "
            "old ones, or choose another shmaccum.name for the new ones; if not, they are wrong here"
        )


def differences(name: str, mine: UserSettings) -> list[str]:
    """Return the fixed settings that differ between a user and a slab, with both values; raise as `look`."""
    with look(name) as view:
        there = shared_settings.read(view.words, view.words.cast("B"), view.geometry)
        return shared_settings.differences(there, mine)


def other_settings(name: str, differences: Sequence[str]) -> SlabAbiError:
    """Return the error for a program whose settings are not those of a slab of its name."""
    return SlabAbiError(
        f"slab {name!r} is in use with other settings: {'; '.join(differences)}. Programs that share a slab need equal "
        "settings: end the programs with the other values, and try again once their sender is gone, sender.idle.ms "
        "later; or choose another shmaccum.name here"
    )


def unlink(name: str, *, keep_lock_file: bool = False) -> None:
    """Remove all files of a slab that are not another user's."""
    paths = names.leftovers(name)
    for path in paths[:-1] if keep_lock_file else paths:
        _remove(path)


def _remove(path: str) -> None:
    # The directory's sticky bit protects other users' files, whatever their names.
    with contextlib.suppress(FileNotFoundError, PermissionError, IsADirectoryError):
        os.unlink(path)


def _after_fork_in_child() -> None:
    """Reset all slabs, again if a signal's handler raises meanwhile: Python ignores what a fork hook raises."""
    try:
        _reset()
    except BaseException:
        _reset()
        raise


def _reset() -> None:
    global _slabs_lock
    _slabs_lock = native.RLock()
    for slab in (*_slabs.values(), *_lost):
        slab.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
