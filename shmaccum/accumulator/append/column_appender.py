"""Appends columns: lays out, writes and queues many batches at once.

The rows of a partition are first divided among batches by the sizes of their bodies. Each *turn* then encodes up to
`TURN_BATCHES`, allocates as many slots as are free, fills them and queues them under one acquisition of the partition's
lock. The first rows go into the open batch if it is still as it was when they were encoded. A record of another
producer in between changes the offsets behind it; then these rows begin another batch. The open batch grows if it can
take all rows then. While the partition has others before them, batches are as large as a batch grows
(``batch.max.bytes``), and fewer in a turn.

Owners, locks and what a death leaves are as in `record_appender`. `shmaccum._core.Appender` queues the batches; a death
within leaves the first ones queued, the others allocated, and the lock's next holder rebuilds the deque.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmaccum import _core
from shmaccum._core import Buffer
from shmaccum.accumulator.append.futures import Chunk, FutureColumnsMetadata
from shmaccum.accumulator.append.record_appender import RecordAppender
from shmaccum.accumulator.append.waits import SENDER, TURN_OVER, Memory, Waits
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.record.columns import ColumnBodies
from shmaccum.shm.layout import count_of, size_of

TURN_BATCHES: Final = 32
"""Batches encoded and queued at a time: bounds an append's private memory, and how long its first batch waits for
the others.
"""

_OVERHEAD: Final = 6
"""Bytes that most records of message format 2 take in addition to their body."""


class _NewBatches(NamedTuple):
    """Batches that are encoded and not yet queued; each list has one item per batch."""

    records: _core.RowBatches
    rows: npt.NDArray[np.int64]
    """The number in the append of each record of the bodies."""
    cuts: list[int]
    """As in `RowBatches`."""
    sizes: list[int]
    """Likewise, but with the batches' headers; before any compression."""
    compressed: list[bytes | memoryview]
    """Records of the first batches as stored in the slab; the other batches are stored uncompressed."""
    compressed_words: list[int]
    """The `Slot.COMPRESSED` word of each."""
    is_open: bool
    """Whether the last one can take more records."""


class ColumnAppender:
    """Appends columns, to open batches and to new ones.

    ``check_usable`` is called before every append: reads the completion ring, raises if the accumulator is closed.
    """

    def __init__(self, records: RecordAppender, check_usable: Callable[[], None]) -> None:
        self._records = records
        self._check_usable = check_usable
        self._pending = records.pending
        self._compressor = records.compressor
        self._slab = records.slab
        geometry = records.slab.geometry
        self._header_size = records.format.header_size
        self._slot_size = records.slot_size
        self._batch_size = records.batch_size
        self._geometry = geometry

    def appending(
        self, queue: PartitionQueue, bodies: ColumnBodies, future: FutureColumnsMetadata, deadline_s: float
    ) -> Waits[None]:
        """Append rows to a partition, waking the sender as batches become ready.

        It can wait for memory until ``deadline_s``, in monotonic seconds. The future gets the accepted rows; rows that
        an error kept out are not in it.

        Raises:
            BufferExhaustedError: no memory became free in time; earlier rows may be accepted.
            ProducerClosedError: the accumulator has been closed.
        """
        self._check_usable()
        row = self._fill_open_batch(queue, bodies, future)
        while row < len(bodies):
            yield SENDER
            size = max(queue.may_grow_to(self._records.max_bytes), self._batch_size)
            most = max(1, TURN_BATCHES * self._slot_size // size)
            records = bodies.lay_out(row, size - self._header_size, most)
            row = records.cuts[-1]
            batches = self._new_batches(bodies, records)
            placed = 0
            while placed < len(batches.sizes):
                placed += yield from self._placing(queue, batches, placed, future, deadline_s)
                yield TURN_OVER
        _core.count_sample(self._slab.core, self._pending.sizes_at, bodies.body_sizes, _OVERHEAD)

    def _rows_for(
        self, queue: PartitionQueue, bodies: ColumnBodies, seen: Buffer, commit: int, base_timestamp: int
    ) -> _core.RowBatches | None:
        """Lay out the first rows for the open batch, which grows if it can take all of them then."""
        size, before = size_of(commit), count_of(commit)
        room = seen.slots * self._slot_size - size
        buffer, most = self._records.core.growing(queue.entry, int(bodies.body_sizes.sum()))
        if buffer is not None and buffer.batch == seen.batch:
            records = bodies.add_to(room + most * self._slot_size, before, base_timestamp)
            if records is not None and records.cuts[-1] == len(bodies):
                self._records.pool.grow(buffer, -(-(records.sizes[0] - room) // self._slot_size))
                room = buffer.slots * self._slot_size - size
                if records.sizes[0] <= room:
                    return records
        return bodies.add_to(room, before, base_timestamp) if room > 0 else None

    def _fill_open_batch(self, queue: PartitionQueue, bodies: ColumnBodies, future: FutureColumnsMetadata) -> int:
        """Append the first rows to the open batch if it is unchanged; return how many."""
        core = self._records.core
        seen = core.open_batch(queue.entry)
        if seen is None:
            return 0
        batch, commit, _ = seen
        records = self._rows_for(queue, bodies, *seen)
        if records is None:
            return 0
        count, latest, largest = records.cuts[1], records.max_timestamps[0], records.largest[0]
        outcome = self._records.run(queue, core.append_rows, batch, commit, records.records(0), count, latest, largest)
        if outcome[0] == _core.APPEND_NO_ROOM:
            return 0
        future.add(Chunk([outcome[1]], bodies.rows, [0, count], count_of(commit)))
        self._note_largest(largest)
        if outcome[2]:
            self._records.wake(True)
        return count

    def _new_batches(self, bodies: ColumnBodies, records: _core.RowBatches) -> _NewBatches:
        """Compress batches but an open one. Before slots are allocated: that wait can take much longer."""
        cuts = records.cuts
        sizes = [self._header_size + size for size in records.sizes]
        last = len(sizes) - 1
        # The next batch closes each one but the last at once.
        is_open = cuts[last + 1] == len(bodies) and sizes[last] < self._batch_size
        compressed, compressed_words = [], [0] * len(sizes)
        if self._compressor.is_active:
            for number in range(len(sizes) - is_open):
                stored, compressed_words[number] = self._compressor.compress(records.records(number))
                compressed.append(stored)
        return _NewBatches(records, bodies.rows, cuts, sizes, compressed, compressed_words, is_open)

    def _placing(
        self,
        queue: PartitionQueue,
        batches: _NewBatches,
        first: int,
        future: FutureColumnsMetadata,
        deadline_s: float,
    ) -> Waits[int]:
        """Queue batches from number ``first`` on, as many as there are slots for; return how many."""
        self._check_usable()
        sizes, cuts = batches.sizes, batches.cuts
        end = first + 1
        while end < len(sizes) and max(sizes[end - 1], sizes[end]) <= self._slot_size:
            end += 1
        if self._records.unused:
            self._records.free_unused()
        taken: list[Buffer] = []
        hand = id(taken)  # as in `RecordAppender.appending`
        try:
            size, max_block_ms = max(sizes[first], self._slot_size), (deadline_s - time.monotonic()) * 1000
            yield Memory(size, max_block_ms, taken, end - first)
            end = first + len(taken)
            slots = [buffer.slot for buffer in taken]
            self._fill(queue, batches, first, slots)
            is_open = batches.is_open and end == len(sizes)
            results = [self._pending.expect(queue, buffer.batch) for buffer in taken]
            outcome = self._records.run(queue, self._records.core.append_batches, taken, is_open)
            future.add(Chunk(results, batches.rows, cuts[first : end + 1], 0))
            del taken[:]
            self._note_largest(max(batches.records.largest[first:end]))
        finally:
            if taken:
                self._records.unused[hand] = taken
                self._records.free_unused()
        self._records.wake(outcome[2])
        return end - first

    def _fill(self, queue: PartitionQueue, batches: _NewBatches, first: int, slots: list[int]) -> None:
        """Write batches from number ``first`` on, complete but for their place, into slots that only we use."""
        self._write(batches, first, slots)
        records, sizes, cuts = batches.records, batches.sizes, batches.cuts
        now_us = time.monotonic_ns() // 1_000
        for number, slot in enumerate(slots, first):
            self._records.core.begin(
                queue.entry,
                slot,
                now_us,
                sizes[number],
                cuts[number + 1] - cuts[number],
                records.base_timestamps[number],
                records.max_timestamps[number],
                records.largest[number],
                batches.compressed_words[number],
            )

    def _write(self, batches: _NewBatches, first: int, slots: list[int]) -> None:
        """Write the records of batches from number ``first`` on."""
        records = batches.records
        if batches.sizes[first] > self._slot_size:  # alone, see `_placing`
            self._write_large(batches, first, slots[0])
            return
        places = [self._geometry.slot(slot) + self._header_size for slot in slots]
        for place in places:
            self._records.fault_in(place)
        buffer = self._slab.buffer
        compressed = batches.compressed[first : first + len(places)]
        for place, stored in zip(places, compressed, strict=False):
            buffer[place : place + len(stored)] = stored
        if len(compressed) < len(places):
            records.write(buffer, places[len(compressed) :], first + len(compressed))

    def _write_large(self, batches: _NewBatches, number: int, slot: int) -> None:
        """Write the record of a batch that takes several slots."""
        records, appender = batches.records, self._records
        if number < len(batches.compressed):
            stored = batches.compressed[number]
            appender.write(appender.places_of_large(slot, len(stored)), stored)
            return
        places = appender.places_of_large(slot, records.sizes[number])
        if len(places) == 1:
            begin, _ = places[0]
            appender.fault_in(begin)
            records.write(self._slab.buffer, [begin], number)
        else:
            appender.write(places, records.records(number))

    def _note_largest(self, size: int) -> None:
        """Note the size of the largest of some records, which are counted later, or are not all accepted."""
        _core.count_value(self._slab.core, self._pending.sizes_at, size, 0)
