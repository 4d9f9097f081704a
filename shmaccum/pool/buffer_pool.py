"""The BufferPool of Kafka's producer (``BufferPool.java``), for all the processes of a host.

It keeps Kafka's two promises: memory is *bounded*, by ``buffer.memory`` for the whole host, and waiting for it is
*fair*, first come, first served over all processes. A request of ``batch.size`` is one slot; a larger one gets
a run of adjacent slots, which forms while its waiter is at the head of the queue, because nobody else is served
then.

Every step of a slot from or to FREE is taken here, under the pool's lock, header first: the bitmap and the counts
follow, and are rebuilt from the headers when somebody dies in between.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from shmaccum.errors import BufferExhaustedError, IllegalStateError, ProducerClosedError, RecordTooLargeError
from shmaccum.pool.bitmap import FreeBitmap
from shmaccum.pool.waiters import WaiterQueue
from shmaccum.shm.layout import (
    RUN_MASK,
    RUN_SHIFT,
    STATE_MASK,
    WORD,
    Geometry,
    Process,
    Slot,
    SlotState,
    Super,
)
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab

WAIT_SLICE_S: Final = 0.1
"""How long a waiter sleeps before it makes sure that those it waits for are alive."""


class Buffer(NamedTuple):
    """Memory from the pool: a run of adjacent slots."""

    slot: int
    """The first one."""
    slots: int
    """How many."""
    generation: int
    """The slot's generation since this very allocation: an old handle of a slot in new hands is told apart."""


class BufferPool:
    """The slots of a slab, as one process sees them. Threads may share it.

    Args:
        memory: total bytes, rounded down to whole slots (``buffer.memory``).
        poolable_size: bytes in a slot, rounded up to whole words (``batch.size``).
        slab: the slab whose slots these are; without one the pool attaches to a slab of its own,
            named ``name`` where given, so that other processes find it.
        name: name of the pool's own slab.
    """

    def __init__(self, memory: int, poolable_size: int, *, slab: Slab | None = None, name: str = "") -> None:
        self._own_slab = slab is None
        if slab is None:
            slot_size = slot_size_for(poolable_size)
            geometry = Geometry(slot_size, max(1, memory // slot_size))
            slab = attach(name or f"pool-{uuid.uuid4().hex[:16]}", geometry)
        self.slab: Final = slab
        self.poolable_size: Final = slab.geometry.slot_size
        self.total_memory: Final = slab.geometry.slot_count * slab.geometry.slot_size
        self.while_waiting: Callable[[], None] = _do_nothing
        """Called before a wait for memory and now and then during it, under no lock: the place to see to it that
        there is a sender that will free some."""
        self._words = slab.words
        self._bitmap = FreeBitmap(slab.buffer, slab.words, slab.geometry)
        self._waiters = WaiterQueue(slab.name, slab.words, slab.geometry)
        self._closed = False
        self._started = time.monotonic()
        self._waited_ns = 0
        slab.pool_lock.rebuild = self._rebuild

    # --- taking and giving --------------------------------------------------------------------------

    def allocate(self, size: int, max_block_ms: float) -> Buffer:
        """Take memory of at least ``size`` bytes, waiting for it up to ``max_block_ms``.

        The slots' headers are in state ALLOCATED, owned by this process, of a new generation.

        Raises:
            RecordTooLargeError: ``size`` is more than the pool has in all.
            BufferExhaustedError: not so much became free in time.
            ProducerClosedError: the pool was closed, perhaps during the wait.
        """
        count = max(1, -(-size // self.poolable_size))
        if count > self.slab.geometry.slot_count:
            raise RecordTooLargeError(
                f"Attempt to allocate {size} bytes, but there is a hard limit of {self.total_memory} on memory "
                "allocations (buffer.memory)"
            )
        if self._closed:
            raise ProducerClosedError("the buffer pool has been closed")
        taken: list[Buffer] = []
        try:
            with self.slab.pool_lock:
                if self._waiters.is_empty():
                    self._take(count, taken)
            if not taken:
                self._wait_for(count, size, max_block_ms, taken)
            return taken[0]
        except BaseException:
            # An interrupt came when it was ours and the caller did not have it yet.
            for buffer in taken:
                if self.buffer_at(buffer.slot) == buffer:
                    self.deallocate(buffer)
            raise

    def deallocate(self, *buffers: Buffer) -> None:
        """Give memory back and wake the first waiter.

        Raises:
            IllegalStateError: one of them is not taken; the others are given back all the same.
        """
        taken: list[tuple[int, int]] = []
        with self.slab.pool_lock:
            for buffer in buffers:
                header = self.slab.geometry.header(buffer.slot)
                if self.buffer_at(buffer.slot) == buffer:
                    self._words[header + Slot.STATE] = SlotState.FREE
                    taken.append((buffer.slot, buffer.slots))
            self._bitmap.give(taken)
            waiting = self._next_waiter()
        self._wake(waiting)
        if len(taken) < len(buffers):
            raise IllegalStateError(f"given back, but not taken: {len(buffers) - len(taken)} of {buffers}")

    def buffer_at(self, slot: int) -> Buffer | None:
        """Return the memory that begins at a slot as it is taken now, None where it is free."""
        words = self._words
        header = self.slab.geometry.header(slot)
        state = words[header + Slot.STATE]
        if state & STATE_MASK == SlotState.FREE:
            return None
        return Buffer(slot, state >> RUN_SHIFT & RUN_MASK, words[header + Slot.GENERATION])

    def _take(self, count: int, taken: list[Buffer]) -> None:
        """Take a run of slots, if there is one; under the lock. It is noted in ``taken`` before it is taken."""
        words = self._words
        first = self._bitmap.find(count)
        if first < 0:
            return
        header = self.slab.geometry.header(first)
        if first + count > self.slab.geometry.slot_count or words[header + Slot.STATE] & STATE_MASK:
            # The header is right. The error has the next one who takes the lock make the bitmap anew.
            raise self.slab.damaged(f"its bitmap says that {count} slots from slot {first} on are free")
        generation = words[header + Slot.GENERATION] + 1
        words[header + Slot.GENERATION] = generation
        taken.append(Buffer(first, count, generation))
        words[header + Slot.STATE] = SlotState.ALLOCATED | self.slab.owner_tag | count << RUN_SHIFT
        self._bitmap.take(first, count)
        used = self.slab.geometry.slot_count - words[Super.FREE_SLOTS]
        if used > words[Super.PEAK_SLOTS]:
            words[Super.PEAK_SLOTS] = used
        if first + count > words[Super.TOUCHED_SLOTS]:
            words[Super.TOUCHED_SLOTS] = first + count

    # --- waiting ------------------------------------------------------------------------------------

    def _wait_for(self, count: int, size: int, max_block_ms: float, taken: list[Buffer]) -> None:
        """Queue up and wait for a run of slots; whatever ends the wait, the ticket does not stay behind."""
        slab = self.slab
        started = time.monotonic()
        deadline = started + max_block_ms / 1000
        ticket = -1
        try:
            with slab.bell.listening() as ear:
                while True:
                    with slab.pool_lock:
                        if ticket < 0:
                            ticket = self._waiters.join(slab.owner_tag, started, max_block_ms / 1000)
                        waiting = self._drop_dead_head()
                        if ticket >= 0 and self._waiters.head() == ticket:
                            self._take(count, taken)
                    if taken:
                        return
                    self._wake(waiting)
                    remaining = deadline - time.monotonic()
                    if self._closed:
                        raise ProducerClosedError("the producer was closed while waiting for memory")
                    if remaining <= 0:
                        raise self._exhausted(size, max_block_ms)
                    # The sender takes a non-empty queue as a reason to send at once what it has.
                    slab.rope.pull()
                    self.while_waiting()
                    ear.wait(min(remaining, WAIT_SLICE_S))
        finally:
            try:
                self._stop_waiting(ticket, started)
            except KeyboardInterrupt:
                self._stop_waiting(ticket, started)  # or everybody would wait for us, until our deadline
                raise

    def _stop_waiting(self, ticket: int, started: float) -> None:
        """Give a ticket back, if there is one, and let the next waiter have its turn."""
        waited_ns = int((time.monotonic() - started) * 1e9)
        entry = self.slab.geometry.process(self.slab.me)
        with self.slab.pool_lock:
            if ticket >= 0:
                self._waiters.leave(ticket)
            waiting = self._next_waiter()
            self._waited_ns += waited_ns
            self._words[entry + Process.WAITS] += 1
            self._words[entry + Process.WAIT_NS] += waited_ns
        self._wake(waiting)

    def _exhausted(self, size: int, max_block_ms: float) -> BufferExhaustedError:
        self._words[self.slab.geometry.process(self.slab.me) + Process.EXHAUSTED] += 1
        return BufferExhaustedError(
            f"Failed to allocate {size} bytes within the configured max blocking time {max_block_ms:.0f} ms. Total "
            f"memory: {self.total_memory} bytes. Available memory: {self.available_memory()} bytes. Poolable size: "
            f"{self.poolable_size} bytes. Waiting: {self.queued()}. Raise buffer.memory or max.block.ms, or find out "
            "with `shmaccum status` why the sender frees so little"
        )

    def _drop_dead_head(self) -> int:
        """Remove dead and overdue waiters from the head of the queue; return the entry to wake instead, -1 for none."""
        dropped = False
        now = time.monotonic()
        while not self._waiters.is_empty():
            head = self._waiters.head()
            tag = self._waiters.owner_tag(head)
            alive = tag == self.slab.owner_tag or self.slab.owner_is_alive(tag)
            if alive and not self._waiters.is_overdue(head, now):
                break
            self._waiters.leave(head)
            dropped = True
        return self._next_waiter() if dropped else -1

    def _next_waiter(self) -> int:
        """Return the process entry of the first waiter, -1 if nobody waits; under the lock."""
        return -1 if self._waiters.is_empty() else self._waiters.owner_entry(self._waiters.head())

    def _wake(self, entry: int) -> None:
        """Ring for a waiter; under no lock, for it is a system call."""
        if entry >= 0:
            self.slab.bells.ring(entry)

    # --- looking ------------------------------------------------------------------------------------

    def queued(self) -> int:
        """Return how many threads, of all processes, wait for memory."""
        with self.slab.pool_lock:
            return len(self._waiters)

    def is_exhausted(self) -> bool:
        """Say whether anybody waits for memory, without taking the lock."""
        return not self._waiters.is_empty()

    def available_memory(self) -> int:
        """Return the bytes that are free."""
        return int(self._words[Super.FREE_SLOTS]) * self.poolable_size

    def unallocated_memory(self) -> int:
        """Return the bytes that have never been handed out: free, and not on Kafka's free list either."""
        return self.total_memory - int(self._words[Super.TOUCHED_SLOTS]) * self.poolable_size

    def wait_ratio(self) -> float:
        """Return the fraction of time that this pool's threads wait for memory (``bufferpool-wait-ratio``)."""
        return min(1.0, self._waited_ns / 1e9 / max(time.monotonic() - self._started, 1e-9))

    # --- death and the end --------------------------------------------------------------------------

    def reclaim(self) -> int:
        """Free the slots that dead processes took and never used; return how many."""
        with self.slab.pool_lock:
            dead = self._dead_runs(self._runs())
            for first, _ in dead:
                self._words[self.slab.geometry.header(first) + Slot.STATE] = SlotState.FREE
            self._bitmap.give(dead)
            reclaimed = sum(count for _, count in dead)
            self._words[Super.RECLAIMED_SLOTS] += reclaimed
            waiting = self._drop_dead_head() if not dead else self._next_waiter()
        self._wake(waiting)
        return reclaimed

    def _runs(self) -> list[tuple[int, int]]:
        """Return all the runs that are taken, by the headers."""
        states = self.slab.headers[:, Slot.STATE]
        firsts = np.flatnonzero(states & np.uint64(STATE_MASK))
        counts = (states[firsts] >> np.uint64(RUN_SHIFT)) & np.uint64(RUN_MASK)
        return list(zip(firsts.tolist(), counts.tolist(), strict=True))

    def _dead_runs(self, runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        words, slab = self._words, self.slab
        dead = []
        for first, count in runs:
            state_at = slab.geometry.header(first) + Slot.STATE
            state = words[state_at]
            if state & STATE_MASK != SlotState.ALLOCATED or slab.owner_is_alive(state):
                continue
            # It may have put the slot into a deque, which needs another lock, before it died.
            if words[state_at] == state:
                dead.append((first, count))
        return dead

    def _rebuild(self) -> None:
        """Make bitmap and count anew from the headers, after a death or an interruption in mid-change."""
        runs = self._runs()
        dead = self._dead_runs(runs)
        for first, count in dead:
            self._words[self.slab.geometry.header(first) + Slot.STATE] = SlotState.FREE
            self._words[Super.RECLAIMED_SLOTS] += count
        self._bitmap.rebuild([run for run in runs if run not in dead])

    def close(self) -> None:
        """Take no more requests and end the waits, of this process; the others go on.

        What is taken can still be given back.
        """
        self._closed = True
        self._wake(self.slab.processes.me)

    def release(self) -> None:
        """Close, and let go of the pool's own slab; nothing else may be called any more."""
        self.close()
        if self._own_slab:
            self._own_slab = False
            detach(self.slab)


def slot_size_for(poolable_size: int) -> int:
    """Return the size of the slots that hold ``poolable_size`` bytes: whole words."""
    return -(-poolable_size // WORD) * WORD


def _do_nothing() -> None:
    pass
