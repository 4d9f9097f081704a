"""Whole columns into batches: one encoding for all rows, one copy and one turn of a lock for each batch.

The rows of a partition are laid out over batches beforehand, by the sizes of their bodies; then all of them are
encoded in one vectorised call, and each batch's share is copied into its slot in one piece. The first rows go into
the batch that is open, if it is still as it was when they were encoded for it: somebody else's record in between
changes the offsets behind it, and then these rows begin a batch of their own.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmaccum.accumulator.batch_appender import BatchAppender
from shmaccum.accumulator.futures import Chunk, FutureColumnsMetadata
from shmaccum.accumulator.partition_queue import PartitionQueue
from shmaccum.record.columns import ColumnBodies, EncodedColumns
from shmaccum.shm.layout import COMMIT_COUNT_MASK, COMMIT_SIZE_SHIFT, Slot

Int64Array = npt.NDArray[np.int64]

STRETCH_BYTES: Final = 4 << 20
"""Rows encoded at a time come to about this: bounds the private memory that a large append takes."""


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


class ColumnAppender:
    """Appends columns by way of a `BatchAppender`."""

    def __init__(self, appender: BatchAppender) -> None:
        self._appender = appender
        self._words = appender.slab.words
        self._geometry = appender.slab.geometry
        self._overhead = appender.format.record_overhead_max

    def append(
        self, queue: PartitionQueue, part: PartitionRows, future: FutureColumnsMetadata, deadline_s: float
    ) -> None:
        """Append rows to a partition; the sender is woken as batches become ready.

        Args:
            queue: of the partition.
            part: the rows.
            future: takes in the rows as they are appended; rows that an error kept out are not in it.
            deadline_s: monotonic time until which memory may be waited for.

        Raises:
            BufferExhaustedError: there was no memory in time; rows before may have been appended.
            ProducerClosedError: the accumulator has been closed.
        """
        self._appender.check_usable()
        sizes = part.bodies.body_sizes + self._overhead
        ends = np.cumsum(sizes)
        row = self._fill_open_batch(queue, part, ends, future)
        while row < len(part.rows):
            limit = (ends[row - 1] if row else 0) + STRETCH_BYTES
            stop = max(row + 1, int(np.searchsorted(ends, limit, "right")))
            self._append_new_batches(queue, part, ends, row, stop, future, deadline_s)
            row = stop

    def _fill_open_batch(
        self, queue: PartitionQueue, part: PartitionRows, ends: Int64Array, future: FutureColumnsMetadata
    ) -> int:
        """Append as many rows as fit to the open batch; return how many."""
        appender, words = self._appender, self._words
        seen = self._open_batch(queue)
        if seen is None:
            return 0
        size, count = seen.commit >> COMMIT_SIZE_SHIFT, seen.commit >> 1 & COMMIT_COUNT_MASK
        fitting = int(np.searchsorted(ends, appender.slot_size - size, "right"))
        if not fitting:
            return 0
        header = self._geometry.header(seen.slot)
        timestamps = part.timestamps[:fitting]
        base = np.full(fitting, words[header + Slot.BASE_TIMESTAMP], np.int64)
        encoded = part.bodies.encode(0, fitting, count + np.arange(fitting), timestamps, base)
        start = self._geometry.slot(seen.slot) + size
        length = len(encoded.data)
        with queue.lock:
            if self._open_batch(queue) != seen:
                return 0
            appender.slab.buffer[start : start + length] = encoded.data
            result = appender.acks.contribute(queue.topic_partition, seen.slot, header)
            future.add(Chunk(result, part.rows[:fitting], count))
            largest = int(np.diff(encoded.offsets).max())
            appender.commit(header, seen.commit, size + length, count + fitting, int(timestamps.max()), largest)
        return fitting

    def _open_batch(self, queue: PartitionQueue) -> _OpenBatch | None:
        words = self._words
        slot = words[queue.open_at] - 1
        if slot < 0:
            return None
        header = self._geometry.header(slot)
        return _OpenBatch(slot, words[header + Slot.GENERATION], words[header + Slot.COMMIT])

    def _append_new_batches(
        self,
        queue: PartitionQueue,
        part: PartitionRows,
        ends: Int64Array,
        first: int,
        stop: int,
        future: FutureColumnsMetadata,
        deadline_s: float,
    ) -> None:
        """Append rows first..stop to batches of their own."""
        starts = self._plan(ends, first, stop)
        batch_of_row = np.zeros(stop - first, np.int64)
        batch_of_row[starts[1:] - first] = 1
        start_of_row = starts[np.cumsum(batch_of_row)]
        timestamps = part.timestamps[first:stop]
        offsets = np.arange(first, stop) - start_of_row
        encoded = part.bodies.encode(first, stop, offsets, timestamps, part.timestamps[start_of_row])
        for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), stop], strict=True):
            self._append_batch(queue, part, encoded, first, begin, end, future, deadline_s)

    def _plan(self, ends: Int64Array, first: int, stop: int) -> Int64Array:
        """Return the first rows of the batches that rows first..stop are laid out over."""
        room = self._appender.slot_size - self._appender.format.header_size
        starts = []
        row = first
        while row < stop:
            starts.append(row)
            begin = ends[row - 1] if row else 0
            # A row that is larger than a slot gets a batch, and a run of slots, of its own.
            row = max(row + 1, int(np.searchsorted(ends, begin + room, "right")))
        return np.array(starts, np.int64)

    def _append_batch(
        self,
        queue: PartitionQueue,
        part: PartitionRows,
        encoded: EncodedColumns,
        first: int,
        begin: int,
        end: int,
        future: FutureColumnsMetadata,
        deadline_s: float,
    ) -> None:
        """Append rows begin..end, encoded from row ``first`` on, as one batch."""
        appender = self._appender
        offsets = encoded.offsets[begin - first : end - first + 1]
        records = memoryview(encoded.data)[int(offsets[0]) : int(offsets[-1])]
        timestamps = part.timestamps[begin:end]
        largest = int(np.diff(offsets).max())
        closed = end < len(part.rows)  # by the next batch, right away
        batch = appender.new_batch(
            records, end - begin, int(timestamps[0]), int(timestamps.max()), largest, closed=closed
        )
        appender.check_usable()
        taken = appender.empty_hand()
        try:
            appender.before_new_batch()
            max_block_ms = (deadline_s - time.monotonic()) * 1000
            buffer = appender.pool.allocate(max(batch.size, appender.slot_size), max_block_ms, taken)
            appender.fill(buffer, batch)
            with queue.lock:
                header = self._geometry.header(buffer.slot)
                result = appender.acks.contribute(queue.topic_partition, buffer.slot, header)
                future.add(Chunk(result, part.rows[begin:end], 0))
                appender.place(queue, buffer, batch)
                del taken[:]
        finally:
            if taken:
                appender.give_back(taken)
        appender.compressor.compress_claimed()
        appender.slab.rope.pull()
