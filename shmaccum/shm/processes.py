"""The process table: who uses the slab, and who of them is alive.

An entry is *taken* by holding byte ``PROCESS + entry`` of the lock file; that byte is the liveness, the
entry's words are only a description. Taking and freeing entries happens under the lifecycle byte.

One place is the sender's, always: while a sender lives it has one, and while none does nobody else takes the last. So a
sender that dies finds a successor however many processes want to come.

Modelled in ``tools/model/lock.pml``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from shmaccum._compiled import COMPILED_FORM, PLAIN_FORM
from shmaccum.errors import DeadOwnerError, SlabFullError
from shmaccum.shm.layout import STATE_MASK, WORD, Geometry, Process, Role, Slot, SlotState
from shmaccum.shm.lockfile import PROCESS, SENDER, LockFile
from shmaccum.shm.procfs import has_mapped, is_stopped, pid_namespace, start_time

_COMPILED_MODULE: Final = rb"/shmaccum/shm/memory\.[^/\n]*\.so"
"""The file that every process of the compiled form maps; behind an upgrade its line ends with ``(deleted)``."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process table entry, read at one moment.

    Attributes:
        entry: its number.
        pid: in its own pid namespace.
        alive: whether the process lives.
        roles: what it is to the slab.
        attached_ms: wall-clock milliseconds of its attach.
        records, bytes, batches: appended and opened by this entry's processes so far.
        wait_ns, waits, exhausted: their waits for memory.
        compressed: batches that they compressed.
    """

    entry: int
    pid: int
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

    def take(self, *, sender: bool = False) -> int:
        """Take an entry for this process; the caller holds the lifecycle byte.

        An entry of a dead process may be taken as well, with what it left behind: the caller cleans that up. It is
        the last choice as long as a batch names it as one that appended to it, for whoever has the entry is taken for
        that one. One whose ``WANTS`` is set may not be taken: the dead process may have taken that lock with it, and
        the word is all that tells so.

        Args:
            sender: whether this process is to be the sender, for which the last entry is kept while there is none.

        Raises:
            SlabFullError: as many processes as the table has entries are alive, or all but the sender.
        """
        words = self._words
        contributors = self._contributors()
        places = sorted(self._places(), key=lambda entry: contributors >> entry & 1)
        if len(places) == 1 and not sender and not self._lock_file.holder(SENDER):
            raise SlabFullError(
                f"slab {self._lock_file.name!r} has {self._geometry.max_processes - 1} of its "
                f"{self._geometry.max_processes} processes, and the last place is kept for the sender; raise "
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
            for word in (Process.ROLES, Process.ASLEEP, Process.FLUSHING):
                words[base + word] = 0
            words[base + Process.RING_HEAD] = words[base + Process.RING_TAIL]
            words[base + Process.STATE] = 1
            self.me = entry
            self._incarnation = words[base + Process.INCARNATION]
            self._lock_file.on_reopen = self._retake
            return entry
        raise SlabFullError(
            f"slab {self._lock_file.name!r} has its {self._geometry.max_processes} processes; raise "
            "shmaccum.max.processes (for all users of the slab)"
        )

    def has_place(self) -> bool:
        """Return whether there is an entry to take; those of the dead that want a lock are none."""
        return any(True for _ in self._places())

    def _places(self) -> Iterator[int]:
        words = self._words
        for entry in range(self._geometry.max_processes):
            base = self._geometry.process(entry)
            if not words[base + Process.WANTS] and not (words[base + Process.STATE] and self.is_alive(entry)):
                yield entry

    def _retake(self) -> None:
        """Take this process's byte again, which went with the descriptor of the lock file.

        Raises:
            DeadOwnerError: others have taken this process for dead meanwhile.
        """
        base = self._geometry.process(self.me)
        is_kept = self._words[base + Process.STATE] and self._words[base + Process.INCARNATION] == self._incarnation
        if not (is_kept and self._lock_file.try_lock(PROCESS + self.me)):
            raise DeadOwnerError("processes of another pid namespace took it for dead meanwhile")

    def _contributors(self) -> int:
        """Return the entries whose processes appended to batches that are not done, one bit each."""
        geometry = self._geometry
        start = geometry.headers // WORD
        with self._words[start : start + geometry.slot_count * geometry.slot_words] as words:
            headers = np.array(words, np.uint64).reshape(geometry.slot_count, geometry.slot_words)
        held = headers[(headers[:, Slot.STATE] & np.uint64(STATE_MASK)) >= np.uint64(SlotState.OPEN)]
        bitmaps = held[:, Slot.CONTRIBUTORS : Slot.CONTRIBUTORS + geometry.contributor_words]
        return int.from_bytes(np.bitwise_or.reduce(bitmaps, axis=0).tobytes(), "little")

    def leave(self) -> None:
        """Give this process's entry back; the caller holds the lifecycle byte.

        With ``WANTS`` set, because another thread of this process was interrupted over a lock, the entry stays until
        the process is dead and the lock can be taken over.
        """
        base = self._geometry.process(self.me)
        if not self._words[base + Process.WANTS]:
            self._words[base + Process.STATE] = 0
        self._lock_file.on_reopen = _do_nothing
        self._lock_file.unlock(PROCESS + self.me)
        self.me = -1

    def abandon(self) -> None:
        """Be dead to the others once the lock file is closed: they clean up, since `leave` was not possible."""
        if self.me >= 0:
            self._words[self._geometry.process(self.me) + Process.START_TIME] = 0

    def disown(self) -> None:
        """Give back what an attach of this process that did not succeed has taken: by its pid it would seem alive."""
        words, me = self._words, (os.getpid(), self._namespace)
        for base in map(self._geometry.process, self.in_use()):
            is_mine = (words[base + Process.PID], words[base + Process.PID_NAMESPACE]) == me
            if is_mine and not words[base + Process.WANTS]:
                words[base + Process.STATE] = 0

    def free_dead(self, entry: int) -> None:
        """Free a dead process's entry; the caller holds the lifecycle byte and has cleaned up behind it."""
        base = self._geometry.process(entry)
        # In this order: one that lives could still set WANTS, and die, after we had looked.
        if not self.is_alive(entry) and not self._words[base + Process.WANTS]:
            self._words[base + Process.FLUSHING] = 0
            self._words[base + Process.STATE] = 0

    def is_alive(self, entry: int) -> bool:
        """Say whether the process of an entry in use lives.

        A program that closes all its descriptors (daemonizing) loses its record lock without dying, so a free
        lock alone is believed only where the process cannot be seen: in another pid namespace.
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
        """Say whether the process of an entry can be seen to be stopped, by a signal or a debugger."""
        base = self._geometry.process(entry)
        return self._words[base + Process.PID_NAMESPACE] == self._namespace and is_stopped(
            self._words[base + Process.PID]
        )

    def form(self, entry: int) -> str | None:
        """Return which `FORM` of this package the process of an entry runs; None where /proc does not show it."""
        base = self._geometry.process(entry)
        if self._words[base + Process.PID_NAMESPACE] != self._namespace:
            return None
        pid = self._words[base + Process.PID]
        is_compiled = has_mapped(pid, _COMPILED_MODULE)
        # Checked after the look: the pid can have a new process, which is not ours.
        if is_compiled is None or start_time(pid) != self._words[base + Process.START_TIME]:
            return None
        return COMPILED_FORM if is_compiled else PLAIN_FORM

    def dead_incarnation(self, entry: int) -> int:
        """Return which incarnation of an entry in use is dead, 0 if its process lives.

        The entry may have a new process by now. What is read of it from now on is the dead one's only if the
        incarnation, read after that, is still the same.
        """
        # In this order: a process that takes the entry in between is not the dead one.
        incarnation: int = self._words[self._geometry.process(entry) + Process.INCARNATION]
        return 0 if self.is_alive(entry) else incarnation

    def in_use(self) -> Iterator[int]:
        """Yield the entries in use, alive or dead."""
        words = self._words
        for entry in range(self._geometry.max_processes):
            if words[self._geometry.process(entry) + Process.STATE]:
                yield entry

    def others_alive(self) -> bool:
        """Say whether any process but this one uses the slab."""
        return any(entry != self.me and self.is_alive(entry) for entry in self.in_use())

    def info(self, entry: int) -> ProcessInfo:
        """Read an entry."""
        base = self._geometry.process(entry)
        words = self._words
        return ProcessInfo(
            entry=entry,
            pid=words[base + Process.PID],
            alive=self.is_alive(entry),
            roles=Role(0) | words[base + Process.ROLES],
            attached_ms=words[base + Process.ATTACHED_MS],
            records=words[base + Process.RECORDS],
            bytes=words[base + Process.BYTES],
            batches=words[base + Process.BATCHES],
            wait_ns=words[base + Process.WAIT_NS],
            waits=words[base + Process.WAITS],
            exhausted=words[base + Process.EXHAUSTED],
            compressed=words[base + Process.COMPRESSED],
        )


def _do_nothing() -> None:
    pass
