"""Compresses the batches that are closed from the start, before they get memory: those of columns and large records.

They then take fewer slots. All other batches grow, record by record, as they are; the sender compresses them
(`shmaccum.accumulator.drain.compression_ahead`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shmaccum._core import COMPRESSED_SIZE_SHIFT
from shmaccum.record.compression import DEFAULT_LEVELS, CompressionType, compress
from shmaccum.record.format import RecordFormat


def compressed_word(size: int, compression: CompressionType) -> int:
    """Return the COMPRESSED word of a batch of ``size`` bytes, header included, with this compression."""
    return size << COMPRESSED_SIZE_SHIFT | compression


class BatchCompressor:
    """Compresses the records of batches. Threads may share it.

    Args:
        record_format: of the batches.
        compression: of a producer.
        levels: for each compression type that has levels.

    Attributes:
        compression: see above.
        is_active: whether it changes anything.
    """

    def __init__(
        self,
        record_format: RecordFormat,
        compression: CompressionType,
        levels: Mapping[CompressionType, int] = DEFAULT_LEVELS,
    ) -> None:
        self._format = record_format
        self.compression: Final = compression
        self._level = levels.get(compression)
        self.is_active: Final = record_format.compresses_ahead and compression is not CompressionType.NONE

    def compress(self, records: bytes | memoryview) -> tuple[bytes | memoryview, int]:
        """Compress the records of a batch.

        Returns:
            The records for the slab, compressed if that makes them smaller, and the batch's COMPRESSED word.
        """
        if not self.is_active:
            return records, 0
        start = self._format.header_size
        compressed = compress(self.compression, records, self._format.magic, self._level)
        if len(compressed) >= len(records):
            return records, compressed_word(start + len(records), CompressionType.NONE)
        return compressed, compressed_word(start + len(compressed), self.compression)
