"""Locks between processes that survive the death of their holder.

A lock is a named POSIX semaphore of value 1, and an owner word in the slab. Only the holder writes the owner word. Each
process has three more words for the lock in its own table entry, and only it writes them while it lives. From these the
others prove that a holder died while no owner was named (`shmaccum.shm.takeover`). The stores, in this order:

* acquire: ``wants = lock``; take the semaphore; ``owner = me``. Each slice of waiting that runs out: ``parked += 1``,
  then a check for a dead holder.
* release: ``owner = 0``; post; ``released += 1``; ``wants = 0``. A wait that ends without the lock stores only
  ``wants = 0``.

A death of the holder leaves the owner's name. Just before and after that, it leaves only ``wants``, and perhaps a taken
semaphore. The process that takes over clears the ``wants`` of the dead, and rebuilds what the lock guards before it
uses it. ``parked`` and ``released`` are counted for each lock, and wrap to 0.

No process sleeps in the semaphore itself. If one did, each post would be a system call until that process has run,
and the process that acquires most would pay for it. Instead, a waiter spins for a moment. If that is in vain, it
*rests* once, without wanting the lock, so that it is in no other process's way. Then it sleeps and tries again, for
longer each time. The less the process has run since its last rest, the longer is the next one. It is cheapest if one
process acquires many times in a row, with warm caches, while the others sleep. A process does not rest while the
sender holds the lock. The sender's turns are longer than an append but end soon, so the process spins for longer
instead. A caller with a timeout of its own, such as the sender, does not rest either, since it is in a hurry.

A process wants one lock at a time, so its threads take turns (`shmaccum.shm.turn`), and no process holds two. A
greenlet sleeps without the turn and without wanting the lock. For other processes, one wait ends and another begins.

Modelled in ``tools/model/lock.pml``; ``docs/crash-safety.md`` says what the model covers.
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
from shmaccum.shm.takeover import COUNTER_MASK, SHORT_SLICE_S, LockState, LockWait
from shmaccum.shm.turn import Turn, is_reentrant

if COMPILED:
    from shmaccum.shm.fastlocks import FastSemaphore as _FastSemaphore

MIN_TIMEOUT_S: Final = 1.0
"""Shortest timeout where an error is worse than a wait: on a busy machine, a living holder can be slow."""

_SPINS: Final = range(200)
_COMPILED_SPINS: Final = 100
"""Some microseconds; an append takes less than one."""
_COMPILED_SPINS_FOR_SENDER: Final = 1000
"""While the sender holds the lock: as long as it takes to drain eight batches."""
_ONCE: Final = (0,)
_COUNTER: Final = COUNTER_MASK
_MIN_SLEEP_S: Final = 0.00005
_MAX_SLEEP_S: Final = 0.01
_MAX_REST_S: Final = 0.008
_RUN_S: Final = 0.002
"""Processor time between two rests to aim at: as long as thousands of appends, compiled."""


class SlabLock:
    """One lock of a slab, as one process sees it: ``with lock: ...``.

    An exception out of the ``with`` block marks what the lock guards as unfinished, and the next holder rebuilds it:
    raise errors behind the block.

    An interrupt, such as KeyboardInterrupt, can end any method here. CPython runs a signal's handler only after a call,
    at a function's start, and at a loop's jump back. So a store and the call that follows it stay together. Wherever
    the interrupt comes, ``Turn.holding``, ``Turn.unit`` and the owner word show what it left. The next `acquire` or
    `settle` of the process abandons that (`abandon`).

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
        """Set this process's turn and table entry, at attach and again in a forked child."""
        self._turn = turn
        self._take_turn = turn.mutex.acquire
        # Releases all levels: after interrupts there can be several. No interrupt comes where this is compiled.
        self._end_turn: Callable[[], object] = (
            turn.mutex.release if turn.fast is not None else turn.mutex._release_save  # type: ignore[union-attr]
        )
        self._me = self.processes.me + 1
        base = self.geometry.process(self.processes.me)
        self._wants_at = base + Process.WANTS
        self._parked_at = base + Process.PARKED + self.number
        self._released_at = base + Process.RELEASED + self.number
        self._rest_s = _MIN_SLEEP_S
        self._rested_at_s = 0.0
        """This process's processor time when its last rest ended."""
        self.is_bound = True

    def acquire(self, timeout_s: float | None = None) -> None:
        """Acquire the lock; release it by `leave`.

        Args:
            timeout_s: how long to wait; None for this process's default (`Turn.timeout_s`), and a rest.

        Raises:
            LockTimeoutError: a living process has kept the lock for that long; names it.
        """
        if not self.is_bound:
            self._rejoin()
        turn = self._turn
        if not (turn.fast.acquire(False) if turn.fast is not None else self._take_turn(False)):
            turn.wait(self._slab_name, timeout_s)
        if turn.holding is not None:
            turn.clear_holding(self._slab_name, timeout_s)
        if turn.current is not None:
            turn.keeper = turn.current()
        turn.holding = self
        self.words[self._wants_at] = self.number + 1
        unit = turn.unit
        if self._fast is None or not self._fast.take():
            try:
                self._take_slowly(timeout_s)
            except BaseException:
                if turn.is_mine():  # an error can end a greenlet's sleep, which is without the turn
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
        """Release the lock; with ``unfinished`` the next holder rebuilds what it guards."""
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

    def within(self, timeout_s: float) -> _Within:
        """Return a context like the lock's own, but with a timeout: ``with lock.within(0.1): ...``.

        Raises:
            LockTimeoutError: a living process has kept the lock for ``timeout_s``; names it.
        """
        return _Within(self, timeout_s)

    def end_turns(self) -> None:
        """Refuse all of the slab's locks to this process's threads; wait for those that use one now."""
        if self.is_bound:
            self._turn.end()

    def settle(self) -> None:
        """Release the lock, of any number, that an interrupt kept this thread from releasing."""
        if self.is_bound and self._take_turn(False):
            if self._turn.is_switched_out():
                self._turn.mutex.release()
                return
            if isinstance(self._turn.holding, SlabLock):
                self._turn.holding.abandon_interrupted()
            self._end_turn()

    def close(self) -> None:
        """Close the semaphore; no thread of this process uses the lock any longer."""
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

    def abandon_interrupted(self) -> None:
        """Abandon the lock that an interrupt kept this thread from releasing.

        Raises:
            IllegalStateError: the lock is in use: a signal's handler or a finalizer calls the package in the middle of
                that use.
        """
        # Compiled code is never interrupted between two statements, so a lock that is held there is in use.
        if COMPILED or is_reentrant():
            self._turn.mutex.release()
            raise IllegalStateError(
                "reentrant call: a signal handler or finalizer used the producer in the middle of another call of it"
            )
        # The interrupt can have come after the post. A release that is counted twice does no harm; one that is not
        # counted would leave looks valid that prove nothing any longer.
        self.words[self._released_at] = self.words[self._released_at] + 1 & _COUNTER
        self.abandon()

    def abandon(self) -> None:
        """Stop wanting the lock, or release it with what it guards unfinished."""
        words, unit = self.words, self._turn.unit
        if words[self._owner_at] == self._me or unit:
            del unit[:]
            words[self._owner_at] = UNFINISHED_OWNER
            self._post()
            words[self._released_at] = words[self._released_at] + 1 & _COUNTER
        words[self._wants_at] = 0
        self._turn.holding = None

    def _leave(self) -> None:
        """Abandon the lock, and end this thread's turn."""
        self.abandon()
        self._end_turn()

    def _take_slowly(self, timeout_s: float | None) -> None:
        """Wait for the semaphore, and take it."""
        if self._take_soon():
            return
        if timeout_s is None and self.words[self._owner_at] != self.words[Super.SENDER_ENTRY]:
            self._rest()
            if self._take_soon():
                return
        self._wait(timeout_s)

    def _take_soon(self) -> bool:
        """Take the semaphore now, or within the time that most holders need; return whether it did."""
        return self._take_now() or self._spin()

    def _take_now(self) -> bool:
        """Take the semaphore if it is free; return whether it did."""
        if self._fast is not None:
            return self._fast.take()
        unit = self._turn.unit
        # One C call: no interrupt can come between the semaphore's decrement and the item in `unit`.
        try:  # noqa: SIM105 (it would take more calls)
            unit.extend(map(self._wait_unit, _ONCE))
        except posix_ipc.BusyError:
            pass
        return bool(unit)

    def _spin(self) -> bool:
        """Poll for as long as most holders need: to fall asleep and wake takes much longer."""
        words, owner_at = self.words, self._owner_at
        if self._fast is not None:
            is_senders = words[owner_at] == words[Super.SENDER_ENTRY]
            return self._fast.take_soon(words, owner_at, _COMPILED_SPINS_FOR_SENDER if is_senders else _COMPILED_SPINS)
        return any(not words[owner_at] and self._take_now() for _ in _SPINS)

    def _rest(self) -> None:
        """Sleep for a while without wanting the lock."""
        # Processor time, because with many running processes most time is spent waiting for a processor.
        ran_s = time.process_time() - self._rested_at_s
        if ran_s > _MIN_SLEEP_S:  # after less, the lock was busy by chance
            rest_s = self._rest_s * _RUN_S / max(ran_s, _RUN_S / 8)
            self._rest_s = min(max(rest_s, _MIN_SLEEP_S), _MAX_REST_S)
        self.words[self._wants_at] = 0
        self._sleep(self._rest_s, None)
        self.words[self._wants_at] = self.number + 1
        self._rested_at_s = time.process_time()

    def _wait(self, timeout_s: float | None) -> None:
        """Wait for the semaphore a slice at a time, and check for a dead holder after each."""
        sleep_s = _MIN_SLEEP_S
        timeout_s = self._turn.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        wait: LockWait | None = None
        slice_s = SHORT_SLICE_S
        while True:
            slice_end = min(time.monotonic() + slice_s, deadline)
            left_s = slice_s
            while left_s > 0:
                self._sleep(min(sleep_s, max(0.0, slice_end - time.monotonic())), timeout_s)
                if self._take_soon():
                    return
                sleep_s = min(sleep_s * 2, _MAX_SLEEP_S)
                left_s = slice_end - time.monotonic()
            self.words[self._parked_at] = self.words[self._parked_at] + 1 & _COUNTER
            wait = wait or LockWait(self._state)
            if wait.take_over():
                return
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"slab {self._slab_name!r}: lock {self.number} was not free within {timeout_s:.1f} s: "
                    f"{wait.describe_holder()}"
                )
            slice_s = wait.slice_s

    def _sleep(self, sleep_s: float, timeout_s: float | None) -> None:
        """Sleep; a greenlet ends its turn meanwhile, so that the others of its thread can take theirs."""
        if not native.is_green():
            native.sleep(sleep_s)
            return
        self._leave()
        native.pause(sleep_s)
        if not self.is_bound:  # in a child that another greenlet has forked
            self._rejoin()
        turn = self._turn
        turn.wait(self._slab_name, timeout_s)
        if turn.holding is not None:
            turn.clear_holding(self._slab_name, timeout_s)
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
    """The context of a lock with a timeout."""

    __slots__ = ("_lock", "_timeout_s")

    def __init__(self, lock: SlabLock, timeout_s: float) -> None:
        self._lock = lock
        self._timeout_s = timeout_s

    def __enter__(self) -> None:
        self._lock.acquire(self._timeout_s)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._lock.leave(kind is not None)
