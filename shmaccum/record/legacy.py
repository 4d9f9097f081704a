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

from shmaccum.errors import CorruptRecordError, IllegalStateError
from shmaccum.record.compression import CompressionType, compress, decompress
from shmaccum.record.fields import (
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BytesLike,
    Record,
    TimestampType,
    entry_end,
    plain_bytes,
)

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
    """Return a message's sizes, key and value, without its place. Raises SerializationError: one is not bytes-like."""
    return _encode_nullable("key", key) + _encode_nullable("value", value)


def _encode_nullable(what: str, data: BytesLike | None) -> bytes:
    if data is None:
        return _NULL
    plain = data if type(data) is bytes else plain_bytes(what, data)
    return _SIZE.pack(len(plain)) + plain


def encode_record(offset: int, timestamp: int, body: bytes, attributes: int = 0) -> bytes:
    """Return one message, at a place in its set, from 0; ``attributes`` is the compression id of a wrapper."""
    head = _MAGIC_TO_TIMESTAMP.pack(MAGIC, attributes, timestamp)
    crc = zlib.crc32(body, zlib.crc32(head))
    return _UP_TO_CRC.pack(offset, BODY_OFFSET + len(body) - LOG_OVERHEAD, crc) + head + body


def compressed_set(
    messages: memoryview, compression: CompressionType, level: int | None, record_count: int, max_timestamp: int
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
    """Check that offsets increase, as Kafka does. Raises IllegalStateError: they do not, or the count differs."""
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
    """Give each message of a sealed set its offset in the log, from ``base_offset``; raise as `check_offsets`."""
    compression = CompressionType.for_attributes(buf[ATTRIBUTES_OFFSET])
    if compression is not CompressionType.NONE:
        _OFFSET.pack_into(buf, 0, base_offset + record_count - 1)
        return
    check_offsets(buf, record_count)
    for index, (start, _) in enumerate(message_spans(buf)):
        _OFFSET.pack_into(buf, start, base_offset + index)


def message_spans(messages: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where each message of an uncompressed set starts and ends. Raises CorruptRecordError: a size is wrong."""
    start = 0
    while start < len(messages):
        end = entry_end(messages, start)
        yield start, end
        start = end


class LegacyBatch:
    """One outer message of format 1, a wrapper or a single record, with the attributes of `v2.DefaultBatch`.

    A wrapper does not store its first offset and its number of records: reading them decompresses it, and raises a
    CorruptRecordError if that fails. ``buf`` is exactly the message, ``position`` its place in the input.

    Raises CorruptRecordError: there are too few bytes.
    """

    def __init__(self, buf: memoryview, position: int) -> None:
        self._buf = buf
        self._inner: list[Record] | None = None
        self.position = position
        self.size = len(buf)
        self.magic = buf[MAGIC_OFFSET]
        _check_size(buf, f"the message at byte {position}")
        self.attributes = buf[ATTRIBUTES_OFFSET]
        self.crc = int.from_bytes(buf[CRC_OFFSET:MAGIC_OFFSET])
        self.last_offset: int = _OFFSET.unpack_from(buf)[0]
        self.base_timestamp = self.max_timestamp = _timestamp(buf)
        self.timestamp_type = TimestampType.for_attributes(self.attributes)
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE

    @property
    def compression(self) -> CompressionType:
        """Raises CorruptRecordError if Kafka has no such compression."""
        return CompressionType.for_attributes(self.attributes)

    @property
    def base_offset(self) -> int:
        """Offset of the first inner message, or of the message itself."""
        return self._decoded()[0].offset

    @property
    def record_count(self) -> int:
        """Number of inner messages, or 1."""
        return len(self._decoded())

    def is_valid(self) -> bool:
        """Return whether the CRC-32 matches all the bytes after it."""
        return zlib.crc32(self._buf[MAGIC_OFFSET:]) == self.crc

    def records(self) -> Iterator[Record]:
        """Yield the inner messages, or the message itself."""
        yield from self._decoded()

    def _decoded(self) -> list[Record]:
        if self._inner is None:
            if self.compression is CompressionType.NONE:
                key, value = _key_and_value(self._buf)
                self._inner = [Record(self.last_offset, self.max_timestamp, key, value)]
            else:
                self._inner = self._unwrap()
        return self._inner

    def _unwrap(self) -> list[Record]:
        _, compressed = _key_and_value(self._buf)
        if compressed is None:
            raise CorruptRecordError(f"the wrapper message at byte {self.position} has no value")
        messages = memoryview(decompress(self.compression, compressed, self.magic))
        inner = [self._inner_record(messages[start:end]) for start, end in message_spans(messages)]
        if not inner:
            raise CorruptRecordError(f"the wrapper message at byte {self.position} has no inner messages")
        # Older librdkafka leaves a wrapper's offset at 0; then the inner offsets are already absolute.
        if self.last_offset == 0:
            return inner
        base_offset = self.last_offset - inner[-1].offset
        if base_offset < 0:
            raise CorruptRecordError(
                f"the wrapper message at byte {self.position} has offset {self.last_offset}, "
                f"which is less than offset {inner[-1].offset} of its last inner message"
            )
        return [record._replace(offset=base_offset + record.offset) for record in inner]

    def _inner_record(self, message: memoryview) -> Record:
        where = f"an inner message of the wrapper at byte {self.position}"
        if message[MAGIC_OFFSET] != self.magic:
            raise CorruptRecordError(f"{where} has magic {message[MAGIC_OFFSET]}, the wrapper {self.magic}")
        _check_size(message, where)
        if CompressionType.for_attributes(message[ATTRIBUTES_OFFSET]) is not CompressionType.NONE:
            raise CorruptRecordError(f"{where} is compressed itself")
        (offset,) = _OFFSET.unpack_from(message)
        is_create_time = self.timestamp_type is not TimestampType.LOG_APPEND_TIME
        timestamp = _timestamp(message) if is_create_time else self.max_timestamp
        key, value = _key_and_value(message)
        return Record(offset, timestamp, key, value)


def _check_size(message: memoryview, where: str) -> None:
    least = BODY_OFFSET + 2 * _SIZE.size
    if len(message) < least:
        raise CorruptRecordError(f"{where} has {len(message)} bytes; a message of format 1 takes {least}")


def _timestamp(message: memoryview) -> int:
    return int.from_bytes(message[TIMESTAMP_OFFSET:BODY_OFFSET], signed=True)


def _key_and_value(message: memoryview) -> tuple[bytes | None, bytes | None]:
    key, position = _nullable(message, BODY_OFFSET)
    value, position = _nullable(message, position)
    if position != len(message):
        raise CorruptRecordError(f"a message has {len(message) - position} bytes after its value")
    return key, value


def _nullable(message: memoryview, position: int) -> tuple[bytes | None, int]:
    start = position + _SIZE.size
    if start > len(message):
        raise CorruptRecordError(f"a message of {len(message)} bytes ends before its value")
    (size,) = _SIZE.unpack_from(message, position)
    if size == -1:
        return None, start
    end = start + size
    if not start <= end <= len(message):
        raise CorruptRecordError(f"a field at byte {start} of a message of {len(message)} bytes claims to have {size}")
    return bytes(message[start:end]), end
