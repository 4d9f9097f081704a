"""The producers' half of the accumulator: records into batches.

``RecordAccumulator.append``, across processes. Where the open batch has no room (see `record_appender`), a new one is
made ready in memory that is still ours alone, with the record in it, and one store of its state puts it into the
deque: nobody ever sees half a batch.

It is not compiled: memory that is in a thread's hands is told from what an interrupt left there by the frames on the
stack (`is_reentrant`), and compiled functions have none.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from shmaccum.accumulator.acknowledgements import Acknowledgements
from shmaccum.accumulator.batch_compressor import BatchCompressor
from shmaccum.accumulator.futures import DeliveryCallback
from shmaccum.accumulator.partition_queue import PartitionQueue
from shmaccum.accumulator.record_appender import AppendResult, LargeRecord, RecordAppender
from shmaccum.errors import IllegalStateError, LockTimeoutError
from shmaccum.pool.buffer_pool import BufferPool
from shmaccum.pool.slots import Buffer
from shmaccum.record.format import RecordFormat
from shmaccum.shm.layout import BATCH_SLOT_BITS, STATE_MASK, Slot, SlotState
from shmaccum.shm.locks import is_reentrant
from shmaccum.shm.slab import Slab


class _Hand(threading.local):
    """What a thread has taken from the pool, and neither put into a deque nor given back."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []


class BatchAppender(RecordAppender):
    """Appends to the deques of a slab. Threads may share it.

    Attributes:
        before_new_batch: called, under no lock, before memory for a new batch is taken: the place to see to it that
            there is a sender. What it raises keeps the record out.
    """

    def __init__(
        self,
        slab: Slab,
        pool: BufferPool,
        record_format: RecordFormat,
        acks: Acknowledgements,
        compressor: BatchCompressor,
    ) -> None:
        super().__init__(slab, record_format, acks, compressor)
        self.pool = pool
        self.before_new_batch: Callable[[], None] = _do_nothing
        self._forked()
        slab.on_fork(self._forked)
        self._words = slab.words
        self._large_body_size = self.slot_size - self.header_size - record_format.record_overhead_max

    def _forked(self) -> None:
        """Have nothing in hand; in a forked child, what the parent had is the parent's."""
        self._hand = _Hand()

    def _append_with_room(
        self,
        queue: PartitionQueue,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        max_block_ms: float,
    ) -> AppendResult:
        """Append, once there is room, and compress the batch that had none."""
        compressor = self.compressor
        if compressor.enabled and compressor.compress_claimed():
            # That took a while, in which somebody else may have opened a batch.
            with queue.lock:
                result = self.try_append(queue, timestamp, body, callback)
            if result is not None:
                return result
        # Before there is memory for it, for to wait for that can take much longer than to compress it.
        large = None if len(body) < self._large_body_size else self._large_record(timestamp, body)
        taken = self.empty_hand()
        try:
            self.before_new_batch()
            size = self.slot_size if large is None else large.size
            slot = self.pool.allocate(size, max_block_ms, taken).slot
            result = self.begin_batch(queue, slot, timestamp, body, callback, large)
            if result[2]:
                del taken[:]  # it is in its deque
        finally:
            if taken:
                self.give_back(taken)
        if compressor.enabled:
            compressor.compress_claimed()
        return result

    def _large_record(self, timestamp: int, body: bytes) -> LargeRecord | None:
        """Return a record that may be a large one as such, compressed already; None if it is not."""
        record = self.format.encode_record(0, timestamp, timestamp, body)
        size = self.header_size + len(record)
        if size < self.slot_size:
            return None
        records, compressed = self.compressor.compress(record)
        return LargeRecord(records, size, compressed)

    def empty_hand(self) -> list[Buffer]:
        """Return where this thread is to note the memory that it takes; what is still noted there is given back."""
        hand = self._hand
        if hand.buffers:
            if is_reentrant():  # a signal's handler, while the thread is at work with them
                return []
            self.give_back(hand.buffers)
        return hand.buffers

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
                self.acks.forget(buffer.generation << BATCH_SLOT_BITS | buffer.slot)
            if unused:
                self.pool.deallocate(*unused)
        except LockTimeoutError:
            return
        except (IllegalStateError, IndexError, ValueError):
            if not self.closed:
                raise
            # Another thread has left the slab meanwhile: the sender takes back what is nobody's any more.
        del taken[:]

    def _is_unused(self, buffer: Buffer) -> bool:
        state = self._words[self.slab.geometry.header(buffer.slot) + Slot.STATE]
        return state & STATE_MASK == SlotState.ALLOCATED and self.pool.is_taken(buffer)


def _do_nothing() -> None:
    pass
