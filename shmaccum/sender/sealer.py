"""The last step of a batch before it travels: what was drained gets its header and checksum, in its slot."""

from __future__ import annotations

from typing import Final

from shmaccum.accumulator.record_accumulator import RecordAccumulator
from shmaccum.accumulator.record_batch import RecordBatch
from shmaccum.record.compression import CompressionType
from shmaccum.sender.pieces import Pieces
from shmaccum.sender.transport import ProduceBatch
from shmaccum.shm.layout import Process, Slot

_PIECE: Final = Slot.PIECE
_COMPRESSED: Final = Slot.COMPRESSED


class Sealer:
    """Seals the batches of a slab.

    Args:
        accumulator: of the slab.
        pieces: has those that are not sent as a whole.
        compression: of those that are not compressed yet.
    """

    def __init__(self, accumulator: RecordAccumulator, pieces: Pieces, compression: CompressionType) -> None:
        self._memory = accumulator.slab.memory
        self._map = accumulator.map
        self._format = accumulator.format
        self._header_size = accumulator.format.header_size
        self._magic = accumulator.format.magic
        self._pieces = pieces
        self._compression = compression
        self._compresses = compression is not CompressionType.NONE
        self._compressed_at = accumulator.slab.geometry.process(accumulator.slab.me) + Process.COMPRESSED

    def seal(self, batch: RecordBatch) -> ProduceBatch:
        """Make a drained batch ready for the wire, in place unless it is still to be compressed.

        Raises:
            CorruptRecordError: its header cannot be so.
            IllegalStateError, struct.error, ValueError, OverflowError: nor can its records, or what is left of them.
        """
        batch.check(self._header_size)
        slab = self._memory
        if slab.words[batch.at + _PIECE]:
            memory, record_count, base_timestamp, max_timestamp, compression = self._pieces.piece_of(batch)
        else:
            memory = batch.memory()
            compression = batch.compression if slab.words[batch.at + _COMPRESSED] else None
            record_count, base_timestamp, max_timestamp = batch.contents()
        producer_id, producer_epoch, base_sequence = batch.identity()
        if compression is None and self._compresses:
            slab.words[self._compressed_at] += 1
        payload = self._format.seal(
            memory,
            record_count,
            base_timestamp,
            max_timestamp,
            self._compression if compression is None else compression,
            producer_id,
            producer_epoch,
            base_sequence,
            compression is not None,
        )
        queue = self._map.by_entry[batch.partition]
        sealed = ProduceBatch.__new__(ProduceBatch)  # past its constructor, which is handed numbers as Python's
        sealed.topic_partition = queue.topic_partition
        sealed.payload = payload
        sealed.record_count = record_count
        sealed.magic = self._magic
        sealed.producer_id = producer_id
        sealed.producer_epoch = producer_epoch
        sealed.base_sequence = base_sequence
        sealed.max_timestamp = max_timestamp
        sealed.slot = batch.slot
        return sealed
