"""Replacing the bytes of a batch that is in its deque: a redo log of one entry for each stripe.

Records that are committed must survive a death in the middle of being overwritten by themselves in compressed form.
So the new bytes are written down beside the batch first, in the redo area of its partition's stripe; one store, of the
header's REDO word, makes them what counts; and from then on anybody can finish. All of it is done under the
partition's lock: whoever takes that over from a dead or interrupted holder finishes before anything else
(`rebuild_stripe`), so that nobody ever sees a batch in between, and one area a stripe is enough.
"""

from __future__ import annotations

from typing import Final

from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BytesLike
from shmaccum.shm.layout import COMPRESSED_SIZE_SHIFT, Slot
from shmaccum.shm.slab import Slab

SEALING_PATIENCE_MS: Final = 30
"""How long the sender leaves a batch alone that a producer is compressing, counted from its closing.

A slot of 16 KiB takes a tenth of a millisecond to compress, a millisecond with gzip; most of the rest is for a
producer that has to wait for a processor. It is all that a producer that is stopped or killed at it can hold up.
"""


def compressed_word(size: int, compression: CompressionType) -> int:
    """Return the COMPRESSED word of a batch that has ``size`` bytes, its header included, and is compressed so."""
    return size << COMPRESSED_SIZE_SHIFT | compression


def replace_records(slab: Slab, slot: int, records: BytesLike, start: int, compressed: int) -> None:
    """Put compressed records in the place of a queued batch's own; under its partition's lock.

    Args:
        slab: where it is.
        slot: of the batch.
        records: all of its records, compressed; with ``start``, no more bytes than a redo area has.
        start: where in the slot they begin.
        compressed: the COMPRESSED word that says so.
    """
    words, geometry = slab.words, slab.geometry
    header = geometry.header(slot)
    area = geometry.redo_area(words[header + Slot.PARTITION])
    slab.buffer[area + start : area + start + len(records)] = records
    words[header + Slot.REDO] = compressed
    finish(slab, slot)


def finish(slab: Slab, slot: int) -> None:
    """Bring to an end what the REDO word of a slot's header says; under its partition's lock.

    To do it again is harmless. What is in the room for the batch's header is copied along: the header is written when
    the batch is sealed.
    """
    words, geometry, buffer = slab.words, slab.geometry, slab.buffer
    header = geometry.header(slot)
    redo = words[header + Slot.REDO]
    size = redo >> COMPRESSED_SIZE_SHIFT
    if size > min(geometry.redo_size, geometry.slot_size):
        raise slab.damaged(f"{size} bytes are to come from a redo area of {geometry.redo_size} into slot {slot}")
    area, body = geometry.redo_area(words[header + Slot.PARTITION]), geometry.slot(slot)
    buffer[body : body + size] = buffer[area : area + size]
    words[header + Slot.COMPRESSED] = redo
    words[header + Slot.REDO] = 0
