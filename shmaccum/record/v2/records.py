"""Writes message format 2, Kafka's own since 0.11: ``DefaultRecordBatch`` and ``DefaultRecord``.

A batch is a header of 61 bytes and a section of records, compressed as a whole or not at all::

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4
    base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4

    record: length | attributes 1 | timestamp delta | offset delta
            key length | key | value length | value | header count | (name length | name | value length | value)*

Numbers of the header are big-endian, those of a record are varints. The second line of a record is its *body*: it
does not depend on the record's place, so it is encoded once, before the record has a batch. The CRC-32C covers
everything after itself. So the base offset and the leader epoch can be set later without changing it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from shmaccum._core import crc32c_of, v2_headers
from shmaccum.errors import SerializationError
from shmaccum.record.compression import CompressionType, compress
from shmaccum.record.fields import (
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    BatchFields,
    BatchMemory,
    BytesLike,
    Headers,
    header_name,
    header_value,
    plain_bytes,
)
from shmaccum.record.v2.varint import NULL, encode_varint, size_of_varint

MAGIC: Final = 2
HEADER_SIZE: Final = 61

TRANSACTIONAL: Final = 0x10
"""Attribute of a batch that belongs to a transaction."""
CONTROL: Final = 0x20
"""Attribute of a batch with the end marker of a transaction."""

CRC_START: Final = 21
"""First byte that the CRC covers: the attributes."""

RECORD_OVERHEAD_MAX: Final = 21
"""Most bytes of a record in addition to its body: length 5, attributes 1, timestamp delta 10, offset delta 5."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_UP_TO_CRC: Final = struct.Struct(">qiibI")
_COVERED_BY_CRC: Final = struct.Struct(">hiqqqhii")
_BASE_OFFSET: Final = struct.Struct(">q")


def encode_body(key: BytesLike | None, value: BytesLike | None, headers: Headers) -> bytes:
    """Return the part of a record that does not depend on its place in a batch.

    Raises:
        SerializationError: key, value or a header's value is not bytes-like, or a header's name is not a str.
    """
    return _field("key", key) + _field("value", value) + (_encode_headers(headers) if headers else b"\0")


def _field(what: str, data: BytesLike | None) -> bytes:
    if data is None:
        return NULL
    plain = data if type(data) is bytes else plain_bytes(what, data)
    return encode_varint(len(plain)) + plain


def _encode_headers(headers: Headers) -> bytes:
    encoded = v2_headers(headers)
    if encoded is not None:
        return encoded
    try:
        pairs = [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers)]
    except (TypeError, ValueError):
        raise SerializationError(f"headers must be pairs of name and value, not {headers!r:.60}") from None
    plain = [
        (header_name(name).decode(), None if value is None else header_value(name, value)) for name, value in pairs
    ]
    encoded = v2_headers(plain)
    assert encoded is not None
    return encoded


def encode_record(offset_delta: int, timestamp: int, base_timestamp: int, body: bytes) -> bytes:
    """Return the complete record: length, attributes (none are defined), deltas and ``body``.

    Args:
        offset_delta: place of the record in its batch, from 0.
        timestamp: milliseconds since the epoch.
        base_timestamp: that of the batch; the record's may be earlier.
        body: from `encode_body`.
    """
    delta, offset = encode_varint(timestamp - base_timestamp), encode_varint(offset_delta)
    return b"".join((encode_varint(len(delta) + len(offset) + len(body) + 1), b"\0", delta, offset, body))


def record_size(offset_delta: int, timestamp_delta: int, body_size: int) -> int:
    """Return the size of `encode_record`'s result for a body of ``body_size`` bytes."""
    size = 1 + size_of_varint(timestamp_delta) + size_of_varint(offset_delta) + body_size
    return size_of_varint(size) + size


def write_header(buf: memoryview, size: int, attributes: int, fields: BatchFields, rest: BatchMemory = ()) -> None:
    """Write the header, with the CRC, of a batch whose records are already in place.

    The base offset is 0 and the partition's leader epoch is unknown, as a producer sends it. Writing the same header
    again changes nothing.

    Args:
        buf: memory that begins with `HEADER_SIZE` bytes for the header; the section of records follows.
        size: bytes of the batch that are in ``buf``, with the header.
        attributes: compression id and flags.
        fields: of the batch.
        rest: more memory of the section of records.
    """
    record_count, *others = fields
    _COVERED_BY_CRC.pack_into(buf, CRC_START, attributes, record_count - 1, *others, record_count)
    crc = crc32c_of(buf[CRC_START:size])
    for view in rest:
        crc = crc32c_of(view, crc)
        size += len(view)
    _UP_TO_CRC.pack_into(buf, 0, 0, size - LOG_OVERHEAD, NO_PARTITION_LEADER_EPOCH, MAGIC, crc)


def compressed_batch(
    records: memoryview, compression: CompressionType, fields: BatchFields, *, level: int | None = None, flags: int = 0
) -> bytearray:
    """Return a whole batch in private memory, with its section compressed.

    Args:
        records: the section, uncompressed.
        compression: of the batch.
        fields: of the batch.
        level: of the compression, None for Kafka's default.
        flags: the attributes besides the compression.
    """
    section = compress(compression, records, MAGIC, level)
    batch = bytearray(HEADER_SIZE) + section
    write_header(memoryview(batch), len(batch), compression | flags, fields)
    return batch


def set_base_offset(buf: memoryview, base_offset: int) -> None:
    """Give the first record of the sealed batch the offset ``base_offset``, and the others the next ones."""
    _BASE_OFFSET.pack_into(buf, 0, base_offset)
