"""Appends a record to the open batch of its partition.

It writes the record behind the committed bytes, then one store of the COMMIT word makes bytes and count valid. Before
that store the record does not exist; after it, the record survives this process. All stores into a queued batch are
under its partition's lock. A record that finds no room begins a new batch (`BatchAppender`). This module runs for every
record, so it is compiled where possible. Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple, Protocol, TypeAlias

from shmaccum._compiled import COMPILED
from shmaccum.accumulator.append.batch_compressor import BatchCompressor
from shmaccum.accumulator.append.futures import DeliveryCallback, FutureRecordMetadata
from shmaccum.accumulator.append.pending_batches import PendingBatches
from shmaccum.accumulator.state.batch_header import begin
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.errors import InvalidTimestampError
from shmaccum.record.format import RecordFormat
from shmaccum.record.v2 import records as v2
from shmaccum.shm.histograms import count as count_in_histogram
from shmaccum.shm.layout import (
    COMMIT_COUNT_MASK,
    COMMIT_SIZE_SHIFT,
    COMPRESSION_MASK,
    LIMITS_MASK,
    LIMITS_SHIFT,
    LINGER_SHIFT,
    MAX_LINGER_MS,
    Process,
    Slot,
    SlotState,
)
from shmaccum.shm.slab import Slab

if COMPILED:
    from shmaccum.accumulator.append.fastfutures import new_future
    from shmaccum.record.v2.fastrecords import FastRecords as _FastRecords

MAX_TIMESTAMP: Final = (1 << 63) - 1

# Constants of this module: they are looked up for every record.
_COMPILED: Final = COMPILED
_SLOTS: Final = Slot.SLOTS
_COMMIT: Final = Slot.COMMIT
_SIZE_SHIFT: Final = COMMIT_SIZE_SHIFT
_COUNT_MASK: Final = COMMIT_COUNT_MASK
_BASE_TIMESTAMP: Final = Slot.BASE_TIMESTAMP
_MAX_TIMESTAMP: Final = Slot.MAX_TIMESTAMP
_MAX_RECORD: Final = Slot.MAX_RECORD
_LINGER: Final = Slot.LINGER
_LIMITS: Final = Slot.LIMITS
_LIMITS_SHIFT: Final = LIMITS_SHIFT
_LIMITS_BITS: Final = LIMITS_MASK
_LINGER_SHIFT: Final = LINGER_SHIFT
_COMPRESSION_BITS: Final = COMPRESSION_MASK
_OPEN: Final = SlotState.OPEN
_CLOSED: Final = SlotState.CLOSED
_RECORDS: Final = Process.RECORDS
_BYTES: Final = Process.BYTES
_BATCHES: Final = Process.BATCHES
_PRECOMPRESSED: Final = Process.COMPRESSED


AppendResult: TypeAlias = tuple[FutureRecordMetadata, bool, bool, int]
"""The items of a `RecordAppendResult` as a plain tuple: names would cost time on every record."""


class Route(Protocol):
    """Chooses another partition for a record that would open a new batch."""

    def reroute(self, queue: PartitionQueue) -> PartitionQueue:
        """Return the deque that the record goes to; ``queue`` has no open batch with room for it."""


class LargeRecord(NamedTuple):
    """A record that has a batch of its own, since it takes a slot or more."""

    records: bytes | memoryview
    """The record as it will be in the slab."""
    size: int
    """Bytes of the whole batch, before any compression."""
    compressed: int
    """Its `Slot.COMPRESSED` word."""


class RecordAppender:
    """Appends single records to the open batches of a slab. Threads may share it.

    Args:
        slab: the slab.
        record_format: of the records.
        pending: of this process.
        compressor: of the producer.
        linger_ms: the producer's.
        delivery_timeout_ms: likewise.
        retries: likewise.

    Attributes:
        linger: the `Slot.LINGER` word of the batches that this producer opens.
        limits: their `Slot.LIMITS` word.
    """

    def __init__(
        self,
        slab: Slab,
        record_format: RecordFormat,
        pending: PendingBatches,
        compressor: BatchCompressor,
        linger_ms: int,
        delivery_timeout_ms: int,
        retries: int,
    ) -> None:
        self.slab = slab
        self.format = record_format
        self.pending = pending
        self.compressor = compressor
        self.slot_size = slab.geometry.slot_size
        self.header_size = record_format.header_size
        self.fast = _FastRecords(slab.memory) if COMPILED and record_format.magic == v2.MAGIC else None
        self._encode_record = record_format.encode_record
        self._memory = slab.memory
        self._buffer = slab.buffer
        self._headers_at = slab.geometry.header(0)
        self._header_words = slab.geometry.slot_words
        self._slot_count = slab.geometry.slot_count
        self._slots_at = slab.geometry.slots
        self._contributor_words = slab.geometry.contributor_words
        self._compresses = compressor.enabled
        self._linger_ms = min(linger_ms, MAX_LINGER_MS)
        self.linger = self._linger_ms << LINGER_SHIFT | compressor.compression
        self._timeout_ms = delivery_timeout_ms
        self._retries = retries
        self.limits = retries << LIMITS_SHIFT | delivery_timeout_ms

    def try_append(
        self, queue: PartitionQueue, timestamp: int, body: bytes, callback: DeliveryCallback | None, sizes: int
    ) -> AppendResult | None:
        """Append to the open batch, under the partition's lock; return None if there is none or it has no room."""
        memory = self._memory
        if queue.lane_at:
            queue.check_lease()
        opened = memory.words[queue.open_at]
        if not opened:
            return None
        if opened > self._slot_count:  # in the compiled form, C arithmetic on it would wrap around
            raise self.slab.damaged(f"the open batch of {queue.topic_partition} is in slot {opened - 1}")
        slot = opened - 1
        header = self._headers_at + slot * self._header_words
        commit = memory.words[header + _COMMIT]
        size = commit >> _SIZE_SHIFT
        count = commit >> 1 & _COUNT_MASK
        base_timestamp = memory.words[header + _BASE_TIMESTAMP]
        start = self._slots_at + slot * self.slot_size
        if self.fast is not None:
            added = self.fast.write(start + size, start + self.slot_size, count, timestamp - base_timestamp, body)
        else:
            record = self._encode_record(count, timestamp, base_timestamp, body)
            added = len(record) if size + len(record) <= self.slot_size else 0
            if added:
                self._buffer[start + size : start + size + added] = record
        if not added:
            self._claim(queue, queue.close_open())
            return None
        end = size + added
        future = self._register(queue, slot, header, count, timestamp, callback, sizes)
        is_due_earlier = self.commit(header, commit, end, count + 1, timestamp, added)
        count_in_histogram(memory, self.pending.sizes_at, added)
        is_full = end == self.slot_size or (memory.words[queue.queued_at] > 1 and queue.has_full())
        return future, is_full or is_due_earlier, False, added

    def commit(self, header: int, commit: int, end: int, count: int, timestamp: int, max_record: int) -> bool:
        """Make written records part of an open batch; under the partition's lock.

        Args:
            header: word index of the batch's header.
            commit: its commit word so far.
            end: bytes in the batch, including the new records.
            count: records in it, including the new ones.
            timestamp: largest timestamp of the new ones.
            max_record: bytes in the largest of the new ones.

        Returns:
            Whether the batch is due earlier than it was before.
        """
        memory = self._memory
        linger = memory.words[header + _LINGER]
        is_due_earlier = linger >> _LINGER_SHIFT > self._linger_ms
        if is_due_earlier:  # before the commit: a death in between must not leave the record lingering too long
            memory.words[header + _LINGER] = self._linger_ms << _LINGER_SHIFT | linger & _COMPRESSION_BITS
        limits = memory.words[header + _LIMITS]
        if limits != self.limits:  # of another producer; before the commit, as above
            timeout_ms = max(limits & _LIMITS_BITS, self._timeout_ms)
            retries = max(limits >> _LIMITS_SHIFT, self._retries)
            memory.words[header + _LIMITS] = retries << _LIMITS_SHIFT | timeout_ms
        if max_record > memory.words[header + _MAX_RECORD]:
            memory.words[header + _MAX_RECORD] = max_record
        # The largest timestamp has two cells, so that the store of COMMIT switches to a new one.
        cell = commit & 1
        if timestamp > memory.words[header + _MAX_TIMESTAMP + cell]:
            cell ^= 1
            memory.words[header + _MAX_TIMESTAMP + cell] = timestamp
        memory.words[header + _COMMIT] = end << _SIZE_SHIFT | count << 1 | cell
        process = self.pending.process_at
        memory.words[process + _RECORDS] += count - (commit >> 1 & _COUNT_MASK)
        memory.words[process + _BYTES] += end - (commit >> _SIZE_SHIFT)
        return is_due_earlier

    def begin_batch(
        self,
        queue: PartitionQueue,
        slot: int,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        large: LargeRecord | None,
        sizes: int,
    ) -> AppendResult:
        """Append a record as the first of a new batch, in a slot that only this process uses.

        If another process has opened a batch meanwhile, the record goes there if it fits. The result then has
        `new_batch_created` false, and the slot stays unused.

        Args:
            queue: of the partition.
            slot: where the memory begins.
            timestamp: as in `RecordAccumulator.append`.
            body: the same.
            callback: the same.
            large: the record again, if it leaves no room for another one.
            sizes: as in `RecordAccumulator.append`.
        """
        header = self._headers_at + slot * self._header_words
        start = self._slots_at + slot * self.slot_size + self.header_size
        self._memory.fault_in(start)
        if large is not None:
            added, compressed = large.size - self.header_size, large.compressed
            self._memory.write(self.places_of_large(slot, header, len(large.records)), large.records)
        elif self.fast is not None:
            added, compressed = self.fast.write(start, start - self.header_size + self.slot_size, 0, 0, body), 0
        else:
            record = self._encode_record(0, timestamp, timestamp, body)
            added, compressed = len(record), 0
            self._buffer[start : start + added] = record
        now_us = time.monotonic_ns() // 1_000
        end = self.header_size + added
        words, linger, limits = self._contributor_words, self.linger, self.limits
        begin(self._memory, header, words, now_us, end, 1, timestamp, timestamp, added, compressed, linger, limits)
        lock = queue.lock
        lock.acquire()
        try:  # as in `RecordAccumulator.append`
            result = self.try_append(queue, timestamp, body, callback, sizes)  # the second look
            if result is None:
                future = self._register(queue, slot, header, 0, timestamp, callback, sizes)
                self._place(queue, slot, _OPEN if large is None else _CLOSED, added, compressed)
                result = future, large is not None or queue.has_full(), True, end
        except BaseException:
            lock.leave(True)
            raise
        lock.leave(False)
        return result

    def places_of_large(self, slot: int, header: int, size: int) -> list[tuple[int, int]]:
        """Return where the records of a large batch go, as `SlabMemory.places` does.

        Args:
            slot: the batch's.
            header: word index of its header.
            size: bytes of the records as they will be in the slab.
        """
        memory = self._memory
        slots = memory.chain(slot, memory.words[header + _SLOTS])
        return memory.places(slots, self.header_size, self.header_size + size)

    def _place(self, queue: PartitionQueue, slot: int, state: SlotState, added: int, compressed: int) -> None:
        """Append a new batch of one record to its deque; under the partition's lock."""
        self._claim(queue, queue.append(slot, state))
        words, process = self._memory.words, self.pending.process_at
        words[process + _RECORDS] += 1
        words[process + _BYTES] += added
        words[process + _BATCHES] += 1
        words[process + _PRECOMPRESSED] += compressed != 0
        count_in_histogram(self._memory, self.pending.sizes_at, added)

    def _claim(self, queue: PartitionQueue, slot: int) -> None:
        """Claim the compression of a batch that was closed, if there is one."""
        if self._compresses and slot >= 0:
            header = self._headers_at + slot * self._header_words
            if self._memory.words[header + _LINGER] & _COMPRESSION_BITS:
                self.compressor.claim(queue, slot)

    def _register(
        self,
        queue: PartitionQueue,
        slot: int,
        header: int,
        index: int,
        timestamp: int,
        callback: DeliveryCallback | None,
        sizes: int,
    ) -> FutureRecordMetadata:
        result = self.pending.contribute(queue, slot, header)
        if _COMPILED:
            future = new_future(result, index, timestamp, sizes)
        else:
            future = FutureRecordMetadata(result, index, timestamp, sizes)
        if callback is not None:
            self.pending.call_back(callback, future)
        return future


def check_timestamp(timestamp: int) -> int:
    """Return a timestamp, if a record can have it.

    Raises:
        InvalidTimestampError: it is negative, or takes more than 63 bits.
    """
    if not 0 <= timestamp <= MAX_TIMESTAMP:
        raise InvalidTimestampError(f"timestamp must be 0 to 2^63 - 1 milliseconds since 1970, not {timestamp}")
    return timestamp
