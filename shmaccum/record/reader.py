"""Reads logs, message sets and batches in Kafka's formats, for dump and recovery.

It trusts nothing. Whatever the bytes are, the only error is `CorruptRecordError`, the number of bytes bounds every
loop, and claimed lengths are checked before any allocation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from shmaccum.errors import CorruptRecordError
from shmaccum.record.fields import MAGIC_OFFSET, BytesLike, entry_end
from shmaccum.record.legacy import LegacyBatch
from shmaccum.record.v2 import DefaultBatch

Batch: TypeAlias = DefaultBatch | LegacyBatch
"""A stored batch, or one outer message of format 1."""


def iter_batches(buf: BytesLike, *, check_crc: bool = True) -> Iterator[Batch]:
    """Yield the batches of a log, of any format. Records are decoded only on request.

    The bytes are not copied. With ``check_crc``, a batch whose checksum is wrong is refused; otherwise ask `is_valid`.

    Raises CorruptRecordError: the bytes after the last batch yielded are not a batch, or only the beginning of one.
    """
    view = memoryview(buf)
    start = 0
    while start < len(view):
        end = entry_end(view, start)
        entry = view[start:end]
        magic = entry[MAGIC_OFFSET]
        if magic not in (1, 2):
            raise CorruptRecordError(f"the entry at byte {start} has magic {magic}; this package reads 1 and 2")
        batch = DefaultBatch(entry, start) if magic == 2 else LegacyBatch(entry, start)
        if check_crc and not batch.is_valid():
            raise CorruptRecordError(f"the batch at byte {start} is corrupt: its checksum is not {batch.crc:#010x}")
        yield batch
        start = end
