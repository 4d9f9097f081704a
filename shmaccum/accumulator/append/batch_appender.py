"""Begins a new batch for a record that the open batch cannot hold.

It prepares the batch, with the record, in a slot that only this process uses (ALLOCATED), under no lock. One store of
the slot's state, under the partition's lock, puts it into the deque, so no process sees half a batch. If the process
dies before that store, the slot is reclaimed by its owner tag.
"""

from __future__ import annotations

import time
from typing import Final

from shmaccum._core import STATE_MASK, Buffer, Slot, Super
from shmaccum.accumulator.append.futures import DeliveryCallback
from shmaccum.accumulator.append.record_appender import AppendResult, LargeRecord, RecordAppender, Route
from shmaccum.accumulator.append.waits import SENDER, Memory, Waits
from shmaccum.accumulator.buffer_pool import BufferPool
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.shm.layout import SlotState

GROWTH_PART: Final = 4
"""Who waits for memory brings an open batch as many slots as this part of those it has, and one."""
GROWTH_SHARE: Final = 16
"""Or this part of the memory, divided by the number of partitions, if that is more. Then all open batches together keep
at most about this part of the memory without records, twice it while several processes bring some."""


class BatchAppender:
    """Appends records that need a new batch. Threads may share it."""

    def __init__(self, records: RecordAppender, pool: BufferPool) -> None:
        self.pool = pool
        self._records = records
        self._compressor = records.compressor
        self._slab = records.slab
        self._words = records.slab.words
        self._format = records.format
        self._slot_size = records.slot_size
        self._small_body_size = records.slot_size - records.header_size - records.format.record_overhead_max
        self._is_closed = False
        self.unused: Final[dict[int, list[Buffer]]] = {}
        """Slots of calls that are over, allocated and not placed in a deque, by an id. While its call goes on,
        a list is in no dict: a signal handler that appends in the middle of it does not see the slots.
        """
        self._slab.on_fork(self)

    def close(self) -> None:
        """Note that this process has stopped accepting records and can leave the slab at any time."""
        self._is_closed = True

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
        records = self._records
        chosen = queue if route is None else route.reroute(queue)
        if chosen is not queue:
            self._slab.button.press()  # no record comes behind the full batch that shows it to the sender
            queue = chosen  # which may have an open batch
            result = records.append(queue, timestamp, body, callback, sizes)
            if result is not None:
                return result
        # Compressed before slots are allocated: waiting for slots can take much longer than compressing.
        size, large = self._slot_size, None
        if len(body) >= self._small_body_size:
            size, large = self._size_of_batch(timestamp, body)
        if self.unused:
            self.free_unused()
        taken: list[Buffer] = []
        hand = id(taken)  # here: a call in the `finally` could end by an interrupt before the store behind it
        deadline_s = time.monotonic() + max_block_ms / 1000
        try:
            yield SENDER
            while True:
                left_ms = max(0.0, (deadline_s - time.monotonic()) * 1000)
                wanted = 0 if large is not None else self._wanted(queue, len(body))
                yield Memory(max(size, wanted), left_ms, taken)
                if route is not None:  # another thread may have switched partitions during the wait for slots
                    queue = route.reroute(queue)
                if large is not None or not self._extend(queue, taken, len(body)):
                    result = records.begin_batch(queue, taken[0], timestamp, body, callback, large, sizes)
                    if result[2]:
                        del taken[:]  # it is in its deque now
                    break
                extended = records.append(queue, timestamp, body, callback, sizes)
                if extended is not None:
                    result = extended
                    break
        finally:
            if taken:
                self.unused[hand] = taken
                self.free_unused()
        return result

    def _wanted(self, queue: PartitionQueue, body_size: int) -> int:
        """Return how many bytes others can spare for an open batch that grows, as each wait costs a wake-up; or 0."""
        open_batch, most = self._records.core.growing(queue.entry, body_size)
        if open_batch is None:
            return 0
        share = self._slab.geometry.slot_count // (GROWTH_SHARE * max(1, self._words[Super.PARTITION_COUNT]))
        return self._slot_size * min(max(open_batch.slots // GROWTH_PART + 1, share), most)

    def _extend(self, queue: PartitionQueue, taken: list[Buffer], body_size: int) -> bool:
        """Give the memory to the open batch, if that grows; return whether it has it.

        Also if another process was faster and there is room by now, but less than this brings. Producers that fill the
        same partitions run out of room at the same time; else most of them would have waited in vain.
        """
        size = max(body_size, taken[0].slots * self._slot_size)
        open_batch, most = self._records.core.growing(queue.entry, size)
        if open_batch is None or taken[0].slots > most or not self.pool.extend(open_batch, taken[0]):
            return False
        del taken[:]
        return True

    def _size_of_batch(self, timestamp: int, body: bytes) -> tuple[int, LargeRecord | None]:
        """Return the bytes of a batch that a record begins, and the record, compressed, if no other one has room."""
        record = self._format.encode_record(0, timestamp, timestamp, body)
        size = self._records.header_size + len(record)
        if size < self._records.batch_size:
            return size, None
        records, compressed = self._compressor.compress(record)
        return size, LargeRecord(records, size, compressed)

    def free_unused(self) -> None:
        """Free the slots that did not become batches; can be repeated after an interrupt.

        The record can be accepted already, so a lock that a stopped process holds is no error here. The slots stay
        noted, to be freed with the next batch.
        """
        for hand, taken in list(self.unused.items()):
            try:
                unused = [buffer for buffer in taken if self._is_unused(buffer)]
                for buffer in unused:
                    self._records.pending.contributions.forget(buffer.batch)
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
        state = self._words[self._slab.geometry.header(buffer.slot) + Slot.STATE]
        return state & STATE_MASK == SlotState.ALLOCATED and self.pool.is_taken(buffer)
