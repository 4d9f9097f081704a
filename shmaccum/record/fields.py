"""The fields of a record before encoding, with the Python types that they can have; and the framing of all formats.

A reader walks a log by its framing. An entry is a batch of format 2 or a message of format 1. It begins with an offset
(8 bytes) and a size (4 bytes, which counts the bytes after it); its magic is always its 17th byte
(``org.apache.kafka.common.record.Records``).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from shmaccum.errors import CorruptRecordError, SerializationError

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""A key, a value or the value of a header, serialized."""

BatchMemory: TypeAlias = tuple[memoryview, ...]
"""The bytes of a batch in order: one view, or several if its slots are not adjacent. The first one holds the whole
header."""

Headers: TypeAlias = Mapping[str, BytesLike | str | None] | Sequence[tuple[str, BytesLike | str | None]]
"""Headers in order: pairs, in which a name can occur more than once, or a dict. Text becomes UTF-8."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1
"""Kafka's values for absent fields (``org.apache.kafka.common.record.RecordBatch``)."""


class BatchFields(NamedTuple):
    """What a batch says of its records, and of its producer if that is idempotent."""

    record_count: int
    base_timestamp: int
    """Of its first record, milliseconds since the epoch. The timestamps of the others count from it."""
    max_timestamp: int
    """The largest, likewise."""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    """Sequence number of the first record."""


class TimestampType(enum.Enum):
    """What a record's timestamp means; the values are Kafka's names (``org.apache.kafka.common.record``)."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"

    @classmethod
    def for_attributes(cls, attributes: int) -> TimestampType:
        """Return the type in the attributes of a batch or message."""
        return cls.LOG_APPEND_TIME if attributes & TIMESTAMP_TYPE_MASK else cls.CREATE_TIME


TIMESTAMP_TYPE_MASK: Final = 0x08


class Record(NamedTuple):
    """One record as it was read."""

    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def plain_bytes(what: str, data: BytesLike) -> bytes:
    """Return the bytes of any object with the buffer protocol.

    ``len`` of a memoryview or an array counts items, which need not be bytes. So everything but `bytes` is converted
    here before it is measured. ``what`` is the field's name, for the error.

    Raises SerializationError: ``data`` is not bytes-like, or a released memoryview.
    """
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise SerializationError(
            f"{what} must be bytes-like or None, not {type(data).__name__}: {data!r:.60}; serialize it first"
        ) from None
    except ValueError as error:
        raise SerializationError(f"{what}: {error}") from error


def header_name(name: object) -> bytes:
    """Return the UTF-8 bytes of a header's name.

    Raises SerializationError: ``name`` is not a str, or holds a lone surrogate, which UTF-8 cannot express.
    """
    if not isinstance(name, str):
        raise SerializationError(f"a header's name must be a str, not {type(name).__name__}: {name!r:.60}")
    return _utf8(f"the header name {name!r:.60}", name)


def header_value(name: str, value: BytesLike | str) -> bytes:
    """Return the bytes of a header's value; text becomes UTF-8.

    Raises SerializationError: ``value`` is neither bytes-like nor text, or holds a lone surrogate.
    """
    return _utf8(f"header {name!r}", value) if isinstance(value, str) else plain_bytes(f"header {name!r}", value)


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise SerializationError(f"{what} is not valid Unicode: {error.reason}") from None


# --- framing -----------------------------------------------------------------------------------------

LOG_OVERHEAD: Final = 12
"""Bytes of offset and size, which the size does not count."""
MAGIC_OFFSET: Final = 16

_SIZE: Final = struct.Struct(">i")
_SIZE_OFFSET: Final = 8
_MIN_SIZE: Final = 22
"""Smallest valid size: a message of format 1 with neither key nor value."""


def whole_entries(buf: memoryview) -> memoryview:
    """Return the entries at the start of ``buf``: a broker cuts the last one that it sends where its limit is."""
    end = 0
    while len(buf) - end >= LOG_OVERHEAD:
        following = end + LOG_OVERHEAD + max(0, _SIZE.unpack_from(buf, end + _SIZE_OFFSET)[0])
        if following > len(buf):
            break
        end = following
    return buf[:end]


def entry_end(buf: memoryview, start: int) -> int:
    """Return where the entry that starts at ``start`` ends, in bytes from the start of ``buf``.

    Raises CorruptRecordError: its size is impossible, or it reaches past the end of ``buf``.
    """
    if len(buf) - start < LOG_OVERHEAD:
        raise CorruptRecordError(f"{len(buf) - start} bytes at byte {start} are too few for an entry: it is incomplete")
    (size,) = _SIZE.unpack_from(buf, start + _SIZE_OFFSET)
    if size < _MIN_SIZE:
        raise CorruptRecordError(f"the entry at byte {start} has size {size}; the least is {_MIN_SIZE}")
    end: int = start + LOG_OVERHEAD + size
    if end > len(buf):
        raise CorruptRecordError(f"the entry at byte {start} is incomplete: {end - len(buf)} bytes are missing")
    return end
