"""One partition of the log: appends batches to its last segment, one at a time.

Invariants:

* Between two calls the last segment holds whole batches and nothing else, and ``LogEnd.size`` is its size.
  Where that cannot be kept (a write failed and so did cutting it off, or a sync failed and nobody knows what
  the file holds), the end is forgotten, and found again by recovery before the next write.
* A batch is remembered as stored when it is: a resent one is not written twice.
* Only the last segment has anything that is not synced.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shmaccum.errors import KafkaStorageError, RecordBatchTooLargeError, UnsupportedForMessageFormatError
from shmaccum.record.format import record_format
from shmaccum.sender.log.files import OpenFiles, sync_directory, write_fully
from shmaccum.sender.log.recent_batches import StoredBatch
from shmaccum.sender.log.recovery import LogEnd, recover
from shmaccum.sender.log.segments import segment_path
from shmaccum.sender.transport import ProduceBatch

logger = logging.getLogger(__name__)

_MAX_OFFSETS: Final = 2**31
"""Most offsets of a segment: an index has four bytes, signed, for an offset relative to the first."""


@dataclass(slots=True)
class LogConfig:
    """What the partitions of a log have in common.

    Attributes:
        segment_bytes: most bytes of a segment; can change.
        flush_messages: records after which a partition is synced.
        magic: message format of everything that is appended.
    """

    segment_bytes: int
    flush_messages: int
    magic: int


class PartitionLog:
    """The segments in one partition's directory. Nothing is read or opened before the first append."""

    def __init__(self, directory: Path, config: LogConfig, files: OpenFiles) -> None:
        self._directory = directory
        self._config = config
        self._files = files
        self._format = record_format(config.magic)
        self._end: LogEnd | None = None
        self._path = directory
        """The last segment's, once the end has been known."""
        self._unflushed_records = 0
        self._entries_synced = False
        """Whether the directory is on disk as it is, the last segment's name in it."""

    @property
    def is_flushed(self) -> bool:
        """Say whether there is nothing that a sync has not covered yet."""
        return self._unflushed_records == 0

    def append(self, batch: ProduceBatch) -> int:
        """Write the batch, unless it is here already; return its base offset.

        Raises:
            KafkaStorageError: it could not be written or synced, and is not in the log. Later appends may succeed.
            RecordBatchTooLargeError: it is larger than a segment.
            UnsupportedForMessageFormatError: it is not of this log's message format.
        """
        if batch.magic != self._config.magic:
            raise UnsupportedForMessageFormatError(
                f"{self._directory}: a batch of message format {batch.magic} came to a log that is written in format "
                f"{self._config.magic}; use one message.format.version"
            )
        try:
            end = self._end or self._recover()
            stored_at = _stored_at(end, batch)
            if stored_at is None:
                return self._append_new(batch, end)
            self._flush_if_due()  # the sender that wrote it may have died before it did
            return stored_at
        except OSError as error:
            if isinstance(error, FileNotFoundError | FileExistsError):
                self._forget_end()  # somebody else is at work in the directory
            raise self._storage_error(f"cannot write a batch of {batch.size} bytes", error) from error

    def flush(self) -> None:
        """Sync to disk what is not yet.

        Raises:
            KafkaStorageError: it could not be written; what is on disk is unknown.
        """
        try:
            self._flush()
        except OSError as error:
            raise self._storage_error(f"cannot sync {self._unflushed_records} records", error) from error

    def close(self) -> None:
        """Close the file, without a sync."""
        self._files.close(self._path)

    def _recover(self) -> LogEnd:
        end = self._end = recover(self._directory, idempotent=self._format.magic == 2)
        self._path = segment_path(self._directory, end.base_offset)
        # Who wrote it may not have synced it.
        self._unflushed_records = end.next_offset - end.base_offset
        self._entries_synced = False
        return end

    def _append_new(self, batch: ProduceBatch, end: LogEnd) -> int:
        base_offset = end.next_offset
        first, *rest = batch.payload
        # A message set is never in several views; what is compressed anew has another size.
        data = (self._format.set_base_offset(first, batch.record_count, base_offset), *rest)
        size = sum(map(len, data))
        if size > self._config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"{self._directory}: a batch of {size} bytes does not fit a segment of {self._config.segment_bytes}; "
                f"raise segment.bytes"
            )
        next_offset = base_offset + batch.record_count
        if end.size + size > self._config.segment_bytes or next_offset - end.base_offset > _MAX_OFFSETS:
            self._roll(end)
        descriptor = self._files.get(self._path)
        try:
            write_fully(descriptor, data, end.size)
            self._unflushed_records += batch.record_count
            self._flush_if_due()
        except OSError:
            self._cut_off(end)
            raise
        end.size += size
        end.next_offset = next_offset
        if batch.producer_id >= 0:
            end.producers.add(
                batch.producer_id,
                StoredBatch(batch.producer_epoch, batch.base_sequence, batch.record_count, base_offset),
            )
        return base_offset

    def _roll(self, end: LogEnd) -> None:
        """Begin a new segment."""
        self._flush()
        path = segment_path(self._directory, end.next_offset)
        self._files.create(path)
        self._files.close(self._path)
        self._path = path
        self._entries_synced = False
        end.base_offset, end.size = end.next_offset, 0

    def _cut_off(self, end: LogEnd) -> None:
        """Take a batch off the last segment that could not be written whole, or not be synced."""
        try:
            os.ftruncate(self._files.get(self._path), end.size)
        except OSError as error:
            logger.error("%s: cannot cut off a torn batch from byte %d on: %s", self._path, end.size, error.strerror)
            self._forget_end()

    def _flush_if_due(self) -> None:
        if self._unflushed_records >= self._config.flush_messages:
            self._flush()

    def _flush(self) -> None:
        if self.is_flushed:
            return
        try:
            os.fsync(self._files.get(self._path))
            if not self._entries_synced:
                sync_directory(self._directory)
                self._entries_synced = True
        except OSError:
            self._forget_end()
            raise
        self._unflushed_records = 0

    def _forget_end(self) -> None:
        """Have the end of the log recovered before anything else is written."""
        self._end = None
        self._files.close(self._path)

    def _storage_error(self, what: str, error: OSError) -> KafkaStorageError:
        return KafkaStorageError(f"{error.filename or self._path}: {what}: {error.strerror}")


def _stored_at(end: LogEnd, batch: ProduceBatch) -> int | None:
    """Return the base offset under which the log has the batch already, or None."""
    if batch.producer_id < 0:
        return None
    return end.producers.find(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count)
