"""Compresses batches in the producers, so that compression scales and spares the sender.

The process that closes a batch compresses it, with the compression type of the producer that opened it. It reads the
closed batch's bytes, which no longer change, and compresses them into private memory under no lock. If the batch is
still queued, the result then replaces the records under the partition's lock (by ``repair.pxi``'s redo log). A batch
that is closed from the start is compressed before it is placed.

The *claim* is the SEALING word of a closed batch: the time when this process began, stored under the partition's lock.
The sender waits for a claimed batch at most `SEALING_TIMEOUT_MS`. Batches that no producer compresses, because it
died, was stopped or late, or the batch was sent while open, the sender compresses when it seals them.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from shmaccum._core import COMMIT_SIZE_SHIFT, COMPRESSED_SIZE_SHIFT, COMPRESSION_MASK, SEALING_TIMEOUT_MS, Buffer, Slot
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import LockTimeoutError
from shmaccum.record.compression import DEFAULT_LEVELS, CompressionType, compress
from shmaccum.record.format import RecordFormat
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)


def compressed_word(size: int, compression: CompressionType) -> int:
    """Return the COMPRESSED word of a batch of ``size`` bytes, header included, with this compression."""
    return size << COMPRESSED_SIZE_SHIFT | compression


class _Claim(NamedTuple):
    """A closed batch that this process will compress."""

    queue: PartitionQueue
    slot: int
    generation: int
    since_ms: int


class BatchCompressor:
    """Compresses the batches that this process closes. Threads may share it.

    Args:
        slab: the slab; without redo areas nothing is compressed here (see `slab_geometry`).
        record_format: of the batches.
        compression: of the batches that this process opens.
        levels: for each compression type that has levels: this process also closes batches that another one opened.

    Attributes:
        enabled: whether this process compresses batches.
        compresses_own: whether it compresses those that it opens.
    """

    def __init__(
        self,
        slab: Slab,
        record_format: RecordFormat,
        compression: CompressionType,
        levels: Mapping[CompressionType, int] = DEFAULT_LEVELS,
    ) -> None:
        self._slab = slab
        self._words = slab.words
        self._format = record_format
        self.compression: Final = compression
        self._levels = levels
        self.enabled = slab.geometry.redo_size > 0
        self.compresses_own = self.enabled and compression is not CompressionType.NONE
        self._claims: deque[_Claim] = deque()
        slab.on_fork(self)

    def forked(self) -> None:
        """Forget the claims in a forked child: they are the parent's."""
        self._claims.clear()

    def compress(self, records: bytes | memoryview) -> tuple[bytes | memoryview, int]:
        """Compress the records of a batch that is not placed yet.

        Returns:
            The records for the slab, compressed if that makes them smaller, and the batch's COMPRESSED word.
        """
        return self._compress(self.compression, records) if self.compresses_own else (records, 0)

    def _compress(self, compression: int, records: bytes | memoryview) -> tuple[bytes | memoryview, int]:
        if compression == CompressionType.NONE:
            return records, 0
        kind = CompressionType(compression)
        start = self._format.header_size
        compressed = compress(kind, records, self._format.magic, self._levels.get(kind))
        if len(compressed) >= len(records):
            return records, compressed_word(start + len(records), CompressionType.NONE)
        return compressed, compressed_word(start + len(compressed), kind)

    def add(self, queue: PartitionQueue, slot: int, generation: int, since_ms: int) -> None:
        """Add a batch that this process has claimed."""
        self._claims.append(_Claim(queue, slot, generation, since_ms))

    def compress_claimed(self) -> bool:
        """Compress all claimed batches, under no lock; return whether there were any."""
        found = False
        while self._claims:
            try:
                claim = self._claims.popleft()
            except IndexError:
                break  # another thread has taken the last one
            found = True
            try:
                self._compress_in_place(claim)
            except Exception:
                # Must not raise: the caller's record may be accepted, and the sender compresses the batch instead.
                logger.debug("compressing a batch failed; the sender will compress it", exc_info=True)
        return found

    def _compress_in_place(self, claim: _Claim) -> None:
        geometry = self._slab.geometry
        header = geometry.header(claim.slot)
        size = min(self._words[header + Slot.COMMIT] >> COMMIT_SIZE_SHIFT, geometry.slot_size)
        begin, start = geometry.slot(claim.slot), self._format.header_size
        # A copy: once the sender drains the batch, its slot can change while we compress.
        records = bytes(self._slab.buffer[begin + start : begin + size])
        # Draining a batch clears the word, and no other process claims the same batch.
        if (self._words[header + Slot.GENERATION], self._words[header + Slot.SEALING]) != claim[2:]:
            return
        if geometry.keeps_checksums and not RecordBatch(self._slab.core, claim.slot).is_intact(start, records):
            return  # the sender finds it so, too, and fails it
        stored, compressed = self._compress(self._words[header + Slot.LINGER] & COMPRESSION_MASK, records)
        replacement = None if stored is records else stored
        queue, batch = claim.queue, Buffer(claim.slot, 1, claim.generation)
        replace = self._slab.deques.replace
        # A longer wait is useless: by then the sender no longer honours the claim.
        with contextlib.suppress(LockTimeoutError):
            queue.lock.run(
                lambda: replace(queue.entry, batch, claim.since_ms, replacement, start, compressed),
                SEALING_TIMEOUT_MS / 1000,
            )
