"""Appends a record to the open batch of its partition, or as the first of a new one.

`shmaccum._core.Appender` does it, in a section under the partition's lock, and names the words that it owns. This
module does what a section cannot, then calls it again: it waits for the lock, reads completions, makes a batch's
result, and raises the errors.

A new batch is prepared, with its record, in a slot that only this process uses (ALLOCATED), under no lock. One store of
the slot's state, under the partition's lock, puts it into the deque, so no process sees half a batch. If the process
dies before that store, the slot is reclaimed by its owner tag.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from shmaccum import _core
from shmaccum._core import STATE_MASK, Buffer, FutureRecordMetadata, Slot, Super
from shmaccum.accumulator.append.futures import DeliveryCallback
from shmaccum.accumulator.append.pending_batches import PendingBatches
from shmaccum.accumulator.append.waits import SENDER, Memory, Waits
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.config import ProducerConfig
from shmaccum.errors import IllegalStateError, InvalidTimestampError, LockTimeoutError, ProducerClosedError
from shmaccum.record.compression import CompressionType
from shmaccum.record.format import RecordFormat
from shmaccum.record.v2 import MAGIC
from shmaccum.shm.layout import MAX_LINGER_MS, SlotState
from shmaccum.shm.slab import Slab

MAX_TIMESTAMP: Final = (1 << 63) - 1
GROWTH_PART: Final = 4
"""Who waits for memory brings an open batch as many slots as this part of those it has, and one."""
GROWTH_SHARE: Final = 16
"""Or this part of the memory, divided by the number of partitions, if that is more. Then all open batches together keep
at most about this part of the memory without records, twice it while several processes bring some."""

# Constants of this module: they are looked up for every record.
_APPENDED: Final = _core.LOCK_TAKEN
_NO_ROOM: Final = _core.APPEND_NO_ROOM
_GROW: Final = _core.APPEND_GROW
_NOT_CONTRIBUTOR: Final = _core.APPEND_NOT_CONTRIBUTOR
_RING_UNREAD: Final = _core.APPEND_RING_UNREAD
_LEASE_OVER: Final = _core.APPEND_LEASE_OVER


AppendResult: TypeAlias = tuple[FutureRecordMetadata, bool, bool, int]
"""The record's future; whether its partition has a full batch, or one that is due earlier than before; whether the
record is the first of its batch; the bytes that it added, with the header of a new batch. In both cases, wake the
sender. A plain tuple: names would cost time on every record.
"""


class Route(Protocol):
    """Chooses another partition for a record that would open a new batch."""

    def reroute(self, queue: PartitionQueue) -> PartitionQueue:
        """Return the deque that the record goes to; ``queue`` has no open batch with room for it."""


class RecordAppender:
    """Appends single records to the batches of a slab, by the sections of ``core``. Threads may share it.

    ``batch_size`` is the bytes of a full batch: at least a slot, which it can fill. ``max_bytes`` is that of its
    largest batches, but for records that take more.
    """

    def __init__(
        self,
        slab: Slab,
        record_format: RecordFormat,
        pending: PendingBatches,
        pool: BufferPool,
        config: ProducerConfig,
    ) -> None:
        self.slab = slab
        self.pool = pool
        self.pending = pending
        self.slot_size = slab.geometry.slot_size
        grows = record_format.magic == MAGIC
        self.batch_size = max(config.batch_size, self.slot_size) if grows else self.slot_size
        self.max_bytes = max(config.batch_max_bytes, self.batch_size) if grows else self.slot_size
        self.unused: Final[dict[int, list[Buffer]]] = {}
        """Slots of calls that are over, allocated and not placed in a deque, by an id. While its call goes on,
        a list is in no dict: a signal handler that appends in the middle of it does not see the slots.
        """
        self.core = _core.Appender(
            slab.core,
            pending.contributions,
            slab.damaged,
            record_format.magic,
            min(config.linger_ms, MAX_LINGER_MS),
            CompressionType.for_name(config.compression_type),
            config.delivery_timeout_ms,
            config.retries,
            config.batch_size,
            self.max_bytes,
            slab.pool,
            self.unused,
        )
        self._append: Callable[..., tuple[Any, ...]] = self.core.append
        self._words = slab.words
        self._linger_ms = config.linger_ms
        self._is_closed = False
        slab.on_fork(self)

    def append(
        self, queue: PartitionQueue, timestamp: int, body: bytes, callback: DeliveryCallback | None, sizes: int
    ) -> AppendResult | None:
        """Append to the open batch; return None if there is none or it has no room, not even in a free slot."""
        outcome = self.run(queue, self._append, timestamp, body, sizes, callback)
        return outcome[1:] if outcome[0] == _APPENDED else None

    def run(self, queue: PartitionQueue, method: Callable[..., tuple[Any, ...]], *args: object) -> tuple[Any, ...]:
        """Call a section of a deque; do what it needs if it has appended nothing, and call it again.

        ``method`` is one of `core`, which takes the deque's entry and lane before ``args``.

        Returns what it returns at last: it has appended, or there is no room.
        """
        section = partial(method, queue.entry, queue.lane if queue.lane_at else 0, queue.lease_generation, *args)
        expected: list[int] = []
        try:
            outcome = section()
            while True:
                status, batch, *_ = outcome
                if status in (_APPENDED, _NO_ROOM, _GROW):
                    return outcome
                if status == _NOT_CONTRIBUTOR:
                    expected.append(batch)
                    self.pending.expect(queue, batch)
                elif status == _RING_UNREAD:
                    self.pending.read()
                elif status == _LEASE_OVER:
                    queue.check_lease()
                else:
                    outcome = queue.lock.run(section)
                    continue
                outcome = section()
        finally:
            for batch in expected:
                self.pending.contributions.withdraw(batch)

    def begin_batch(
        self,
        queue: PartitionQueue,
        buffer: Buffer,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        sizes: int,
    ) -> AppendResult:
        """Append a record as the first of a new batch, in memory that only this process uses.

        If another process has opened a batch meanwhile, the record goes there if it fits. Then the record is not the
        first of its batch, and the memory stays unused. For the arguments, see `RecordAccumulator.appending`.
        """
        self.core.begin(queue.entry, buffer, time.monotonic_ns() // 1_000, timestamp, body)
        batch = buffer.batch
        self.pending.expect(queue, batch)
        try:
            outcome = self.run(queue, self.core.append_batch, timestamp, body, sizes, buffer.slot, callback)
        finally:
            self.pending.contributions.withdraw(batch)
        return outcome[1:]

    def wake(self, batch_is_full: bool) -> None:
        """Wake the sender for a full batch, or for a new one that it would not see when that has lingered."""
        self.slab.button.press(0 if batch_is_full else self._linger_ms)

    def forked(self) -> None:
        """Forget all unused slots; in a forked child, they are the parent's."""
        self.unused.clear()

    def appending(
        self,
        queue: PartitionQueue,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        max_block_ms: float,
        route: Route | None,
        sizes: int,
    ) -> Waits[AppendResult]:
        """Append a record that the open batch, if any, has no room for; as `RecordAccumulator.appending`."""
        chosen = queue if route is None else route.reroute(queue)
        if chosen is not queue:
            self.wake(True)  # no record comes behind the full batch that shows it to the sender
            queue = chosen  # which may have an open batch
            result = self.append(queue, timestamp, body, callback, sizes)
            if result is not None:
                return result
        size = self.core.batch_size(timestamp, body)
        if self.unused:
            self.free_unused()
        taken: list[Buffer] = []
        hand = id(taken)  # here: a call in the `finally` could end by an interrupt before the store behind it
        deadline_s = time.monotonic() + max_block_ms / 1000
        try:
            yield SENDER
            while True:
                left_ms = max(0.0, (deadline_s - time.monotonic()) * 1000)
                # Another process may bring room for the record first.
                has_room = partial(self.core.has_room, queue.entry, len(body))
                yield Memory(max(size, self._wanted(queue, len(body))), left_ms, taken, has_room)
                if route is not None:  # another thread may have switched partitions during the wait for slots
                    queue = route.reroute(queue)
                if taken and not self._extend(queue, taken, len(body)):
                    result = self.begin_batch(queue, taken[0], timestamp, body, callback, sizes)
                    if result[2]:
                        del taken[:]  # it is in its deque now
                    break
                extended = self.append(queue, timestamp, body, callback, sizes)
                if extended is not None:
                    result = extended
                    break
        finally:
            if taken:
                self.unused[hand] = taken
                self.free_unused()
        return result

    def _wanted(self, queue: PartitionQueue, body_size: int) -> int:
        """Return how many bytes to wait for, for an open batch that grows: all that others can spare, or 0 if none."""
        open_batch, most = self.core.growing(queue.entry, body_size)
        if open_batch is None:
            return 0
        share = self.slab.geometry.slot_count // (GROWTH_SHARE * max(1, self._words[Super.PARTITION_COUNT]))
        return self.slot_size * min(max(open_batch.slots // GROWTH_PART + 1, share), most)

    def _extend(self, queue: PartitionQueue, taken: list[Buffer], body_size: int) -> bool:
        """Give the memory to the open batch, if that grows; return whether it has it.

        Also if another process was faster and there is room by now, but less than this brings. Producers that fill the
        same partitions run out of room at the same time; else most of them would have waited in vain.
        """
        size = max(body_size, taken[0].slots * self.slot_size)
        open_batch, most = self.core.growing(queue.entry, size)
        if open_batch is None or taken[0].slots > most or not self.pool.extend(open_batch, taken[0]):
            return False
        del taken[:]
        return True

    def free_unused(self) -> None:
        """Free the slots that did not become batches; can be repeated after an interrupt.

        The record can be accepted already, so a lock that a stopped process holds is no error here. The slots stay
        noted, to be freed with the next batch.
        """
        for hand, taken in list(self.unused.items()):
            try:
                unused = [buffer for buffer in taken if self._is_unused(buffer)]
                for buffer in unused:
                    self.pending.contributions.forget(buffer.batch)
                if unused:
                    self.pool.deallocate(*unused)
            except LockTimeoutError:
                return
            except (IllegalStateError, IndexError, ValueError):
                # No error if another thread, or a handler, was faster, or has detached the slab meanwhile: then the
                # sender frees slots without an owner.
                if not self._is_closed and any(map(self._is_unused, taken)):
                    raise
            self.unused.pop(hand, None)

    def _is_unused(self, buffer: Buffer) -> bool:
        state = self._words[self.slab.geometry.header(buffer.slot) + Slot.STATE]
        return state & STATE_MASK == SlotState.ALLOCATED and self.pool.is_taken(buffer)

    def close(self) -> None:
        """Stop appending, and release the slab's memory: this process can leave the slab at any time."""
        self._append = closed
        self.core.close()
        self._is_closed = True


def closed(*_: object) -> tuple[Any, ...]:
    """Raise the error of a closed producer, in place of what it no longer does."""
    raise ProducerClosedError("Cannot send after the producer is closed.")


def check_timestamp(timestamp: int) -> int:
    """Return a timestamp if a record can have it. Raises InvalidTimestampError: it is not 0 to 2^63 - 1."""
    if not 0 <= timestamp <= MAX_TIMESTAMP:
        raise InvalidTimestampError(f"timestamp must be 0 to 2^63 - 1 milliseconds since 1970, not {timestamp}")
    return timestamp
