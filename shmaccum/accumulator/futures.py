"""What `append` gives back: futures that resolve when their batch is done.

As in Kafka (``ProduceRequestResult``, ``FutureRecordMetadata``), one result object stands for a whole batch and
every record's future is that object and the record's place in it: completing a batch of a thousand records
resolves a thousand futures in one step. They live in the process that appended; the slab knows nothing of them.

A batch that had to be sent in pieces is done part by part, from its front to its end; every other one in one part.
"""

from __future__ import annotations

import logging
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

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


class Part(NamedTuple):
    """What became of some records of a batch, one behind the other."""

    first: int
    """The first of them."""
    base_offset: int
    """Its offset, or -1 where it is not known."""
    append_time_ms: int
    error: ShmaccumError | None


_ALL: Final = sys.maxsize
_first = itemgetter(0)


class ProduceRequestResult:
    """What became, or will become, of one batch to which this process contributed.

    Attributes:
        topic_partition: where the batch goes.
        waiter: who can wait for it.
        parts: what is known so far, in the records' order; nearly always one for the whole batch.
        told: the records before this one are done.
        callbacks: those that are to be called yet.
    """

    __slots__ = ("callbacks", "parts", "told", "topic_partition", "waiter")

    def __init__(self, topic_partition: TopicPartition, waiter: Waiter) -> None:
        self.topic_partition = topic_partition
        self.waiter = waiter
        self.parts: list[Part] = []
        self.told = 0
        self.callbacks: list[tuple[DeliveryCallback, FutureRecordMetadata]] = []

    @property
    def done(self) -> bool:
        """Whether all of the batch is done."""
        return self.told == _ALL

    def settle(self, part: Part, records: int) -> None:
        """Say what became of so many records, or of all that follow if 0; their callbacks are still to be run."""
        if part.first < self.told:
            return  # told twice
        self.parts.append(part)
        # Last: another thread that sees a record told finds its part.
        self.told = part.first + records if records else _ALL

    def part_of(self, index: int) -> Part:
        """Return what became of a record that is told."""
        return self.parts[bisect_right(self.parts, index, key=_first) - 1]

    def parts_between(self, first: int, stop: int) -> Iterator[tuple[int, int, Part]]:
        """Yield what became of records first..stop, as far as they are told: (first, stop, part) for each part."""
        told, parts = self.told, list(self.parts)
        ends = [*(part.first for part in parts[1:]), told]
        for part, end in zip(parts, ends, strict=False):
            if max(part.first, first) < min(end, stop):
                yield max(part.first, first), min(end, stop), part

    def run_callbacks(self) -> None:
        """Run the callbacks of the records that are done, each once. One that raises is logged, and harms nobody."""
        callbacks, self.callbacks = self.callbacks, []
        for callback, future in callbacks:
            if future.index < self.told:
                _call_back(callback, future)
            else:
                self.callbacks.append((callback, future))


def _call_back(callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
    """Run one callback of a record that is done."""
    error, metadata = future.outcome()
    try:
        callback(error, metadata)
    except Exception:
        logger.exception("a delivery callback for %s raised", future.topic_partition)


class FutureRecordMetadata:
    """Future of one record, with the methods of kafka-python's.

    Attributes:
        index: the record's place in its batch.
    """

    __slots__ = ("_result", "_timestamp", "index")

    def __init__(self, result: ProduceRequestResult, index: int, timestamp: int) -> None:
        self._result = result
        self.index = index
        self._timestamp = timestamp

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record goes."""
        return self._result.topic_partition

    @property
    def is_done(self) -> bool:
        """Whether the record is acknowledged or given up. Only changes when the producer polls."""
        return self.index < self._result.told

    @property
    def exception(self) -> ShmaccumError | None:
        """Why the record was given up; None while it is under way, and for good."""
        return self.outcome()[0]

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record went; None while it is under way, or if it was given up."""
        return self.outcome()[1]

    def outcome(self) -> tuple[ShmaccumError | None, RecordMetadata | None]:
        """Return `exception` and `value`."""
        result, index = self._result, self.index
        if index >= result.told:
            return None, None
        parts = result.parts
        first, base_offset, append_time_ms, error = parts[len(parts) - 1]
        if index < first:
            first, base_offset, append_time_ms, error = result.part_of(index)
        if error is not None:
            return error, None
        topic, partition = result.topic_partition
        offset = base_offset + index - first if base_offset >= 0 else -1
        timestamp = append_time_ms if append_time_ms >= 0 else self._timestamp
        return None, RecordMetadata(topic, partition, offset, timestamp)

    def succeeded(self) -> bool:
        """Say whether the record is acknowledged."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Say whether the record was given up."""
        return self.exception is not None

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged.

        Args:
            timeout: seconds; None for as long as it takes (``delivery.timeout.ms`` bounds that).

        Raises:
            KafkaTimeoutError: it is neither acknowledged nor given up by then; it is still under way.
            IllegalStateError: it was still under way when the producer was closed.
            SenderError: it is under way, but there was no sender any more, and none could be started.
            KafkaError: why it was given up.
        """
        result = self._result
        if self.index >= result.told and not result.waiter.wait_until(lambda: self.is_done, timeout):
            raise KafkaTimeoutError(f"no acknowledgement from {self.topic_partition} after waiting {timeout} s")
        error, value = self.outcome()
        if error is not None:
            raise error
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
        if self.is_done:
            self._result.run_callbacks()
        return self


class Chunk(NamedTuple):
    """Rows of a column append that share a batch: its records ``first`` and on."""

    result: ProduceRequestResult
    rows: npt.NDArray[np.int64]
    first: int

    @property
    def stop(self) -> int:
        """The record behind its last one."""
        return self.first + len(self.rows)

    @property
    def waiting(self) -> int:
        """Rows that are not done."""
        return max(0, self.stop - max(self.first, self.result.told))

    @property
    def error(self) -> ShmaccumError | None:
        """Why the first of its rows that were given up were."""
        if all(part.error is None for part in self.result.parts):
            return None
        parts = self.result.parts_between(self.first, self.stop)
        return next((part.error for _, _, part in parts if part.error is not None), None)


class ColumnsMetadata(NamedTuple):
    """Where the rows of a `send_batch` went: one item a row, in the rows' order."""

    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


class FutureColumnsMetadata:
    """Future of all the rows of one `send_batch`."""

    __slots__ = ("_chunks", "_done", "_rows", "_waiter")

    def __init__(self, rows: int, waiter: Waiter) -> None:
        self._rows = rows
        self._waiter = waiter
        self._chunks: list[Chunk] = []
        self._done = 0
        """So many chunks, from the first on, are known to be done; nearly always they are in this order."""

    def add(self, chunk: Chunk) -> None:
        """Take in rows that have been appended."""
        self._chunks.append(chunk)

    @property
    def is_done(self) -> bool:
        """Whether every row is acknowledged or given up. Only changes when the producer polls."""
        return self._all_done()

    def _all_done(self) -> bool:
        chunks, done = self._chunks, self._done
        while done < len(chunks) and chunks[done].result.told >= chunks[done].stop:
            done += 1
        self._done = done
        return done == len(chunks)

    @property
    def exception(self) -> ShmaccumError | None:
        """Why the first rows that were given up were; None while there are none such."""
        errors = (chunk.error for chunk in self._chunks)
        return next((error for error in errors if error is not None), None)

    def get(self, timeout: float | None = None) -> ColumnsMetadata:
        """Wait until all rows are acknowledged.

        Raises:
            KafkaTimeoutError: some are neither acknowledged nor given up after ``timeout`` seconds.
            KafkaError: why the first rows that were given up were; other rows may have been acknowledged.
        """
        if not self._all_done() and not self._waiter.wait_until(self._all_done, timeout):
            waiting = sum(chunk.waiting for chunk in self._chunks)
            raise KafkaTimeoutError(f"no acknowledgement of {waiting} of {self._rows} rows after waiting {timeout} s")
        error = self.exception
        if error is not None:
            raise error
        partitions = np.empty(self._rows, np.int32)
        offsets = np.full(self._rows, -1, np.int64)
        for result, rows, start in self._chunks:
            partitions[rows] = result.topic_partition.partition
            for first, stop, part in result.parts_between(start, start + len(rows)):
                if part.base_offset >= 0:
                    offset = part.base_offset - part.first
                    offsets[rows[first - start : stop - start]] = np.arange(offset + first, offset + stop)
        return ColumnsMetadata(partitions, offsets)


def error_of(kind: type[KafkaError], topic_partition: TopicPartition) -> KafkaError:
    """Make the error that a producer gets for its records in a batch that was given up."""
    return kind(f"{topic_partition}: {kind.meaning()}")
