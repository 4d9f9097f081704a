"""Kafka's BufferPool (``BufferPool.java``), for all processes of a host.

It keeps Kafka's two promises. Memory is *bounded*, by ``buffer.memory`` for the whole host. Waiting is *fair*: first
come, first served, over all processes. A request of a slot's size or less gets one slot, a larger one a chain of slots,
wherever they are free. So the pool serves any request as soon as that number of slots is free. Until the first waiter's
number is free, the pool serves no later request.

`shmaccum._core.BufferPool` allocates, frees and queues, in sections under the pool's lock. This module waits: for that
lock, and for memory. It finds out which processes are dead before a section, and wakes after it, since both are system
calls.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final, overload

from shmaccum import _core
from shmaccum._core import Buffer, MemoryTicket, Process
from shmaccum.errors import (
    BufferExhaustedError,
    IllegalStateError,
    LockTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
)
from shmaccum.shm.layout import OfProcess
from shmaccum.shm.locks import MIN_TIMEOUT_S
from shmaccum.shm.slab import Slab
from shmaccum.shm.wakeup import NO_COMPLETIONS, Slices

WAIT_SLICE_S: Final = 0.1
"""How long a waiter sleeps before it checks that the waiters before it live."""
HEAD_SLICE_S: Final = 0.01
"""How long the head of the queue sleeps before it checks for fewer free slots than it is woken for."""
ABSENT_S: Final = 1.0
"""A waiter that has not looked for this long is passed over; a running waiter looks several times as often."""


class MemoryWait:
    """One wait for ``size`` bytes, in ``count`` slots, from now on: its ticket, and whether a wake-up ended a wait.

    If a stopped process holds the lock, a look waits for it for at most ``patience_s``. The wait ends without memory
    once ``is_over`` returns True.
    """

    def __init__(
        self,
        size: int,
        count: int,
        max_block_ms: float,
        patience_s: float = math.inf,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.size = size
        self.max_block_ms = max_block_ms
        self.patience_s = patience_s
        self.process = os.getpid()
        self.ticket = MemoryTicket(count, time.monotonic(), max_block_ms / 1000)
        self.was_woken: bool | None = None
        self.is_over = is_over
        self.needs_none = False

    def remaining_s(self) -> float:
        """Return how much of ``max_block_ms`` is left."""
        return self.ticket.started_s + self.ticket.timeout_s - time.monotonic()

    def slice_s(self) -> float:
        """Return how long to wait before the next look."""
        return min(self.remaining_s(), HEAD_SLICE_S if self.ticket.is_head else WAIT_SLICE_S)


class BufferPool:
    """The slots of a slab, as one process sees them. Threads can share it.

    ``while_waiting`` is called before and repeatedly during a wait for memory, without a lock; it can start a sender,
    which frees memory. ``max_block_ms`` is as configured, for errors: a wait itself can be shorter, since it is only a
    part of its call. Without it, the errors have that of the wait.
    """

    def __init__(
        self, slab: Slab, while_waiting: Callable[[], None] | None = None, max_block_ms: int | None = None
    ) -> None:
        self.slab: Final = slab
        self.poolable_size: Final = slab.geometry.slot_size
        self.total_memory: Final = slab.geometry.slot_count * slab.geometry.slot_size
        self.while_waiting = while_waiting or (lambda: None)
        self._max_block_ms = max_block_ms
        self._words = slab.words
        self._lock = slab.pool_lock
        self._closed = False
        self._started = time.monotonic()
        self._waited_ns = 0

    # --- allocating and freeing ---------------------------------------------------------------------

    @overload
    def allocate(self, size: int, max_block_ms: float, taken: list[Buffer] | None = None) -> Buffer: ...

    @overload
    def allocate(
        self, size: int, max_block_ms: float, taken: list[Buffer], is_over: Callable[[], bool]
    ) -> Buffer | None: ...

    def allocate(
        self,
        size: int,
        max_block_ms: float,
        taken: list[Buffer] | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Buffer | None:
        """Allocate at least ``size`` bytes, waiting for them up to ``max_block_ms``.

        The buffer's header is in state ALLOCATED, owned by this process, with a new generation. The buffer is in
        ``taken``, too, an empty list at first, so that the caller can free it after an interrupt.

        The wait ends without memory once ``is_over`` returns True, asked before each look for some; this returns None.

        Raises:
            RecordTooLargeError: ``size`` exceeds the whole pool.
            BufferExhaustedError: too little memory became free in time.
            ProducerClosedError: the pool was closed, perhaps during the wait.
        """
        taken = [] if taken is None else taken
        try:
            if not self.try_allocate(size, taken):
                wait = MemoryWait(size, self.slots_for(size), max_block_ms, is_over=is_over)
                with self.slab.wakeup.listening(NO_COMPLETIONS) as listener:
                    listener.wait_for(self.waiting(wait, taken), self.while_waiting)
            return taken[0] if taken else None
        except BaseException:
            # After an interrupt the caller does not have the memory: it would leak.
            for buffer in taken:
                if self.is_taken(buffer):
                    self.deallocate(buffer)
            raise

    def try_allocate(self, size: int, taken: list[Buffer]) -> bool:
        """Allocate as `allocate` if that needs no wait; return whether it did. After an error, free ``taken``."""
        slots = self.slots_for(size)
        if self._closed:
            raise ProducerClosedError("the buffer pool has been closed")
        self._lock.run(partial(self.slab.pool.allocate, taken, slots))
        return bool(taken)

    def slots_for(self, size: int) -> int:
        """Return how many slots hold ``size`` bytes. Raises RecordTooLargeError: ``size`` exceeds the whole pool."""
        slots = max(1, -(-size // self.poolable_size))
        if slots > self.slab.geometry.slot_count:
            raise RecordTooLargeError(
                f"Attempt to allocate {size} bytes, but there is a hard limit of {self.total_memory} on memory "
                "allocations (buffer.memory)"
            )
        return slots

    def deallocate(self, *buffers: Buffer, timeout_s: float | None = None) -> None:
        """Free memory, and wake the first waiter if enough is free.

        ``timeout_s`` is how long to wait for the pool's lock; None for this process's default.

        Raises:
            IllegalStateError: one of them is not allocated; the others are freed.
            LockTimeoutError: a living process holds the lock; nothing is freed.
        """
        _, waiter, freed = self._lock.run(partial(self.slab.pool.free, *buffers), timeout_s)
        self._wake(waiter)
        if freed < len(buffers):
            raise IllegalStateError(f"cannot free {len(buffers) - freed} of these buffers, not allocated: {buffers}")

    def extend(self, buffer: Buffer, own: Buffer) -> bool:
        """Add own, unused memory to a batch's; return False if it was freed, or another process was faster."""
        return self._lock.run(partial(self.slab.pool.extend, buffer, own))[1]

    def is_taken(self, buffer: Buffer) -> bool:
        """Return whether this allocation still exists, without taking the lock."""
        return self.slab.pool.is_taken(buffer)

    # --- waiting ------------------------------------------------------------------------------------

    def waiting(self, wait: MemoryWait, taken: list[Buffer]) -> Slices[None]:
        """Wait in the queue, by `look`; the ticket is returned however the wait ends."""
        try:
            while not (wait.is_over() or self.look(wait, taken)):
                wait.was_woken = yield wait.slice_s()
            wait.needs_none = not taken
        finally:
            try:
                self.leave(wait)
            except KeyboardInterrupt:
                self.leave(wait)  # else all others would wait for us until our deadline
                raise

    def look(self, wait: MemoryWait, taken: list[Buffer]) -> bool:
        """Allocate if it is this wait's turn; else draw its ticket, or keep it, and press for the sender.

        Look again after a wake-up, or after `MemoryWait.slice_s`, and `leave` in the end. Returns whether it allocated;
        ``taken`` is as of `allocate`.

        Raises:
            BufferExhaustedError: too little memory became free in time.
            ProducerClosedError: the pool was closed.
            LockTimeoutError: a living process holds the lock.
        """
        slab, ticket = self.slab, wait.ticket
        was_woken, wait.was_woken = wait.was_woken if ticket.is_head else None, None
        dead = self._dead_before(ticket.number)
        section = partial(slab.pool.look, ticket, taken, was_woken, dead, time.monotonic(), ABSENT_S)
        _, waiter = self._lock.run(section, min(wait.patience_s, max(MIN_TIMEOUT_S, wait.remaining_s())))
        if taken:
            return True
        self._wake(waiter)
        if self._closed:
            raise ProducerClosedError("the producer was closed while waiting for memory")
        if wait.remaining_s() <= 0:
            raise self.exhausted(wait.size, wait.max_block_ms)
        # While processes wait for memory, the sender sends without linger.
        slab.button.press()
        return False

    def leave(self, wait: MemoryWait) -> None:
        """End a wait: return its ticket, and wake the next waiter; not in a forked child, as it is the parent's."""
        if wait.process != os.getpid():
            return
        slab = self.slab
        waited_ns = max(0, int((time.monotonic() - wait.ticket.started_s) * 1e9))
        # At a timeout, other processes remove the ticket soon, since its deadline is over.
        with contextlib.suppress(LockTimeoutError):
            _, waiter = self._lock.run(partial(slab.pool.leave, wait.ticket, waited_ns, wait.needs_none), MIN_TIMEOUT_S)
            self._waited_ns += waited_ns
            waits_at = slab.geometry.process_histogram(slab.me, OfProcess.MEMORY_WAIT)
            _core.count_value(slab.core, waits_at, waited_ns // 1000)
            self._wake(waiter)

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

    def _dead_before(self, me: int) -> list[int]:
        """Return the dead that wait before ticket ``me``, up to the first waiter that can be served."""
        dead = []
        for number, owner, is_passed_over in self.slab.pool.waiters():
            if number == me:
                break
            if self._is_dead(owner):
                dead.append(owner)
            elif not is_passed_over:
                break
        return dead

    def _is_dead(self, owner: int) -> bool:
        return owner != self.slab.owner_tag and not self.slab.owner_is_alive(owner)

    def _wake(self, entry: int) -> None:
        """Wake a waiter; call it without the lock, since it is a system call."""
        if entry >= 0:
            self.slab.wakeups.wake(entry)

    # --- metrics ------------------------------------------------------------------------------------

    def queued(self) -> int:
        """Return how many threads, of all processes, wait for memory, without taking the lock."""
        return len(self.slab.pool.waiters())

    def available_memory(self) -> int:
        """Return the bytes that are free."""
        return self.slab.pool.free_slots * self.poolable_size

    def wait_ratio(self) -> float:
        """Return the fraction of time that this pool's threads wait for memory (``bufferpool-wait-ratio``)."""
        return min(1.0, self._waited_ns / 1e9 / max(time.monotonic() - self._started, 1e-9))

    # --- recovery and close -------------------------------------------------------------------------

    def reclaim(self, timeout_s: float | None = None) -> int:
        """Free the slots that dead processes took and never used; return how many.

        Raises LockTimeoutError: a living process holds the lock, after ``timeout_s`` (as of `deallocate`).
        """
        core = self.slab.pool
        dead = [owner for owner in core.owners() | {owner for _, owner, _ in core.waiters()} if self._is_dead(owner)]
        section = partial(core.reclaim, dead, time.monotonic(), ABSENT_S)
        _, waiter, reclaimed = self._lock.run(section, timeout_s)
        self._wake(waiter)
        return reclaimed

    def close(self) -> None:
        """End this process's waits and refuse further requests; allocated memory can still be freed."""
        self._closed = True
        self._wake(self.slab.processes.me)
