"""The common framing of all message formats, by which a reader walks a log.

An entry is a batch of format 2 or a message of format 1. It begins with an offset (8 bytes) and a size (4 bytes,
which counts the bytes after it); its magic is always its 17th byte (``org.apache.kafka.common.record.Records``).
"""

from __future__ import annotations

import struct
from typing import Final

from shmaccum.errors import CorruptRecordError

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

    Raises:
        CorruptRecordError: its size is impossible, or it reaches past the end of ``buf``.
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
