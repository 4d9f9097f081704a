"""Writes message format 1, Kafka's before 0.11: ``LegacyRecord`` and its message sets.

There is no batch header. A *message set* is messages back to back, each with its own CRC-32::

    offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | timestamp 8
    key size 4 | key | value size 4 | value

All numbers are big-endian. The size counts the bytes after it, the CRC covers the bytes after it, and a key or value
size of -1 is a null. The second line is the message's *body*: it is encoded once, before the message has a place.

A compressed set is one message, the *wrapper*: its value is the compressed set, its offset that of the last inner
message. A producer counts offsets from 0; the log assigns absolute ones. Of a compressed set only the wrapper gets one,
and inner offsets stay relative.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from shmaccum.errors import IllegalStateError
from shmaccum.record.compression import CompressionType, compress
from shmaccum.record.fields import LOG_OVERHEAD, BytesLike, entry_end, plain_bytes

MAGIC: Final = 1
CRC_OFFSET: Final = 12
ATTRIBUTES_OFFSET: Final = 17
TIMESTAMP_OFFSET: Final = 18
BODY_OFFSET: Final = 26
"""Bytes of a message before its key size: all bytes except its body."""

_SIZE: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_UP_TO_CRC: Final = struct.Struct(">qiI")
_MAGIC_TO_TIMESTAMP: Final = struct.Struct(">bbq")
_NULL: Final = _SIZE.pack(-1)


def encode_body(key: BytesLike | None, value: BytesLike | None) -> bytes:
    """Return the part of a message that does not depend on its place in the set: sizes, key and value.

    Raises:
        SerializationError: key or value is not bytes-like.
    """
    return _encode_nullable("key", key) + _encode_nullable("value", value)


def _encode_nullable(what: str, data: BytesLike | None) -> bytes:
    if data is None:
        return _NULL
    plain = data if type(data) is bytes else plain_bytes(what, data)
    return _SIZE.pack(len(plain)) + plain


def encode_record(offset: int, timestamp: int, body: bytes, attributes: int = 0) -> bytes:
    """Return one complete message.

    Args:
        offset: place of the message in its set, from 0.
        timestamp: milliseconds since the epoch.
        body: from `encode_body`.
        attributes: compression id; 0 except for a wrapper.
    """
    head = _MAGIC_TO_TIMESTAMP.pack(MAGIC, attributes, timestamp)
    crc = zlib.crc32(body, zlib.crc32(head))
    return _UP_TO_CRC.pack(offset, record_size(len(body)) - LOG_OVERHEAD, crc) + head + body


def record_size(body_size: int) -> int:
    """Return the size of `encode_record`'s result for a body of ``body_size`` bytes."""
    return BODY_OFFSET + body_size


def compressed_set(
    messages: memoryview,
    compression: CompressionType,
    *,
    level: int | None = None,
    record_count: int,
    max_timestamp: int,
) -> bytearray:
    """Return the wrapper of a whole uncompressed set, in private memory.

    Raises:
        IllegalStateError: the set is not ``record_count`` messages with increasing offsets.
        UnsupportedCompressionTypeError: zstd, which came with format 2.
    """
    check_offsets(messages, record_count)
    body = encode_body(None, compress(compression, messages, MAGIC, level))
    return bytearray(encode_record(record_count - 1, max_timestamp, body, attributes=compression))


def check_offsets(messages: memoryview, record_count: int) -> None:
    """Check that offsets increase, as ``MemoryRecordsBuilder`` does at each append.

    Raises:
        IllegalStateError: they do not, or the set is not ``record_count`` messages.
    """
    previous = -1
    count = 0
    for start, _ in message_spans(messages):
        (offset,) = _OFFSET.unpack_from(messages, start)
        if offset <= previous:
            raise IllegalStateError(
                f"illegal offset {offset} following previous offset {previous} at byte {start}: offsets must increase"
            )
        previous = offset
        count += 1
    if count != record_count:
        raise IllegalStateError(f"the message set has {count} messages instead of {record_count}")


def set_base_offset(buf: memoryview, record_count: int, base_offset: int) -> None:
    """Give each message of a sealed set its offset in the log, from ``base_offset``.

    Raises:
        IllegalStateError: the set is not ``record_count`` messages with increasing offsets.
    """
    compression = CompressionType.for_attributes(buf[ATTRIBUTES_OFFSET])
    if compression is CompressionType.NONE:
        _assign_offsets(buf, record_count, base_offset)
    else:
        _OFFSET.pack_into(buf, 0, base_offset + record_count - 1)


def _assign_offsets(messages: memoryview, record_count: int, base_offset: int) -> None:
    check_offsets(messages, record_count)
    for index, (start, _) in enumerate(message_spans(messages)):
        _OFFSET.pack_into(messages, start, base_offset + index)


def message_spans(messages: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where each message of an uncompressed set starts and ends, in bytes.

    Raises:
        CorruptRecordError: a message's size is impossible, or it reaches past the end.
    """
    start = 0
    while start < len(messages):
        end = entry_end(messages, start)
        yield start, end
        start = end
