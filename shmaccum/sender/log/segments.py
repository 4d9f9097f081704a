"""Segment files: named ``<offset of the first record, 20 digits>.log`` as in Kafka, batches back to back.

Segments are read through ordinary reads, not mapped. To touch a mapped page that the disk cannot give, or that
a writer has cut off meanwhile, is a SIGBUS, and would end the whole process for one bad file.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shmaccum.errors import CorruptRecordError
from shmaccum.record.framing import LOG_OVERHEAD
from shmaccum.record.reader import Batch, iter_batches
from shmaccum.regularfile import open_regular

_NAME: Final = re.compile(r"(?P<base_offset>[0-9]{20})\.log")
_MAX_OFFSET: Final = 2**63 - 1
_OFFSET_AND_SIZE: Final = struct.Struct(">qi")
_BUFFER_BYTES: Final = 1 << 20


def segment_path(directory: Path, base_offset: int) -> Path:
    """Return the path of the segment whose first record has, or is to have, that offset."""
    return directory / f"{base_offset:020}.log"


def list_segments(directory: Path) -> list[Path]:
    """Return the segments in a partition's directory, in the order of their offsets. Other files are left out.

    Raises:
        OSError: the directory is gone, or cannot be read.
    """
    names = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(directory / name.string for name in names if name and int(name["base_offset"]) <= _MAX_OFFSET)


def base_offset_of(segment: Path) -> int:
    """Return the offset that a segment's name says."""
    return int(segment.stem)


class SegmentReader:
    """Reads the batches of one segment, one at a time in memory, up to the size that the file has at the start.

    Attributes:
        path: of the segment.
        size: bytes of the file when the reader was made.
        position: where the batch last read starts, in bytes.
        end: where it ends: behind it is what was not read yet, or is no whole batch.
    """

    def __init__(self, path: Path, *, any_owner: bool = False) -> None:
        """Look at the file.

        Args:
            path: of the segment.
            any_owner: whether it may be another user's.

        Raises:
            OSError: it is gone, or not to be read.
        """
        self.path = path
        self._any_owner = any_owner
        self.size = path.lstat().st_size
        self.position = 0
        self.end = 0

    def batches(self, *, check_crc: bool = True) -> Iterator[Batch]:
        """Yield the batches; end before one that reaches past `size`, as an interrupted write leaves it.

        Args:
            check_crc: whether a wrong checksum counts as corrupt.

        Raises:
            CorruptRecordError: what is behind the last batch is none; names file and position.
            OSError: the file is gone, cannot be read, is not a regular one, or is another user's.
        """
        descriptor = open_regular(self.path, os.O_RDONLY, any_owner=self._any_owner)
        with open(descriptor, "rb", buffering=_BUFFER_BYTES) as file:
            while len(head := file.read(LOG_OVERHEAD)) == LOG_OVERHEAD:
                _, size = _OFFSET_AND_SIZE.unpack(head)
                if self.end + LOG_OVERHEAD + size > self.size:
                    return
                entry = head + file.read(max(size, 0))
                if len(entry) < LOG_OVERHEAD + size:  # a writer has cut it off meanwhile
                    return
                self.position = self.end
                try:
                    (batch,) = iter_batches(entry, check_crc=check_crc)
                except CorruptRecordError as error:
                    raise self.corrupt(str(error)) from error
                self.end += len(entry)
                yield batch

    def corrupt(self, reason: str) -> CorruptRecordError:
        """Return an error that names the file and the position of the batch last read.

        Args:
            reason: what is wrong with that batch, in positions counted from its start.
        """
        return CorruptRecordError(f"{self.path} is corrupt at byte {self.position}; counted from there, {reason}")
