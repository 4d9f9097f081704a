"""Taking a lock over from a dead holder: how those who wait for it find out, and when they may.

An owner that is named and dead is certain, if it is named still after it was found dead. The hard part are the two
windows in which the semaphore is taken and no owner is named: between ``sem_wait`` returning and the owner being
stored, and between the owner being cleared and the post. No timing is assumed: a process may be stopped anywhere, for
any time. Whoever waits takes a *look*, a snapshot in this order: everyone's ``released``; who is dead of those that
want the lock; everyone's ``parked``. It proves a death when, after a later slice of waiting that ran out,

* no owner is named, and the semaphore is 0;
* some process that was dead at the snapshot wants this lock, and every other process either does not want it or has
  parked **twice** since;
* and, read after that, nobody's ``released`` has moved.

Then whoever has the semaphore was dead at the snapshot. Both counts are a process's *for this lock*: what it does with
other locks neither proves nor spoils anything.

Why twice: a slice that ran out *before* the snapshot may be counted after it, so one step of ``parked`` proves
nothing about the time since; the second step does, for its slice began after the first was stored. And why clearing a
dead process's ``wants`` counts as ``released``: whoever was in the way must be seen to have moved. Giving up a wait
does not count: who has not had the semaphore was in nobody's way. (``docs/internals/locks.md`` has the runs that these
rules exclude.)

A look stays good until somebody releases, so it is kept until it proves something or that happens; a new one is taken
only where somebody is dead who was not yet at the last. A snapshot is short against a slice, and waiters cut short
slices while there is a look, so a takeover takes two or three slices, however many wait, come, go and die meanwhile.

Taking over, under the takeover byte of the lock file, which the kernel frees on death, leaves the semaphore at 0:
``owner = me``, clear the dead ones' ``wants``, free the byte.

Modelled in ``tools/model/lock.pml``; ``docs/crash-safety.md`` tells what that covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import posix_ipc

from shmaccum.shm.layout import PROCESS_WORDS, WORD, Geometry, Lock, Process
from shmaccum.shm.lockfile import TAKEOVER, LockFile
from shmaccum.shm.processes import ProcessTable

SLICE_S: Final = 0.025
"""How long a wait for a semaphore goes on before it looks around."""
SHORT_SLICE_S: Final = 0.005
"""The same where others wait for it to park: at a wait's beginning, and when somebody has died."""
COUNTER_MASK: Final = (1 << 64) - 1
"""Counters of a lock begin again at 0: a damaged one must not end, by an error, the release that it counts."""
_PARKS: Final = 2
"""So many slices that ran out since a look prove that a process did not have the semaphore at it."""


class LockState:
    """What the slab and the kernel say about one lock.

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
        # What is no entry, `UNFINISHED_OWNER` or a damaged word, names nobody.
        return owner if owner < self._geometry.max_processes else -1

    def set_owner(self) -> None:
        """Name this process, which takes over."""
        self._words[self._lock_at + Lock.OWNER] = self.processes.me + 1
        self._count(self._lock_at + Lock.TAKEOVERS)

    def is_free(self) -> bool:
        """Say whether nobody has the semaphore's unit."""
        return bool(self._semaphore.value)

    def wanting(self) -> Iterator[int]:
        """Yield the other entries that want the lock, each as it is when its turn comes."""
        words, geometry = self._words, self._geometry
        for entry in range(geometry.max_processes):
            if words[geometry.process(entry) + Process.WANTS] == self._wants and entry != self.processes.me:
                yield entry

    def dead(self) -> dict[int, int]:
        """Return the entries in use whose process wants the lock and is dead, each with its incarnation."""
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
        """Return how often the lock was let go of, by process entry."""
        return self._column(Process.RELEASED)

    def forget_dead(self, entry: int) -> None:
        """Clear a dead process's ``wants`` for this lock; the caller holds it, so the dead one does not."""
        words, base = self._words, self._geometry.process(entry)
        dead = self.processes.dead_incarnation(entry)
        # In this order: a dead process's WANTS stays until we clear it, and keeps others out of its entry.
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
    """A snapshot of everybody who wants a lock, to be concluded after another slice.

    Attributes:
        dead: who was, of those that want the lock: incarnations by process entry.
    """

    def __init__(self, lock: LockState) -> None:
        self._lock = lock
        self._released = lock.released()
        self.dead = lock.dead()
        self._parked = lock.parked()

    def is_spoiled(self) -> bool:
        """Say whether somebody has had the lock since, or may have: it can prove nothing any more."""
        return self._lock.released() != self._released

    def proves_dead_holder(self) -> bool:
        """Say whether the holder, whom no owner word names, was dead at the snapshot."""
        lock = self._lock
        wanted_by_dead = False
        for entry in lock.wanting():
            if self.dead.get(entry) == lock.incarnation(entry):
                wanted_by_dead = True
            elif lock.parked_by(entry) - self._parked[entry] < _PARKS:
                return False
        return wanted_by_dead and not lock.is_free() and not self.is_spoiled()


class Vigil:
    """One wait for a lock, as it watches out for the holder's death."""

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
        """Take the lock if its holder is certain to be dead; after a slice that ran out, and was counted."""
        lock = self._lock
        self._slices += 1
        owner = lock.owner()
        if owner >= 0:
            return not lock.processes.is_alive(owner) and self._succeed()
        # First without the takeover byte: most often nothing is proved, and others may need it.
        if any(look.proves_dead_holder() for look in self._looks) and self._succeed():
            return True
        self._renew_looks()
        return False

    def who_is_in_the_way(self) -> str:
        """Say, for an error, which processes the lock is not to be had for."""
        lock = self._lock
        owner = lock.owner()
        if owner >= 0:
            return f"process {self._pid(owner)} holds it; is it stopped? Continue or kill it"
        taker = lock.lock_file.holder(TAKEOVER)
        if taker:
            return f"process {taker} is about to take it over from a dead one; is it stopped? Continue or kill it"
        parked = lock.parked()
        still = [entry for entry in lock.wanting() if parked[entry] - self._parked[entry] < _PARKS]
        pids = [str(self._pid(entry)) for entry in still if lock.processes.is_alive(entry)]
        if not pids:
            return "no process is named as its holder"
        who, them = ("process", "it") if len(pids) == 1 else ("processes", "them")
        return (
            f"no process is named as its holder, but {who} {', '.join(pids)} may have it without a word: stopped? "
            f"Continue or kill {them}"
        )

    def _renew_looks(self) -> None:
        """Drop the looks that prove nothing any more; take one if somebody is dead who was not at the last."""
        self._looks = [look for look in self._looks if not look.is_spoiled()]
        look = Look(self._lock)
        if not look.dead.items() <= (self._looks[-1].dead.items() if self._looks else set()):
            self._looks.append(look)

    def _succeed(self) -> bool:
        """Take a dead holder's place, if one can be found dead while nobody else takes it."""
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
        """Say whether a process that was named as the holder has died so.

        It may have let go before it died, and another process, even in the same entry, may hold the lock by now.
        """
        lock = self._lock
        dead = lock.processes.dead_incarnation(owner)
        still_named = lock.owner() == owner
        return dead != 0 and still_named and lock.incarnation(owner) == dead

    def _pid(self, entry: int) -> int:
        return self._lock.processes.info(entry).pid
