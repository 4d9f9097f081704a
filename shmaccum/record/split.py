"""Batch splitting (``ProducerBatch.split``): rewrites a batch's records as smaller batches.

It reads an unsealed batch as the accumulator leaves it in a slot, and writes such batches, which are sealed like any
other. Each record keeps everything but its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields, Record
from shmaccum.record.format import RecordFormat, iter_batches


class BatchPart(NamedTuple):
    """A part of a split batch: some records as an unsealed batch, in private memory."""

    memory: memoryview
    """Writable: `RecordFormat.header_size` free bytes and the records, not compressed."""
    fields: BatchFields
    """Without its producer's."""


def read_records(
    record_format: RecordFormat,
    batch: memoryview,
    fields: BatchFields,
    compression: CompressionType = CompressionType.NONE,
) -> list[Record]:
    """Return the records of an unsealed batch, without changing it.

    The batch is exactly `RecordFormat.header_size` free bytes and the records, compressed as given.

    Raises CorruptRecordError: the records are invalid.
    """
    is_compressed = compression is not CompressionType.NONE
    sealed = record_format.seal(memoryview(bytearray(batch)), fields, compression, compressed=is_compressed)
    # No check: `seal` has just computed the checksum.
    return [record for entry in iter_batches(sealed, check_crc=False) for record in entry.records()]


def write_part(record_format: RecordFormat, records: Sequence[Record], max_size: int | None = None) -> BatchPart:
    """Write the first of some records as a part of a split batch: as many as fit, but at least one.

    ``max_size`` is the most bytes of the batch, unless one record takes more; None for all records.
    """
    base_timestamp = records[0].timestamp
    parts = [bytes(record_format.header_size)]
    size = len(parts[0])
    count = 0
    for record in records:
        body = record_format.encode_body(record.key, record.value, record.headers)
        encoded = record_format.encode_record(count, record.timestamp, base_timestamp, body)
        size += len(encoded)
        if count and max_size is not None and size > max_size:
            break
        parts.append(encoded)
        count += 1
    max_timestamp = max(record.timestamp for record in records[:count])
    fields = BatchFields(count, base_timestamp, max_timestamp)
    return BatchPart(memoryview(bytearray(b"".join(parts))), fields)
