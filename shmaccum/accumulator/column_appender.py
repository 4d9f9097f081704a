"""Whole columns into batches: one encoding, one turn of each lock and one look around for many batches.

The rows of a partition are laid out over batches beforehand, by the sizes of their bodies. A *turn* of them is made
ready in one call, has its memory taken from the pool as far as there is some, is written into its slots, and is put
into the deque under the partition's lock at once. The first rows go into the batch that is open, if it is still as it
was when they were made ready for it: somebody else's record in between changes the offsets behind it, and then these
rows begin a batch of their own.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import contextlib
import time
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmaccum.accumulator.batch_appender import BatchAppender
from shmaccum.accumulator.batch_header import begin
from shmaccum.accumulator.futures import Chunk, FutureColumnsMetadata
from shmaccum.accumulator.partition_queue import PartitionQueue
from shmaccum.errors import LockTimeoutError
from shmaccum.record.column_bodies import ColumnBodies, ReadyBatches
from shmaccum.shm.layout import (
    BATCH_SLOT_BITS,
    COMMIT_COUNT_MASK,
    COMMIT_SIZE_SHIFT,
    Process,
    Slot,
    SlotState,
)
from shmaccum.shm.locks import LEAST_PATIENCE_S

Int64Array = npt.NDArray[np.int64]

_OPEN: Final = int(SlotState.OPEN)
_CLOSED: Final = int(SlotState.CLOSED)

TURN_BATCHES: Final = 32
"""Batches that are made ready and placed at a time: bounds the private memory that a large append takes, and how long
its first batch has to wait for the others."""


class PartitionRows(NamedTuple):
    """The rows of an append that go to one partition, in their order."""

    bodies: ColumnBodies
    timestamps: Int64Array
    rows: Int64Array
    """Their numbers in the whole append."""


class _OpenBatch(NamedTuple):
    """The batch that is open, at one moment: good as long as all of this is still so."""

    slot: int
    generation: int
    commit: int
    base_timestamp: int

    @property
    def size(self) -> int:
        """Bytes that it has."""
        return self.commit >> COMMIT_SIZE_SHIFT


class _NewBatches(NamedTuple):
    """Batches that are made ready and not yet placed: an item of each list is one of them."""

    records: ReadyBatches
    compressed: list[bytes | memoryview]
    """The records of the first ones, as they are to be in the slab; those behind go there as they are."""
    compressed_words: list[int]
    """The `Slot.COMPRESSED` word of each."""
    rows: list[Int64Array]
    base_timestamps: list[int]
    max_timestamps: list[int]
    sizes: list[int]
    """Bytes of each whole batch, before any compression."""
    is_open: bool
    """Whether more may be added to the last one."""


class ColumnAppender:
    """Appends columns by way of a `BatchAppender`."""

    def __init__(self, appender: BatchAppender) -> None:
        self._appender = appender
        self._words = appender.slab.words
        self._geometry = appender.slab.geometry
        self._header_size = appender.format.header_size
        self._room = appender.slot_size - self._header_size
        self._headers_at = self._geometry.header(0)
        self._header_words = self._geometry.slot_words
        self._records_at = self._geometry.slot(0) + self._header_size

    def append(
        self, queue: PartitionQueue, part: PartitionRows, future: FutureColumnsMetadata, deadline_s: float
    ) -> None:
        """Append rows to a partition; the sender is woken as batches become ready.

        Args:
            queue: of the partition.
            part: the rows; at least one.
            future: takes in the rows as they are appended; rows that an error kept out are not in it.
            deadline_s: monotonic time until which memory may be waited for.

        Raises:
            BufferExhaustedError: there was no memory in time; rows before may have been appended.
            ProducerClosedError: the accumulator has been closed.
        """
        self._appender.check_usable()
        earliest, latest = int(part.timestamps.min()), int(part.timestamps.max())
        seen = self._open_batch(queue)
        base = earliest if seen is None else seen.base_timestamp
        spread_ms = max(latest, base) - min(earliest, base)
        overhead = part.bodies.overhead_max(spread_ms, self._room)
        first = 0
        if seen is not None:
            fitting = part.bodies.fitting(overhead, self._appender.slot_size - seen.size)
            if fitting and self._fill_open_batch(queue, seen, part, fitting, future):
                first = fitting
        starts = part.bodies.batch_starts(first, overhead, self._room)
        for index in range(0, len(starts), TURN_BATCHES):
            if index:  # the caller has seen to it that there is a sender; but that was a while ago
                self._appender.before_new_batch()
            following = index + TURN_BATCHES
            stop = starts[following] if following < len(starts) else len(part.rows)
            self._append_turn(queue, part, starts[index:following], stop, future, deadline_s)

    def _open_batch(self, queue: PartitionQueue) -> _OpenBatch | None:
        words = self._words
        slot = words[queue.open_at] - 1
        if slot < 0:
            return None
        header = self._geometry.header(slot)
        base_timestamp = words[header + Slot.BASE_TIMESTAMP]
        return _OpenBatch(slot, words[header + Slot.GENERATION], words[header + Slot.COMMIT], base_timestamp)

    def _fill_open_batch(
        self, queue: PartitionQueue, seen: _OpenBatch, part: PartitionRows, count: int, future: FutureColumnsMetadata
    ) -> bool:
        """Append the first rows to the open batch, if it is still as it was seen."""
        appender = self._appender
        size, before = seen.size, seen.commit >> 1 & COMMIT_COUNT_MASK
        timestamps = part.timestamps[:count]
        base_timestamp = seen.base_timestamp
        encoded = part.bodies.encode([0], count, timestamps, first_offset=before, base_timestamp=base_timestamp)
        start = self._geometry.slot(seen.slot) + size
        end = size + encoded.sizes[0]
        header = self._geometry.header(seen.slot)
        with queue.lock:
            if self._open_batch(queue) != seen:
                return False
            encoded.write(appender.slab.buffer, [start])
            result = appender.acks.contribute(queue.topic_partition, seen.slot, header)
            future.add(Chunk(result, part.rows[:count], before))
            appender.commit(header, seen.commit, end, before + count, int(timestamps.max()), encoded.largest[0])
        return True

    def _append_turn(
        self,
        queue: PartitionQueue,
        part: PartitionRows,
        starts: list[int],
        stop: int,
        future: FutureColumnsMetadata,
        deadline_s: float,
    ) -> None:
        """Append rows ``starts[0]`` to ``stop`` in batches that begin with ``starts``."""
        batches = self._new_batches(part, starts, stop)
        placed = 0
        while placed < len(starts):
            placed += self._place(queue, batches, placed, future, deadline_s)
            self._appender.compressor.compress_claimed()
            self._appender.slab.rope.pull()

    def _new_batches(self, part: PartitionRows, starts: list[int], stop: int) -> _NewBatches:
        """Measure or encode rows ``starts[0]`` to ``stop``, and compress them, but for what more may be added to.

        Before there is memory for them, for to wait for that can take much longer.
        """
        records = part.bodies.encode(starts, stop, part.timestamps)
        sizes = [self._header_size + size for size in records.sizes]
        # Each is closed by the next one, right away.
        is_open = stop == len(part.rows) and sizes[-1] < self._appender.slot_size
        compressor = self._appender.compressor
        compressed, compressed_words = [], [0] * len(starts)
        for number in range(len(starts) - is_open if compressor.enabled else 0):
            stored, compressed_words[number] = compressor.compress(records.records(number))
            compressed.append(stored)
        rows = [part.rows[start:end] for start, end in pairwise([*starts, stop])]
        first, timestamps = starts[0], part.timestamps
        largest = np.maximum.reduceat(timestamps[first:stop], np.array(starts) - first).tolist()
        return _NewBatches(
            records, compressed, compressed_words, rows, timestamps[starts].tolist(), largest, sizes, is_open
        )

    def _place(
        self,
        queue: PartitionQueue,
        batches: _NewBatches,
        first: int,
        future: FutureColumnsMetadata,
        deadline_s: float,
    ) -> int:
        """Put batches from number ``first`` on into the deque, as many as there is memory for; return how many."""
        appender = self._appender
        appender.check_usable()
        slot_size = appender.slot_size
        size = max(batches.sizes[first], slot_size)
        fitting = sum(1 for _ in takewhile(slot_size.__ge__, batches.sizes[first:])) or 1
        taken = appender.empty_hand()
        try:
            appender.pool.allocate(size, (deadline_s - time.monotonic()) * 1000, taken, most=fitting)
            end = first + len(taken)
            slots = [buffer.slot for buffer in taken]
            headers = [self._headers_at + slot * self._header_words for slot in slots]
            self._fill(batches, first, slots, headers)
            is_last = end == len(batches.sizes)
            last_state = _OPEN if is_last and batches.is_open else _CLOSED
            ids = [buffer.generation << BATCH_SLOT_BITS | buffer.slot for buffer in taken]
            with queue.lock:
                results = appender.acks.contribute_new(queue.topic_partition, ids, headers)
                for result, rows in zip(results, batches.rows[first:end], strict=True):
                    future.add(Chunk(result, rows, 0))
                closed = queue.append_all(slots, last_state)
                appender.compressor.claim(queue, closed)
                self._count(batches, first, end)
                del taken[:]
        except BaseException:
            # Rebuilds what was cut short. Without it, a flush would wait for batches that no index leads the sender to.
            # For those that are stopped there is no wait: the next one to have the lock does the same.
            with contextlib.suppress(LockTimeoutError), queue.lock.within(LEAST_PATIENCE_S):
                pass
            raise
        finally:
            if taken:
                appender.give_back(taken)
        return end - first

    def _fill(self, batches: _NewBatches, first: int, slots: list[int], headers: list[int]) -> None:
        """Write batches from number ``first`` on into slots that are still ours alone: all but their places."""
        memory, buffer = self._appender.slab.memory, self._appender.slab.buffer
        contributor_words, now_ms = self._geometry.contributor_words, time.monotonic_ns() // 1_000_000
        for number, header in enumerate(headers, first):
            begin(
                memory,
                header,
                contributor_words,
                now_ms,
                batches.sizes[number],
                len(batches.rows[number]),
                batches.base_timestamps[number],
                batches.max_timestamps[number],
                batches.records.largest[number],
                batches.compressed_words[number],
            )
        places = [self._records_at + slot * self._appender.slot_size for slot in slots]
        for place in places:
            self._appender.slab.fault_in(place)
        compressed = batches.compressed[first : first + len(places)]
        for place, records in zip(places, compressed, strict=False):
            buffer[place : place + len(records)] = records
        batches.records.write(buffer, places[len(compressed) :], first + len(compressed))

    def _count(self, batches: _NewBatches, first: int, end: int) -> None:
        """Add batches that have been placed to the counts of this process; under a lock."""
        words, process = self._words, self._appender.acks.process_at
        words[process + Process.RECORDS] += sum(map(len, batches.rows[first:end]))
        words[process + Process.BYTES] += sum(batches.sizes[first:end]) - (end - first) * self._header_size
        words[process + Process.BATCHES] += end - first
        words[process + Process.COMPRESSED] += sum(map(bool, batches.compressed_words[first:end]))
