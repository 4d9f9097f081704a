"""Kafka's BufferPool (``BufferPool.java``), for all processes of a host.

It keeps Kafka's two promises. Memory is *bounded*, by ``buffer.memory`` for the whole host. Waiting is *fair*: first
come, first served, over all processes. A request of ``batch.size`` gets one slot, a larger one a chain of slots,
wherever they are free. So the pool serves any request as soon as that number of slots is free. Until the first waiter's
number is free, the pool serves no later request.

Three parts work under one lock, the pool's. `slots` allocates and frees, by the slot headers, which are the truth.
`bitmap`, an index of them, finds free slots. `waiters` selects the next waiter, and when to wake it. If a process dies
in any of this, the process that takes over the lock rebuilds the indexes, and slots that the dead one had not used
become free. The wake-up, a system call, comes after the lock is released.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from shmaccum.errors import (
    BufferExhaustedError,
    IllegalStateError,
    LockTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    SlabDamagedError,
)
from shmaccum.pool.slots import Buffer, Slots
from shmaccum.pool.waiters import WaiterQueue
from shmaccum.shm.histograms import count
from shmaccum.shm.layout import WORD, OfProcess, Process, Super
from shmaccum.shm.locks import MIN_TIMEOUT_S
from shmaccum.shm.slab import Slab
from shmaccum.shm.wakeup import NO_COMPLETIONS

WAIT_SLICE_S: Final = 0.1
"""How long a waiter sleeps before it checks that the waiters before it live."""
HEAD_SLICE_S: Final = 0.01
"""How long the head of the queue sleeps before it checks for fewer free slots than it is woken for."""


class MemoryWait:
    """One wait for memory: its ticket, and what the last look at the queue showed.

    Args:
        size: bytes.
        count: slots that hold them.
        max_block_ms: how long to wait, from now on.
        patience_s: most seconds that a look waits for the lock, if a stopped process holds it.

    Attributes:
        was_woken: after a wait, whether a wake-up ended it.
    """

    __slots__ = ("count", "is_head", "max_block_ms", "patience_s", "size", "started", "ticket", "was_woken")

    def __init__(self, size: int, count: int, max_block_ms: float, patience_s: float = math.inf) -> None:
        self.size = size
        self.count = count
        self.max_block_ms = max_block_ms
        self.patience_s = patience_s
        self.started = time.monotonic()
        self.ticket = -1
        self.is_head = False
        self.was_woken: bool | None = None

    def remaining_s(self) -> float:
        """Return how much of ``max_block_ms`` is left."""
        return self.started + self.max_block_ms / 1000 - time.monotonic()

    def slice_s(self) -> float:
        """Return how long to wait before the next look."""
        return min(self.remaining_s(), HEAD_SLICE_S if self.is_head else WAIT_SLICE_S)


class BufferPool:
    """The slots of a slab, as one process sees them. Threads may share it.

    Args:
        slab: the slab that has the slots.
        while_waiting: called before and repeatedly during a wait for memory, without a lock; can start a sender, which
            frees memory.
        max_block_ms: as configured, for errors: a wait itself can be shorter, since it is only a part of its call. None
            for that of each wait.
    """

    def __init__(
        self, slab: Slab, while_waiting: Callable[[], None] | None = None, max_block_ms: int | None = None
    ) -> None:
        self.slab: Final = slab
        self.poolable_size: Final = slab.geometry.slot_size
        self.total_memory: Final = slab.geometry.slot_count * slab.geometry.slot_size
        self.while_waiting = while_waiting or _do_nothing
        self._max_block_ms = max_block_ms
        self._words = slab.words
        self._lock = slab.pool_lock
        self._slots = Slots(slab)
        self._waiters = WaiterQueue(slab.name, slab.memory, slab.geometry)
        self._closed = False
        self._started = time.monotonic()
        self._waited_ns = 0

    # --- allocating and freeing ---------------------------------------------------------------------

    def allocate(self, size: int, max_block_ms: float, taken: list[Buffer] | None = None, *, most: int = 1) -> Buffer:
        """Allocate at least ``size`` bytes, waiting for them up to ``max_block_ms``.

        The slots' headers are in state ALLOCATED, owned by this process, with a new generation.

        A caller that needs several buffers asks for all at once. It gets more than the first only if they are free and
        no other process waits. So no process holds memory while it waits, or gets a second buffer while others wait for
        their first.

        Args:
            size: bytes.
            max_block_ms: how long to wait.
            taken: an empty list; each buffer is added before it is taken, so that the caller can free it after an
                interrupt.
            most: take up to this number of buffers, all in ``taken``.

        Returns:
            The first buffer.

        Raises:
            RecordTooLargeError: ``size`` exceeds the whole pool.
            BufferExhaustedError: too little memory became free in time.
            ProducerClosedError: the pool was closed, perhaps during the wait.
        """
        taken = [] if taken is None else taken
        try:
            if not self.try_allocate(size, taken, most=most):
                self._wait_for(size, max_block_ms, taken, most)
            return taken[0]
        except BaseException:
            # After an interrupt the caller does not have the memory: it would leak.
            for buffer in taken:
                if self.is_taken(buffer):
                    self.deallocate(buffer)
            raise

    def try_allocate(self, size: int, taken: list[Buffer], *, most: int = 1) -> bool:
        """Allocate as `allocate` does if that needs no wait; return whether it did.

        Args and errors: as of `allocate`; after an error, the caller frees what is in ``taken``.
        """
        count = self.slots_for(size)
        if self._closed:
            raise ProducerClosedError("the buffer pool has been closed")
        with self._lock:
            # If there is enough for all, a queue would only make each wait for a wake-up by the one before.
            if self._waiters.spare(self._slots.free_count()) >= count:
                self._slots.take(count, taken, most if self._waiters.is_empty() else 1)
        return bool(taken)

    def slots_for(self, size: int) -> int:
        """Return how many slots hold ``size`` bytes.

        Raises:
            RecordTooLargeError: ``size`` exceeds the whole pool.
        """
        count = max(1, -(-size // self.poolable_size))
        if count > self.slab.geometry.slot_count:
            raise RecordTooLargeError(
                f"Attempt to allocate {size} bytes, but there is a hard limit of {self.total_memory} on memory "
                "allocations (buffer.memory)"
            )
        return count

    def deallocate(self, *buffers: Buffer, lock: AbstractContextManager[None] | None = None) -> None:
        """Free memory, and wake the first waiter if enough is free.

        Args:
            buffers: to free.
            lock: the pool's lock, with a shorter timeout than the default.

        Raises:
            IllegalStateError: one of them is not allocated; the others are freed all the same.
            LockTimeoutError: a living process holds the lock; nothing is freed.
        """
        with lock or self._lock:
            given = self._slots.give(buffers)
            waiting = self._waiters.to_be_woken(self._slots.free_count())
        self._wake(waiting)
        if given < len(buffers):
            raise IllegalStateError(f"cannot free {len(buffers) - given} of these buffers, not allocated: {buffers}")

    def is_taken(self, buffer: Buffer) -> bool:
        """Return whether this allocation still exists, without taking the lock."""
        return self._slots.is_taken(buffer)

    # --- waiting ------------------------------------------------------------------------------------

    def _wait_for(self, size: int, max_block_ms: float, taken: list[Buffer], most: int) -> None:
        """Wait in the queue; the ticket is returned however the wait ends."""
        slab = self.slab
        wait = MemoryWait(size, self.slots_for(size), max_block_ms)
        try:
            with slab.wakeup.listening(NO_COMPLETIONS) as listener:
                while not self.look(wait, taken, most=most):
                    self.while_waiting()
                    wait.was_woken = listener.wait(wait.slice_s())
        finally:
            try:
                self.leave(wait)
            except KeyboardInterrupt:
                self.leave(wait)  # else all others would wait for us until our deadline
                raise

    def look(self, wait: MemoryWait, taken: list[Buffer], *, most: int = 1) -> bool:
        """Allocate if it is this wait's turn; else draw its ticket, or keep it, and press for the sender.

        Look again after a wake-up, or after `MemoryWait.slice_s`, and `leave` in the end.

        Args:
            wait: by this process.
            taken: an empty list, as of `allocate`.
            most: take up to this number of buffers if no other process waits.

        Returns:
            Whether it allocated.

        Raises:
            BufferExhaustedError: too little memory became free in time.
            ProducerClosedError: the pool was closed.
            LockTimeoutError: a living process holds the lock.
        """
        slab = self.slab
        was_woken, wait.was_woken = wait.was_woken if wait.is_head else None, None
        with self._lock.within(min(wait.patience_s, max(MIN_TIMEOUT_S, wait.remaining_s()))):
            if wait.ticket < 0:
                wait.ticket = self._waiters.join(slab.owner_tag, wait.started, wait.max_block_ms / 1000, wait.count)
            else:
                self._waiters.look(wait.ticket)
            waiting = self._pass_over_the_absent(wait.ticket)
            wait.is_head = wait.ticket >= 0 and self._waiters.head() == wait.ticket
            if wait.is_head:
                if was_woken is not None:
                    self._waiters.learn(was_woken=was_woken)
                self._slots.take(wait.count, taken, most if len(self._waiters) == 1 else 1)
        if taken:
            return True
        self._wake(waiting)
        if self._closed:
            raise ProducerClosedError("the producer was closed while waiting for memory")
        if wait.remaining_s() <= 0:
            raise self.exhausted(wait.size, wait.max_block_ms)
        # While processes wait for memory, the sender sends without linger.
        slab.button.press()
        return False

    def leave(self, wait: MemoryWait) -> None:
        """End a wait: return its ticket, if it has one."""
        self._stop_waiting(wait.ticket, wait.started)

    def _stop_waiting(self, ticket: int, started: float) -> None:
        """Return the ticket, if there is one, and wake the next waiter."""
        waited_ns = int((time.monotonic() - started) * 1e9)
        entry = self.slab.geometry.process(self.slab.me)
        # At a timeout, other processes remove the ticket soon, since its deadline is over.
        with contextlib.suppress(LockTimeoutError):
            with self._lock.within(MIN_TIMEOUT_S):
                if ticket >= 0:
                    self._waiters.leave(ticket)
                waiting = self._next_waiter() if self._slots.free_count() else -1
                self._waited_ns += waited_ns
                self._words[entry + Process.WAITS] += 1
                self._words[entry + Process.WAIT_NS] += waited_ns
                waits_at = self.slab.geometry.process_histogram(self.slab.me, OfProcess.MEMORY_WAIT)
                count(self.slab.memory, waits_at, waited_ns // 1000)
            self._wake(waiting)

    def exhausted(self, size: int, max_block_ms: float) -> BufferExhaustedError:
        """Return the error for a wait that took too long, and count it."""
        self._words[self.slab.geometry.process(self.slab.me) + Process.EXHAUSTED] += 1
        configured_ms = max_block_ms if self._max_block_ms is None else self._max_block_ms
        return BufferExhaustedError(
            f"Failed to allocate {size} bytes within the configured max blocking time {configured_ms:.0f} ms. Total "
            f"memory: {self.total_memory} bytes. Available memory: {self.available_memory()} bytes. Poolable size: "
            f"{self.poolable_size} bytes. Waiting: {self.queued()}. Raise buffer.memory or max.block.ms, or check with "
            f"`shmaccum status` why the sender frees so little{self.slab.trouble()}"
        )

    def _pass_over_the_absent(self, me: int = -1) -> int:
        """Make a running waiter the head: remove dead and overdue ones, pass over those that do not look.

        Args:
            me: this thread's ticket, at which the check ends.

        Returns:
            The process entry to wake, -1 if nothing has changed.
        """
        changed = False
        now = time.monotonic()
        for ticket in self._waiters.tickets():
            if ticket == me:
                break
            tag = self._waiters.owner_tag(ticket)
            alive = tag == self.slab.owner_tag or self.slab.owner_is_alive(tag)
            if not alive or self._waiters.is_overdue(ticket, now):
                self._waiters.leave(ticket)
            elif self._waiters.is_passed_over(ticket):
                continue
            elif self._waiters.is_absent(ticket, now):
                self._waiters.pass_over(ticket)
            else:
                break
            changed = True
        return self._next_waiter() if changed else -1

    def _next_waiter(self) -> int:
        """Return the process entry of the waiter to serve next, -1 if there is none; under the lock."""
        head = self._waiters.head()
        return -1 if head < 0 else self._waiters.owner_entry(head)

    def _wake(self, entry: int) -> None:
        """Wake a waiter; call it without the lock, since it is a system call."""
        if entry >= 0:
            self.slab.wakeups.wake(entry)

    # --- metrics ------------------------------------------------------------------------------------

    def queued(self) -> int:
        """Return how many threads, of all processes, wait for memory, without taking the lock."""
        return len(self._waiters)

    def is_exhausted(self) -> bool:
        """Return whether a process waits for memory that is not free, without taking the lock."""
        return not self._waiters.is_empty() and not self._waiters.spare(self._slots.free_count())

    def available_memory(self) -> int:
        """Return the bytes that are free."""
        return self._slots.free_count() * self.poolable_size

    def unallocated_memory(self) -> int:
        """Return the bytes that were never allocated; in Kafka, those outside of its free list."""
        return self.total_memory - int(self._words[Super.TOUCHED_SLOTS]) * self.poolable_size

    def wait_ratio(self) -> float:
        """Return the fraction of time that this pool's threads wait for memory (``bufferpool-wait-ratio``)."""
        return min(1.0, self._waited_ns / 1e9 / max(time.monotonic() - self._started, 1e-9))

    # --- recovery and close -------------------------------------------------------------------------

    def reclaim(self, lock: AbstractContextManager[None] | None = None) -> int:
        """Free the slots that dead processes took and never used; return how many.

        Args:
            lock: the pool's lock, with a shorter timeout than the default.

        Raises:
            LockTimeoutError: a living process holds the lock.
        """
        with lock or self._lock:
            reclaimed = self._slots.reclaim()
            waiting = self._pass_over_the_absent()
            if reclaimed:
                waiting = self._next_waiter()
        self._wake(waiting)
        return reclaimed

    def rebuild(self) -> None:
        """Rebuild the slots' indexes and the queue's head, after a death or an interrupt; under the pool's lock."""
        self._slots.rebuild()
        with contextlib.suppress(SlabDamagedError):  # each waiter raises it itself
            self._waiters.move_on()

    def close(self) -> None:
        """End this process's waits and refuse further requests; other processes continue.

        Allocated memory can still be freed.
        """
        self._closed = True
        self._wake(self.slab.processes.me)


def slot_size_for(poolable_size: int) -> int:
    """Return the slot size for ``poolable_size`` bytes, rounded up to whole words."""
    return -(-poolable_size // WORD) * WORD


def _do_nothing() -> None:
    pass
