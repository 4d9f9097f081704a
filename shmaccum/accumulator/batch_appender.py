"""The producers' half of the accumulator: records into batches.

``RecordAccumulator.append``, across processes. A record is written behind the committed bytes of its partition's
open batch and committed, bytes and count together, by one store; until then it does not exist, and from then on
it outlives this process. Where there is no room, a new batch is made ready in memory that is still ours alone, with
the record in it, and one store of its state puts it into the deque: nobody ever sees half a batch.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from shmaccum.accumulator.acknowledgements import Acknowledgements
from shmaccum.accumulator.batch_compressor import BatchCompressor
from shmaccum.accumulator.futures import DeliveryCallback, FutureRecordMetadata
from shmaccum.accumulator.partition_queue import PartitionQueue
from shmaccum.errors import IllegalStateError, InvalidTimestampError, LockTimeoutError, ProducerClosedError
from shmaccum.pool.buffer_pool import Buffer, BufferPool
from shmaccum.record.format import RecordFormat
from shmaccum.shm.layout import (
    BATCH_SLOT_BITS,
    COMMIT_COUNT_MASK,
    COMMIT_SIZE_SHIFT,
    STATE_MASK,
    Process,
    Slot,
    SlotState,
)
from shmaccum.shm.locks import is_reentrant
from shmaccum.shm.slab import Slab

MAX_TIMESTAMP: Final = (1 << 63) - 1

# Constants of this module, for they are looked up for every record.
_COMMIT: Final = Slot.COMMIT
_SIZE_SHIFT: Final = COMMIT_SIZE_SHIFT
_COUNT_MASK: Final = COMMIT_COUNT_MASK
_BASE_TIMESTAMP: Final = Slot.BASE_TIMESTAMP
_MAX_TIMESTAMP: Final = Slot.MAX_TIMESTAMP
_MAX_RECORD: Final = Slot.MAX_RECORD
_RECORDS: Final = Process.RECORDS
_BYTES: Final = Process.BYTES


class RecordAppendResult(NamedTuple):
    """What `append` did."""

    future: FutureRecordMetadata
    batch_is_full: bool
    """The partition has a batch that nothing can be added to: wake the sender."""
    new_batch_created: bool
    """The record is the first of its batch: wake the sender, for ``linger.ms`` begins."""


AppendResult: TypeAlias = tuple[FutureRecordMetadata, bool, bool]
"""A `RecordAppendResult` that has no names yet: they would cost every record."""


class NewBatch(NamedTuple):
    """What a new batch begins with; made by `BatchAppender.new_batch`."""

    records: bytes | memoryview
    """As they are to be in the slab."""
    size: int
    """Bytes of the whole batch, before any compression."""
    record_count: int
    base_timestamp: int
    max_timestamp: int
    max_record: int
    compressed: int
    """Its `Slot.COMPRESSED` word."""
    closed: bool
    """Whether nothing is to be added to it."""


class _Hand(threading.local):
    """What a thread has taken from the pool, and neither put into a deque nor given back."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []


class BatchAppender:
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
        self.slab = slab
        self.pool = pool
        self.format = record_format
        self.acks = acks
        self.compressor = compressor
        self.slot_size = slab.geometry.slot_size
        self.closed = False
        self.before_new_batch: Callable[[], None] = _do_nothing
        self._forked()
        slab.on_fork(self._forked)
        self._encode_record = record_format.encode_record
        self._words = slab.words
        self._memory = slab.memory
        self._buffer = slab.buffer
        self._headers_at = slab.geometry.header(0)
        self._header_words = slab.geometry.slot_words
        self._slot_count = slab.geometry.slot_count
        self._slots_at = slab.geometry.slots

    def _forked(self) -> None:
        """Have nothing in hand; in a forked child, what the parent had is the parent's."""
        self._hand = _Hand()

    def append(
        self,
        queue: PartitionQueue,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        max_block_ms: float,
    ) -> AppendResult:
        """Append a record, whose body is encoded, to the partition's last batch, or to a new one.

        Raises:
            As `RecordAccumulator.append`.
        """
        if self.closed:
            self.check_usable()
        self.acks.poll()
        if not 0 <= timestamp <= MAX_TIMESTAMP:
            raise InvalidTimestampError(f"timestamp must be milliseconds since 1970, not {timestamp}")
        with queue.lock:
            result = self._try_append(queue, timestamp, body, callback)
        if result is None:
            result = self._append_with_room(queue, timestamp, body, callback, max_block_ms)
        return result

    def check_usable(self) -> None:
        """Be ready for an append: read the ring, which could overflow otherwise.

        Raises:
            ProducerClosedError: this process has closed its accumulator.
        """
        if self.closed:
            raise ProducerClosedError("Cannot send after the producer is closed.")
        self.acks.poll()

    def _try_append(
        self, queue: PartitionQueue, timestamp: int, body: bytes, callback: DeliveryCallback | None
    ) -> AppendResult | None:
        """Append to the open batch; None if there is none or it has no room. Under the partition's lock."""
        words = self._memory.words
        opened = words[queue.open_at]
        if not opened:
            return None
        if opened > self._slot_count:  # Compiled, what follows is reckoned in C, where it would wrap around.
            raise self.slab.damaged(f"the open batch of {queue.topic_partition} is in slot {opened - 1}")
        slot = opened - 1
        header = self._headers_at + slot * self._header_words
        commit = words[header + _COMMIT]
        size = commit >> _SIZE_SHIFT
        count = commit >> 1 & _COUNT_MASK
        record = self._encode_record(count, timestamp, words[header + _BASE_TIMESTAMP], body)
        end = size + len(record)
        if end > self.slot_size:
            self.compressor.claim(queue, queue.close_open())
            return None
        start = self._slots_at + slot * self.slot_size
        self._buffer[start + size : start + end] = record
        future = self._register(queue, slot, header, count, timestamp, callback)
        self.commit(header, commit, end, count + 1, timestamp, len(record))
        is_full = end == self.slot_size or (words[queue.queued_at] > 1 and queue.has_full())
        return future, is_full, False

    def commit(self, header: int, commit: int, end: int, count: int, timestamp: int, max_record: int) -> None:
        """Make records that have been written part of an open batch; under the partition's lock.

        Args:
            header: word index of the batch's header.
            commit: its commit word so far.
            end: bytes in the batch with the new records.
            count: records in it with the new ones.
            timestamp: largest timestamp of the new ones.
            max_record: bytes in the largest of the new ones.
        """
        words = self._memory.words
        if max_record > words[header + _MAX_RECORD]:
            words[header + _MAX_RECORD] = max_record
        # The largest timestamp has two cells, so that the commit switches to a new one in the same store.
        cell = commit & 1
        if timestamp > words[header + _MAX_TIMESTAMP + cell]:
            cell ^= 1
            words[header + _MAX_TIMESTAMP + cell] = timestamp
        words[header + _COMMIT] = end << _SIZE_SHIFT | count << 1 | cell
        process = self.acks.process_at
        words[process + _RECORDS] += count - (commit >> 1 & _COUNT_MASK)
        words[process + _BYTES] += end - (commit >> _SIZE_SHIFT)

    def _append_with_room(
        self,
        queue: PartitionQueue,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        max_block_ms: float,
    ) -> AppendResult:
        """Append, once there is room, and compress the batch that had none."""
        if self.compressor.compress_claimed():
            # That took a while, in which somebody else may have opened a batch.
            with queue.lock:
                result = self._try_append(queue, timestamp, body, callback)
            if result is not None:
                return result
        result = self._append_to_new_batch(queue, timestamp, body, callback, max_block_ms)
        self.compressor.compress_claimed()
        return result

    def _append_to_new_batch(
        self,
        queue: PartitionQueue,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        max_block_ms: float,
    ) -> AppendResult:
        record = self.format.encode_record(0, timestamp, timestamp, body)
        batch = self.new_batch(record, 1, timestamp, timestamp, len(record))
        taken = self.empty_hand()
        try:
            self.before_new_batch()
            buffer = self.pool.allocate(max(batch.size, self.slot_size), max_block_ms, taken)
            self.fill(buffer, batch)
            with queue.lock:
                # Somebody else may have opened a batch while we were getting the memory: the second look.
                result = self._try_append(queue, timestamp, body, callback)
                if result is None:
                    header = self.slab.geometry.header(buffer.slot)
                    future = self._register(queue, buffer.slot, header, 0, timestamp, callback)
                    self.place(queue, buffer, batch)
                    result = future, queue.has_full() or batch.closed, True
        finally:
            if taken:
                self.give_back(taken)
        return result

    def new_batch(
        self,
        records: bytes | memoryview,
        record_count: int,
        base_timestamp: int,
        max_timestamp: int,
        max_record: int,
        *,
        closed: bool = False,
    ) -> NewBatch:
        """Prepare a new batch of encoded records: compress them already, if nothing can or is to be added to it.

        Before there is memory for it, for to wait for that can take much longer.
        """
        size = self.format.header_size + len(records)
        closed = closed or size >= self.slot_size
        compressed = 0
        if closed:
            records, compressed = self.compressor.compress(records)
        return NewBatch(records, size, record_count, base_timestamp, max_timestamp, max_record, compressed, closed)

    def fill(self, buffer: Buffer, batch: NewBatch) -> None:
        """Write a new batch into memory that is still ours alone: all but its place in a deque."""
        words = self._words
        geometry = self.slab.geometry
        start = geometry.slot(buffer.slot) + self.format.header_size
        end = start + len(batch.records)
        self._buffer[start:end] = batch.records
        header = geometry.header(buffer.slot)
        now = time.monotonic_ns() // 1_000_000
        words[header + Slot.COMMIT] = batch.size << COMMIT_SIZE_SHIFT | batch.record_count << 1
        words[header + Slot.MAX_TIMESTAMP] = batch.max_timestamp
        words[header + Slot.BASE_TIMESTAMP] = batch.base_timestamp
        words[header + Slot.CREATED_MS] = now
        words[header + Slot.ATTEMPTS] = now  # none yet; back-off and linger count from the creation
        words[header + Slot.SEQUENCE] = 0
        words[header + Slot.MAX_RECORD] = batch.max_record
        words[header + Slot.SETTLED] = 0
        words[header + Slot.PIECE] = 0
        words[header + Slot.COMPRESSED] = batch.compressed
        for index in range(geometry.contributor_words):
            words[header + Slot.CONTRIBUTORS + index] = 0

    def place(self, queue: PartitionQueue, buffer: Buffer, batch: NewBatch) -> None:
        """Put a new batch, which has been filled in, at the end of its deque; under the partition's lock."""
        words = self._words
        closed = queue.append(buffer.slot, SlotState.CLOSED if batch.closed else SlotState.OPEN)
        self.compressor.claim(queue, closed)
        process = self.acks.process_at
        words[process + Process.RECORDS] += batch.record_count
        words[process + Process.BYTES] += batch.size - self.format.header_size
        words[process + Process.BATCHES] += 1
        words[process + Process.COMPRESSED] += batch.compressed != 0

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
        except (IllegalStateError, ValueError):
            if not self.closed:
                raise
            # Another thread has left the slab meanwhile: the sender takes back what is nobody's any more.
        del taken[:]

    def _is_unused(self, buffer: Buffer) -> bool:
        state = self._words[self.slab.geometry.header(buffer.slot) + Slot.STATE]
        return state & STATE_MASK == SlotState.ALLOCATED and self.pool.buffer_at(buffer.slot) == buffer

    def _register(
        self,
        queue: PartitionQueue,
        slot: int,
        header: int,
        index: int,
        timestamp: int,
        callback: DeliveryCallback | None,
    ) -> FutureRecordMetadata:
        result = self.acks.contribute(queue.topic_partition, slot, header)
        future = FutureRecordMetadata(result, index, timestamp)
        if callback is not None:
            result.callbacks.append((callback, future))
        return future


def _do_nothing() -> None:
    pass
