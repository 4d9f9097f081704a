"""The message formats behind one interface, for the accumulator and the sender.

A batch is built in place: `RecordFormat.header_size` bytes stay free, the accumulator writes records after them one by
one, and the sender seals the batch with `RecordFormat.seal`. Sealing never changes the records, and sealing again gives
the same bytes. So a sender that replaces one that died in between can seal the batch again.
"""

from __future__ import annotations

import re
from typing import Final

from shmaccum.errors import ConfigError, IllegalStateError, UnsupportedForMessageFormatError
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import NO_PRODUCER_ID, BatchFields, BatchMemory, BytesLike, Headers
from shmaccum.record.legacy import records as legacy
from shmaccum.record.v2 import records as v2

_UNCOMPRESSED: Final = CompressionType.NONE


class RecordFormat:
    """One of Kafka's message formats. Stateless: `record_format` has one instance of each.

    Attributes:
        magic: the number of the format.
        header_size: bytes kept free at the start of a batch.
        record_overhead_max: most bytes that a record takes in addition to its body.
        compresses_ahead: whether the records of a batch can be compressed before it is sealed.
    """

    def __init__(self, magic: int, header_size: int, record_overhead_max: int, *, compresses_ahead: bool) -> None:
        self.magic: Final = magic
        self.header_size: Final = header_size
        self.record_overhead_max: Final = record_overhead_max
        self.compresses_ahead: Final = compresses_ahead

    def encode_body(self, key: BytesLike | None, value: BytesLike | None, headers: Headers) -> bytes:
        """Return the part of a record that does not depend on its place in a batch.

        Raises:
            SerializationError: a field is of the wrong type.
            UnsupportedForMessageFormatError: there are headers, and the format has none.
        """
        raise NotImplementedError

    def encode_record(self, offset_delta: int, timestamp: int, base_timestamp: int, body: bytes) -> bytes:
        """Return the bytes of one record.

        Args:
            offset_delta: place of the record in its batch, from 0.
            timestamp: milliseconds since the epoch.
            base_timestamp: timestamp of the batch's first record.
            body: from `encode_body`.
        """
        raise NotImplementedError

    def seal(
        self,
        batch: memoryview,
        fields: BatchFields,
        compression: CompressionType,
        *,
        compressed: bool = False,
        rest: BatchMemory = (),
        level: int | None = None,
        transactional: bool = False,
    ) -> memoryview:
        """Write header and checksum of a batch before its first send.

        Args:
            batch: writable memory: exactly `header_size` free bytes and the records.
            fields: of the batch; at least one record.
            compression: of the sealed batch.
            compressed: whether the records in ``batch`` are already compressed; only if `compresses_ahead`.
            rest: memory of the records that are not in ``batch``.
            level: of the compression, None for Kafka's default.
            transactional: whether it belongs to a transaction.

        Returns:
            ``batch`` itself if there is nothing to compress; then ``rest`` belongs to the sealed batch too. Otherwise,
            and in format 1 if there is a rest, private memory with the whole batch.

        Raises:
            IllegalStateError: the batch is empty, or its offsets do not increase (format 1).
            UnsupportedCompressionTypeError: the format does not support the compression.
            UnsupportedForMessageFormatError: the format does not support a producer id.
        """
        raise NotImplementedError

    def set_base_offset(self, sealed: memoryview, record_count: int, base_offset: int) -> None:
        """Give the records of a sealed batch their offsets in the log, in place, from ``base_offset``.

        Args:
            sealed: the batch; in format 2, the memory with its header is enough.
            record_count: records in it.
            base_offset: of the first.
        """
        raise NotImplementedError


class _DefaultFormat(RecordFormat):
    """Message format 2."""

    def __init__(self) -> None:
        super().__init__(v2.MAGIC, v2.HEADER_SIZE, v2.RECORD_OVERHEAD_MAX, compresses_ahead=True)

    # Bound directly: a method around each would add a call for every record.
    encode_body = staticmethod(v2.encode_body)
    encode_record = staticmethod(v2.encode_record)

    def seal(
        self,
        batch: memoryview,
        fields: BatchFields,
        compression: CompressionType,
        *,
        compressed: bool = False,
        rest: BatchMemory = (),
        level: int | None = None,
        transactional: bool = False,
    ) -> memoryview:
        _check_not_empty(fields)
        flags = v2.TRANSACTIONAL if transactional else 0
        if compressed or compression is _UNCOMPRESSED:
            v2.write_header(batch, len(batch), compression | flags, fields, rest)
            return batch
        records = batch[v2.HEADER_SIZE :]
        whole = memoryview(b"".join((records, *rest))) if rest else records
        return memoryview(v2.compressed_batch(whole, compression, fields, level=level, flags=flags))

    def set_base_offset(self, sealed: memoryview, record_count: int, base_offset: int) -> None:
        v2.set_base_offset(sealed, base_offset)


class _LegacyFormat(RecordFormat):
    """Message format 1. Compression turns a set of messages into one message of another set."""

    def __init__(self) -> None:
        super().__init__(legacy.MAGIC, 0, legacy.BODY_OFFSET, compresses_ahead=False)

    def encode_body(self, key: BytesLike | None, value: BytesLike | None, headers: Headers) -> bytes:
        if headers:
            raise UnsupportedForMessageFormatError(
                f"message format {self.magic} has no headers, but a record has {len(headers)}: "
                "set message.format.version to 0.11.0 or newer"
            )
        return legacy.encode_body(key, value)

    def encode_record(self, offset_delta: int, timestamp: int, base_timestamp: int, body: bytes) -> bytes:
        return legacy.encode_record(offset_delta, timestamp, body)

    def seal(
        self,
        batch: memoryview,
        fields: BatchFields,
        compression: CompressionType,
        *,
        compressed: bool = False,
        rest: BatchMemory = (),
        level: int | None = None,
        transactional: bool = False,
    ) -> memoryview:
        _check_not_empty(fields)
        if compressed:
            raise IllegalStateError(f"message format {self.magic} is compressed when it is sealed, not before")
        if fields.producer_id != NO_PRODUCER_ID:
            raise UnsupportedForMessageFormatError(
                f"message format {self.magic} has no field for producer id {fields.producer_id}: "
                "set message.format.version to 0.11.0 or newer, or enable.idempotence to false"
            )
        if rest:
            batch = memoryview(bytearray().join((batch, *rest)))
        if compression is _UNCOMPRESSED:
            legacy.check_offsets(batch, fields.record_count)
            return batch
        wrapper = legacy.compressed_set(
            batch, compression, level=level, record_count=fields.record_count, max_timestamp=fields.max_timestamp
        )
        return memoryview(wrapper)

    def set_base_offset(self, sealed: memoryview, record_count: int, base_offset: int) -> None:
        legacy.set_base_offset(sealed, record_count, base_offset)


def _check_not_empty(fields: BatchFields) -> None:
    if fields.record_count < 1:
        raise IllegalStateError(f"a batch of {fields.record_count} records cannot be sealed")


_FORMATS: Final[dict[int, RecordFormat]] = {each.magic: each for each in (_LegacyFormat(), _DefaultFormat())}


def record_format(magic: int) -> RecordFormat:
    """Return the message format with that magic.

    Raises:
        ConfigError: there is no such format, or it is 0, without timestamps: Kafka's before 0.10.
    """
    if magic not in _FORMATS:
        raise ConfigError(f"there is no message format {magic}: use 1 or 2")
    return _FORMATS[magic]


_VERSION: Final = r"(?P<major>\d+)\.(?P<minor>\d+)(\.\d+)*(-IV\d+)?"
_FIRST_MAGIC_2: Final = (0, 11)
_FIRST_MAGIC_1: Final = (0, 10)


def message_format_magic(version: str) -> int:
    """Return the magic of a ``message.format.version`` (``MetadataVersion.highestSupportedRecordVersion``).

    Args:
        version: a version of Kafka, "0.10.2" or "3.0-IV1", or a format by its own name: "v1", "v2".

    Raises:
        ConfigError: it is neither.
    """
    if version in ("v1", "v2"):
        return int(version[1])
    match = re.fullmatch(_VERSION, version)
    release = (int(match["major"]), int(match["minor"])) if match else (0, 0)
    is_kafka = release >= _FIRST_MAGIC_1 and (release[0] > 0 or release[1] <= 11)
    if not is_kafka:
        raise ConfigError(
            f"message.format.version is {version!r}: it must be a version of Kafka, from 0.10 on, as 3.0, or v1 or v2"
        )
    return v2.MAGIC if release >= _FIRST_MAGIC_2 else legacy.MAGIC
