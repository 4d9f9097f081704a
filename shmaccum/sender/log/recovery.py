"""Finds the end of a partition's log, and truncates a torn batch.

As in Kafka's ``LogSegment.recover``, only the last segment can end within a batch: recovery reads all of it, checksums
included, and truncates it behind its last whole batch. Nothing behind that was acknowledged: writes are in order.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from shmaccum.errors import CorruptRecordError
from shmaccum.record.reader import Batch
from shmaccum.sender.log.files import SEGMENT_MODE
from shmaccum.sender.log.recent_batches import BATCHES_KEPT, RecentBatches, StoredBatch
from shmaccum.sender.log.segments import SegmentReader, base_offset_of, list_segments, segment_path
from shmaccum.sender.regularfile import open_regular

logger = logging.getLogger(__name__)


class LogEnd:
    """Where the next batch of a partition goes.

    Args:
        base_offset: of the last segment.

    Attributes:
        size: bytes of the last segment.
        next_offset: offset of the next record.
        producers: the batches that can be resent.
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.next_offset = base_offset
        self.producers = RecentBatches()


def recover(directory: Path, *, idempotent: bool) -> LogEnd:
    """Find the end of the log in a partition's directory; truncate a torn batch.

    With ``idempotent``, it reads earlier segments as well, until all batches that can be resent are known.

    A partition without segments gets its first, empty one. Afterwards nothing counts as synced.

    Raises:
        OSError: a file cannot be read or written. No whole batch was changed.
    """
    segments = list_segments(directory)
    if not segments:
        segments.append(segment_path(directory, 0))
        os.close(open_regular(segments[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL, SEGMENT_MODE))
    end = _recover_segment(segments[-1])
    if idempotent:
        end.producers = _look_back(segments[:-1], end.producers)
    return end


def _recover_segment(segment: Path) -> LogEnd:
    """Truncate the segment behind its last whole batch; return its end."""
    base_offset = base_offset_of(segment)
    end = LogEnd(base_offset)
    reader = SegmentReader(segment)
    reason = "the batch there is cut short"
    try:
        for batch in reader.batches():
            if batch.last_offset < end.next_offset:
                raise reader.corrupt(f"offset {batch.last_offset} follows offset {end.next_offset - 1}")
            _remember(end.producers, batch)
            end.size = reader.end
            end.next_offset = batch.last_offset + 1
    except CorruptRecordError as error:
        reason = str(error)
    excess = reader.size - end.size
    if excess:
        logger.warning("%s: truncating %d bytes from byte %d on: %s", segment, excess, end.size, reason)
        descriptor = open_regular(segment, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, end.size)
        finally:
            os.close(descriptor)
    return end


def _look_back(older: list[Path], producers: RecentBatches) -> RecentBatches:
    """Return the last segment's batches and, from older segments, those that can be resent.

    It reads older segments until every producer found has five batches, or until it has read five batches in all: the
    producer whose sender died was the last to write.
    """
    seen = 0
    for segment in reversed(older):
        if seen >= BATCHES_KEPT or producers.is_complete():
            break
        newer, producers = producers, RecentBatches()
        try:
            for batch in SegmentReader(segment).batches(check_crc=False):
                _remember(producers, batch)
                seen += 1
        except CorruptRecordError as error:
            logger.warning("resent batches may be stored twice, since the ones before cannot be read: %s", error)
        producers.extend(newer)
    return producers


def _remember(producers: RecentBatches, batch: Batch) -> None:
    if batch.producer_id >= 0:
        stored = StoredBatch(batch.producer_epoch, batch.base_sequence, batch.record_count, batch.base_offset)
        producers.add(batch.producer_id, stored)
