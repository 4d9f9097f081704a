"""One partition of the log: appends batches to its last segment.

Invariants:

* Between two calls the last segment holds only whole batches, and ``LogEnd.size`` is its size. If a write fails and so
  does the truncation, or if a sync fails and leaves the contents unknown, the log forgets its end. Recovery finds it
  again before the next write.
* A stored batch is remembered, so a resent one is not written twice.
* Only the last segment has unsynced data.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from shmaccum._core import ProduceBatch
from shmaccum.errors import KafkaStorageError, RecordBatchTooLargeError, UnsupportedForMessageFormatError
from shmaccum.record.format import record_format
from shmaccum.sender.log.files import OpenFiles, sync_directory, write_fully
from shmaccum.sender.log.segments import LogEnd, StoredBatch, recover, segment_path

logger = logging.getLogger(__name__)

_MAX_OFFSETS: Final = 2**31
"""Most offsets of a segment: an index stores offsets relative to the first in four bytes, signed."""


class LogConfig:
    """The settings that the partitions of a log share: the most bytes of a segment, which can change, and others."""

    def __init__(self, segment_bytes: int, flush_messages: int, magic: int) -> None:
        self.segment_bytes = segment_bytes
        self.flush_messages = flush_messages
        """Records after which a partition is synced."""
        self.magic = magic
        """Message format of everything that is appended."""


class PartitionLog:
    """The segments in one partition's directory. Nothing is read or opened before the first append."""

    def __init__(self, directory: Path, config: LogConfig, files: OpenFiles) -> None:
        self._directory = directory
        self._config = config
        self._files = files
        self._format = record_format(config.magic)
        self._end: LogEnd | None = None
        self._path = directory
        """The last segment's path, once recovery has found the end."""
        self._unflushed_records = 0
        self._entries_synced = False
        """Whether the directory's entries are synced, the last segment's included."""

    @property
    def is_flushed(self) -> bool:
        """Whether all records are synced."""
        return self._unflushed_records == 0

    def append(self, batch: ProduceBatch) -> int:
        """Write the batch, unless the log holds it already; return its base offset.

        Raises:
            KafkaStorageError: it could not be written or synced, and is not in the log. Later appends can succeed.
            RecordBatchTooLargeError: it is larger than a segment.
            UnsupportedForMessageFormatError: it is not of this log's message format.
        """
        if batch.magic != self._config.magic:
            raise UnsupportedForMessageFormatError(
                f"{self._directory}: a batch of message format {batch.magic} cannot be appended to a log of format "
                f"{self._config.magic}; use one message.format.version"
            )
        try:
            end = self._end or self._recover()
            stored_at = end.producers.find(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count
            )
            if stored_at is None:
                return self._append_new(batch, end)
            self._flush_if_due()  # a dead sender can have written it without a sync
            return stored_at
        except OSError as error:
            if isinstance(error, FileNotFoundError | FileExistsError):
                self._forget_end()  # files were removed or created from outside
            raise self._storage_error(f"cannot write a batch of {batch.size} bytes", error) from error

    def flush(self) -> None:
        """Sync all records. Raises KafkaStorageError: the sync failed; what is on disk is unknown."""
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
        # A dead sender can have written the segment without a sync.
        self._unflushed_records = end.next_offset - end.base_offset
        self._entries_synced = False
        return end

    def _append_new(self, batch: ProduceBatch, end: LogEnd) -> int:
        base_offset = end.next_offset
        first, *rest = batch.payload
        # A message set is always one view. Setting its offset can compress it again, to another size.
        self._format.set_base_offset(first, batch.record_count, base_offset)
        data = (first, *rest)
        size = sum(map(len, data))
        if size > self._config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"{self._directory}: a batch of {size} bytes exceeds segment.bytes = {self._config.segment_bytes}; "
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
        """Truncate the last segment before a batch whose write or sync failed."""
        try:
            os.ftruncate(self._files.get(self._path), end.size)
        except OSError as error:
            logger.error("%s: cannot truncate a torn batch at byte %d: %s", self._path, end.size, error.strerror)
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
        """Forget the log's end: the next append recovers it first."""
        self._end = None
        self._files.close(self._path)

    def _storage_error(self, what: str, error: OSError) -> KafkaStorageError:
        return KafkaStorageError(f"{error.filename or self._path}: {what}: {error.strerror}")
