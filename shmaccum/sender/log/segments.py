"""Segment files: names, and a reader of their batches.

As in Kafka, a segment is named ``<offset of the first record, 20 digits>.log`` and holds batches back to back. Segments
are not mapped: a page that the disk fails to read, or that a writer truncates, would kill the process by SIGBUS.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shmaccum.errors import CorruptRecordError
from shmaccum.record.fields import LOG_OVERHEAD
from shmaccum.record.format import Batch, iter_batches
from shmaccum.shm.files import open_regular

_NAME: Final = re.compile(r"(?P<base_offset>[0-9]{20})\.log")
_MAX_OFFSET: Final = 2**63 - 1
_OFFSET_AND_SIZE: Final = struct.Struct(">qi")
_BUFFER_BYTES: Final = 1 << 20


def segment_path(directory: Path, base_offset: int) -> Path:
    """Return the path of the segment whose first record has, or will have, that offset."""
    return directory / f"{base_offset:020}.log"


def list_segments(directory: Path) -> list[Path]:
    """Return the segments in a partition's directory, by offset. Other files are skipped.

    Raises OSError: the directory is gone, or cannot be read.
    """
    names = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(directory / name.string for name in names if name and int(name["base_offset"]) <= _MAX_OFFSET)


class SegmentReader:
    """Reads the batches of one segment, one at a time, up to the file's size at the start.

    ``position`` is where the batch last read begins, ``end`` where it ends; unread bytes, or a torn batch, follow.
    """

    def __init__(self, path: Path, *, any_owner: bool = False) -> None:
        """Read the file's size; with ``any_owner``, another user can own it.

        Raises OSError: the file is gone, or cannot be examined.
        """
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
