"""Whole columns into batches: one encoding, one turn of each lock and one look around for many batches.

The rows of a partition are laid out over batches beforehand, by the sizes of their bodies. A *turn* of them is encoded
in one vectorised call, has its memory taken from the pool as far as there is some, and is put into the deque under the
partition's lock at once; each batch's share is copied into its slot in one piece. The first rows go into
the batch that is open, if it is still as it was when they were encoded for it: somebody else's record in between
changes the offsets behind it, and then these rows begin a batch of their own.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import time
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmaccum.accumulator.batch_appender import BatchAppender, NewBatch
from shmaccum.accumulator.futures import Chunk, FutureColumnsMetadata
from shmaccum.accumulator.partition_queue import PartitionQueue
from shmaccum.record.column_bodies import ColumnBodies
from shmaccum.shm.layout import COMMIT_COUNT_MASK, COMMIT_SIZE_SHIFT, Slot

Int64Array = npt.NDArray[np.int64]

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


class ColumnAppender:
    """Appends columns by way of a `BatchAppender`."""

    def __init__(self, appender: BatchAppender) -> None:
        self._appender = appender
        self._words = appender.slab.words
        self._geometry = appender.slab.geometry
        self._room = appender.slot_size - appender.format.header_size

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
        ends = np.cumsum(part.bodies.body_sizes + part.bodies.overhead_max(spread_ms, self._room))
        first = 0
        if seen is not None:
            fitting = int(ends.searchsorted(self._appender.slot_size - seen.size, "right"))
            if fitting and self._fill_open_batch(queue, seen, part, fitting, future):
                first = fitting
        starts = self._plan(ends, first)
        for index in range(0, len(starts), TURN_BATCHES):
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
        encoded = part.bodies.encode(
            np.zeros(1, np.int64), count, timestamps, first_offset=before, base_timestamp=seen.base_timestamp
        )
        start = self._geometry.slot(seen.slot) + size
        end = size + len(encoded.data)
        header = self._geometry.header(seen.slot)
        with queue.lock:
            if self._open_batch(queue) != seen:
                return False
            appender.slab.buffer[start : start + len(encoded.data)] = encoded.data
            result = appender.acks.contribute(queue.topic_partition, seen.slot, header)
            future.add(Chunk(result, part.rows[:count], before))
            appender.commit(header, seen.commit, end, before + count, int(timestamps.max()), encoded.largest[0])
        return True

    def _plan(self, ends: Int64Array, row: int) -> list[int]:
        """Return the first rows of the batches that the rows from ``row`` on are laid out over."""
        starts = []
        begin = int(ends[row - 1]) if row else 0
        while row < len(ends):
            starts.append(row)
            # A row that is larger than a slot gets a batch, and a run of slots, of its own.
            row = max(row + 1, int(ends.searchsorted(begin + self._room, "right")))
            begin = int(ends[row - 1])
        return starts

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
        chunks = [part.rows[start:end] for start, end in pairwise([*starts, stop])]
        while batches:
            placed = self._place(queue, batches, chunks, future, deadline_s)
            del batches[:placed], chunks[:placed]
            self._appender.compressor.compress_claimed()
            self._appender.slab.rope.pull()

    def _new_batches(self, part: PartitionRows, starts: list[int], stop: int) -> list[NewBatch]:
        """Encode rows ``starts[0]`` to ``stop``."""
        firsts = np.array(starts, np.int64)
        data, bounds, largest = part.bodies.encode(firsts, stop, part.timestamps)
        timestamps = part.timestamps[starts[0] : stop]
        latest = np.maximum.reduceat(timestamps, firsts - starts[0]).tolist()
        return [
            self._appender.new_batch(
                data[begin:end],
                following - start,
                base_timestamp,
                max_timestamp,
                max_record,
                closed=following < len(part.rows),  # by the next batch, right away
            )
            for (begin, end), (start, following), base_timestamp, max_timestamp, max_record in zip(
                pairwise(bounds),
                pairwise([*starts, stop]),
                part.timestamps[firsts].tolist(),
                latest,
                largest,
                strict=True,
            )
        ]

    def _place(
        self,
        queue: PartitionQueue,
        batches: list[NewBatch],
        chunks: list[Int64Array],
        future: FutureColumnsMetadata,
        deadline_s: float,
    ) -> int:
        """Put the first of these batches into the deque, and as many more as there is memory for; return how many."""
        appender = self._appender
        appender.check_usable()
        size = max(batches[0].size, appender.slot_size)
        alike = sum(1 for _ in takewhile(lambda batch: max(batch.size, appender.slot_size) == size, batches))
        taken = appender.empty_hand()
        try:
            appender.before_new_batch()
            appender.pool.allocate(size, (deadline_s - time.monotonic()) * 1000, taken, most=alike)
            for buffer, batch in zip(taken, batches, strict=False):
                appender.fill(buffer, batch)
            with queue.lock:
                for buffer, batch, rows in zip(taken, batches, chunks, strict=False):
                    header = self._geometry.header(buffer.slot)
                    result = appender.acks.contribute(queue.topic_partition, buffer.slot, header)
                    future.add(Chunk(result, rows, 0))
                    appender.place(queue, buffer, batch)
            placed = len(taken)
            del taken[:]
        finally:
            if taken:
                appender.give_back(taken)
        return placed
