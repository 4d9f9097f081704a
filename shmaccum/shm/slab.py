"""The slab as one process has it: its memory, its place in the process table, the locks and wakeups.

A process has one `Slab` object per slab, shared by all its users in the process, because it can have only one
descriptor of the lock file and one entry of the process table: see `shmaccum.shm.lifecycle` for `attach`.

A forked child is a new process. It keeps the mapping, and takes a table entry of its own when it first takes a
lock; `Slab.on_fork` callbacks let the floors above drop what belongs to the parent.

Modelled in ``tools/model/lock.pml``.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
import posix_ipc

from shmaccum.errors import (
    DeadOwnerError,
    IllegalStateError,
    LockTimeoutError,
    SenderExistsError,
    SlabAbiError,
    SlabDamagedError,
    SlabMemoryError,
)
from shmaccum.shm import native, validation
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.inspection import sender_info, undelivered
from shmaccum.shm.layout import (
    INCARNATION_SHIFT,
    LIMITS_SHIFT,
    LOCK_COUNT,
    LOCK_POOL,
    LOCK_STRIPES,
    LOCK_TABLES,
    OWNER_MASK,
    OWNER_SHIFT,
    PARTITION_WORDS,
    PROCESS_WORDS,
    SLEEP_BITS,
    STRIPES,
    TOPIC_WORDS,
    WORD,
    Process,
    Role,
    Super,
)
from shmaccum.shm.lockfile import SENDER, LockFile
from shmaccum.shm.locks import LEAST_PATIENCE_S, SlabLock
from shmaccum.shm.memory import SlabMemory
from shmaccum.shm.names import SHM_DIRECTORY, PrivateNames
from shmaccum.shm.processes import ProcessTable
from shmaccum.shm.segment import Segment
from shmaccum.shm.semaphores import open_semaphore
from shmaccum.shm.turn import Turn
from shmaccum.shm.wakeup import Doorbell, DoorbellButton, Wakeup, Wakeups

Companion = TypeVar("Companion")

OUT_OF_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, None)
"""Errors that say that memory or descriptors are used up; `posix_ipc` gives its own no number."""

STOPPED_PATIENCE_S: Final = 0.25
"""How long to wait for what a stopped process has in its hands, where that can be done another time."""


class Slab:
    """A slab that this process is attached to. Made by `attach`, given back by `detach`.

    Attributes:
        name: the slab's name.
        private: names of its semaphores and of the doorbell.
        geometry: its layout.
        buffer, words: all of its memory, as bytes and as 8-byte words.
        memory: the same words, for what every record passes through.
        processes: the process table.
        locks: all the locks; `pool_lock`, `tables_lock` and `stripe` give them by meaning.
        wakeup: this process's own wakeup; `wakeups` rings the others', `button` the sender's.
        users: attaches of this process that have not been given back.
        is_left: whether this process has left the slab, and only its own things are still to be let go of.
    """

    def __init__(self, name: str, segment: Segment, lock_file: LockFile, *, sender: bool = False) -> None:
        self.name: Final = name
        self.private: Final = PrivateNames.of(name, segment.words)
        self.geometry: Final = segment.geometry
        self.buffer: Final = segment.buffer
        self.words: Final = segment.words
        self.memory: Final = SlabMemory(segment.words, segment.geometry)
        self.lock_file: Final = lock_file
        self.users = 0
        self.is_left = False
        self._patience_s: float | None = None
        self._roles = Role(0)
        self._limits = (-1, 0)
        self._companions: dict[Callable[[Slab], object], object] = {}
        self._segment = segment
        self._fork_callbacks: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._retire_callbacks: list[Callable[[], None]] = []
        self._array: npt.NDArray[np.uint64] | None = np.frombuffer(
            segment.buffer, np.uint64, segment.geometry.slots // WORD
        )
        self.processes: Final = ProcessTable(segment.words, segment.geometry, lock_file)
        self.locks: Final = [
            SlabLock(number, self._semaphore(number), segment.words, segment.geometry, self.processes, lock_file)
            for number in range(LOCK_COUNT)
        ]
        self.wakeups = Wakeups(self.private, segment.words, segment.geometry)
        self.button = DoorbellButton(self.private, segment.words)
        self._join(sender=sender)

    def _semaphore(self, number: int) -> posix_ipc.Semaphore:
        """Open the semaphore of a lock.

        Raises:
            SlabAbiError: it is gone.
            SlabPermissionError: it is not this user's alone.
        """
        try:
            return open_semaphore(self.private.lock_semaphore(number))
        except FileNotFoundError:
            raise SlabAbiError(
                f"slab {self.name!r} is damaged: its semaphore {number} is gone; `shmaccum destroy {self.name}` "
                "removes the remains"
            ) from None

    # --- identity ---------------------------------------------------------------------------------

    def _join(self, *, sender: bool = False) -> None:
        """Become a process of the slab; the caller holds the lifecycle byte. May go on where an interrupt ended it."""
        entry = self.processes.me if self.processes.me >= 0 else self.processes.take(sender=sender)
        self.words[self.geometry.process(entry) + Process.ROLES] = self._roles
        self._store_limits(entry)
        self.wakeup = Wakeup(self.private, entry, self.words, self.geometry)
        self.button.open()
        self._turn = turn = Turn() if self._patience_s is None else Turn(self._patience_s)
        for lock in self.locks:
            lock.bind(turn)
        incarnation = self.words[self.geometry.process(entry) + Process.INCARNATION] & 0xFFFF
        self.owner_tag = entry << OWNER_SHIFT | incarnation << INCARNATION_SHIFT
        """This process, as the owner in a slot header's state word."""

    @property
    def me(self) -> int:
        """Process table entry of this process; a forked child takes its own now if it has none yet."""
        if self.processes.me < 0:
            self._rejoin()
        return self.processes.me

    def be_patient(self, patience_s: float) -> None:
        """Have this process wait for so long for locks whose holders live; of several such wishes the longest counts.

        It is not less than `LEAST_PATIENCE_S`.
        """
        wanted = max(LEAST_PATIENCE_S, self._patience_s or 0.0, patience_s)
        self._turn.patience_s = self._patience_s = min(wanted, threading.TIMEOUT_MAX)

    def add_role(self, role: Role) -> None:
        """Note in the process table what this process is to the slab."""
        self._roles |= role
        self.words[self.geometry.process(self.me) + Process.ROLES] = self._roles

    def promise(self, delivery_timeout_ms: int, retries: int) -> None:
        """Note in the process table how long and how often this process's records are tried: the most of all calls."""
        timeout_ms, times = self._limits
        self._limits = max(timeout_ms, delivery_timeout_ms), max(times, retries)
        self._store_limits(self.me)

    def _store_limits(self, entry: int) -> None:
        timeout_ms, times = self._limits
        self.words[self.geometry.process(entry) + Process.LIMITS] = times << LIMITS_SHIFT | timeout_ms + 1
        # Behind it: a sender that sees the change sees the limits, and before it there is no batch that has them.
        self.words[Super.LIMITS_CHANGED] = time.monotonic_ns()

    def companion(self, kind: Callable[[Slab], Companion]) -> Companion:
        """Return the one object of a kind that goes with this process's place in the slab, made when first needed."""
        companion = self._companions.get(kind)
        if companion is None:
            companion = self._companions.setdefault(kind, kind(self))
        return cast(Companion, companion)

    def on_fork(self, callback: Callable[[], None]) -> None:
        """Have a bound method called in a forked child, before anything else happens there. Held weakly."""
        self._fork_callbacks = [known for known in self._fork_callbacks if known() is not None]
        self._fork_callbacks.append(weakref.WeakMethod(callback))

    def on_retire(self, callback: Callable[[], None]) -> None:
        """Call back before this process leaves the slab; more than once, if an interrupt cuts that short."""
        self._retire_callbacks.append(callback)

    def forked(self) -> None:
        """Become nobody, in a forked child; the next use of a lock joins as a new process."""
        self.processes.me = -1
        self._roles &= ~Role.SENDER
        self.lock_file.forked()
        self._rejoining = native.Lock()
        for lock in self.locks:
            lock.before_use = self._rejoin
        self.wakeup.forked()
        self.wakeups = Wakeups(self.private, self.words, self.geometry)
        self.button = DoorbellButton(self.private, self.words)
        for reference in self._fork_callbacks:
            callback = reference()
            if callback is not None:
                callback()

    def is_lost(self) -> bool:
        """Return whether this process has no place in the slab any more, nor can take one."""
        try:
            self.lock_file.make_sure()
        except DeadOwnerError:
            return True
        return self.processes.me < 0 and not self.lock_file.is_current()

    def _rejoin(self) -> None:
        with self._rejoining, self.lock_file.lifecycle():
            if self.locks[-1].before_use is None:
                return  # another thread was faster
            if not self.lock_file.is_current():
                raise DeadOwnerError(
                    f"slab {self.name!r} was removed after this process was forked, since nobody else used it; close "
                    "the producer and make a new Producer"
                )
            try:
                self._join()
            except OSError as error:
                if error.errno in OUT_OF_ROOM:
                    raise no_room(self.name, error) from error
                raise

    # --- by meaning -------------------------------------------------------------------------------

    @property
    def pool_lock(self) -> SlabLock:
        """Guards the bitmap, the waiters, and every step of a slot from or to FREE."""
        return self.locks[LOCK_POOL]

    @property
    def tables_lock(self) -> SlabLock:
        """Guards the topic table and the partition table."""
        return self.locks[LOCK_TABLES]

    def stripe(self, partition: int) -> SlabLock:
        """Return the lock that guards the deque of a partition entry."""
        return self.locks[LOCK_STRIPES + partition % STRIPES]

    @property
    def headers(self) -> npt.NDArray[np.uint64]:
        """The slot headers, one row of words a slot."""
        geometry = self.geometry
        start = geometry.headers // WORD
        return self._words_array(start, geometry.slot_count, geometry.slot_words)

    @property
    def process_rows(self) -> npt.NDArray[np.uint64]:
        """The process table, one row of words an entry."""
        return self._words_array(self.geometry.processes // WORD, self.geometry.max_processes, PROCESS_WORDS)

    def topics(self, count: int) -> npt.NDArray[np.uint64]:
        """The first topic entries, one row of words an entry."""
        return self._words_array(self.geometry.topics // WORD, count, TOPIC_WORDS)

    @property
    def partitions(self) -> npt.NDArray[np.uint64]:
        """The partition entries in use, one row of words an entry.

        Raises:
            SlabDamagedError: there are more than the table has.
        """
        return self._words_array(self.geometry.partitions // WORD, self.partition_count, PARTITION_WORDS)

    @property
    def all_partitions(self) -> npt.NDArray[np.uint64]:
        """All partition entries, in use or not, one row of words an entry."""
        return self._words_array(self.geometry.partitions // WORD, self.geometry.max_partitions, PARTITION_WORDS)

    @property
    def partition_count(self) -> int:
        """How many partition entries are in use.

        Raises:
            SlabDamagedError: more than the table has.
        """
        count = self.words[Super.PARTITION_COUNT]
        if count > self.geometry.max_partitions:
            raise self.damaged(f"its partition table has {count} entries in use, of {self.geometry.max_partitions}")
        return count

    def _words_array(self, start: int, rows: int, width: int) -> npt.NDArray[np.uint64]:
        if self._array is None:
            raise IllegalStateError(f"slab {self.name!r} has been detached")
        return self._array[start : start + rows * width].reshape(rows, width)

    def damaged(self, what: str) -> SlabDamagedError:
        """Return the error for something in the slab that cannot be so."""
        return validation.damaged(self.name, what)

    def check(self) -> None:
        """Make sure of all that has to be right before the slab is used.

        Raises:
            SlabDamagedError: a word says what it cannot; says which.
        """
        validation.check(self.name, self.words, self.geometry)

    def explain(self, error: BaseException) -> SlabDamagedError | None:
        """Return what to raise instead of an error that damage led to; None for any other error."""
        return validation.explain(error, self.name, self.words, self.geometry)

    def reporting_damage(self) -> AbstractContextManager[None]:
        """Work with the slab in a block from which damage comes as a SlabDamagedError, whatever it led to."""
        return validation.reporting_damage(self.name, self.words, self.geometry)

    def settle(self) -> None:
        """Let go of a lock that an interrupt, such as a KeyboardInterrupt, kept this thread from leaving.

        The next use of any lock does the same, but there may be none for hours, and everybody else would wait.
        """
        self.pool_lock.settle()

    # --- the sender's role ------------------------------------------------------------------------

    def become_sender(self) -> Doorbell:
        """Take the one sender's role and its doorbell.

        Raises:
            SenderExistsError: another process has it; says which.
        """
        if Role.SENDER in self._roles:
            raise SenderExistsError(f"slab {self.name!r} has a sender already: this very process")
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
        """Give the sender's role back."""
        doorbell.close()
        self._roles &= ~Role.SENDER
        self.words[self.geometry.process(self.me) + Process.ROLES] = self._roles
        self.words[Super.SENDER_ENTRY] = 0
        self.lock_file.unlock(SENDER)

    def has_sender(self) -> bool:
        """Say whether a living process has the sender's role."""
        return Role.SENDER in self._roles or self.lock_file.holder(SENDER) != 0

    def trouble(self) -> str:
        """Return what keeps the sender from sending, as far as is known, to be appended to an error; often empty."""
        halt = sender_info(self.words, self.processes, self.lock_file).halt()
        incident = self.companion(Incidents).current()
        return (f"; the sender, {halt}" if halt else "") + (f"; last error: {incident}" if incident else "")

    # --- what is in it ----------------------------------------------------------------------------

    def owner_is_alive(self, state: int) -> bool:
        """Say whether the owner named in a slot header's state word lives."""
        entry = state >> OWNER_SHIFT & OWNER_MASK
        base = self.geometry.process(entry)
        return (
            entry < self.geometry.max_processes
            and self.words[base + Process.STATE] != 0
            and self.words[base + Process.INCARNATION] & 0xFFFF == state >> INCARNATION_SHIFT
            and self.processes.is_alive(entry)
        )

    def reap_dead(self) -> None:
        """Free the process table entries of the dead, once nothing depends on them any more.

        Nobody is waited for who has stopped over a lock, or over coming or going: what that is in the way of is left
        for the next time.
        """
        not_to_be_had: set[int] = set()
        for entry in list(self.processes.in_use()):
            if self.processes.is_alive(entry):
                continue
            wants = self.words[self.geometry.process(entry) + Process.WANTS]
            if wants in not_to_be_had:
                continue
            try:
                if 0 < wants <= len(self.locks):
                    # Whoever holds that lock now knows that the dead one does not.
                    with self.locks[wants - 1].within(STOPPED_PATIENCE_S):
                        self.locks[wants - 1].forget_dead(entry)
                with self.lock_file.lifecycle(STOPPED_PATIENCE_S):
                    self.processes.free_dead(entry)
            except LockTimeoutError:
                not_to_be_had.add(wants)

    def undelivered(self) -> tuple[int, int]:
        """Return how many batches and records wait to be delivered."""
        return undelivered(self.headers)

    def retire(self) -> None:
        """Keep the other threads of this process from using the slab any more; wait for those that do at the moment."""
        for callback in self._retire_callbacks:
            callback()
        self.settle()
        self.wakeup.close()
        self.pool_lock.end_turns()

    def unmap(self) -> None:
        """Let go of the memory, the semaphores and the wakeups; nobody but the caller uses them any more."""
        self.wakeups.close()
        self.button.close()
        for lock in self.locks:
            lock.close()
        self.memory.close()
        self._array = None
        self._segment.close()


def no_room(name: str, error: OSError) -> SlabMemoryError:
    """Return the error for a process that cannot get what it takes to attach to a slab."""
    room = os.statvfs(SHM_DIRECTORY)
    return SlabMemoryError(
        f"slab {name!r} cannot be attached to: {error}; {room.f_bavail * room.f_frsize} bytes are free in "
        f"{SHM_DIRECTORY}, and a process needs a page of it and some descriptors (ulimit -n)"
    )
