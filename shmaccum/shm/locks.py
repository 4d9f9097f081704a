"""Locks between processes that survive the death of their holder.

A lock is a named POSIX semaphore of value 1 and an owner word in the slab. For each process there are three more words
in its table entry; by them the others find out, in `shmaccum.shm.takeover`, that a holder has died whom no owner word
names:

* acquire: ``wants = lock``; wait for the semaphore a slice at a time; got it: ``owner = me``. A slice ran out:
  ``parked += 1``, and look around.
* release, in this order: ``owner = 0``; post; ``released += 1``; ``wants = 0``. Giving up a wait is the last one.

``parked`` and ``released`` are counted for each lock by itself. Whoever takes over rebuilds what the lock guards, and
goes on as the owner.

Who waits spins for a moment, and then naps and tries again, for longer and longer: nobody ever sleeps in the semaphore
itself. If somebody did, each post would be a system call to wake him until he had run again, and the one who has the
lock most of the time would pay for it. It costs least if one process has many turns in a row, with its caches warm,
while the others sleep. So who has spun in vain *rests* before he waits, for longer the less he has run since the last
time; he wants nothing meanwhile, and so is in nobody's way. He does not where the sender holds the lock: its turns are
longer, but soon end. And who names a patience of his own is in a hurry: the sender, for whom all the others wait.

A process wants one lock at a time, so its threads take turns (`shmaccum.shm.turn`), and no process ever holds two.
A greenlet naps without the turn and wants nothing meanwhile, which is to give up and to come back.

All of it is checked by a model, ``tools/model/lock.pml``; ``docs/crash-safety.md`` tells what that covers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

import posix_ipc

from shmaccum._compiled import COMPILED
from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.shm import native
from shmaccum.shm.layout import UNFINISHED_OWNER, Geometry, Lock, Process, Super
from shmaccum.shm.lockfile import LockFile
from shmaccum.shm.memory import NO_WORDS
from shmaccum.shm.processes import ProcessTable
from shmaccum.shm.takeover import COUNTER_MASK, SHORT_SLICE_S, LockState, Vigil
from shmaccum.shm.turn import Turn, is_reentrant

if COMPILED:
    from shmaccum.shm.fastlocks import FastSemaphore as _FastSemaphore

LEAST_PATIENCE_S: Final = 1.0
"""The least that is good for where failing is worse than waiting: a busy machine keeps holders from going on."""

_SPINS: Final = range(200)
_LOOKS: Final = 100
"""The same where it is compiled: some microseconds, while an append takes less than one."""
_SENDERS_LOOKS: Final = 1000
"""And where the sender holds the lock: as long as it takes to take eight batches out of a deque."""
_ONCE: Final = (0,)
_COUNTER: Final = COUNTER_MASK
_SHORTEST_NAP_S: Final = 0.00005
_LONGEST_NAP_S: Final = 0.01
_LONGEST_REST_S: Final = 0.008
_RUN_S: Final = 0.002
"""How long a process is to run between two rests: as long as thousands of appends, compiled."""


class SlabLock:
    """One lock of a slab, as one process sees it: ``with lock: ...``.

    Leaving the ``with`` block by an exception marks what the lock guards as unfinished, and the next holder
    rebuilds it: raise errors outside of it.

    A signal's handler (``KeyboardInterrupt``) can run between any two lines of the main thread, but CPython
    runs it only after a call, at a function's start, and at a loop's jump back. So a store and the start of the
    call behind it stay together, and what an interrupt cuts short is always to be told from ``holding``, ``unit``
    and the owner word: the next ``acquire`` of the process mends it, see `mend`.

    Attributes:
        number: which lock of the slab.
        rebuild: called with the lock held if its last holder died, or was interrupted in a change.
        is_bound: whether the lock knows this process's table entry. A forked child's does not, until it rejoins.
    """

    def __init__(
        self,
        number: int,
        semaphore: posix_ipc.Semaphore,
        words: memoryview,
        geometry: Geometry,
        processes: ProcessTable,
        lock_file: LockFile,
        rejoin: Callable[[], None],
        rebuild: Callable[[], None],
    ) -> None:
        self.number = number
        self.semaphore = semaphore
        self.words = words
        self.geometry = geometry
        self.processes = processes
        self.rebuild = rebuild
        self.is_bound = False
        self._rejoin = rejoin
        self._state = LockState(number, semaphore, words, geometry, processes, lock_file)
        self._slab_name = lock_file.name
        self._wait_unit = semaphore.acquire
        self._post: Callable[[], None] = semaphore.release
        self._fast = _FastSemaphore(semaphore.name) if COMPILED else None
        self._owner_at = geometry.lock(number) + Lock.OWNER

    def bind(self, turn: Turn) -> None:
        """Take note of this process's table entry and turn, at attach and again in a forked child."""
        self._turn = turn
        self._take_turn = turn.mutex.acquire
        # All the way, however often an interrupt has kept this thread from it; none does where it is compiled.
        self._end_turn: Callable[[], object] = (
            turn.mutex.release if turn.fast is not None else turn.mutex._release_save  # type: ignore[union-attr]
        )
        self._me = self.processes.me + 1
        base = self.geometry.process(self.processes.me)
        self._wants_at = base + Process.WANTS
        self._parked_at = base + Process.PARKED + self.number
        self._released_at = base + Process.RELEASED + self.number
        self._rest_s = _SHORTEST_NAP_S
        self._rested_at_s = 0.0
        """When the last rest ended, by the processor time of this process."""
        self.is_bound = True

    def acquire(self, patience_s: float | None = None) -> None:
        """Take the lock; give it back by `leave`.

        Raises:
            LockTimeoutError: a living process has been in the way for ``patience_s``, or, where that is None, for as
                long as this process's patience lasts: says which.
        """
        if not self.is_bound:
            self._rejoin()
        turn = self._turn
        if not (turn.fast.acquire(False) if turn.fast is not None else self._take_turn(False)):
            turn.wait(self._slab_name, patience_s)
        if turn.holding is not None:
            turn.follow(self._slab_name, patience_s)
        if turn.current is not None:
            turn.keeper = turn.current()
        turn.holding = self
        self.words[self._wants_at] = self.number + 1
        unit = turn.unit
        if self._fast is None or not self._fast.take():
            try:
                self._take_slowly(patience_s)
            except BaseException:
                if turn.is_mine():  # not where an error ended a greenlet's nap
                    self._leave()
                raise
        unfinished = self.words[self._owner_at]
        self.words[self._owner_at] = self._me
        if unit:
            del unit[:]
        if unfinished:
            self._rebuild()

    __enter__ = acquire

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave(kind is not None)

    def leave(self, unfinished: bool) -> None:
        """End what `acquire` began; ``unfinished`` if what the lock guards is to be rebuilt."""
        turn = self._turn
        self.words[self._owner_at] = UNFINISHED_OWNER if unfinished else 0
        if self._fast is not None:
            self._fast.post()
        else:
            self._post()
        self.words[self._released_at] = self.words[self._released_at] + 1 & _COUNTER
        self.words[self._wants_at] = 0
        turn.holding = None
        if turn.fast is not None:
            turn.fast.release()
        else:
            self._end_turn()

    def within(self, patience_s: float) -> _Within:
        """Use as ``with lock.within(0.1): ...``: like ``with lock: ...``, but for those who will not wait for long.

        Raises:
            LockTimeoutError: a living process has been in the way for ``patience_s``.
        """
        return _Within(self, patience_s)

    def end_turns(self) -> None:
        """Have no thread of this process take any of the slab's locks any more; those that are about one end first."""
        if self.is_bound:
            self._turn.end()

    def settle(self) -> None:
        """Leave whichever lock of the slab an interrupt kept this thread from leaving."""
        if self.is_bound and self._take_turn(False):
            if self._turn.is_switched_out():
                self._turn.mutex.release()
                return
            if isinstance(self._turn.holding, SlabLock):
                self._turn.holding.mend_interrupted()
            self._end_turn()

    def close(self) -> None:
        """Let go of the semaphore; nobody of this process uses the lock any more."""
        if self._fast is not None:
            self._fast.close()
        with contextlib.suppress(posix_ipc.ExistentialError):  # closed already, before an interrupt
            self.semaphore.close()
        self.words = NO_WORDS

    def owner(self) -> int:
        """Return the process entry that is named as the holder, -1 for none."""
        return self._state.owner()

    def forget_dead(self, entry: int) -> None:
        """Clear a dead process's ``wants`` for this lock; the caller holds it, so the dead one does not."""
        self._state.forget_dead(entry)

    def mend_interrupted(self) -> None:
        """Leave the lock, which an interrupt kept this thread from leaving.

        Raises:
            IllegalStateError: it is not an interrupt's leftover, but still in use below: a signal's handler, or a
                finalizer, has come back into the package in the middle of it.
        """
        # An interrupt comes between two statements of Python, never of C: who has a compiled lock is still about it.
        if COMPILED or is_reentrant():
            self._turn.mutex.release()
            raise IllegalStateError(
                "reentrant call: a signal handler or finalizer used the producer in the middle of another call of it"
            )
        # It may have been after the post: one count too many does no harm, one too few would.
        self.words[self._released_at] = self.words[self._released_at] + 1 & _COUNTER
        self.mend()

    def mend(self) -> None:
        """Stop wanting or holding the lock, whichever it was: what it guards is unfinished."""
        words, unit = self.words, self._turn.unit
        if words[self._owner_at] == self._me or unit:
            del unit[:]
            words[self._owner_at] = UNFINISHED_OWNER
            self._post()
            words[self._released_at] = words[self._released_at] + 1 & _COUNTER
        words[self._wants_at] = 0
        self._turn.holding = None

    def _leave(self) -> None:
        """Stop wanting the lock, and let the next thread have its turn."""
        self.mend()
        self._end_turn()

    def _take_slowly(self, patience_s: float | None) -> None:
        """Take the semaphore, which may not be to be had at once."""
        if self._take_soon():
            return
        if patience_s is None and self.words[self._owner_at] != self.words[Super.SENDER_ENTRY]:
            self._rest()
            if self._take_soon():
                return
        self._wait(patience_s)

    def _take_soon(self) -> bool:
        """Take the semaphore if it is to be had at once, or as soon as most holders take; say whether it was."""
        return self._take_now() or self._spin()

    def _take_now(self) -> bool:
        """Take the semaphore if it is to be had at once; say whether it was."""
        if self._fast is not None:
            return self._fast.take()
        unit = self._turn.unit
        # In C from end to end: no interrupt comes between getting the unit and `unit` knowing of it.
        try:  # noqa: SIM105 (it would take more calls)
            unit.extend(map(self._wait_unit, _ONCE))
        except posix_ipc.BusyError:
            pass
        return bool(unit)

    def _spin(self) -> bool:
        """Wait for as long as most holders take, without going to sleep: waking up takes much longer."""
        words, owner_at = self.words, self._owner_at
        if self._fast is not None:
            is_senders = words[owner_at] == words[Super.SENDER_ENTRY]
            return self._fast.take_soon(words, owner_at, _SENDERS_LOOKS if is_senders else _LOOKS)
        return any(not words[owner_at] and self._take_now() for _ in _SPINS)

    def _rest(self) -> None:
        """Leave the lock to others for a while, without wanting it."""
        # By processor time: where many are awake, most of their time is waiting for a processor.
        ran_s = time.process_time() - self._rested_at_s
        if ran_s > _SHORTEST_NAP_S:  # less is no run, but to have come at the wrong moment
            rest_s = self._rest_s * _RUN_S / max(ran_s, _RUN_S / 8)
            self._rest_s = min(max(rest_s, _SHORTEST_NAP_S), _LONGEST_REST_S)
        self.words[self._wants_at] = 0
        self._nap(self._rest_s, None)
        self.words[self._wants_at] = self.number + 1
        self._rested_at_s = time.process_time()

    def _wait(self, patience_s: float | None) -> None:
        """Wait for the semaphore a slice at a time, and look for a dead holder in between."""
        nap_s = _SHORTEST_NAP_S
        patience_s = self._turn.patience_s if patience_s is None else patience_s
        deadline = time.monotonic() + patience_s
        vigil: Vigil | None = None
        slice_s = SHORT_SLICE_S
        while True:
            slice_end = min(time.monotonic() + slice_s, deadline)
            left_s = slice_s
            while left_s > 0:
                self._nap(min(nap_s, max(0.0, slice_end - time.monotonic())), patience_s)
                if self._take_soon():
                    return
                nap_s = min(nap_s * 2, _LONGEST_NAP_S)
                left_s = slice_end - time.monotonic()
            self.words[self._parked_at] = self.words[self._parked_at] + 1 & _COUNTER
            vigil = vigil or Vigil(self._state)
            if vigil.take_over():
                return
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"slab {self._slab_name!r}: lock {self.number} was not to be had within {patience_s:.1f} s: "
                    f"{vigil.who_is_in_the_way()}"
                )
            slice_s = vigil.slice_s

    def _nap(self, nap_s: float, patience_s: float | None) -> None:
        """Sleep; a greenlet does so without the turn, so that the others of its thread can have it."""
        if not native.is_green():
            native.sleep(nap_s)
            return
        self._leave()
        native.pause(nap_s)
        if not self.is_bound:  # in a child that another greenlet has forked
            self._rejoin()
        turn = self._turn
        turn.wait(self._slab_name, patience_s)
        if turn.holding is not None:
            turn.follow(self._slab_name, patience_s)
        if turn.current is not None:
            turn.keeper = turn.current()
        turn.holding = self
        self.words[self._wants_at] = self.number + 1

    def _rebuild(self) -> None:
        try:
            self.rebuild()
        except BaseException:
            self._leave()
            raise
        self.words[Super.REBUILDS] = self.words[Super.REBUILDS] + 1 & _COUNTER


class _Within:
    """A lock with a patience of its own."""

    __slots__ = ("_lock", "_patience_s")

    def __init__(self, lock: SlabLock, patience_s: float) -> None:
        self._lock = lock
        self._patience_s = patience_s

    def __enter__(self) -> None:
        self._lock.acquire(self._patience_s)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._lock.leave(kind is not None)
