"""Redo log to replace a queued batch's records with compressed ones.

Committed records must survive a death while their compressed form overwrites them. So a producer first writes the
compressed bytes to the redo area of the partition's stripe. One store of the header's REDO word then makes them count,
and any process can finish the copy. All of it happens under the partition's lock. A process that takes the lock over
from a dead or interrupted holder finishes the copy first (`rebuild_stripe`). So no process sees a half-replaced
batch, and one area per stripe is enough.
"""

from __future__ import annotations

from typing import Final

from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BytesLike
from shmaccum.shm.layout import COMPRESSED_SIZE_SHIFT, Slot
from shmaccum.shm.slab import Slab

SEALING_TIMEOUT_MS: Final = 30
"""How long, from its closing, the sender leaves a batch to the producer that compresses it.

16 KiB take 0.1 ms to compress, 1 ms with gzip; the rest is for a producer that waits for a processor. A producer that
is stopped or killed while it compresses delays the batch by this much at most.
"""


def compressed_word(size: int, compression: CompressionType) -> int:
    """Return the COMPRESSED word of a batch of ``size`` bytes, header included, with this compression."""
    return size << COMPRESSED_SIZE_SHIFT | compression


def replace_records(slab: Slab, slot: int, records: BytesLike, start: int, compressed: int) -> None:
    """Replace a queued batch's records with compressed ones; under its partition's lock.

    Args:
        slab: the slab.
        slot: the batch's.
        records: all of its records, compressed; ``start + len(records)`` must fit into a redo area.
        start: their offset in the slot.
        compressed: the batch's new COMPRESSED word.
    """
    words, geometry = slab.words, slab.geometry
    header = geometry.header(slot)
    area = geometry.redo_area(words[header + Slot.PARTITION])
    slab.buffer[area + start : area + start + len(records)] = records
    words[header + Slot.REDO] = compressed
    finish(slab, slot)


def finish(slab: Slab, slot: int) -> None:
    """Finish the replacement that a slot's REDO word announces; under its partition's lock.

    It is idempotent. It also copies the space of the batch's header: sealing writes that later.
    """
    words, geometry, buffer = slab.words, slab.geometry, slab.buffer
    header = geometry.header(slot)
    redo = words[header + Slot.REDO]
    size = redo >> COMPRESSED_SIZE_SHIFT
    if size > min(geometry.redo_size, geometry.slot_size):
        raise slab.damaged(f"slot {slot}: REDO word of {size} bytes, redo areas have {geometry.redo_size}")
    area, body = geometry.redo_area(words[header + Slot.PARTITION]), geometry.slot(slot)
    buffer[body : body + size] = buffer[area : area + size]
    words[header + Slot.COMPRESSED] = redo
    words[header + Slot.REDO] = 0
