"""A process's handle of a slab: memory, process entry, locks and wake-ups.

All users of a slab in a process share one `Slab` object, since the process can have only one descriptor of the lock
file and one process entry. `shmaccum.shm.lifecycle.attach` makes it.

A forked child is a new process. It keeps the mapping, and takes its own process entry when it first uses a lock. By
`Slab.on_fork` callbacks, the layers above drop their parent's state.

Modelled in ``tools/model/lock.pml``.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from shmaccum import _core
from shmaccum._core import SLEEP_BITS, UNFINISHED, WORD, Partition, Process, Super
from shmaccum.errors import (
    DeadOwnerError,
    IllegalStateError,
    LockTimeoutError,
    SenderExistsError,
    SlabAbiError,
    SlabDamagedError,
    SlabError,
    SlabMemoryError,
    SlabPermissionError,
)
from shmaccum.later import np
from shmaccum.shm import native, validation
from shmaccum.shm.files import open_semaphore
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.layout import Role, owner_of
from shmaccum.shm.lockfile import SENDER, LockFile
from shmaccum.shm.locks import DEFAULT_TIMEOUT_S, MIN_TIMEOUT_S, SlabLock
from shmaccum.shm.names import SHM_DIRECTORY, PrivateNames
from shmaccum.shm.processes import ProcessTable
from shmaccum.shm.segment import Segment
from shmaccum.shm.wakeup import Doorbell, DoorbellButton, Wakeup, Wakeups

if TYPE_CHECKING:
    import numpy.typing as npt

Companion = TypeVar("Companion")
Part = TypeVar("Part")


class Forkable(Protocol):
    """What has state that a forked child must not take over."""

    def forked(self) -> None:
        """Reset it, in the child."""


_FORBIDDEN: Final = (errno.EPERM, errno.EACCES, errno.ENOSYS)
_OUT_OF_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, None)
"""Error numbers for no memory or descriptor left; errors of `posix_ipc` have None."""

_FILES: Final = 8
"""At least as many as a process makes to create a slab or attach to it; a failed attach has removed its own."""

STOPPED_TIMEOUT_S: Final = 0.25
"""How long to wait for a lock if the work can be deferred: enough to take it over if its holder has died."""


class Slab:
    """A slab that this process is attached to; made by `attach`, released by `detach`.

    Attributes:
        private: names of its semaphores and of the doorbell.
        buffer, words: all of its memory, as bytes and as 8-byte words.
        locks: all the locks; `stripe` returns that of a partition.
        wakeup: waits for this process's wake-ups; `wakeups` wakes other processes, `button` the sender.
        users: attaches of this process without their detach.
        is_left: whether this process has left the slab, and has only its own resources to release.
    """

    def __init__(self, name: str, segment: Segment, lock_file: LockFile, *, sender: bool = False) -> None:
        self.name: Final = name
        self.private: Final = PrivateNames.of(name, segment.words)
        self.geometry: Final = segment.geometry
        self.buffer: Final = segment.buffer
        self.words: Final = segment.words
        self.damaged: Final = partial(validation.damaged, name)
        """Returns the error for damage to the slab, given in words."""
        self.check: Final = partial(validation.check, name, segment.words, segment.geometry)
        """Validates all words that must be right before the slab is used."""
        self.reporting_damage: Final = partial(validation.reporting_damage, name, segment.words, segment.geometry)
        """Returns a context that raises a SlabDamagedError for any error that damage caused."""
        self.lock_file: Final = lock_file
        self.users = 0
        self.is_left = False
        self.lock_timeout_s = DEFAULT_TIMEOUT_S
        self._longest_timeout_s = 0.0
        self._is_joined = self._is_retired = False
        self._roles = Role(0)
        self._shortest_ms = -1
        self._companions: dict[Callable[[Slab], object], object] = {}
        self._segment = segment
        self._forkable: list[weakref.ref[Forkable]] = []
        self._join_callbacks: list[Callable[[], None]] = []
        self._retire_callbacks: list[Callable[[], None]] = []
        self._array: npt.NDArray[np.uint64] | None = None
        """The words before the slots' memory, once they are asked for."""
        self.processes: Final = ProcessTable(segment.words, segment.geometry, lock_file)
        cores = self._core_locks()
        self._pool: _core.BufferPool | None = _core.BufferPool(self.core, cores[_core.LOCK_POOL], self.damaged)
        self._deques: _core.PartitionDeques | None = _core.PartitionDeques(self.core, self.damaged)
        self._tables: _core.Tables | None = _core.Tables(self.core, self.damaged)
        self.locks: Final = [SlabLock(number, core, self) for number, core in enumerate(cores)]
        self.pool_lock: Final = self.locks[_core.LOCK_POOL]
        """Guards the bitmap, the waiters, and every step of a slot from or to FREE."""
        self.tables_lock: Final = self.locks[_core.LOCK_TABLES]
        """Guards the topic table, the partition table and the lanes."""
        self.wakeups = Wakeups(self.private, segment.words, segment.geometry)
        self.button = DoorbellButton(self.private, segment.words)
        self.incidents: Final = Incidents(self)
        self._join(sender=sender)

    def _core_locks(self) -> list[_core.SlabLock]:
        """Return the locks; the pool's has a semaphore besides.

        Raises:
            SlabAbiError: the semaphore does not exist.
            SlabPermissionError: it does not belong to this user alone.
        """
        name = self.private.pool_semaphore()
        try:
            with closing(open_semaphore(name)):  # checks whose it is, and keeps it until the core has it
                gates = {_core.LOCK_POOL: name}
                return [_core.SlabLock(self.core, number, gates.get(number)) for number in range(_core.LOCK_COUNT)]
        except FileNotFoundError:
            raise SlabAbiError(
                f"slab {self.name!r} is damaged: its semaphore does not exist; `shmaccum destroy {self.name}` removes "
                "the rest"
            ) from None

    # --- identity ---------------------------------------------------------------------------------

    def _join(self, *, sender: bool = False) -> None:
        """Take a process entry; the caller holds the lifecycle byte. Can resume after an interrupt."""
        entry = self.processes.me if self.processes.me >= 0 else self.processes.take(sender=sender)
        self.words[self.geometry.process(entry) + Process.ROLES] = self._roles
        self._store_timeout(entry)
        self.wakeup = Wakeup(self.private, entry, self.words, self.geometry)
        self.button.open()
        for callback in self._join_callbacks:
            callback()
        # Last: from here on the core appends, in every thread, under the entry that the callbacks have taken over.
        self.core.join(entry, self.processes.incarnation)
        self._is_joined = True
        incarnation = self.processes.incarnation & 0xFFFF
        self.owner_tag = entry << _core.OWNER_SHIFT | incarnation << _core.INCARNATION_SHIFT
        """This process as the owner in a slot header's state word."""

    @property
    def me(self) -> int:
        """This process's entry in the process table; a forked child without one takes it now."""
        if self.processes.me < 0:
            self.rejoin()
        return self.processes.me

    def set_lock_timeout(self, timeout_s: float) -> None:
        """Set how long to wait for a lock with a living holder: the longest of all calls, at least `MIN_TIMEOUT_S`."""
        self._longest_timeout_s = max(MIN_TIMEOUT_S, self._longest_timeout_s, timeout_s)
        self.lock_timeout_s = min(self._longest_timeout_s, threading.TIMEOUT_MAX)

    def add_role(self, role: Role) -> None:
        """Add a role of this process in the process table."""
        self._roles |= role
        self.words[self.geometry.process(self.me) + Process.ROLES] = self._roles

    def note_timeout(self, delivery_timeout_ms: int) -> None:
        """Publish the smallest ``delivery.timeout.ms`` of this process's producers: the sender looks that often."""
        if self._shortest_ms < 0 or delivery_timeout_ms < self._shortest_ms:
            self._shortest_ms = delivery_timeout_ms
        self._store_timeout(self.me)

    def _store_timeout(self, entry: int) -> None:
        self.words[self.geometry.process(entry) + Process.SHORTEST_TIMEOUT] = self._shortest_ms + 1
        # Stored last: a sender that sees the change sees the timeout. Batches with it come only after this.
        self.words[Super.TIMEOUTS_CHANGED] = time.monotonic_ns()

    def companion(self, kind: Callable[[Slab], Companion]) -> Companion:
        """Return this process's one object of a kind for the slab, made when first needed."""
        companion = self._companions.get(kind)
        if companion is None:
            companion = self._companions.setdefault(kind, kind(self))
        return cast(Companion, companion)

    def on_fork(self, forkable: Forkable) -> None:
        """Call an object's `forked` in a forked child, before anything else runs there. Held weakly."""
        # Each of these is one step: producers of several threads can share a slab.
        self._forkable.append(weakref.ref(forkable, self._forkable.remove))

    def on_join(self, callback: Callable[[], None]) -> None:
        """Call back when a forked child has its entry, before it can append; again if an interrupt ended the call."""
        self._join_callbacks.append(callback)

    def on_retire(self, callback: Callable[[], None]) -> None:
        """Call back before this process leaves the slab; again if an interrupt ended the call."""
        self._retire_callbacks.append(callback)

    def forked(self) -> None:
        """Reset in a forked child; its next use of a lock joins as a new process."""
        self.processes.me = -1
        self._roles &= ~Role.SENDER
        self.lock_file.forked()
        self._rejoining = native.Lock()
        self._is_joined = False
        self.wakeup.forked()
        self.wakeups = Wakeups(self.private, self.words, self.geometry)
        self.button = DoorbellButton(self.private, self.words)
        for reference in list(self._forkable):
            forkable = reference()
            if forkable is not None:
                forkable.forked()

    def is_lost(self) -> bool:
        """Return whether this process has lost its entry in the slab, or the slab its files, and can get no other."""
        try:
            self.lock_file.make_sure()
        except DeadOwnerError:
            return True
        return not self.lock_file.is_current() and (self.processes.me < 0 or not self.has_sender())

    def _has_joined(self) -> bool:
        return self._is_joined

    def rejoin(self) -> None:
        """Take a process entry in a forked child, unless it has one.

        Raises:
            IllegalStateError: this process has left the slab.
            DeadOwnerError: the slab was removed.
            SlabMemoryError, SlabPermissionError: as `explained`.
        """
        if self._is_retired:
            raise IllegalStateError(f"slab {self.name!r} has been detached")
        if self._has_joined():
            return
        with self._rejoining, self.lock_file.lifecycle():
            if self._has_joined():
                return  # another thread was faster
            if not self.lock_file.is_current():
                raise DeadOwnerError(
                    f"slab {self.name!r} was removed after this process was forked, since no other process used it; "
                    "close the producer and make a new Producer"
                )
            try:
                self._join()
            except OSError as error:
                if refusal := explained(self.name, error):
                    raise refusal from error
                raise

    # --- locks and tables -------------------------------------------------------------------------

    @property
    def core(self) -> _core.Segment:
        """The mapping, for sections."""
        return self._attached(self._segment.core)

    def _attached(self, part: Part | None) -> Part:
        """Return a part of the slab, which `unmap` takes away. Raises IllegalStateError: the slab has been detached."""
        if part is None:
            raise IllegalStateError(f"slab {self.name!r} has been detached")
        return part

    @property
    def pool(self) -> _core.BufferPool:
        """The sections of the pool; `shmaccum.accumulator.buffer_pool` waits for its lock and for memory."""
        return self._attached(self._pool)

    @property
    def deques(self) -> _core.PartitionDeques:
        """The sections of the partitions' deques."""
        return self._attached(self._deques)

    @property
    def tables(self) -> _core.Tables:
        """The sections of the topics, partitions and lanes."""
        return self._attached(self._tables)

    def stripe(self, partition: int) -> SlabLock:
        """Return the lock that guards the deque of a partition entry."""
        return self.locks[_core.LOCK_STRIPES + partition % _core.STRIPES]

    def rebuild(self, number: int) -> tuple[int, ...]:
        """Rebuild what a lock guards, from what is true without it: a section of that lock."""
        if number == _core.LOCK_POOL:
            return self.pool.rebuild()
        if number == _core.LOCK_TABLES:
            return self.tables.rebuild()
        return self.deques.rebuild(number - _core.LOCK_STRIPES)

    @property
    def headers(self) -> npt.NDArray[np.uint64]:
        """The slot headers, one row of words for each slot."""
        return self._words_array(self.geometry.headers, self.geometry.slot_count, self.geometry.slot_words)

    @property
    def partitions(self) -> npt.NDArray[np.uint64]:
        """The partition entries in use, one row of words for each. Raises SlabDamagedError: as `partition_count`."""
        return self._words_array(self.geometry.partitions, self.partition_count, Partition.length)

    @property
    def partition_count(self) -> int:
        """How many partition entries are in use. Raises SlabDamagedError: the word exceeds the table's size."""
        count = self.words[Super.PARTITION_COUNT]
        validation.check_counts(self.name, self.geometry, 0, count)
        return count

    def _words_array(self, at: int, rows: int, width: int) -> npt.NDArray[np.uint64]:
        self._attached(self._pool)
        if self._array is None:
            self._array = np.frombuffer(self.buffer, np.uint64, self.geometry.slots // WORD)
        return self._array[at // WORD : at // WORD + rows * width].reshape(rows, width)

    def explain(self, error: BaseException) -> SlabDamagedError | None:
        """Return the error to raise for one that damage caused; None for any other error."""
        return validation.explain(error, self.name, self.words, self.geometry)

    # --- the sender's role ------------------------------------------------------------------------

    def become_sender(self) -> Doorbell:
        """Take the sender's role; return its doorbell. Raises SenderExistsError: another process has it."""
        if Role.SENDER in self._roles:
            raise SenderExistsError(f"slab {self.name!r} has a sender already: this process itself")
        if not self.lock_file.try_lock(SENDER):
            raise SenderExistsError(
                f"slab {self.name!r} has a sender already: process {self.lock_file.holder(SENDER)}; one is enough"
            )
        self.add_role(Role.SENDER)
        self.words[Super.SENDER_RAN] = time.monotonic_ns() // 1_000_000 << SLEEP_BITS
        self.words[Super.SENDER_ENTRY] = self.me + 1
        self.words[Super.SENDER_STARTS] += 1
        return Doorbell(self.private, self.words)

    def resign_as_sender(self, doorbell: Doorbell) -> None:
        """Give up the sender's role."""
        doorbell.close()
        self._roles &= ~Role.SENDER
        self.words[self.geometry.process(self.me) + Process.ROLES] = self._roles
        self.words[Super.SENDER_ENTRY] = 0
        self.lock_file.unlock(SENDER)

    def has_sender(self) -> bool:
        """Return whether a living process has the sender's role."""
        return Role.SENDER in self._roles or self.lock_file.holder(SENDER) != 0

    def trouble(self) -> str:
        """Return the known causes that keep the sender from sending, as an error's suffix; often empty."""
        from shmaccum.shm.broker_table import brokers
        from shmaccum.shm.inspection import sender_info

        halt = sender_info(self.words, self.processes, self.lock_file).halt()
        causes = [f"the sender, {halt}"] if halt else []
        if not halt:  # else the answers are there, and nothing reads them
            causes += filter(None, (broker.silence() for broker in brokers(self.words, self.geometry)))
        incident = self.incidents.current()
        causes += [f"last error: {incident}"] if incident else []
        return "".join(f"; {cause}" for cause in causes)

    # --- contents and leaving ---------------------------------------------------------------------

    def owner_is_alive(self, state: int) -> bool:
        """Return whether the owner named in a slot header's state word lives."""
        entry = owner_of(state)
        if entry >= self.geometry.max_processes:
            return False
        base = self.geometry.process(entry)
        return (
            self.words[base + Process.STATE] != 0
            and self.words[base + Process.INCARNATION] & 0xFFFF == state >> _core.INCARNATION_SHIFT
            and self.processes.is_alive(entry)
        )

    def reap_dead(self) -> None:
        """Free the process entries of the dead that nothing depends on any longer.

        Entries that a stopped process blocks, by a lock or the lifecycle byte, are left for the next call.
        What a dead process left in the middle of a change is rebuilt: no index leads to records that are not yet in
        their deque, and perhaps no other process will ever need that lock.
        """
        unavailable: set[int] = set()
        for lock in self.locks:
            if lock.core.owner == UNFINISHED:
                with suppress(LockTimeoutError):
                    lock.run(partial(self.rebuild, lock.number), STOPPED_TIMEOUT_S)
        for entry in list(self.processes.in_use()):
            if self.processes.is_alive(entry):
                continue
            locks = self.processes.held_by(entry)
            if not unavailable.isdisjoint(locks):
                continue
            try:
                for number in locks:
                    self.locks[number].run(partial(self.rebuild, number), STOPPED_TIMEOUT_S)
                with self.lock_file.lifecycle(STOPPED_TIMEOUT_S):
                    self.processes.free_dead(entry)
            except LockTimeoutError:
                unavailable.update(locks)

    def undelivered(self) -> tuple[int, int]:
        """Return how many batches and records are not delivered yet."""
        return _core.undelivered(self.words, self.geometry)

    def retire(self) -> None:
        """Stop this process's other threads from using the slab."""
        for callback in self._retire_callbacks:
            callback()
        self.wakeup.close()
        self._is_retired = True
        if self._segment.core is not None:
            self._segment.core.leave()

    def unmap(self) -> None:
        """Release memory, semaphores and wake-ups; only the caller still uses them."""
        self.wakeups.close()
        self.button.close()
        for lock in self.locks:
            lock.close()
        self._pool = self._deques = self._tables = None
        self._array = None
        self._segment.close()


def explained(name: str, error: OSError) -> SlabError | None:
    """Return the error for a process whose attach the kernel refuses, for lack of room or of a right; else None."""
    if error.errno in _FORBIDDEN:  # /dev/shm's mode is none of its reasons: the lock file is there by now
        return SlabPermissionError(
            f"cannot attach to slab {name!r}: {error}; a seccomp filter or a security module (AppArmor, SELinux) "
            f"forbids this: it must allow mknodat and linkat, and all use of files in {SHM_DIRECTORY}"
        )
    if error.errno not in _OUT_OF_ROOM:
        return None
    room = os.statvfs(SHM_DIRECTORY)
    if error.errno == errno.ENOSPC and room.f_files and room.f_favail < _FILES:
        return SlabMemoryError(
            f"cannot attach to slab {name!r}: {error}; {SHM_DIRECTORY} has {room.f_favail} inodes free of "
            f"{room.f_files}: remove files, or mount -o remount,nr_inodes=... {SHM_DIRECTORY}"
        )
    return SlabMemoryError(
        f"cannot attach to slab {name!r}: {error}; {room.f_bavail * room.f_frsize} bytes are free in "
        f"{SHM_DIRECTORY}, and a process needs a page of it and some descriptors (ulimit -n)"
    )
