"""Initializes the header of a new batch, except queue links and contributors.

The slot is ALLOCATED and owned by this process, so no lock is held and the order of stores does not matter.
`PartitionQueue.append` makes them count with the state. A death before that leaves a slot that the sender frees.
"""

from __future__ import annotations

from typing import Final

from shmaccum.shm.layout import COMMIT_SIZE_SHIFT, Slot
from shmaccum.shm.memory import SlabMemory

# Constants of this module: they are looked up for every batch.
_SIZE_SHIFT: Final = COMMIT_SIZE_SHIFT
_COMMIT: Final = Slot.COMMIT
_MAX_TIMESTAMP: Final = Slot.MAX_TIMESTAMP
_BASE_TIMESTAMP: Final = Slot.BASE_TIMESTAMP
_CREATED_MS: Final = Slot.CREATED_MS
_OPENED_US: Final = Slot.OPENED_US
_ATTEMPTS: Final = Slot.ATTEMPTS
_SEQUENCE: Final = Slot.SEQUENCE
_MAX_RECORD: Final = Slot.MAX_RECORD
_SETTLED: Final = Slot.SETTLED
_COMPRESSED: Final = Slot.COMPRESSED
_PART: Final = Slot.PART
_LINGER: Final = Slot.LINGER
_LIMITS: Final = Slot.LIMITS
_CONTRIBUTORS: Final = Slot.CONTRIBUTORS


def begin(
    memory: SlabMemory,
    header: int,
    contributor_words: int,
    now_us: int,
    size: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    max_record: int,
    compressed: int,
    linger: int,
    limits: int,
) -> None:
    """Initialize the header of a slot that this process has allocated.

    Args:
        memory: the slab's.
        header: word index of the header.
        contributor_words: length of the contributors' bitmap, which starts empty.
        now_us: monotonic microseconds.
        size: bytes of the whole batch, before any compression.
        record_count: records in it.
        base_timestamp: timestamp of the first record.
        max_timestamp: largest timestamp.
        max_record: bytes in the largest record.
        compressed: the batch's `Slot.COMPRESSED` word.
        linger: the batch's `Slot.LINGER` word.
        limits: the batch's `Slot.LIMITS` word.
    """
    words, now_ms = memory.words, now_us // 1000
    words[header + _COMMIT] = size << _SIZE_SHIFT | record_count << 1
    words[header + _MAX_TIMESTAMP] = max_timestamp
    words[header + _BASE_TIMESTAMP] = base_timestamp
    words[header + _OPENED_US] = now_us
    words[header + _CREATED_MS] = now_ms
    words[header + _ATTEMPTS] = now_ms  # no attempt yet: back-off and linger count from the creation
    words[header + _SEQUENCE] = 0
    words[header + _MAX_RECORD] = max_record
    words[header + _SETTLED] = 0
    words[header + _PART] = 0
    words[header + _COMPRESSED] = compressed
    words[header + _LINGER] = linger
    words[header + _LIMITS] = limits
    for index in range(contributor_words):
        words[header + _CONTRIBUTORS + index] = 0
