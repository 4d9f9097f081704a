"""What `append` gives back: futures that resolve when their batch is done.

As in Kafka (``ProduceRequestResult``, ``FutureRecordMetadata``), one result object stands for a whole batch and
every record's future is that object and the record's place in it: completing a batch of a thousand records
resolves a thousand futures in one step. They live in the process that appended; the slab knows nothing of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.errors import KafkaError, KafkaTimeoutError, ShmaccumError

logger = logging.getLogger(__name__)

DeliveryCallback = Callable[[ShmaccumError | None, RecordMetadata | None], Any]
"""Called with (error, None) or (None, metadata), in the process that appended."""


class Waiter(Protocol):
    """Whoever can wait for completions."""

    def wait_until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until the condition holds; False if the time ran out first."""


class ProduceRequestResult:
    """What became, or will become, of one batch to which this process contributed."""

    __slots__ = ("append_time_ms", "base_offset", "callbacks", "done", "error", "topic_partition", "waiter")

    def __init__(self, topic_partition: TopicPartition, waiter: Waiter) -> None:
        self.topic_partition = topic_partition
        self.waiter = waiter
        self.done = False
        self.base_offset = -1
        self.append_time_ms = -1
        self.error: ShmaccumError | None = None
        self.callbacks: list[tuple[DeliveryCallback, FutureRecordMetadata]] = []

    def is_done(self) -> bool:
        """Say whether the batch is done."""
        return self.done

    def settle(self, base_offset: int, append_time_ms: int, error: ShmaccumError | None) -> None:
        """Say what became of the batch; its callbacks are still to be run."""
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.error = error
        self.done = True

    def run_callbacks(self) -> None:
        """Run the callbacks, each once. One that raises is logged, and harms nobody."""
        while self.callbacks:
            callbacks, self.callbacks = self.callbacks, []
            for callback, future in callbacks:
                _call_back(callback, future)


def _call_back(callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
    """Run one callback of a record that is done."""
    try:
        if future.exception is None:
            callback(None, future.value)
        else:
            callback(future.exception, None)
    except Exception:
        logger.exception("a delivery callback for %s raised", future.topic_partition)


class FutureRecordMetadata:
    """Future of one record, with the methods of kafka-python's."""

    __slots__ = ("_index", "_result", "_timestamp")

    def __init__(self, result: ProduceRequestResult, index: int, timestamp: int) -> None:
        self._result = result
        self._index = index
        self._timestamp = timestamp

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record goes."""
        return self._result.topic_partition

    @property
    def is_done(self) -> bool:
        """Whether the record is acknowledged or given up. Only changes when the producer polls."""
        return self._result.done

    @property
    def exception(self) -> ShmaccumError | None:
        """Why the record was given up; None while it is under way, and for good."""
        return self._result.error

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record went; None while it is under way, or if it was given up."""
        result = self._result
        if not result.done or result.error is not None:
            return None
        topic, partition = result.topic_partition
        offset = result.base_offset + self._index if result.base_offset >= 0 else -1
        timestamp = result.append_time_ms if result.append_time_ms >= 0 else self._timestamp
        return RecordMetadata(topic, partition, offset, timestamp)

    def succeeded(self) -> bool:
        """Say whether the record is acknowledged."""
        return self._result.done and self._result.error is None

    def failed(self) -> bool:
        """Say whether the record was given up."""
        return self._result.error is not None

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged.

        Args:
            timeout: seconds; None for as long as it takes (``delivery.timeout.ms`` bounds that).

        Raises:
            KafkaTimeoutError: it is neither acknowledged nor given up by then; it is still under way.
            IllegalStateError: it was still under way when the producer was closed.
            KafkaError: why it was given up.
        """
        result = self._result
        if not result.done and not result.waiter.wait_until(result.is_done, timeout):
            raise KafkaTimeoutError(f"no acknowledgement from {result.topic_partition} after waiting {timeout} s")
        if result.error is not None:
            raise result.error
        value = self.value
        assert value is not None
        return value

    def add_callback(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call ``callback(*args, metadata, **kwargs)`` when the record is acknowledged."""

        def on_delivery(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
            if error is None:
                callback(*args, metadata, **kwargs)

        return self._add(on_delivery)

    def add_errback(self, errback: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call ``errback(*args, error, **kwargs)`` when the record is given up."""

        def on_delivery(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
            if error is not None:
                errback(*args, error, **kwargs)

        return self._add(on_delivery)

    def _add(self, on_delivery: DeliveryCallback) -> FutureRecordMetadata:
        self._result.callbacks.append((on_delivery, self))
        if self._result.done:
            self._result.run_callbacks()
        return self


class Chunk(NamedTuple):
    """Rows of a column append that share a batch: its records ``first`` and on."""

    result: ProduceRequestResult
    rows: npt.NDArray[np.int64]
    first: int


class ColumnsMetadata(NamedTuple):
    """Where the rows of a `send_batch` went: one item a row, in the rows' order."""

    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


class FutureColumnsMetadata:
    """Future of all the rows of one `send_batch`."""

    __slots__ = ("_chunks", "_rows", "_waiter")

    def __init__(self, rows: int, waiter: Waiter) -> None:
        self._rows = rows
        self._waiter = waiter
        self._chunks: list[Chunk] = []

    def add(self, chunk: Chunk) -> None:
        """Take in rows that have been appended."""
        self._chunks.append(chunk)

    @property
    def is_done(self) -> bool:
        """Whether every row is acknowledged or given up. Only changes when the producer polls."""
        return self._all_done()

    def _all_done(self) -> bool:
        return all(chunk.result.done for chunk in self._chunks)

    @property
    def exception(self) -> ShmaccumError | None:
        """Why the first rows that were given up were; None while there are none such."""
        return next((chunk.result.error for chunk in self._chunks if chunk.result.error is not None), None)

    def get(self, timeout: float | None = None) -> ColumnsMetadata:
        """Wait until all rows are acknowledged.

        Raises:
            KafkaTimeoutError: some are neither acknowledged nor given up after ``timeout`` seconds.
            KafkaError: why the first rows that were given up were; other rows may have been acknowledged.
        """
        if not self._all_done() and not self._waiter.wait_until(self._all_done, timeout):
            waiting = sum(len(chunk.rows) for chunk in self._chunks if not chunk.result.done)
            raise KafkaTimeoutError(f"no acknowledgement of {waiting} of {self._rows} rows after waiting {timeout} s")
        error = self.exception
        if error is not None:
            raise error
        partitions = np.empty(self._rows, np.int32)
        offsets = np.full(self._rows, -1, np.int64)
        for result, rows, first in self._chunks:
            partitions[rows] = result.topic_partition.partition
            if result.base_offset >= 0:
                offsets[rows] = result.base_offset + first + np.arange(len(rows))
        return ColumnsMetadata(partitions, offsets)


def error_of(kind: type[KafkaError], topic_partition: TopicPartition) -> KafkaError:
    """Make the error that a producer gets for its records in a batch that was given up."""
    what = (kind.__doc__ or kind.__name__).strip().splitlines()[0]
    return kind(f"{topic_partition}: {what}")
