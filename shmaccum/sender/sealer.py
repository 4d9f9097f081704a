"""Seals the drained batches that the core does not (``core/request.pxi``), which has the rules.

They are split, to be compressed, or of an old format; or damaged.
"""

from __future__ import annotations

import struct
from typing import Final

from shmaccum._core import InPlaceSealer, Process, ProduceBatch
from shmaccum.accumulator.drain.compression_ahead import CompressionAhead
from shmaccum.accumulator.state.accumulator_state import AccumulatorState
from shmaccum.accumulator.state.lanes import LaneTable
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import CorruptRecordError, IllegalStateError, UnsupportedCompressionTypeError
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields, BatchMemory
from shmaccum.record.v2 import MAGIC
from shmaccum.sender.batch_splitter import BatchSplitter

DAMAGES: Final = (
    CorruptRecordError,
    UnsupportedCompressionTypeError,
    IllegalStateError,
    struct.error,
    ValueError,
    OverflowError,
)
"""Errors of sealing a batch with a damaged header or damaged records."""


class Sealer:
    """Seals the batches of a slab."""

    def __init__(self, state: AccumulatorState, splitter: BatchSplitter, ahead: CompressionAhead) -> None:
        self._words = state.slab.words
        self._map = state.map
        self._format = state.format
        self._header_size = state.format.header_size
        self._magic = state.format.magic
        self._keeps_checksums = state.slab.geometry.keeps_checksums and self._magic == MAGIC
        self._lanes = LaneTable(state.slab, state.map)
        self._splitter = splitter
        self._ahead = ahead
        self.core: Final = (
            InPlaceSealer(state.slab.core, state.map, self._lanes.identity) if state.format.magic == MAGIC else None
        )
        """Seals what Python code need not see."""
        self._compressed_at = state.slab.geometry.process(state.slab.me) + Process.COMPRESSED

    def seal(self, batch: RecordBatch) -> ProduceBatch:
        """Return a drained batch sealed: in place, or in private memory if this call compresses it.

        Raises:
            CorruptRecordError: its header is damaged.
            One of `DAMAGES`: its records are damaged.
        """
        batch.check(self._header_size)
        if self._keeps_checksums and not batch.is_intact(self._header_size):
            raise CorruptRecordError("its bytes in shared memory have changed since they were appended")
        if batch.is_split:
            part = self._splitter.next_part(batch)
            views: BatchMemory = (part.memory,)
            contents = part.fields[:3]
        else:
            views = batch.memory()
            contents = batch.contents()
        fields = BatchFields(*contents, *batch.identity())
        queue = self._map.by_entry[batch.partition]
        compression, is_compressed = CompressionType.NONE, False
        if batch.wanted:
            compression = batch.wanted_compression
            self._words[self._compressed_at] += 1
            section = self._ahead.take(batch)
            if section is not None:
                is_compressed = True
                views = memoryview(bytearray(self._header_size)), memoryview(section)
        first = self._format.seal(
            views[0],
            fields,
            compression,
            compressed=is_compressed,
            rest=views[1:],
            level=self._ahead.levels.get(compression),
            transactional=queue.lane != 0,
        )
        return ProduceBatch(
            queue.topic_partition,
            views if first is views[0] else (first,),
            fields.record_count,
            self._magic,
            fields.producer_id,
            fields.producer_epoch,
            fields.base_sequence,
            fields.max_timestamp,
            batch.slot,
            *(self._lanes.identity(queue.lane - 1) if queue.lane else ()),
        )
