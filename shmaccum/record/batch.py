"""A stored batch of any format, as a reader sees it. See `shmaccum.record.reader`."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, NamedTuple

from shmaccum.record.compression import CompressionType

TIMESTAMP_TYPE_MASK: Final = 0x08
"""The bit of the attributes that means `TimestampType.LOG_APPEND_TIME`, in formats 1 and 2."""


class TimestampType(enum.Enum):
    """What a record's timestamp means; the values are Kafka's names (``org.apache.kafka.common.record``)."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class Record(NamedTuple):
    """One record as it was read."""

    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Batch(ABC):
    """A batch of format 2, or one outer message of format 1: a wrapper or a single record.

    It keeps the memory that it was read from alive, and reflects later changes of that memory.

    Attributes:
        position: where it starts in the input, in bytes.
        size: its bytes, including those of offset and size.
        magic: message format.
        attributes: compression id and flags.
        timestamp_type: whether the records have timestamps, and which.
        crc: checksum as stored, CRC-32C in format 2, else CRC-32.
        last_offset: offset of its last record.
        partition_leader_epoch: -1 if unknown.
        base_timestamp: what timestamp deltas count from; in format 1 the message's own timestamp.
        max_timestamp: largest timestamp in it, milliseconds since the epoch, or -1.
        producer_id: -1, as for the next two, if the batch is not idempotent.
        producer_epoch: epoch of that id.
        base_sequence: sequence number of its first record.
    """

    __slots__ = (
        "_buf",
        "attributes",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "size",
        "timestamp_type",
    )

    _buf: memoryview
    position: int
    size: int
    magic: int
    attributes: int
    timestamp_type: TimestampType
    crc: int
    last_offset: int
    partition_leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    @abstractmethod
    def base_offset(self) -> int:
        """Offset of its first record.

        Raises:
            CorruptRecordError: format 1 has to decompress the batch for it, and that failed.
        """

    @property
    @abstractmethod
    def record_count(self) -> int:
        """Number of its records.

        Raises:
            CorruptRecordError: format 1 has to decompress the batch for it, and that failed.
        """

    @property
    def compression(self) -> CompressionType:
        """Compression of its records.

        Raises:
            CorruptRecordError: Kafka has no such compression.
        """
        return CompressionType.for_attributes(self.attributes)

    @abstractmethod
    def is_valid(self) -> bool:
        """Return whether the stored checksum matches the bytes."""

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """Yield its records in order.

        Raises:
            CorruptRecordError: they are inconsistent, or decompress to more than
                `shmaccum.record.compression.MAX_DECOMPRESSED_SIZE` bytes.
        """
