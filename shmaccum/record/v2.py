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
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from shmaccum._core import crc32c_of, v2_headers
from shmaccum.errors import CorruptRecordError, SerializationError
from shmaccum.record.compression import CompressionType, compress, decompress
from shmaccum.record.fields import (
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    BatchFields,
    BatchMemory,
    BytesLike,
    Headers,
    Record,
    TimestampType,
    header_name,
    header_value,
    plain_bytes,
)

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

    Raises SerializationError: key, value or a header's value is not bytes-like, or a header's name is not a str.
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

    Place and timestamp are as in `RecordFormat.encode_record`; the record's timestamp may be earlier than the batch's.
    """
    delta, offset = encode_varint(timestamp - base_timestamp), encode_varint(offset_delta)
    return b"".join((encode_varint(len(delta) + len(offset) + len(body) + 1), b"\0", delta, offset, body))


def write_header(buf: memoryview, size: int, attributes: int, fields: BatchFields, rest: BatchMemory = ()) -> None:
    """Write the header, with the CRC, of a batch whose records are already in place.

    The base offset is 0 and the partition's leader epoch is unknown, as a producer sends it. Writing the same header
    again changes nothing. The first ``size`` bytes of ``buf`` belong to the batch, and begin with `HEADER_SIZE` bytes
    for the header; ``rest`` is more memory of the section.
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

    ``flags`` are the attributes besides the compression.
    """
    section = compress(compression, records, MAGIC, level)
    batch = bytearray(HEADER_SIZE) + section
    write_header(memoryview(batch), len(batch), compression | flags, fields)
    return batch


def set_base_offset(buf: memoryview, base_offset: int) -> None:
    """Give the first record of the sealed batch the offset ``base_offset``, and the others the next ones."""
    _BASE_OFFSET.pack_into(buf, 0, base_offset)


NULL: Final = b"\x01"
"""The varint -1: the length of a null key, value or header value."""
_MAX_BITS: Final = 64


@lru_cache(maxsize=8192)  # sizes and deltas repeat, and encoding takes five times as long
def encode_varint(n: int) -> bytes:
    """Return the one to ten bytes of a signed 64-bit number. Raises OverflowError if it needs more than 64 bits."""
    rest = (n << 1) ^ (n >> _MAX_BITS)
    if rest >> _MAX_BITS:
        raise OverflowError(f"{n} does not fit the 64 bits of a varint")
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def size_of_varint(n: int) -> int:
    """Return the size of `encode_varint`'s result for ``n`` (``ByteUtils.sizeOfVarlong``)."""
    return (max((n << 1 ^ n >> _MAX_BITS).bit_length(), 1) + 6) // 7


def decode_varint(buf: BytesLike, pos: int) -> tuple[int, int]:
    """Read the number at ``pos``.

    Returns the number, and the position of the byte after it.

    Raises CorruptRecordError: it runs past the end of ``buf`` or needs more than 64 bits.
    """
    start = pos
    zigzag = shift = 0
    try:
        while True:
            byte = buf[pos]
            pos += 1
            zigzag |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= _MAX_BITS:
                raise CorruptRecordError(f"varint at byte {start} is longer than {pos - start} bytes")
    except IndexError:
        raise CorruptRecordError(f"varint at byte {start} runs past the end, at byte {len(buf)}") from None
    if zigzag >> _MAX_BITS:
        raise CorruptRecordError(f"varint at byte {start} does not fit 64 bits")
    return zigzag >> 1 ^ -(zigzag & 1), pos


# --- reading -----------------------------------------------------------------------------------------

_MIN_RECORD_SIZE: Final = 7
"""Length, attributes, two deltas, two lengths and a header count, of one byte each."""


class DefaultBatch:
    """A batch of message format 2 (``DefaultRecordBatch``), as a reader sees it.

    It keeps the memory that it was read from alive, and reflects later changes of that memory. Timestamps are
    milliseconds since the epoch; ids and numbers of the producer are -1 if the batch is not idempotent. ``buf`` is
    exactly the batch, ``position`` its place in the input.

    Raises CorruptRecordError: there are too few bytes for a header.
    """

    base_offset: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    """What the records' timestamp deltas count from."""
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    def __init__(self, buf: memoryview, position: int) -> None:
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
            _,
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
        self.timestamp_type = TimestampType.for_attributes(self.attributes)
        self.last_offset: int = self.base_offset + last_offset_delta

    @property
    def compression(self) -> CompressionType:
        """Raises CorruptRecordError if Kafka has no such compression."""
        return CompressionType.for_attributes(self.attributes)

    def is_valid(self) -> bool:
        """Return whether the CRC-32C matches all the bytes after it."""
        return crc32c_of(self._buf[CRC_START:]) == self.crc

    def records(self) -> Iterator[Record]:
        """Yield the records, decoded one by one; the section is decompressed as a whole.

        Raises CorruptRecordError: they are inconsistent, or decompress to more than `MAX_DECOMPRESSED_SIZE` bytes.
        """
        if self.record_count == 0:
            return  # a batch emptied by compaction has no section, compressed or not
        section = self._buf[HEADER_SIZE:]
        if self.compression is not CompressionType.NONE:
            section = memoryview(decompress(self.compression, section, self.magic))
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
        return tuple((self.header_name(), self.nullable_bytes()) for _ in range(count))

    def header_name(self) -> str:
        name = self.nullable_bytes()
        if name is None:
            raise CorruptRecordError("the name of a header is null")
        try:
            return name.decode()
        except UnicodeDecodeError as error:
            raise CorruptRecordError(f"the name of a header is not UTF-8: {error}") from None
