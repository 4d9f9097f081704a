"""Finding the end of a partition's log, and cutting off what is no whole batch (``LogSegment.recover``).

Only the last segment can end in the middle of a batch: it is read whole, checksums included. As in Kafka, what
follows the last of its whole batches goes. A sender that died had acknowledged none of it: writes are in order.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path

from shmaccum.errors import CorruptRecordError
from shmaccum.record.reader import Batch
from shmaccum.regularfile import open_regular
from shmaccum.sender.log.files import SEGMENT_MODE
from shmaccum.sender.log.recent_batches import BATCHES_KEPT, RecentBatches, StoredBatch
from shmaccum.sender.log.segments import SegmentReader, base_offset_of, list_segments, segment_path

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LogEnd:
    """Where the next batch of a partition goes.

    Attributes:
        base_offset: that of the last segment.
        size: bytes of the last segment.
        next_offset: offset of the next record.
        producers: the batches that may be resent.
    """

    base_offset: int
    size: int
    next_offset: int
    producers: RecentBatches = field(default_factory=RecentBatches)


def recover(directory: Path, *, idempotent: bool) -> LogEnd:
    """Find the end of the log in a partition's directory, and make it a clean one.

    A partition without segments gets its first, empty one. Afterwards nothing is known to be synced.

    Args:
        directory: of the partition; exists.
        idempotent: whether batches can have a producer id: if so, and the last segment does not hold all the
            batches that may be resent, those before it are read too.

    Raises:
        OSError: a file cannot be read or written. Nothing whole has been changed.
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
    """Return the end of the segment, after cutting off what is no whole batch."""
    base_offset = base_offset_of(segment)
    end = LogEnd(base_offset, 0, base_offset)
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
        logger.warning("%s: cutting off %d bytes from byte %d on: %s", segment, excess, end.size, reason)
        descriptor = open_regular(segment, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, end.size)
        finally:
            os.close(descriptor)
    return end


def _look_back(older: list[Path], producers: RecentBatches) -> RecentBatches:
    """Return what is remembered once the segments before the last are known as far as needed.

    That is until every producer in sight has its five batches, or five batches of any kind were seen: a producer
    that was at work when its sender died was the last one to write.

    Args:
        older: the segments before the last; none of them is changed.
        producers: the batches in the last one.
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
            logger.warning("batches that were written before may be written again: %s", error)
        producers.extend(newer)
    return producers


def _remember(producers: RecentBatches, batch: Batch) -> None:
    if batch.producer_id >= 0:
        stored = StoredBatch(batch.producer_epoch, batch.base_sequence, batch.record_count, batch.base_offset)
        producers.add(batch.producer_id, stored)
