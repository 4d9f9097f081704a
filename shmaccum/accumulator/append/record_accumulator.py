"""The producers' half of Kafka's RecordAccumulator: append, flush, close.

A record goes into the open batch of its partition or into a new one: `RecordAppender`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from shmaccum.accumulator.append.futures import NO_SIZES, DeliveryCallback
from shmaccum.accumulator.append.pending_batches import PendingBatches
from shmaccum.accumulator.append.record_appender import AppendResult, RecordAppender, Route, closed
from shmaccum.accumulator.append.waits import Memory, Pause, Result, Sender, Until, Wait, Waits
from shmaccum.accumulator.state.accumulator_state import AccumulatorState
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaTimeoutError, ShmaccumError
from shmaccum.shm import native
from shmaccum.shm.layout import size_of
from shmaccum.shm.wakeup import run_to_end

if TYPE_CHECKING:  # pyarrow is an extra
    from shmaccum.accumulator.append.column_appender import ColumnAppender

_CALLBACKS_PAUSE_S: Final = 0.001
"""Of `RecordAccumulator.flush`, between two looks whether another thread has run the callbacks."""


class RecordAccumulator:
    """The batches of a slab, as a producer appends to them. Threads may share it.

    ``ensure_sender`` starts a sender if there is none. It is called, under no lock, before slots for a new batch are
    allocated and during waits for completions. If it raises, the record is not accepted. ``pending``: the batches that
    this process waits for; all accumulators of a process share them.
    """

    def __init__(
        self, state: AccumulatorState, config: ProducerConfig, ensure_sender: Callable[[], None] | None = None
    ) -> None:
        slab = state.slab
        self.state = state
        self.pending = slab.companion(PendingBatches)
        if ensure_sender is not None:
            self.pending.while_waiting = ensure_sender
        self._ensure_sender = ensure_sender
        self.records = RecordAppender(slab, state.format, self.pending, state.pool, config)
        self._columns: ColumnAppender | None = None  # not every program sends columns
        slab.note_timeout(config.delivery_timeout_ms)
        self._is_closed = False
        self._look: Callable[[], None] | None = None
        self._failure: Callable[[], ShmaccumError] | None = None
        """Makes the error of a batch after which nothing can be sent."""
        if config.enable_idempotence and not config.transactional_id:
            self.pending.idempotent.add(self)

    def appending(
        self,
        queue: PartitionQueue,
        timestamp: int,
        body: bytes,
        callback: DeliveryCallback | None,
        max_block_ms: float,
        route: Route | None = None,
        sizes: int = NO_SIZES,
    ) -> Waits[AppendResult]:
        """Append a record to its partition's last batch, or to a new one. When the call ends, it is accepted.

        The timestamp is from 0 to `MAX_TIMESTAMP`; ``body`` is from the format's ``encode_body``. ``callback`` is
        called when the record is complete, in this process, when it polls. ``max_block_ms`` is how long to wait for
        memory. ``route`` chooses another partition where the record would open a new batch. ``sizes`` are those of key
        and value, as `FutureRecordMetadata` has them.

        Raises:
            BufferExhaustedError: no memory became free in time.
            RecordTooLargeError: the record is larger than ``buffer.memory``.
            ProducerClosedError: this process has closed its accumulator.
        """
        self.check_usable()
        result = self.records.append(queue, timestamp, body, callback, sizes)
        if result is None:
            result = yield from self.records.appending(queue, timestamp, body, callback, max_block_ms, route, sizes)
        return result

    @property
    def columns(self) -> ColumnAppender:
        """Appends columns; made on first use."""
        if self._columns is None:
            from shmaccum.accumulator.append.column_appender import ColumnAppender

            self._columns = ColumnAppender(self.records, self.check_usable)
        return self._columns

    def open_room(self, queue: PartitionQueue) -> int:
        """Return the free bytes of a partition's open batch, 0 without one: a hint, read without the lock."""
        seen = self.records.core.open_batch(queue.entry)
        return 0 if seen is None else max(0, self.records.batch_size - size_of(seen[1]))

    def check_usable(self) -> None:
        """Read the ring before an append: else it could overflow. Raises ProducerClosedError: we have closed."""
        if self.records.core.asks_first:  # one test for all
            self._before_append()
        self.pending.poll()

    def call_before_append(self, look: Callable[[], None] | None) -> None:
        """Set or clear a function to call before every append; if it raises, the record is not accepted."""
        self._look = look
        self.records.core.asks_first = self._is_closed or self._failure is not None or look is not None

    def fail(self, failure: Callable[[], ShmaccumError]) -> None:
        """Refuse further records; ``failure`` makes the error that says why."""
        self._failure = failure
        self.records.core.asks_first = True

    def check_open(self) -> None:
        """Raise a ProducerClosedError if this process has closed this."""
        if self._is_closed:
            closed()

    def _before_append(self) -> None:
        self.check_open()
        if self._failure is not None:
            error = self._failure()
            raise type(error)(f"Cannot send because we are in an error state; close the producer: {error}") from error
        look = self._look  # another thread can clear it
        if look is not None:
            look()

    def flush(self, timeout_s: float | None = None, lane: int | None = None) -> None:
        """Make all batches of the slab sendable at once; wait until all records appended so far are complete.

        Their callbacks have run then, as in Kafka. With a lane, given by its entry + 1, wait for its records only, and
        for no callback that another thread runs; `close` ends that.

        Raises:
            KafkaTimeoutError: some are pending after ``timeout_s``; they stay in the slab and will be sent.
            ProducerClosedError: another thread has closed this.
        """
        self.block(self.flushing(timeout_s, lane))

    def flushing(self, timeout_s: float | None = None, lane: int | None = None) -> Waits[None]:
        """Flush as `flush`; yield the waits."""
        flush = object()
        flushes = self.pending.flushes
        deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        try:
            self.pending.begin_flush(flush)
            waiting = _Incomplete(self.pending, lane)

            def is_over() -> bool:
                return waiting.is_over() or (lane is not None and self._is_closed)

            if not (yield Until(is_over, timeout_s, waiting.count)):
                raise waiting.timed_out(timeout_s)
            if not waiting.is_over():
                closed()
        finally:
            flushes.discard(flush)  # the first call here: an interrupt cannot come before it
            self.pending.count_flushes()
        while lane is None and waiting.is_called_back_elsewhere():
            if time.monotonic() >= deadline_s:
                raise KafkaTimeoutError(f"another thread still runs callbacks of complete records after {timeout_s} s")
            yield Pause(_CALLBACKS_PAUSE_S)
            self.pending.poll()

    def block(self, call: Waits[Result]) -> Result:
        """Run a call to its end, waiting in this thread; return its result."""
        return run_to_end(call, self._wait)

    def _wait(self, wait: Wait) -> object:
        """Wait in this thread; return the answer."""
        match wait:
            case Memory(size, max_block_ms, taken, is_over):
                self.state.pool.allocate(size, max_block_ms, taken, is_over)
            case Sender() if self._ensure_sender is not None:
                self._ensure_sender()
            case Until(condition, timeout_s, batches):
                return self.pending.wait_until(condition, timeout_s, batches)
            case Pause(seconds) if seconds:
                native.pause(seconds)
        return None

    def clean_up(self) -> None:
        """Publish the flushes under way, and free the slots that calls which are over left behind."""
        self.pending.count_flushes()
        self.records.free_unused()

    def close(self) -> None:
        """Stop accepting records; end waits for memory and for a lane, in this process only."""
        self._is_closed = True
        self.records.core.asks_first = True
        self.records.close()
        self.state.pool.close()


class _Incomplete:
    """The batches that are incomplete now, for a wait until they are complete."""

    def __init__(self, pending: PendingBatches, lane: int | None = None) -> None:
        self._pending = pending
        self._results = [result for result in pending.incomplete() if lane is None or result.lane == lane]
        self._has_callbacks = pending.has_callbacks()  # these must not wait for other batches
        batches = {result.batch for result in self._results}
        self._called_back = batches | pending.callbacks.unfinished().difference(pending.contributions.results)

    def is_over(self) -> bool:
        """Return whether all of them are complete."""
        results = self._results
        if results and results[len(results) - 1].done:
            self._drop()
        return not self._results

    def is_called_back_elsewhere(self) -> bool:
        """Return whether another thread runs callbacks of these, or of those that were complete before."""
        return self._pending.callbacks.run_elsewhere(self._called_back)

    def count(self) -> int:
        """Return how many to wait for, as `PendingBatches.wait_until` asks."""
        self._drop()
        return 1 if self._has_callbacks else len(self._results)

    def timed_out(self, timeout_s: float | None) -> KafkaTimeoutError:
        """Return the error for a wait that took too long."""
        return KafkaTimeoutError(
            f"{len(self._results)} batches are not acknowledged after {timeout_s} s; they stay in the slab and will "
            f"be sent, but this flush no longer waits for them{self._pending.trouble()}"
        )

    def _drop(self) -> None:
        self._results = [result for result in self._results if not result.done]
