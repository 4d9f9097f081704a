"""Begins a new batch for a record that the open batch has no room for.

The batch is prepared in memory that only this process uses, with the record in it. One store of its state puts it into
the deque, so no process ever sees half a batch.

It is not compiled: memory that is in a thread's hands is told from what an interrupt left there by the frames on the
stack (`is_reentrant`), and compiled functions have none.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from shmaccum.accumulator.append.futures import DeliveryCallback
from shmaccum.accumulator.append.record_appender import AppendResult, LargeRecord, RecordAppender, Route
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.pool.slots import Buffer
from shmaccum.shm.layout import BATCH_SLOT_BITS, COMMIT_SIZE_SHIFT, STATE_MASK, Slot, SlotState
from shmaccum.shm.turn import is_reentrant


class BatchAppender:
    """Appends what needs a new batch to the deques of a slab. Threads may share it.

    Args:
        records: appends to open batches.
        pool: where memory for new batches comes from.
        before_new_batch: called, under no lock, before memory for a new batch is allocated: the place to see to it that
            there is a sender. What it raises keeps the record out.
    """

    def __init__(
        self, records: RecordAppender, pool: BufferPool, before_new_batch: Callable[[], None] | None = None
    ) -> None:
        self.pool = pool
        self.before_new_batch = before_new_batch or _do_nothing
        self._records = records
        self._compressor = records.compressor
        self._slab = records.slab
        self._words = records.slab.words
        self._format = records.format
        self._slot_size = records.slot_size
        self._large_body_size = records.slot_size - records.header_size - records.format.record_overhead_max
        self._is_closed = False
        self._forked()
        self._slab.on_fork(self._forked)

    def close(self) -> None:
        """Take note that this process takes no more records, and may leave the slab at any time."""
        self._is_closed = True

    def _forked(self) -> None:
        """Have nothing in hand; in a forked child, what the parent had is the parent's."""
        # Not a `threading.local`: made before gevent patched the program, it would be one for all greenlets.
        self._hands: dict[int, list[Buffer]] = {}
        """By thread or greenlet: what it has taken from the pool, and neither put into a deque nor given back."""

    def append(
        self,
        queue: PartitionQueue,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        max_block_ms: float,
        route: Route | None,
        sizes: int,
    ) -> AppendResult:
        """Append a record for which the open batch, if there is one, has no room; compress that batch.

        Args and errors: as `RecordAccumulator.append` has them.
        """
        compressor, records = self._compressor, self._records
        chosen = queue if route is None else route.reroute(queue)
        if (compressor.enabled and compressor.compress_claimed()) or chosen is not queue:
            # Compressing takes a while, in which another process may have opened a batch; and so may the other
            # partition have one.
            queue = chosen
            with queue.lock:
                result = records.try_append(queue, timestamp, body, callback, sizes)
            if result is not None:
                return result
        # Before there is memory for it, for to wait for that can take much longer than to compress it.
        large = None if len(body) < self._large_body_size else self._large_record(timestamp, body)
        taken = self.empty_hand()
        try:
            self.before_new_batch()
            size = self._slot_size if large is None else large.size
            slot = self.pool.allocate(size, max_block_ms, taken).slot
            if route is not None:  # another thread may have switched while this one waited for memory
                queue = route.reroute(queue)
            result = records.begin_batch(queue, slot, timestamp, body, callback, large, sizes)
            if result[2]:
                del taken[:]  # it is in its deque
        finally:
            if taken:
                self.give_back(taken)
        if compressor.compresses_own:
            compressor.compress_claimed()
        return result

    def _large_record(self, timestamp: int, body: bytes) -> LargeRecord | None:
        """Return a record that may be a large one as such, compressed already; None if it is not."""
        record = self._format.encode_record(0, timestamp, timestamp, body)
        size = self._records.header_size + len(record)
        if size < self._slot_size:
            return None
        records, compressed = self._compressor.compress(record)
        return LargeRecord(records, size, compressed)

    def open_room(self, queue: PartitionQueue) -> int:
        """Return the bytes that a deque's open batch has left, 0 without one; read without the lock, so a hint."""
        words, opened = self._words, self._words[queue.open_at]
        if not 0 < opened <= self._slab.geometry.slot_count:
            return 0
        size = words[self._slab.geometry.header(opened - 1) + Slot.COMMIT] >> COMMIT_SIZE_SHIFT
        return max(0, self._slot_size - size)

    def empty_hand(self) -> list[Buffer]:
        """Return where this thread is to note the memory that it takes; what is still noted there is given back."""
        taken = self._hands.setdefault(threading.get_ident(), [])
        if taken:
            if is_reentrant():  # a signal's handler, while the thread is at work with them
                return []
            self.give_back(taken)
        return taken

    def settle(self) -> None:
        """Give back what an interrupt left in this thread's hands."""
        self.empty_hand()

    def give_back(self, taken: list[Buffer]) -> None:
        """Give memory back that did not become a batch, whatever came in between; may be repeated after an interrupt.

        The record may be in, so a lock that a stopped process holds is no error here: it stays noted, to be given
        back another time.
        """
        try:
            unused = [buffer for buffer in taken if self._is_unused(buffer)]
            for buffer in unused:
                self._records.pending.forget(buffer.generation << BATCH_SLOT_BITS | buffer.slot)
            if unused:
                self.pool.deallocate(*unused)
        except LockTimeoutError:
            return
        except (IllegalStateError, IndexError, ValueError):
            if not self._is_closed:
                raise
            # Another thread has left the slab meanwhile: the sender takes back what is nobody's any more.
        del taken[:]

    def _is_unused(self, buffer: Buffer) -> bool:
        state = self._words[self._slab.geometry.header(buffer.slot) + Slot.STATE]
        return state & STATE_MASK == SlotState.ALLOCATED and self.pool.is_taken(buffer)


def _do_nothing() -> None:
    pass
