"""Reads batches of message format 2, described in `shmaccum.record.v2.records`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shmaccum._core import crc32c_of
from shmaccum.errors import CorruptRecordError
from shmaccum.record.batch import TIMESTAMP_TYPE_MASK, Batch, Record, TimestampType
from shmaccum.record.compression import CompressionType, decompress
from shmaccum.record.v2.records import CRC_START, HEADER, HEADER_SIZE
from shmaccum.record.v2.varint import decode_varint

_MIN_RECORD_SIZE: Final = 7
"""Length, attributes, two deltas, two lengths and a header count, of one byte each."""


class DefaultBatch(Batch):
    """A batch of message format 2 (``DefaultRecordBatch``)."""

    __slots__ = ("base_offset", "record_count")

    base_offset: int
    record_count: int

    def __init__(self, buf: memoryview, position: int) -> None:
        """Read the header.

        Args:
            buf: exactly the bytes of the batch.
            position: where they are in the input.

        Raises:
            CorruptRecordError: there are too few bytes for a header.
        """
        if len(buf) < HEADER_SIZE:
            raise CorruptRecordError(
                f"the batch at byte {position} has {len(buf)} bytes; its header alone takes {HEADER_SIZE}"
            )
        self._buf = buf
        self.position = position
        self.size = len(buf)
        (
            self.base_offset,
            _,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(buf)
        is_log_append_time = self.attributes & TIMESTAMP_TYPE_MASK
        self.timestamp_type = TimestampType.LOG_APPEND_TIME if is_log_append_time else TimestampType.CREATE_TIME
        self.last_offset = self.base_offset + last_offset_delta

    def is_valid(self) -> bool:
        """Return whether the CRC-32C matches all the bytes after it."""
        return crc32c_of(self._buf[CRC_START:]) == self.crc

    def records(self) -> Iterator[Record]:
        """Yield the records, decoded one by one; the section is decompressed as a whole."""
        if self.record_count == 0:
            return  # a batch emptied by compaction has no section, compressed or not
        section = self._section()
        if not 0 < self.record_count * _MIN_RECORD_SIZE <= len(section):
            raise CorruptRecordError(
                f"the batch at byte {self.position} claims to have {self.record_count} records in {len(section)} bytes"
            )
        position = 0
        for _ in range(self.record_count):
            record, position = self._record(section, position)
            yield record
        if position != len(section):
            raise CorruptRecordError(
                f"the batch at byte {self.position} has {len(section) - position} bytes after its last record"
            )

    def _section(self) -> memoryview:
        section = self._buf[HEADER_SIZE:]
        if self.compression is CompressionType.NONE:
            return section
        return memoryview(decompress(self.compression, section, self.magic))

    def _record(self, section: memoryview, position: int) -> tuple[Record, int]:
        length, position = decode_varint(section, position)
        end = position + length
        if not position < end <= len(section):
            raise CorruptRecordError(
                f"a record at byte {position} of the batch at byte {self.position} claims to have {length} bytes"
            )
        fields = _Fields(section[:end], position + 1)  # a record's attributes are unused
        timestamp_delta = fields.varint()
        offset_delta = fields.varint()
        key = fields.nullable_bytes()
        value = fields.nullable_bytes()
        headers = fields.headers()
        if fields.position != end:
            raise CorruptRecordError(
                f"a record of the batch at byte {self.position} claims to have {length} bytes, "
                f"but its fields end {end - fields.position} bytes earlier"
            )
        is_create_time = self.timestamp_type is TimestampType.CREATE_TIME
        timestamp = self.base_timestamp + timestamp_delta if is_create_time else self.max_timestamp
        return Record(self.base_offset + offset_delta, timestamp, key, value, headers), end


class _Fields:
    """A cursor over the fields of one record, which ends where the record ends."""

    __slots__ = ("_buf", "position")

    def __init__(self, buf: memoryview, position: int) -> None:
        self._buf = buf
        self.position = position

    def varint(self) -> int:
        value, self.position = decode_varint(self._buf, self.position)
        return value

    def nullable_bytes(self) -> bytes | None:
        length = self.varint()
        if length == -1:
            return None
        start, self.position = self.position, self.position + length
        if not start <= self.position <= len(self._buf):
            raise CorruptRecordError(f"a field at byte {start} claims to have {length} bytes")
        return bytes(self._buf[start : self.position])

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        count = self.varint()
        if not 0 <= count <= len(self._buf) - self.position:
            raise CorruptRecordError(f"a record claims to have {count} headers")
        return tuple((self._header_name(), self.nullable_bytes()) for _ in range(count))

    def _header_name(self) -> str:
        name = self.nullable_bytes()
        if name is None:
            raise CorruptRecordError("the name of a header is null")
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise CorruptRecordError(f"the name of a header is not UTF-8: {error}") from None
