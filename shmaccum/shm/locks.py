"""The slab's locks, for Python code: ``lock.run(section)``.

`shmaccum._core.SlabLock` is the lock itself: an owner word that excludes, and names its holder. A *section* of the core
takes its lock, changes what that guards, and releases it, in one call without any Python code in it. If the last holder
died in the middle of a change, the section first rebuilds what the lock guards. It returns at once if another process
has the lock. This module waits then: sleep, the proof that the holder is dead, the time-out and its error.

A section runs under the GIL, so threads and greenlets of one process are never in two at a time.

No process sleeps in the lock. A waiter spins for a moment. If that is in vain, it *rests* once. Then it sleeps, and
tries again, for longer each time. The less the process has run since its last rest, the longer is the next one. It is
cheapest if one process acquires many times in a row, with warm caches, while the others sleep. A process does not rest
while the sender holds the lock: the sender's turns are longer than an append but end soon. A caller with a timeout of
its own, such as the sender, does not rest either, since it is in a hurry.

Each 5 ms, a waiter looks whether the named holder is dead, and then frees the lock for the next one to take.

Modelled in ``tools/model/lock.pml``; ``docs/inside/proofs.md`` says what the model covers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shmaccum import _core
from shmaccum._core import UNFINISHED, Super
from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.shm import native

if TYPE_CHECKING:
    from shmaccum.shm.slab import Slab

DEFAULT_TIMEOUT_S: Final = 60.0
"""How long a caller waits for a living holder, which can be stopped, by default (`Slab.set_lock_timeout`)."""
MIN_TIMEOUT_S: Final = 1.0
"""Shortest timeout where an error is worse than a wait: on a busy machine, a living holder can be slow."""
SLICE_S: Final = 0.005
"""How long a waiter waits between two looks whether the holder is dead."""

Outcome = TypeVar("Outcome", bound=tuple[Any, ...])
"""What a section returns; its first item is a status."""

_BUSY: Final = _core.LOCK_BUSY
_REJOIN: Final = _core.LOCK_REJOIN
_MIN_SLEEP_S: Final = 0.00005
_MAX_SLEEP_S: Final = 0.01
_MAX_REST_S: Final = 0.008
_RUN_S: Final = 0.002
"""Processor time between two rests to aim at: as long as thousands of appends."""


class SlabLock:
    """One lock of a slab, as one process sees it."""

    def __init__(self, number: int, core: _core.SlabLock, slab: Slab) -> None:
        self.number = number
        self._core: _core.SlabLock | None = core
        self._slab = slab
        self._rest_s = _MIN_SLEEP_S
        self._rested_at_s = 0.0
        """This process's processor time when its last rest ended."""

    def run(self, section: Callable[[], Outcome], timeout_s: float | None = None) -> Outcome:
        """Run a section that takes this lock, and wait for the lock before if need be; return its outcome.

        The section changes nothing where its outcome begins with `LOCK_BUSY` or `LOCK_REJOIN`. Without a timeout it
        waits as `Slab.set_lock_timeout` says, with a rest.

        Raises:
            LockTimeoutError: a living process has kept the lock for that long; names it.
            IllegalStateError: this process has left the slab, or was forked without Python's fork hooks.
        """
        outcome = section()
        if outcome[0] == _REJOIN:
            self._slab.rejoin()
            outcome = section()
            if outcome[0] == _REJOIN:
                raise IllegalStateError(
                    "this process was forked without Python's fork hooks, so it would use its parent's entry of the "
                    "slab: fork by os.fork or multiprocessing, or make the Producer after the fork"
                )
        words = self._slab.words  # the sender's turns are short
        if outcome[0] == _BUSY and timeout_s is None and self.core.owner & 0xFFFF != words[Super.SENDER_ENTRY]:
            self._rest()
            outcome = section()
        if outcome[0] == _BUSY:
            outcome = self._wait(section, self._slab.lock_timeout_s if timeout_s is None else timeout_s)
        # Whoever waits can be forked meanwhile, by another greenlet.
        return self.run(section, timeout_s) if outcome[0] == _REJOIN else outcome

    @property
    def core(self) -> _core.SlabLock:
        """The lock itself. Raises IllegalStateError: this process has left the slab."""
        if self._core is None:
            raise IllegalStateError(f"slab {self._slab.name!r} has been detached")
        return self._core

    def owner(self) -> int:
        """Return the process entry that is named as the holder, -1 for none."""
        return self._slab.processes.entry_of(self.core.owner)

    def close(self) -> None:
        """Release the memory."""
        self._core = None

    def _rest(self) -> None:
        """Sleep for a while before this process gets in the way of others again."""
        # Processor time, because with many running processes most time is spent waiting for a processor.
        ran_s = time.process_time() - self._rested_at_s
        if ran_s > _MIN_SLEEP_S:  # after less, the lock was busy by chance
            rest_s = self._rest_s * _RUN_S / max(ran_s, _RUN_S / 8)
            self._rest_s = min(max(rest_s, _MIN_SLEEP_S), _MAX_REST_S)
        native.pause(self._rest_s)
        self._rested_at_s = time.process_time()

    def _wait(self, section: Callable[[], Outcome], timeout_s: float) -> Outcome:
        """Run a section as soon as its lock is free; return its outcome."""
        sleep_s = _MIN_SLEEP_S
        deadline = time.monotonic() + timeout_s
        while True:
            slice_end = min(time.monotonic() + SLICE_S, deadline)
            left_s = SLICE_S
            while left_s > 0:
                native.pause(min(sleep_s, max(0.0, slice_end - time.monotonic())))
                outcome = section()
                if outcome[0] != _BUSY:
                    return outcome
                sleep_s = min(sleep_s * 2, _MAX_SLEEP_S)
                left_s = slice_end - time.monotonic()
            # Free the lock from a dead holder, or its gate from the loss of its unit.
            owner = self.core.owner
            is_dead = owner not in (0, UNFINISHED) and self._slab.processes.is_dead(owner)
            self.core.unblock(owner if is_dead else 0)
            outcome = section()
            if outcome[0] != _BUSY:
                return outcome
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"slab {self._slab.name!r}: lock {self.number} was not free within {timeout_s:.1f} s: "
                    f"{self._describe_holder()}"
                )

    def _describe_holder(self) -> str:
        """Return which process holds the lock, for an error message."""
        entry = self.owner()
        if entry < 0:
            return "it changes hands too often for this process to get it"
        return f"process {self._slab.processes.info(entry).pid} holds it; is it stopped? Continue or kill it"
