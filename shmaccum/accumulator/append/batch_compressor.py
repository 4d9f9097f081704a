"""Compression in the producers: it scales with them, and the one sender has nothing to do but to send.

A batch is compressed as the producer that opened it wants it, by the one that closes it: from the closed batch's
bytes, which do not change any more, into private memory and under no lock; then the result takes the place of the
records in the slab, if they are still waiting there (`redo_log` makes that safe). A batch that nothing will be added to
is compressed before it becomes a batch at all.

Nothing depends on it. What no producer compresses, because it died, was stopped or came too late, or because the batch
was sent before it was full, the sender compresses as it seals. It only leaves a batch alone for a moment whose header
says that somebody compresses it: that is the *claim*.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.accumulator.state.redo_log import SEALING_PATIENCE_MS, compressed_word, replace_records
from shmaccum.errors import LockTimeoutError
from shmaccum.record.compression import DEFAULT_LEVELS, CompressionType, compress
from shmaccum.record.format import RecordFormat
from shmaccum.shm.layout import COMMIT_SIZE_SHIFT, COMPRESSION_MASK, Process, Slot
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)


class _Claim(NamedTuple):
    """A closed batch that this process is to compress."""

    queue: PartitionQueue
    slot: int
    generation: int
    since_ms: int


class BatchCompressor:
    """Compresses the batches that this process closes. Threads may share it.

    Args:
        slab: where the batches are.
        record_format: of the batches.
        compression: of those that this process opens. Nothing is done in a slab without redo areas: see
            `slab_geometry`.
        levels: of each compression that has levels; this process may close a batch that another one opened.

    Attributes:
        compression: the same.
        enabled: whether anything is done.
        compresses_own: whether that is so for the batches that this process opens.
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
        slab.on_fork(self._claims_are_the_parents)

    def _claims_are_the_parents(self) -> None:
        self._claims.clear()

    def compress(self, records: bytes | memoryview) -> tuple[bytes | memoryview, int]:
        """Compress the records of a batch that is yet to be placed.

        Returns:
            The records as they are to be in the slab, compressed if that makes them smaller, and the batch's
            COMPRESSED word.
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

    def claim(self, queue: PartitionQueue, slot: int) -> None:
        """Note that the batch in a slot, -1 for none, is ours to compress; under the lock that it was closed under."""
        if slot < 0 or not self.enabled:
            return
        header = self._slab.geometry.header(slot)
        if self._words[header + Slot.LINGER] & COMPRESSION_MASK == CompressionType.NONE:
            return
        since_ms = time.monotonic_ns() // 1_000_000
        self._words[header + Slot.SEALING] = since_ms
        self._claims.append(_Claim(queue, slot, self._words[header + Slot.GENERATION], since_ms))

    def compress_claimed(self) -> bool:
        """Compress what this process has claimed; say whether there was anything. Under no lock."""
        found = False
        while self._claims:
            try:
                claim = self._claims.popleft()
            except IndexError:
                break  # another thread was faster
            found = True
            try:
                self._compress_in_place(claim)
            except Exception:
                # The caller's own record may be in already: this must not fail, and the sender does it as well.
                logger.debug("a batch is left to the sender to compress", exc_info=True)
        return found

    def _compress_in_place(self, claim: _Claim) -> None:
        geometry = self._slab.geometry
        header = geometry.header(claim.slot)
        size = min(self._words[header + Slot.COMMIT] >> COMMIT_SIZE_SHIFT, geometry.slot_size)
        begin, start = geometry.slot(claim.slot), self._format.header_size
        # A copy: once the sender has taken the batch, the slot may change under the compressor's hands.
        records = bytes(self._slab.buffer[begin + start : begin + size])
        if not self._is_open_to(claim):
            return
        stored, compressed = self._compress(self._words[header + Slot.LINGER] & COMPRESSION_MASK, records)
        try:
            # No longer than the claim is good for.
            with claim.queue.lock.within(SEALING_PATIENCE_MS / 1000):
                if self._is_open_to(claim):
                    if stored is records:
                        self._words[header + Slot.COMPRESSED] = compressed
                    else:
                        replace_records(self._slab, claim.slot, stored, start, compressed)
                    self._words[header + Slot.SEALING] = 0
                    self._words[geometry.process(self._slab.me) + Process.COMPRESSED] += 1
        except LockTimeoutError:
            pass

    def _is_open_to(self, claim: _Claim) -> bool:
        """Say whether the batch still waits in its deque for this claim; certain only under its partition's lock.

        Whoever takes a batch out of its deque clears the word, and nobody else claims the same batch.
        """
        words, header = self._words, self._slab.geometry.header(claim.slot)
        return words[header + Slot.GENERATION] == claim.generation and words[header + Slot.SEALING] == claim.since_ms
