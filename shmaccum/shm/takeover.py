"""Takes over a lock from a dead holder: how waiters prove the death.

A named owner is simple: it died holding the lock if it is still named after it was found dead. The hard part is two
windows in which the semaphore is taken and no owner is named. They are between ``sem_wait`` and storing the owner, and
between clearing the owner and the post. No timing is assumed: a process can be stopped anywhere, for any time. A waiter
takes a *look*, a snapshot in this order: ``released`` of all; which processes that want the lock are dead; ``parked``
of all. The look proves a death if, after a later slice of waiting that ran out:

* no owner is named, and the semaphore is 0;
* a process that was dead at the snapshot wants this lock, and each other process that wants it has parked **twice**
  since;
* and, read after that, no process's ``released`` has changed.

Then the holder of the semaphore was dead at the snapshot. Each process has both counts *per lock*: its use of other
locks neither proves nor spoils anything.

Why twice: a slice that ran out *before* the snapshot can be counted after it, so one step of ``parked`` proves nothing
about the time since. The second step does, because its slice began after the first was stored. Clearing a dead
process's ``wants`` counts as ``released``, because a change of holder must be visible. A wait that times out does not
count: that process never had the semaphore. (``docs/internals/locks.md`` has the runs that these rules exclude.)

A look is valid until a process releases the lock, and is kept until it proves a death or is spoiled. A new one is taken
only if a process is dead that was not at the last. A snapshot is short compared to a slice, and slices are short while
there is a look. So a takeover takes two or three slices, however many processes wait, come, leave and die meanwhile.

The takeover happens under the takeover byte of the lock file, which the kernel frees on death, and leaves the semaphore
at 0: ``owner = me``, clear ``wants`` of the dead, free the byte. A death before ``owner = me`` leaves the lock as it
was; one after it leaves a named dead owner.

Modelled in ``tools/model/lock.pml``; ``docs/crash-safety.md`` describes what the model covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import posix_ipc

from shmaccum.shm.layout import PROCESS_WORDS, WORD, Geometry, Lock, Process
from shmaccum.shm.lockfile import TAKEOVER, LockFile
from shmaccum.shm.processes import ProcessTable

SLICE_S: Final = 0.025
"""How long a waiter waits for the semaphore between two checks for a dead holder."""
SHORT_SLICE_S: Final = 0.005
"""Slice while other waiters need this one to park: at the start of a wait, and after a death."""
COUNTER_MASK: Final = (1 << 64) - 1
"""A lock's counters wrap to 0: an overflow error of a damaged counter must not prevent the release."""
_PARKS: Final = 2
"""Slices that run out since a look to prove that a process did not have the semaphore at the look."""


class LockState:
    """One lock's words in the slab, and its state in the kernel.

    Attributes:
        number: which lock of the slab.
        processes: the process table.
        lock_file: with the takeover byte.
    """

    def __init__(
        self,
        number: int,
        semaphore: posix_ipc.Semaphore,
        words: memoryview,
        geometry: Geometry,
        processes: ProcessTable,
        lock_file: LockFile,
    ) -> None:
        self.number = number
        self.processes = processes
        self.lock_file = lock_file
        self._semaphore = semaphore
        self._words = words
        self._geometry = geometry
        self._lock_at = geometry.lock(number)
        self._wants = number + 1

    def owner(self) -> int:
        """Return the process entry that is named as the holder, -1 for none."""
        owner: int = self._words[self._lock_at + Lock.OWNER] - 1
        # `UNFINISHED_OWNER`, or a damaged word, names no process.
        return owner if owner < self._geometry.max_processes else -1

    def set_owner(self) -> None:
        """Name this process as the owner, and count the takeover."""
        self._words[self._lock_at + Lock.OWNER] = self.processes.me + 1
        self._count(self._lock_at + Lock.TAKEOVERS)

    def is_free(self) -> bool:
        """Return whether no process has the semaphore."""
        return bool(self._semaphore.value)

    def wanting(self) -> Iterator[int]:
        """Yield the other entries that want the lock; each is read when it is yielded."""
        words, geometry = self._words, self._geometry
        for entry in range(geometry.max_processes):
            if words[geometry.process(entry) + Process.WANTS] == self._wants and entry != self.processes.me:
                yield entry

    def dead(self) -> dict[int, int]:
        """Return the used entries whose dead process wants the lock, with incarnations."""
        in_use = set(self.processes.in_use())
        wanting = [entry for entry in self.wanting() if entry in in_use]
        return {entry: dead for entry in wanting if (dead := self.processes.dead_incarnation(entry))}

    def incarnation(self, entry: int) -> int:
        """Return an entry's incarnation."""
        return int(self._words[self._geometry.process(entry) + Process.INCARNATION])

    def parked(self) -> list[int]:
        """Return how often a slice of waiting for the lock ran out, by process entry."""
        return self._column(Process.PARKED)

    def parked_by(self, entry: int) -> int:
        """Return how often a process's slice of waiting for the lock ran out."""
        return int(self._words[self._geometry.process(entry) + Process.PARKED + self.number])

    def released(self) -> list[int]:
        """Return how often each process released the lock, by process entry."""
        return self._column(Process.RELEASED)

    def forget_dead(self, entry: int) -> None:
        """Clear a dead process's ``wants`` for this lock; the caller holds it, so the dead one does not."""
        words, base = self._words, self._geometry.process(entry)
        dead = self.processes.dead_incarnation(entry)
        # In this order: until we clear a dead process's WANTS, no other process can take its entry.
        if dead and words[base + Process.WANTS] == self._wants and words[base + Process.INCARNATION] == dead:
            self._count(base + Process.RELEASED + self.number)
            words[base + Process.WANTS] = 0

    def _count(self, at: int) -> None:
        self._words[at] = self._words[at] + 1 & COUNTER_MASK

    def _column(self, word: int) -> list[int]:
        start = self._geometry.processes // WORD + word + self.number
        end = start + self._geometry.max_processes * PROCESS_WORDS
        column: list[int] = self._words[start:end:PROCESS_WORDS].tolist()
        return column


class Look:
    """A snapshot of the processes that want a lock, to compare with after another slice.

    Attributes:
        dead: incarnations of the dead ones, by process entry.
    """

    def __init__(self, lock: LockState) -> None:
        self._lock = lock
        self._released = lock.released()
        self.dead = lock.dead()
        self._parked = lock.parked()

    def is_spoiled(self) -> bool:
        """Return whether any process released the lock since: then the look proves nothing."""
        return self._lock.released() != self._released

    def proves_dead_holder(self) -> bool:
        """Return whether the holder, which no owner word names, was dead at the snapshot."""
        lock = self._lock
        wanted_by_dead = False
        for entry in lock.wanting():
            if self.dead.get(entry) == lock.incarnation(entry):
                wanted_by_dead = True
            elif lock.parked_by(entry) - self._parked[entry] < _PARKS:
                return False
        return wanted_by_dead and not lock.is_free() and not self.is_spoiled()


class LockWait:
    """One process's wait for a lock: its checks for the holder's death, and its looks."""

    def __init__(self, lock: LockState) -> None:
        self._lock = lock
        self._slices = 0
        self._parked = lock.parked()
        self._looks: list[Look] = []

    @property
    def slice_s(self) -> float:
        """How long to wait for the semaphore before the next `take_over`."""
        return SHORT_SLICE_S if self._slices < _PARKS or self._looks else SLICE_S

    def take_over(self) -> bool:
        """Take the lock if its holder is proved dead; call it after a slice that ran out and was counted."""
        lock = self._lock
        self._slices += 1
        owner = lock.owner()
        if owner >= 0:
            return not lock.processes.is_alive(owner) and self._succeed()
        # First without the takeover byte: mostly nothing is proved, and other waiters can need the byte.
        if any(look.proves_dead_holder() for look in self._looks) and self._succeed():
            return True
        self._renew_looks()
        return False

    def describe_holder(self) -> str:
        """Return which process holds the lock, or could hold it, for an error message."""
        lock = self._lock
        owner = lock.owner()
        if owner >= 0:
            return f"process {self._pid(owner)} holds it; is it stopped? Continue or kill it"
        taker = lock.lock_file.holder(TAKEOVER)
        if taker:
            return f"process {taker} is taking it over from a dead process; is it stopped? Continue or kill it"
        parked = lock.parked()
        still = [entry for entry in lock.wanting() if parked[entry] - self._parked[entry] < _PARKS]
        pids = [str(self._pid(entry)) for entry in still if lock.processes.is_alive(entry)]
        if not pids:
            return "no process is named as its holder"
        who, them = (f"process {pids[0]}", "it") if len(pids) == 1 else (f"one of processes {', '.join(pids)}", "them")
        return f"no process is named as its holder; perhaps {who} is, and is stopped: continue or kill {them}"

    def _renew_looks(self) -> None:
        """Drop spoiled looks; take a new one if a process is dead that was not at the last."""
        self._looks = [look for look in self._looks if not look.is_spoiled()]
        look = Look(self._lock)
        if not look.dead.items() <= (self._looks[-1].dead.items() if self._looks else set()):
            self._looks.append(look)

    def _succeed(self) -> bool:
        """Become the owner in a dead holder's place, after the same proof under the takeover byte."""
        lock = self._lock
        try:
            if not lock.lock_file.try_lock(TAKEOVER):
                return False
            owner = lock.owner()
            if not (self._died_holding(owner) if owner >= 0 else self._proves_dead_holder()):
                return False
            lock.set_owner()
            for entry in lock.dead():
                lock.forget_dead(entry)
        finally:
            lock.lock_file.end_takeover()
        return True

    def _proves_dead_holder(self) -> bool:
        return any(look.proves_dead_holder() for look in self._looks)

    def _died_holding(self, owner: int) -> bool:
        """Return whether a process that was named as the holder died as the holder.

        It can have released the lock before it died. Then another process, even of the same entry, can hold it now.
        """
        lock = self._lock
        dead = lock.processes.dead_incarnation(owner)
        still_named = lock.owner() == owner
        return dead != 0 and still_named and lock.incarnation(owner) == dead

    def _pid(self, entry: int) -> int:
        return self._lock.processes.info(entry).pid
