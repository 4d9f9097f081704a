"""Batches made smaller (``ProducerBatch.split``): the records of one, written anew as batches of their own.

What is read here is an unsealed batch as the accumulator leaves it in a slot, and so is what is written: to be sealed
as any other. A record keeps all that it has but its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from shmaccum.record.format import RecordFormat
from shmaccum.record.reader import Record, iter_batches


class Piece(NamedTuple):
    """Some records as an unsealed batch, in memory of its own."""

    memory: memoryview
    """Writable: `RecordFormat.header_size` free bytes and the records."""
    record_count: int
    base_timestamp: int
    max_timestamp: int


def read_records(
    record_format: RecordFormat,
    batch: memoryview,
    *,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: CompressionType = CompressionType.NONE,
) -> list[Record]:
    """Return the records of an unsealed batch, which is left as it is.

    Args:
        record_format: of the batch.
        batch: `RecordFormat.header_size` free bytes and the records, no more and no less.
        record_count: records in it.
        base_timestamp: timestamp of its first record, milliseconds since the epoch.
        max_timestamp: largest timestamp in it.
        compression: how the records in it are compressed; only where `RecordFormat.compresses_ahead`.

    Raises:
        CorruptRecordError: there are no such records.
    """
    sealed = record_format.seal(
        memoryview(bytearray(batch)),
        record_count=record_count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        compression=compression,
        compressed=compression is not CompressionType.NONE,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
    )
    # The checksum has just been made.
    return [record for entry in iter_batches(sealed, check_crc=False) for record in entry.records()]


def write_piece(record_format: RecordFormat, records: Sequence[Record], max_size: int | None = None) -> Piece:
    """Write the first of some records as a batch: as many as fit, but always one.

    Args:
        record_format: of the batch.
        records: at least one.
        max_size: most bytes of the batch, unless one record takes more; None for all records.
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
    return Piece(memoryview(bytearray(b"".join(parts))), count, base_timestamp, max_timestamp)
