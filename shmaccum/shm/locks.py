"""The slab's locks, for Python code: ``with lock: ...``, or ``lock.run(section)``.

`shmaccum._core.SlabLock` is the lock itself: an owner word that excludes, and names its holder. This module adds what a
wait needs: sleep, the proof that a holder is dead, the time-out and its error, and the rebuild.

A *section* of the core takes its lock, changes what that guards, and releases it, in one call. It returns at once if
another process has the lock; `SlabLock.run` waits, and calls it again.

No process sleeps in the lock. A waiter spins for a moment. If that is in vain, it *rests* once. Then it sleeps, and
tries again, for longer each time. The less the process has run since its last rest, the longer is the next one. It is
cheapest if one process acquires many times in a row, with warm caches, while the others sleep. A process does not rest
while the sender holds the lock: the sender's turns are longer than an append but end soon. A caller with a timeout of
its own, such as the sender, does not rest either, since it is in a hurry.

Each 5 ms, a waiter looks whether the named holder is dead, and then takes the lock over. A process holds one lock at a
time, so its threads take turns (`shmaccum.shm.turn`). A greenlet sleeps without the turn.

Modelled in ``tools/model/lock.pml``; ``docs/crash-safety.md`` says what the model covers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from shmaccum import _core
from shmaccum._compiled import COMPILED
from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.shm import native
from shmaccum.shm.layout import UNFINISHED_OWNER, Super
from shmaccum.shm.memory import NO_WORDS
from shmaccum.shm.processes import ProcessTable
from shmaccum.shm.turn import Turn, is_reentrant

MIN_TIMEOUT_S: Final = 1.0
"""Shortest timeout where an error is worse than a wait: on a busy machine, a living holder can be slow."""
SLICE_S: Final = 0.005
"""How long a waiter waits between two looks whether the holder is dead."""

Outcome = TypeVar("Outcome", bound=tuple[Any, ...])
"""What a section returns; its first item is a status."""

_REENTRANT: Final = (
    "reentrant call: a signal handler or finalizer used the producer in the middle of another call of it"
)
_DETACHED: Final = "the slab has been detached"
_BUSY: Final = _core.LOCK_BUSY
_TAKEN: Final = _core.LOCK_TAKEN
_UNFINISHED: Final = _core.LOCK_UNFINISHED
_REJOIN: Final = _core.LOCK_REJOIN
_NOT_RUN: Final = (_BUSY, _UNFINISHED, _REJOIN)
"""Statuses of a section that has changed nothing for want of its lock."""
_COUNTER: Final = (1 << 64) - 1
"""A counter wraps to 0: an overflow error of a damaged one must not prevent the release."""
_MIN_SLEEP_S: Final = 0.00005
_MAX_SLEEP_S: Final = 0.01
_MAX_REST_S: Final = 0.008
_RUN_S: Final = 0.002
"""Processor time between two rests to aim at: as long as thousands of appends, compiled."""


class SlabLock:
    """One lock of a slab, as one process sees it: ``with lock: ...``.

    An exception out of the ``with`` block marks what the lock guards as unfinished, and the next holder rebuilds it:
    raise errors behind the block.

    Attributes:
        number: which lock of the slab.
        rebuild: called with the lock held if its last holder died, or was interrupted in a change.
        is_bound: whether the lock knows this process's ticket. A forked child's does not, until it rejoins.
    """

    def __init__(
        self,
        number: int,
        core: _core.SlabLock,
        words: memoryview,
        processes: ProcessTable,
        slab_name: str,
        rejoin: Callable[[], None],
        rebuild: Callable[[], None],
    ) -> None:
        self.number = number
        self.processes = processes
        self.rebuild = rebuild
        self.is_bound = False
        self._core: _core.SlabLock | None = core
        self._acquire_now: Callable[[], int] = core.acquire_now
        self._release: Callable[..., object] = core.release
        self._words = words
        self._rejoin = rejoin
        self._slab_name = slab_name

    def bind(self, turn: Turn) -> None:
        """Set this process's turn, at attach and again in a forked child."""
        self._turn = turn
        self._take_turn = turn.mutex.acquire
        # Releases all levels: after interrupts there can be several. No interrupt comes where this is compiled.
        self._end_turn: Callable[[], object] = (
            turn.mutex.release if turn.fast is not None else turn.mutex._release_save  # type: ignore[union-attr]
        )
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
            IllegalStateError: this process was forked without Python's fork hooks.
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
        status = self._acquire_now()
        if status != _TAKEN:
            self._acquire_slowly(status, timeout_s)

    __enter__ = acquire

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave(kind is not None)

    def leave(self, unfinished: bool) -> None:
        """Release the lock; with ``unfinished`` the next holder rebuilds what it guards."""
        turn = self._turn
        self._release(unfinished)
        turn.holding = None
        if turn.fast is not None:
            turn.fast.release()
        else:
            self._end_turn()

    def run(self, section: Callable[[], Outcome], timeout_s: float | None = None) -> Outcome:
        """Run a section that takes this lock, and wait for the lock before if need be.

        Args:
            section: changes nothing where its outcome begins with `LOCK_BUSY`, `LOCK_UNFINISHED` or `LOCK_REJOIN`.
            timeout_s: how long to wait; None for this process's default (`Turn.timeout_s`), and a rest.

        Returns:
            Its outcome.

        Raises:
            LockTimeoutError, IllegalStateError: as `acquire`.
        """
        if not self.is_bound:
            self._rejoin()
        outcome = section()
        return self._run_slowly(section, outcome, timeout_s) if outcome[0] in _NOT_RUN else outcome

    def _run_slowly(self, section: Callable[[], Outcome], outcome: Outcome, timeout_s: float | None) -> Outcome:
        last = outcome

        def attempt() -> int:
            nonlocal last
            last = section()
            status: int = last[0]
            return status

        def unblock() -> int:
            owner = self._lock().owner
            is_dead = owner not in (0, UNFINISHED_OWNER) and self.processes.is_dead(owner)
            self._lock().unblock(owner if is_dead else 0)
            return attempt()

        if last[0] == _BUSY and self._turn.is_mine():
            self.settle()  # raises if this thread is in the middle of a change
            attempt()
        if last[0] == _BUSY and timeout_s is None and self._is_worth_a_rest():
            self._rest(native.pause)
            attempt()
        if last[0] == _BUSY:
            self._wait(timeout_s, attempt, unblock, native.pause)
        if last[0] == _REJOIN:
            raise self._refusal()
        if last[0] == _UNFINISHED:
            with self if timeout_s is None else self.within(timeout_s):
                pass  # rebuilds what it guards
            return self.run(section, timeout_s)
        return last

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
        """Release the memory; no thread of this process uses the lock any longer."""
        self._core = None
        self._acquire_now = self._release = _closed
        self._words = NO_WORDS

    def owner(self) -> int:
        """Return the process entry that is named as the holder, -1 for none."""
        return self.processes.entry_of(self._lock().owner)

    def abandon_interrupted(self) -> None:
        """Abandon the lock that an interrupt kept this thread from releasing.

        Raises:
            IllegalStateError: the lock is in use: a signal's handler or a finalizer calls the package in the middle of
                that use.
        """
        # Compiled code is never interrupted between two statements, so a lock that is held there is in use.
        if COMPILED or is_reentrant():
            self._turn.mutex.release()
            raise IllegalStateError(_REENTRANT)
        self.abandon()

    def abandon(self) -> None:
        """Release the lock, if this process holds it, with what it guards unfinished."""
        if self.processes.ticket:
            self._release(True)
        self._turn.holding = None

    def _leave(self) -> None:
        """Abandon the lock, and end this thread's turn."""
        self.abandon()
        self._end_turn()

    def _lock(self) -> _core.SlabLock:
        if self._core is None:
            _closed()
        assert self._core is not None
        return self._core

    def _acquire_slowly(self, status: int, timeout_s: float | None) -> None:
        """Wait for the lock, and rebuild what it guards if its last holder did not finish."""
        try:

            def sleep(sleep_s: float) -> None:
                self._sleep(sleep_s, timeout_s)

            if status == _BUSY and timeout_s is None and self._is_worth_a_rest():
                self._rest(sleep)
                status = self._acquire_now()
            if status == _BUSY:
                status = self._wait(timeout_s, self._acquire_now, self._acquire_blocked, sleep)
            if status == _REJOIN:
                raise self._refusal()
            if status == _UNFINISHED:
                self.rebuild()
                self._words[Super.REBUILDS] = self._words[Super.REBUILDS] + 1 & _COUNTER
        except BaseException:
            if self._turn.is_mine():  # an error can end a greenlet's sleep, which is without the turn
                self._leave()
            raise

    def _refusal(self) -> IllegalStateError:
        """Return the error for a process without a ticket."""
        if self._core is None or self._turn.has_ended():
            return IllegalStateError(_DETACHED)
        return IllegalStateError(
            "this process was forked without Python's fork hooks, so it would use its parent's entry of the slab: fork "
            "by os.fork or multiprocessing, or make the Producer after the fork"
        )

    def _is_worth_a_rest(self) -> bool:
        """Return whether another process than the sender holds the lock: the sender's turns are short."""
        return self._lock().owner & 0xFFFF != self._words[Super.SENDER_ENTRY]

    def _rest(self, sleep: Callable[[float], None]) -> None:
        """Sleep for a while before this process gets in the way of others again."""
        # Processor time, because with many running processes most time is spent waiting for a processor.
        ran_s = time.process_time() - self._rested_at_s
        if ran_s > _MIN_SLEEP_S:  # after less, the lock was busy by chance
            rest_s = self._rest_s * _RUN_S / max(ran_s, _RUN_S / 8)
            self._rest_s = min(max(rest_s, _MIN_SLEEP_S), _MAX_REST_S)
        sleep(self._rest_s)
        self._rested_at_s = time.process_time()

    def _wait(
        self,
        timeout_s: float | None,
        attempt: Callable[[], int],
        unblock: Callable[[], int],
        sleep: Callable[[float], None],
    ) -> int:
        """Attempt to get the lock, a slice of time at a time; return the status.

        Args:
            timeout_s: how long; None for this process's default.
            attempt: returns `LOCK_BUSY` while the lock is not free.
            unblock: the same, after each slice: looks for a dead holder, too.
            sleep: between two attempts.
        """
        sleep_s = _MIN_SLEEP_S
        timeout_s = self._turn.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            slice_end = min(time.monotonic() + SLICE_S, deadline)
            left_s = SLICE_S
            while left_s > 0:
                sleep(min(sleep_s, max(0.0, slice_end - time.monotonic())))
                status = attempt()
                if status != _BUSY:
                    return status
                sleep_s = min(sleep_s * 2, _MAX_SLEEP_S)
                left_s = slice_end - time.monotonic()
            status = unblock()
            if status != _BUSY:
                return status
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"slab {self._slab_name!r}: lock {self.number} was not free within {timeout_s:.1f} s: "
                    f"{self._describe_holder()}"
                )

    def _acquire_blocked(self) -> int:
        """Acquire the lock without a unit of its gate, which can be lost, or from a dead holder; return the status."""
        status = self._lock().acquire_word()
        if status != _BUSY:
            return status
        owner = self._lock().owner
        if owner in (0, UNFINISHED_OWNER) or not self.processes.is_dead(owner):
            return _BUSY
        return self._lock().take_over(owner)

    def _describe_holder(self) -> str:
        """Return which process holds the lock, for an error message."""
        owner = self._lock().owner
        if owner == self.processes.ticket:
            return "another thread of this process holds it"
        entry = self.processes.entry_of(owner)
        if entry < 0:
            return "it changes hands too often for this process to get it"
        return f"process {self.processes.info(entry).pid} holds it; is it stopped? Continue or kill it"

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


def _closed(*_: object) -> int:
    """Refuse the use of a lock of a slab that this process has left."""
    raise IllegalStateError(_DETACHED)


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
