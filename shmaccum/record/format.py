"""The message formats behind one interface, for the accumulator and the sender.

A batch is built in place: `RecordFormat.header_size` bytes stay free, the accumulator writes records after them one by
one, and the sender seals the batch with `RecordFormat.seal`. Sealing never changes the records, and sealing again gives
the same bytes. So a sender that replaces one that died in between can seal the batch again.

Dump and recovery read by `iter_batches`, which trusts nothing. Whatever the bytes are, the only error is
`CorruptRecordError`, the number of bytes bounds every loop, and claimed lengths are checked before any allocation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from shmaccum.errors import ConfigError, CorruptRecordError, IllegalStateError, UnsupportedForMessageFormatError
from shmaccum.record import legacy, v2
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import (
    MAGIC_OFFSET,
    NO_PRODUCER_ID,
    BatchFields,
    BatchMemory,
    BytesLike,
    Headers,
    Record,
    entry_end,
)


class RecordFormat:
    """One of Kafka's message formats, 1 or 2. Stateless: `record_format` has one instance of each.

    Attributes:
        magic: the number of the format.
        header_size: bytes kept free at the start of a batch.
        record_overhead_max: most bytes that a record takes in addition to its body.
        compresses_ahead: whether the records of a batch can be compressed before it is sealed. In format 1, compression
            turns a set of messages into one message of another set.
        encode_body: returns the part of a record that does not depend on its place in a batch, from key, value and
            headers. Raises SerializationError if one is of the wrong type, UnsupportedForMessageFormatError if there
            are headers, and the format has none.
        encode_record: returns the bytes of one record, from its place in its batch (from 0), its timestamp and that of
            the batch's first record (milliseconds since the epoch), and its body.
    """

    def __init__(self, magic: int) -> None:
        self.magic: Final = magic
        self._is_default: Final = magic == v2.MAGIC
        self.compresses_ahead: Final = self._is_default
        self.header_size: Final = v2.HEADER_SIZE if self._is_default else 0
        self.record_overhead_max: Final = v2.RECORD_OVERHEAD_MAX if self._is_default else legacy.BODY_OFFSET
        # The functions themselves: a method around each would add a call for every record.
        self.encode_body: Final[Callable[[BytesLike | None, BytesLike | None, Headers], bytes]] = (
            v2.encode_body if self._is_default else _legacy_body
        )
        self.encode_record: Final[Callable[[int, int, int, bytes], bytes]] = (
            v2.encode_record if self._is_default else _legacy_record
        )

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
        """Write header and checksum of a batch, with a record at least, before its first send.

        ``batch`` is writable memory: exactly `header_size` free bytes and records, which go on in ``rest``.
        ``compressed``: they are compressed already; only if `compresses_ahead`. Without a level, it is Kafka's default.

        Returns ``batch`` itself if there is nothing to compress; then ``rest`` belongs to the sealed batch too.
        Otherwise, and in format 1 if there is a rest, private memory with the whole batch.

        Raises:
            IllegalStateError: the batch is empty, or its offsets do not increase (format 1).
            UnsupportedCompressionTypeError: the format does not support the compression.
            UnsupportedForMessageFormatError: the format does not support a producer id.
        """
        if fields.record_count < 1:
            raise IllegalStateError(f"a batch of {fields.record_count} records cannot be sealed")
        if self._is_default:
            flags = v2.TRANSACTIONAL if transactional else 0
            if compressed or compression is CompressionType.NONE:
                v2.write_header(batch, len(batch), compression | flags, fields, rest)
                return batch
            records = batch[v2.HEADER_SIZE :]
            whole = memoryview(b"".join((records, *rest))) if rest else records
            return memoryview(v2.compressed_batch(whole, compression, fields, level=level, flags=flags))
        if compressed:
            raise IllegalStateError(f"message format {self.magic} is compressed when it is sealed, not before")
        if fields.producer_id != NO_PRODUCER_ID:
            raise UnsupportedForMessageFormatError(
                f"message format {self.magic} has no field for producer id {fields.producer_id}: "
                "set message.format.version to 0.11.0 or newer, or enable.idempotence to false"
            )
        if rest:
            batch = memoryview(bytearray().join((batch, *rest)))
        if compression is CompressionType.NONE:
            legacy.check_offsets(batch, fields.record_count)
            return batch
        return memoryview(legacy.compressed_set(batch, compression, level, fields.record_count, fields.max_timestamp))

    def set_base_offset(self, sealed: memoryview, record_count: int, base_offset: int) -> None:
        """Give the records of a sealed batch their offsets in the log, in place, from ``base_offset``.

        In format 2, the memory with its header is enough.
        """
        if self._is_default:
            v2.set_base_offset(sealed, base_offset)
        else:
            legacy.set_base_offset(sealed, record_count, base_offset)


def _legacy_body(key: BytesLike | None, value: BytesLike | None, headers: Headers) -> bytes:
    if headers:
        raise UnsupportedForMessageFormatError(
            f"message format 1 has no headers, but a record has {len(headers)}: "
            "set message.format.version to 0.11.0 or newer"
        )
    return legacy.encode_body(key, value)


def _legacy_record(offset_delta: int, timestamp: int, base_timestamp: int, body: bytes) -> bytes:
    return legacy.encode_record(offset_delta, timestamp, body)


_FORMATS: Final[dict[int, RecordFormat]] = {magic: RecordFormat(magic) for magic in (legacy.MAGIC, v2.MAGIC)}


def record_format(magic: int) -> RecordFormat:
    """Return the format of a magic. Raises ConfigError: there is none, or it is 0, Kafka's before 0.10."""
    if magic not in _FORMATS:
        raise ConfigError(f"there is no message format {magic}: use 1 or 2")
    return _FORMATS[magic]


def message_format_magic(version: str) -> int:
    """Return the magic of a ``message.format.version``: of Kafka, such as "3.0-IV1", or of a format, such as "v2".

    ``MetadataVersion.highestSupportedRecordVersion``. Raises ConfigError: it is neither.
    """
    if version in ("v1", "v2"):
        return int(version[1])
    match = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)*(-IV\d+)?", version)
    release = (int(match[1]), int(match[2])) if match else (0, 0)
    is_kafka = release >= (0, 10) and (release[0] > 0 or release[1] <= 11)
    if not is_kafka:
        raise ConfigError(
            f"message.format.version is {version!r}: it must be a version of Kafka, from 0.10 on, as 3.0, or v1 or v2"
        )
    return v2.MAGIC if release >= (0, 11) else legacy.MAGIC


Batch: TypeAlias = v2.DefaultBatch | legacy.LegacyBatch
"""A stored batch, or one outer message of format 1."""


def iter_batches(buf: BytesLike, *, check_crc: bool = True) -> Iterator[Batch]:
    """Yield the batches of a log, of any format. Records are decoded only on request.

    The bytes are not copied. With ``check_crc``, a batch whose checksum is wrong is refused; otherwise ask `is_valid`.

    Raises CorruptRecordError: the bytes after the last batch yielded are not a batch, or only the beginning of one.
    """
    view = memoryview(buf)
    start = 0
    while start < len(view):
        end = entry_end(view, start)
        entry = view[start:end]
        magic = entry[MAGIC_OFFSET]
        if magic not in _FORMATS:
            raise CorruptRecordError(f"the entry at byte {start} has magic {magic}; this package reads 1 and 2")
        batch = v2.DefaultBatch(entry, start) if magic == v2.MAGIC else legacy.LegacyBatch(entry, start)
        if check_crc and not batch.is_valid():
            raise CorruptRecordError(f"the batch at byte {start} is corrupt: its checksum is not {batch.crc:#010x}")
        yield batch
        start = end


# --- splitting (``ProducerBatch.split``) --------------------------------------------------------------


class BatchPart(NamedTuple):
    """A part of a split batch: some records as an unsealed batch, as the accumulator leaves it in a slot."""

    memory: memoryview
    """Private and writable: `RecordFormat.header_size` free bytes and the records, not compressed."""
    fields: BatchFields
    """Without its producer's."""


def read_records(record_format: RecordFormat, batch: memoryview, fields: BatchFields) -> list[Record]:
    """Return the records of an unsealed batch, without changing it.

    The batch is exactly `RecordFormat.header_size` free bytes and the records, not compressed.

    Raises CorruptRecordError: the records are invalid.
    """
    sealed = record_format.seal(memoryview(bytearray(batch)), fields, CompressionType.NONE)
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
