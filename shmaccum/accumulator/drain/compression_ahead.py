"""Compresses large batches before they are drained, on threads of the sender.

To compress a batch takes longer than all else that the sender does with it, so it has threads for that, which run
without the GIL meanwhile. The batch is closed, and stays the first of its deque: its bytes do not change, and what
comes behind it grows. The result stays in private memory until the batch is sealed. So a death of the sender leaves
nothing: the next one compresses the batch again.

Batches below `AHEAD_SIZE` are compressed when they are sealed: a thread would cost more than it saves.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from shmaccum._core import COMPRESSING, STATE_MASK, ReadyCheck, Slot
from shmaccum.accumulator.drain.deferral import Deferral
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import CorruptRecordError, LockTimeoutError
from shmaccum.record.compression import CompressionType, compress
from shmaccum.record.fields import BatchMemory
from shmaccum.record.format import RecordFormat
from shmaccum.shm.layout import SlotState
from shmaccum.shm.slab import Slab

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

logger = logging.getLogger(__name__)

AHEAD_SIZE: Final = 32 * 1024
"""Bytes of a batch from which on it is worth a thread: 32 KiB take some 0.1 ms to compress."""
_MOST_THREADS: Final = 8


class Compressed(NamedTuple):
    """A batch's records, compressed."""

    contents: tuple[int, int]
    """The batch's GENERATION and COMMIT words, which say which records it had."""
    section: bytes
    """The records."""


class CompressionAhead:
    """Compresses batches ahead. Only the sender's thread calls it.

    ``core`` chooses no batch that is being compressed. ``levels``, of the compression types that have some, can change.
    """

    def __init__(self, slab: Slab, core: ReadyCheck, deferral: Deferral, record_format: RecordFormat) -> None:
        self._slab = slab
        self._core = core
        self._deferral = deferral
        self._format = record_format
        self.levels: Mapping[CompressionType, int] = {}
        self._thread_count = 0
        """0 while nothing is compressed ahead."""
        self._threads: ThreadPoolExecutor | None = None
        self._wake: Callable[[], None] = lambda: None
        self._done: deque[tuple[RecordBatch, int, Future[Compressed]]] = deque()
        """What the threads have finished, with the batch's generation; they append to it."""
        self._results: dict[int, Compressed] = {}
        """By slot."""

    def start(self, wake: Callable[[], None]) -> None:
        """Compress ahead from now on; ``wake`` ends the sender's sleep, and any thread can call it."""
        if not self._format.compresses_ahead:
            return
        self._wake = wake
        self._thread_count = min(len(os.sched_getaffinity(0)), _MOST_THREADS)
        self._core.ahead_size = AHEAD_SIZE

    def stop(self) -> None:
        """End the threads, which finish what they have begun, and forget all results."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._threads = None
        self._thread_count = 0
        self._core.forget_ahead()
        self._done.clear()
        self._results.clear()

    def begin(self, slots: list[int]) -> None:
        """Close batches, each the first of its partition, and have them compressed."""
        for slot in slots:
            batch = RecordBatch(self._slab.core, slot)
            if batch.state == SlotState.OPEN:
                stripe = self._slab.stripe(batch.partition)
                try:
                    self._deferral.section(stripe, partial(self._slab.deques.close_first, batch.partition, slot))
                except LockTimeoutError:
                    continue
            self._submit(batch)

    def _submit(self, batch: RecordBatch) -> None:
        if not self._thread_count:
            return
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor  # most senders compress nothing

            self._threads = ThreadPoolExecutor(self._thread_count, thread_name_prefix="shmaccum-compression")
        contents = self._contents(batch.slot)
        try:
            batch.check(self._format.header_size)
            wanted, views = batch.wanted_compression, batch.memory()
            future = self._threads.submit(self._compress, views, contents, wanted, self.levels.get(wanted))
        except (CorruptRecordError, RuntimeError):
            # Damaged, which the sealer finds, too; or no thread can be started, and the sealer compresses it.
            self._core.set_ahead(batch.slot, contents[0], batch.size)
            return
        self._core.set_ahead(batch.slot, contents[0], COMPRESSING)
        future.add_done_callback(partial(self._finish, batch, contents[0]))

    def _contents(self, slot: int) -> tuple[int, int]:
        words, header = self._slab.words, self._slab.geometry.header(slot)
        return words[header + Slot.GENERATION], words[header + Slot.COMMIT]

    def _compress(
        self, views: BatchMemory, contents: tuple[int, int], wanted: CompressionType, level: int | None
    ) -> Compressed:
        """Compress a copy of a batch's records, a thread's work: its slots can have another one meanwhile."""
        records = b"".join((views[0][self._format.header_size :], *views[1:]))
        return Compressed(contents, compress(wanted, records, self._format.magic, level))

    def _finish(self, batch: RecordBatch, generation: int, future: Future[Compressed]) -> None:
        """Hand a result to the sender's thread; a thread calls it."""
        self._done.append((batch, generation, future))
        self._wake()

    def collect(self) -> None:
        """Make the batches ready that are compressed by now."""
        if not self._done:
            return
        # A batch can have expired since: then its result is of no use.
        states = {slot: self._slab.words[self._slab.geometry.header(slot) + Slot.STATE] for slot in self._results}
        self._results = {
            slot: result
            for slot, result in self._results.items()
            if states[slot] & STATE_MASK != SlotState.FREE and self._contents(slot) == result.contents
        }
        while self._done:
            batch, generation, future = self._done.popleft()
            if future.cancelled():
                continue
            if future.exception() is None:
                result = self._results[batch.slot] = future.result()
                size = self._format.header_size + len(result.section)
            else:
                logger.debug("compressing a batch ahead failed; it is tried again", exc_info=future.exception())
                size = batch.size
            self._core.set_ahead(batch.slot, generation, size)

    def take(self, batch: RecordBatch) -> bytes | None:
        """Return the records of a drained batch, if they have been compressed as they are."""
        result = self._results.pop(batch.slot, None)
        return result.section if result is not None and result.contents == self._contents(batch.slot) else None
