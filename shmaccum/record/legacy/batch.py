"""Reads message sets of format 1, described in `shmaccum.record.legacy.records`."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from shmaccum.errors import CorruptRecordError
from shmaccum.record.batch import TIMESTAMP_TYPE_MASK, Batch, Record, TimestampType
from shmaccum.record.compression import CompressionType, decompress
from shmaccum.record.fields import (
    MAGIC_OFFSET,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from shmaccum.record.legacy.records import ATTRIBUTES_OFFSET, BODY_OFFSET, CRC_OFFSET, TIMESTAMP_OFFSET, message_spans

_OFFSET: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_TIMESTAMP: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">i")


class LegacyBatch(Batch):
    """One outer message of format 1 (``AbstractLegacyRecordBatch``).

    A wrapper does not store its first offset and its number of records: reading them decompresses it.
    """

    __slots__ = ("_inner",)

    def __init__(self, buf: memoryview, position: int) -> None:
        """Read the fields before key and value.

        Args:
            buf: exactly the bytes of the message.
            position: where they are in the input.

        Raises:
            CorruptRecordError: there are too few bytes.
        """
        self._buf = buf
        self._inner: list[Record] | None = None
        self.position = position
        self.size = len(buf)
        self.magic = buf[MAGIC_OFFSET]
        _check_size(buf, f"the message at byte {position}")
        self.attributes = buf[ATTRIBUTES_OFFSET]
        (self.crc,) = _CRC.unpack_from(buf, CRC_OFFSET)
        (self.last_offset,) = _OFFSET.unpack_from(buf)
        self.base_timestamp = self.max_timestamp = _timestamp(buf)
        self.timestamp_type = _timestamp_type(self.attributes)
        self.partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE

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


def _timestamp_type(attributes: int) -> TimestampType:
    is_log_append_time = attributes & TIMESTAMP_TYPE_MASK
    return TimestampType.LOG_APPEND_TIME if is_log_append_time else TimestampType.CREATE_TIME


def _timestamp(message: memoryview) -> int:
    (timestamp,) = _TIMESTAMP.unpack_from(message, TIMESTAMP_OFFSET)
    return int(timestamp)


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
