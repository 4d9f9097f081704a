"""Segment files: names, a reader of their batches, and recovery, which truncates a torn batch.

As in Kafka, a segment is named ``<offset of the first record, 20 digits>.log`` and holds batches back to back. Segments
are not mapped: a page that the disk fails to read, or that a writer truncates, would kill the process by SIGBUS.

As in Kafka's ``LogSegment.recover``, only the last segment can end within a batch: recovery reads all of it, checksums
included, and truncates it behind its last whole batch. Nothing behind that was acknowledged: writes are in order.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from shmaccum.errors import CorruptRecordError
from shmaccum.record.fields import LOG_OVERHEAD
from shmaccum.record.format import Batch, iter_batches
from shmaccum.sender.log.files import SEGMENT_MODE
from shmaccum.shm.files import open_regular

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"(?P<base_offset>[0-9]{20})\.log")
_MAX_OFFSET: Final = 2**63 - 1
_OFFSET_AND_SIZE: Final = struct.Struct(">qi")
_BUFFER_BYTES: Final = 1 << 20

BATCHES_KEPT: Final = 5
"""Batches remembered per producer (``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``)."""

PRODUCERS_KEPT: Final = 1000
"""Producers remembered per partition. A slab has one producer id, and one slab at a time writes to a log."""


def segment_path(directory: Path, base_offset: int) -> Path:
    """Return the path of the segment whose first record has, or will have, that offset."""
    return directory / f"{base_offset:020}.log"


def list_segments(directory: Path) -> list[Path]:
    """Return a partition's segments by offset; skip other files. Raises OSError: the directory cannot be read."""
    names = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(directory / name.string for name in names if name and int(name["base_offset"]) <= _MAX_OFFSET)


class SegmentReader:
    """Reads the batches of one segment, one at a time, up to the file's size at the start.

    ``position`` is where the batch last read begins, ``end`` where it ends; unread bytes, or a torn batch, follow.
    """

    def __init__(self, path: Path, *, any_owner: bool = False) -> None:
        """Read the file's size; with ``any_owner``, another user can own it. Raises OSError: it cannot be examined."""
        self.path = path
        self._any_owner = any_owner
        self.size = path.lstat().st_size
        self.position = 0
        self.end = 0

    def batches(self, *, check_crc: bool = True) -> Iterator[Batch]:
        """Yield the batches; stop before one that reaches past `size`, as an interrupted write leaves it.

        Raises:
            CorruptRecordError: no valid batch follows the last one; names file and position.
            OSError: the file is gone, cannot be read, is not a regular one, or is another user's.
        """
        descriptor = open_regular(self.path, os.O_RDONLY, any_owner=self._any_owner)
        with open(descriptor, "rb", buffering=_BUFFER_BYTES) as file:
            while len(head := file.read(LOG_OVERHEAD)) == LOG_OVERHEAD:
                _, size = _OFFSET_AND_SIZE.unpack(head)
                if self.end + LOG_OVERHEAD + size > self.size:
                    return
                entry = head + file.read(max(size, 0))
                if len(entry) < LOG_OVERHEAD + size:  # a writer has truncated it meanwhile
                    return
                self.position = self.end
                try:
                    (batch,) = iter_batches(entry, check_crc=check_crc)
                except CorruptRecordError as error:
                    raise self.corrupt(str(error)) from error
                self.end += len(entry)
                yield batch

    def corrupt(self, reason: str) -> CorruptRecordError:
        """Return an error that names the file and the position of the batch last read, from which ``reason`` counts."""
        return CorruptRecordError(f"{self.path} is corrupt at byte {self.position}; counted from there, {reason}")


# --- recovery ---------------------------------------------------------------------------------------


class StoredBatch(NamedTuple):
    """Identity of a producer's batch, and its base offset."""

    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int


class RecentBatches:
    """The last batches of the producers that wrote last to one partition, by which resent ones are known (KIP-98).

    As a broker's ``ProducerStateManager`` it keeps the last five of a producer, the most that can be in flight.
    """

    def __init__(self) -> None:
        self._by_producer: OrderedDict[int, deque[StoredBatch]] = OrderedDict()

    def add(self, producer_id: int, batch: StoredBatch) -> None:
        """Remember a batch that was appended after all others."""
        batches = self._by_producer.get(producer_id)
        if batches is None:
            if len(self._by_producer) >= PRODUCERS_KEPT:
                self._by_producer.popitem(last=False)
            batches = self._by_producer[producer_id] = deque(maxlen=BATCHES_KEPT)
        else:
            self._by_producer.move_to_end(producer_id)
        batches.append(batch)

    def extend(self, newer: RecentBatches) -> None:
        """Remember the batches of ``newer``, which are all later than those here."""
        for producer_id, batches in newer._by_producer.items():
            for batch in batches:
                self.add(producer_id, batch)

    def find(self, producer_id: int, producer_epoch: int, base_sequence: int, record_count: int) -> int | None:
        """Return the base offset of a batch that the log holds already; None for a new one, or one without an id."""
        for batch in self._by_producer.get(producer_id, ()):
            if batch[:3] == (producer_epoch, base_sequence, record_count):
                return batch.base_offset
        return None

    def is_complete(self) -> bool:
        """Return whether older batches would change nothing: each producer has five, and there is one at least."""
        counts = [len(batches) for batches in self._by_producer.values()]
        return bool(counts) and min(counts) == BATCHES_KEPT


class LogEnd:
    """Where the next batch of a partition goes."""

    size = 0
    """Bytes of the last segment."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        """Of the last segment."""
        self.next_offset = base_offset
        """Of the next record."""
        self.producers = RecentBatches()
        """The batches that can be resent."""


def recover(directory: Path, *, idempotent: bool) -> LogEnd:
    """Find the end of the log in a partition's directory; truncate a torn batch.

    With ``idempotent``, it reads earlier segments as well, until all batches that can be resent are known.

    A partition without segments gets its first, empty one. Afterwards nothing counts as synced.

    Raises OSError: a file cannot be read or written. No whole batch was changed.
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
    base_offset = int(segment.stem)
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
