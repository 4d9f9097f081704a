"""The process table: the slab's processes, and which of them live.

A process owns an entry by holding byte ``PROCESS + entry`` of the lock file. That byte shows that it lives; the entry's
words only describe it. Entries are taken and freed under the lifecycle byte. A death leaves the entry in use, until
another process has cleaned up after it and frees it.

One entry is reserved for the sender: while no sender lives, no other process takes the last one. So a dead sender finds
a successor however many producers attach.

Modelled in ``tools/model/lock.pml``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from itertools import compress
from operator import or_
from typing import Final, NamedTuple

from shmaccum._core import LOCK_COUNT, TICKET_SHIFT, UNFINISHED, Geometry, Lock, Process, Slot
from shmaccum.errors import DeadOwnerError, SlabFullError, printable
from shmaccum.procfs import is_stopped, pid_namespace, start_time
from shmaccum.shm.layout import MAX_PROCESS_NAME, PROCESS_COUNTERS, Role, SlotState, column_of, state_of
from shmaccum.shm.lockfile import PROCESS, SENDER, LockFile

_OPEN: Final = int(SlotState.OPEN)
_INCARNATION: Final = (1 << 64 - TICKET_SHIFT) - 1
"""The part of an incarnation that a ticket holds."""


class ProcessInfo(NamedTuple):
    """A snapshot of a process table entry.

    Attributes:
        entry: its number.
        pid: in its own pid namespace.
        name: the program that it runs.
        alive: whether the process lives.
        roles: producer, sender or both.
        attached_ms: wall-clock milliseconds of its attach.
        records, bytes, batches: appended and opened by it so far.
        wait_ns, waits, exhausted: its waits for memory.
        compressed: batches that it compressed.
        held_bytes: memory of the batches that it has opened and that are not delivered, as far as that was read.
        stopped: whether a signal or a debugger has stopped it, as far as that was read.
        locks: the numbers of the slab's locks that it holds, as far as that was read.
    """

    entry: int
    pid: int
    name: str
    alive: bool
    roles: Role
    attached_ms: int
    records: int
    bytes: int
    batches: int
    wait_ns: int
    waits: int
    exhausted: int
    compressed: int
    held_bytes: int = 0
    stopped: bool = False
    locks: Sequence[int] = ()


class ProcessTable:
    """The process table of a mapped slab, as one process sees it."""

    def __init__(self, words: memoryview, geometry: Geometry, lock_file: LockFile) -> None:
        self._words = words
        self._geometry = geometry
        self._lock_file = lock_file
        self._namespace = pid_namespace()
        self._incarnation = 0
        self.me = -1
        """Entry of this process, -1 while it has none."""

    @property
    def ticket(self) -> int:
        """This process as the holder in a lock's owner word; 0 while it has no entry."""
        return self.me + 1 | (self._incarnation & _INCARNATION) << TICKET_SHIFT if self.me >= 0 else 0

    @property
    def incarnation(self) -> int:
        """The incarnation of this process's entry, as in its ticket."""
        return self._incarnation & _INCARNATION

    def take(self, *, sender: bool = False) -> int:
        """Take an entry for this process; the caller holds the lifecycle byte.

        This can be a dead process's entry, which the caller cleans up. Entries of contributors to a batch come last,
        since their batches' completions would go to the new process. An entry that a lock's owner word names is not
        taken: a process stopped here, with the byte but before the new incarnation, would make the dead holder look
        alive.

        Raises SlabFullError: all entries, or all but the sender's, belong to living processes.
        """
        words = self._words
        contributors = self._contributors()
        places = sorted(self._places(), key=lambda entry: contributors >> entry & 1)
        if len(places) == 1 and not sender and not self._lock_file.holder(SENDER):
            raise SlabFullError(
                f"slab {self._lock_file.name!r} has {self._geometry.max_processes - 1} of at most "
                f"{self._geometry.max_processes} processes, and the last entry is reserved for the sender; raise "
                "shmaccum.max.processes (for all users of the slab)"
            )
        for entry in places:
            base = self._geometry.process(entry)
            if not self._lock_file.try_lock(PROCESS + entry):
                continue
            words[base + Process.INCARNATION] += 1
            words[base + Process.PID] = os.getpid()
            words[base + Process.START_TIME] = start_time("self")
            words[base + Process.PID_NAMESPACE] = self._namespace
            words[base + Process.ATTACHED_MS] = time.time_ns() // 1_000_000
            name = ("shmaccum sender" if sender else _program()).encode()[:MAX_PROCESS_NAME]
            with words[base + Process.NAME : base + Process.BEFORE].cast("B") as place:
                place[: len(name)] = name
            words[base + Process.NAME_LENGTH] = len(name)
            counters = words[base + Process.RECORDS : base + Process.RECORDS + PROCESS_COUNTERS]
            words[base + Process.BEFORE : base + Process.BEFORE + PROCESS_COUNTERS] = counters
            for word in (Process.ROLES, Process.ASLEEP, Process.LOOP_ASLEEP, Process.FLUSHING):
                words[base + word] = 0
            words[base + Process.RING_HEAD] = words[base + Process.RING_TAIL]
            words[base + Process.STATE] = 1
            self.me = entry
            self._incarnation = words[base + Process.INCARNATION]
            self._lock_file.on_reopen = self._retake
            return entry
        raise SlabFullError(
            f"slab {self._lock_file.name!r} has {self._geometry.max_processes} processes, its limit; raise "
            "shmaccum.max.processes (for all users of the slab)"
        )

    def has_place(self) -> bool:
        """Return whether an entry can be taken; one that a lock names as its holder cannot."""
        return any(True for _ in self._places())

    def _places(self) -> Iterator[int]:
        words = self._words
        for entry in range(self._geometry.max_processes):
            base = self._geometry.process(entry)
            # In this order: a living process could take a lock, and die, after we had read the owner words.
            if not (words[base + Process.STATE] and self.is_alive(entry)) and not self.held_by(entry):
                yield entry

    def _retake(self) -> None:
        """Retake this process's byte after a reopen. Raises DeadOwnerError: another has meanwhile found it dead."""
        base = self._geometry.process(self.me)
        is_kept = self._words[base + Process.STATE] and self._words[base + Process.INCARNATION] == self._incarnation
        if not (is_kept and self._lock_file.try_lock(PROCESS + self.me)):
            raise DeadOwnerError("processes of another pid namespace have meanwhile found it dead")

    def _contributors(self) -> int:
        """Return the entries of contributors to incomplete batches, one bit each."""
        geometry = self._geometry
        start, table = geometry.header(0), (geometry.slot_count, geometry.slot_words)
        states = column_of(self._words, start + Slot.STATE, *table)
        is_held = [state_of(state) >= _OPEN for state in states]
        found = 0
        for number in range(geometry.contributor_words) if any(is_held) else ():
            bitmaps = column_of(self._words, start + Slot.CONTRIBUTORS + number, *table)
            found |= reduce(or_, compress(bitmaps, is_held)) << 64 * number
        return found

    def leave(self) -> None:
        """Free this process's entry; the caller holds the lifecycle byte.

        Another thread of this process can have been interrupted while it held a lock. Then the entry stays in use until
        the process is dead and the lock can be taken over.
        """
        if not self.held_by(self.me):
            self._words[self._geometry.process(self.me) + Process.STATE] = 0
        self._lock_file.on_reopen = lambda: None
        self._lock_file.unlock(PROCESS + self.me)
        self.me = -1

    def abandon(self) -> None:
        """Mark this process as dead from the close of the lock file on, since `leave` was not possible."""
        if self.me >= 0:
            self._words[self._geometry.process(self.me) + Process.START_TIME] = 0

    def disown(self) -> None:
        """Free the entry that a failed attach of this process took; by its pid it would seem alive."""
        words, me = self._words, (os.getpid(), self._namespace)
        for entry in self.in_use():
            base = self._geometry.process(entry)
            is_mine = (words[base + Process.PID], words[base + Process.PID_NAMESPACE]) == me
            if is_mine and not self.held_by(entry):
                words[base + Process.STATE] = 0

    def free_dead(self, entry: int) -> None:
        """Free a dead process's entry; the caller holds the lifecycle byte and has cleaned up after it."""
        base = self._geometry.process(entry)
        # In this order: a living process could take a lock, and die, after we had read the owner words.
        if not self.is_alive(entry) and not self.held_by(entry):
            self._words[base + Process.FLUSHING] = 0
            self._words[base + Process.STATE] = 0

    def held_by(self, entry: int) -> list[int]:
        """Return the numbers of the locks whose owner words name an entry."""
        words, geometry = self._words, self._geometry
        owners = [words[geometry.lock(number) + Lock.OWNER] for number in range(LOCK_COUNT)]
        return [number for number, owner in enumerate(owners) if self.entry_of(owner) == entry]

    @staticmethod
    def entry_of(ticket: int) -> int:
        """Return the process entry in a lock's owner word, -1 if it names none."""
        return -1 if ticket == UNFINISHED else (ticket & UNFINISHED) - 1

    def is_dead(self, ticket: int) -> bool:
        """Return whether the process that a lock's owner word names is dead, which is final.

        No living process has a ticket of another incarnation than its entry's. So a damaged owner word is a dead
        holder's, too, unless it happens to name a living process.
        """
        entry = self.entry_of(ticket)
        if not 0 <= entry < self._geometry.max_processes:
            return True
        if ticket == self.ticket:
            return False  # another thread of this process: the kernel calls an own byte free
        # In this order: a process that takes the entry in between has a later incarnation.
        incarnation = self._words[self._geometry.process(entry) + Process.INCARNATION] & _INCARNATION
        return ticket >> TICKET_SHIFT != incarnation or not self.is_alive(entry)

    def is_alive(self, entry: int) -> bool:
        """Return whether the process of an entry in use lives.

        A program that closes all its descriptors (daemonizing) loses its record lock without dying. So a free byte
        alone proves a death only in another pid namespace, where we cannot check the pid.
        """
        if entry == self.me:
            return True
        if self._lock_file.holder(PROCESS + entry):
            return True
        base = self._geometry.process(entry)
        words = self._words
        if not words[base + Process.STATE] or words[base + Process.PID_NAMESPACE] != self._namespace:
            return False
        started = words[base + Process.START_TIME]
        try:
            return started != 0 and start_time(words[base + Process.PID]) == started
        except OSError:
            return True  # not known to be dead

    def is_stopped(self, entry: int) -> bool:
        """Return whether /proc shows the process of an entry as stopped by a signal or a debugger."""
        base = self._geometry.process(entry)
        return self._words[base + Process.PID_NAMESPACE] == self._namespace and is_stopped(
            self._words[base + Process.PID]
        )

    def in_use(self) -> Iterator[int]:
        """Yield the entries in use, alive or dead."""
        words = self._words
        for entry in range(self._geometry.max_processes):
            if words[self._geometry.process(entry) + Process.STATE]:
                yield entry

    def others_alive(self) -> bool:
        """Return whether any living process but this one uses the slab."""
        return any(entry != self.me and self.is_alive(entry) for entry in self.in_use())

    def info(self, entry: int) -> ProcessInfo:
        """Return a snapshot of an entry."""
        base = self._geometry.process(entry)
        words = self._words
        length = min(words[base + Process.NAME_LENGTH], MAX_PROCESS_NAME)
        name = words[base + Process.NAME : base + Process.BEFORE].tobytes()[:length]
        counter = partial(counted, words, base)

        return ProcessInfo(
            entry=entry,
            pid=words[base + Process.PID],
            name=printable(name.decode(errors="replace")),
            alive=self.is_alive(entry),
            roles=Role(0) | words[base + Process.ROLES],
            attached_ms=words[base + Process.ATTACHED_MS],
            records=counter(Process.RECORDS),
            bytes=counter(Process.BYTES),
            batches=counter(Process.BATCHES),
            wait_ns=counter(Process.WAIT_NS),
            waits=counter(Process.WAITS),
            exhausted=counter(Process.EXHAUSTED),
            compressed=counter(Process.COMPRESSED),
        )


def counted(words: memoryview, base: int, counter: int) -> int:
    """Return what the process of an entry, at a word index, has counted in a word since it took the entry."""
    return max(0, words[base + counter] - words[base + Process.BEFORE + counter - Process.RECORDS])


def _program() -> str:
    """Return a name by which people recognize this process: its script or module, and its name in multiprocessing."""
    name = os.path.basename(sys.executable or "python")
    arguments = iter(getattr(sys, "orig_argv", sys.argv)[1:])
    for argument in arguments:
        if argument == "-m":
            name = next(arguments, name)
            break
        if argument == "-c":
            name = f"{name} -c"
            break
        if argument in ("-W", "-X"):
            next(arguments, None)
        elif not argument.startswith("-"):
            name = os.path.basename(argument)
            break
    multiprocessing = sys.modules.get("multiprocessing.process")
    child = multiprocessing.current_process().name if multiprocessing is not None else "MainProcess"
    return name if child == "MainProcess" else f"{name} {child}"
