"""Futures of appended records, which resolve when their batch completes.

As in Kafka (``ProduceRequestResult``, ``FutureRecordMetadata``), one result object stands for a whole batch. A record's
future is that object and the record's index in the batch, so completing a batch resolves a thousand futures at once.
Futures are private to the process that appended; the slab has no word of them.

A split batch completes part by part, from its front to its end; every other batch in one part.

No object reachable from a future leads back to a future. Callbacks live elsewhere (`shmaccum._core.Callbacks`), the
waiter is a weak reference, and each caller gets a new error, because a traceback leads to all that its frames hold. So
no future is part of a cycle, and the garbage collector skips futures, however many are kept.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from shmaccum._core import RecordFuture
from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.errors import IllegalStateError, ResultTimeoutError, ShmaccumError
from shmaccum.later import np

if TYPE_CHECKING:
    import numpy.typing as npt

DeliveryCallback = Callable[[ShmaccumError | None, RecordMetadata | None], Any]
"""Called with (error, None) or (None, metadata), in the process that appended."""


NO_SIZES: Final = 0
"""The sizes of a null key and a null value."""

_KEY_SHIFT: Final = 32
_VALUE_MASK: Final = 0xFFFF_FFFF


def sizes_word(key: int | None, value: int | None) -> int:
    """Return the sizes of a serialized key and value in one number, as `FutureRecordMetadata` has them."""
    return (0 if key is None else key + 1) << _KEY_SHIFT | (0 if value is None else value + 1)


class Waiter(Protocol):
    """An object that can wait for completions."""

    def wait_until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until the condition holds; return False if the time runs out first."""

    def call_back(self, callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
        """Call a callback when its record is complete; at once if it is."""

    def call_when_done(self, function: Callable[[FutureRecordMetadata], Any], future: FutureRecordMetadata) -> None:
        """Call ``function(future)`` when its record is complete; in the event loop of this thread, if one runs."""

    def until_complete(self, future: FutureRecordMetadata) -> Generator[Any, None, None]:
        """Wait in the running event loop until a record is complete."""

    def until(self, condition: Callable[[], bool]) -> Generator[Any, None, None]:
        """Wait in the running event loop until a condition holds that completions change."""

    def trouble(self) -> str:
        """Return, to append to an error, what keeps the sender from sending, as far as is known; often ""."""


class Part:
    """Outcome of consecutive records of a batch.

    Attributes:
        first: index of the first of them.
        base_offset: its offset, or -1 where it is not known.
        append_time_ms: the broker's log append time, -1 where the log has the records' own time.
        failure: makes the error that they failed with; None if they are stored.
    """

    __slots__ = ("append_time_ms", "base_offset", "failure", "first")

    def __init__(
        self, first: int, base_offset: int, append_time_ms: int, failure: Callable[[], ShmaccumError] | None
    ) -> None:
        self.first = first
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms
        self.failure = failure


_ALL: Final = sys.maxsize
_first = attrgetter("first")


class ProduceRequestResult:
    """The outcome, now or later, of one batch to which this process contributed.

    Args:
        topic_partition: where the batch goes.
        batch: its id.
        waiter: weak reference to the object that waits for it.
        lane: that it is in, as its entry + 1; 0 outside of transactions.

    Attributes:
        told: the records before this index are complete.
        last: outcome of the last of these; nearly always of the whole batch.
        earlier: outcomes of those before, in order.
    """

    __slots__ = ("_waiter", "batch", "earlier", "lane", "last", "told", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, batch: int, waiter: Callable[[], Waiter | None], lane: int = 0
    ) -> None:
        self.topic_partition = topic_partition
        self.batch = batch
        self.lane = lane
        self._waiter = waiter
        self.told = 0
        self.last: Part | None = None
        self.earlier: list[Part] | None = None

    @property
    def done(self) -> bool:
        """Whether all of the batch is complete."""
        return self.told == _ALL

    @property
    def waiter(self) -> Waiter:
        """The object that waits for it.

        Raises:
            IllegalStateError: the producer no longer exists.
        """
        waiter = self._waiter()
        if waiter is None:
            raise IllegalStateError("the producer no longer exists: it cannot wait for this record, nor call back")
        return waiter

    def settle(self, part: Part, records: int) -> None:
        """Store the outcome of ``records`` records, or of all that follow if 0; callbacks run later."""
        if part.first < self.told:
            return  # a duplicate, from a sender that took over
        # In this order: a thread that sees a record complete must find its part.
        if self.last is not None:
            if self.earlier is None:
                self.earlier = []
            self.earlier.append(self.last)
        self.last = part
        self.told = part.first + records if records else _ALL

    def part_of(self, index: int) -> Part:
        """Return the outcome of a completed record."""
        part = self.last
        assert part is not None
        if index < part.first:
            earlier = self.earlier
            assert earlier is not None
            part = earlier[bisect_right(earlier, index, key=_first) - 1]
        return part

    def parts(self) -> list[Part]:
        """Return the outcomes so far, in the records' order."""
        return [] if self.last is None else [*(self.earlier or ()), self.last]

    def parts_between(self, first: int, stop: int) -> Iterator[tuple[int, int, Part]]:
        """Yield the outcomes of the completed ones among records first..stop: (first, stop, part) for each part."""
        told, parts = self.told, self.parts()
        ends = [*(part.first for part in parts[1:]), told]
        for part, end in zip(parts, ends, strict=False):
            if max(part.first, first) < min(end, stop):
                yield max(part.first, first), min(end, stop), part


class FutureRecordMetadata(RecordFuture):
    """Future of one record; asyncio code can ``await`` it.

    It has the methods of `concurrent.futures.Future` and of kafka-python's futures. An accepted record
    cannot be recalled: no future can be cancelled, and a cancelled ``await`` only stops waiting.

    Args:
        result: of its batch.
        index: the record's index in its batch.
        timestamp: the record's own.
        sizes: bytes of the serialized key, plus 1, in the upper 32 bits, and of the value in the lower; 0 for a null.
    """

    __slots__ = ()

    batch_result: ProduceRequestResult

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record goes."""
        return self.batch_result.topic_partition

    @property
    def batch(self) -> int:
        """The id of its batch."""
        return self.batch_result.batch

    @property
    def is_done(self) -> bool:
        """Whether the record is acknowledged or has failed. Only changes when the producer polls."""
        return self.index < self.batch_result.told

    @property
    def value(self) -> RecordMetadata | None:
        """Where the record was stored; None while it is pending, or if it failed."""
        return self.outcome()[1]

    def _part(self) -> Part | None:
        """Return the part with its outcome; None while it is pending."""
        result = self.batch_result
        return result.part_of(self.index) if self.index < result.told else None

    def outcome(self) -> tuple[ShmaccumError | None, RecordMetadata | None]:
        """Return `exception` and `value`."""
        part = self._part()
        if part is None:
            return None, None
        if part.failure is not None:
            return part.failure(), None
        topic, partition = self.batch_result.topic_partition
        offset = part.base_offset + self.index - part.first if part.base_offset >= 0 else -1
        timestamp = part.append_time_ms if part.append_time_ms >= 0 else self.timestamp
        key_size, value_size = (self.sizes >> _KEY_SHIFT) - 1, (self.sizes & _VALUE_MASK) - 1
        # Bypasses its constructor: that would be one more Python call per record.
        return None, tuple.__new__(RecordMetadata, (topic, partition, offset, timestamp, key_size, value_size))

    def succeeded(self) -> bool:
        """Return whether the record is acknowledged."""
        part = self._part()
        return part is not None and part.failure is None

    def failed(self) -> bool:
        """Return whether the record failed."""
        part = self._part()
        return part is not None and part.failure is not None

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged.

        Args:
            timeout: seconds; None for no limit (``delivery.timeout.ms`` bounds the wait).

        Raises:
            ResultTimeoutError: the time ran out; the record is still pending.
            IllegalStateError: the producer was closed while the record was pending.
            SenderError: the record is pending, but there is no sender, and none could be started.
            KafkaError: why the record failed.
        """
        self._wait(timeout)
        error, value = self.outcome()
        if error is not None:
            raise error
        assert value is not None
        return value

    def _wait(self, timeout: float | None) -> None:
        result = self.batch_result
        if self.index >= result.told and not result.waiter.wait_until(lambda: self.is_done, timeout):
            raise ResultTimeoutError(
                f"no acknowledgement from {self.topic_partition} after waiting {timeout} s{result.waiter.trouble()}"
            )

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Do as `get`."""
        return self.get(timeout)

    def exception(self, timeout: float | None = None) -> ShmaccumError | None:
        """Wait until the record is complete; return why it failed, None if it is acknowledged.

        Each call returns a new error. Errors about the wait are raised, as by `get`.
        """
        self._wait(timeout)
        return self.outcome()[0]

    def done(self) -> bool:
        """Return `is_done`."""
        return self.is_done

    def running(self) -> bool:
        """Return whether the record is pending."""
        return not self.is_done

    def cancel(self) -> bool:
        """Return False: an accepted record cannot be recalled."""
        return False

    def cancelled(self) -> bool:
        """Return False, see `cancel`."""
        return False

    def add_done_callback(self, function: Callable[[FutureRecordMetadata], Any]) -> None:
        """Call ``function(future)`` when the record is complete; at once if it is.

        It runs in the thread that next sends, polls, flushes or waits. If an event loop runs in the calling thread, it
        runs in that loop, soon, with no further call of this package.
        """
        self.batch_result.waiter.call_when_done(function, self)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Wait in the running event loop; return and raise as `get`."""
        if not self.is_done:
            yield from self.batch_result.waiter.until_complete(self)
        return self.get(0)

    def add_callback(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call ``callback(*args, metadata, **kwargs)`` when the record is acknowledged."""

        def on_delivery(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
            if error is None:
                callback(*args, metadata, **kwargs)

        return self._add(on_delivery)

    def add_errback(self, errback: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call ``errback(*args, error, **kwargs)`` when the record fails."""

        def on_delivery(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
            if error is not None:
                errback(*args, error, **kwargs)

        return self._add(on_delivery)

    def _add(self, on_delivery: DeliveryCallback) -> FutureRecordMetadata:
        self.batch_result.waiter.call_back(on_delivery, self)
        return self


class Chunk:
    """Rows of a column append that are in consecutive batches.

    Attributes:
        results: of the batches.
        rows: their numbers in the whole append, possibly among others.
        cuts: where in ``rows`` each batch begins, and where the last one ends.
        first: index of their first record in the first batch; in the others it is 0.
    """

    __slots__ = ("cuts", "first", "results", "rows")

    def __init__(
        self, results: list[ProduceRequestResult], rows: npt.NDArray[np.int64], cuts: list[int], first: int
    ) -> None:
        self.results = results
        self.rows = rows
        self.cuts = cuts
        self.first = first

    def is_done(self) -> bool:
        """Return whether all of its rows are complete."""
        cuts, first = self.cuts, self.first
        for number, result in enumerate(self.results):
            if result.told < first + cuts[number + 1] - cuts[number]:
                return False
            first = 0
        return True

    def by_batch(self) -> Iterator[tuple[ProduceRequestResult, npt.NDArray[np.int64], int]]:
        """Yield each batch's result, its rows, and the index of the first of their records in it."""
        first = self.first
        for result, (start, stop) in zip(self.results, pairwise(self.cuts), strict=True):
            yield result, self.rows[start:stop], first
            first = 0

    @property
    def waiting(self) -> int:
        """Number of rows that are not complete."""
        return sum(max(0, first + len(rows) - max(first, result.told)) for result, rows, first in self.by_batch())

    @property
    def error(self) -> ShmaccumError | None:
        """Why the first failed row failed; None if no row has."""
        for result, rows, first in self.by_batch():
            if result.earlier is not None or (result.last is not None and result.last.failure is not None):
                for _, _, part in result.parts_between(first, first + len(rows)):
                    if part.failure is not None:
                        return part.failure()
        return None


class ColumnsMetadata(NamedTuple):
    """Where the rows of a `send_batch` were stored: one item per row, in the rows' order."""

    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


class FutureColumnsMetadata:
    """Future of all rows of one `send_batch`, or of those that it had accepted before an error."""

    __slots__ = ("_chunks", "_done", "_rows", "_waiter")

    def __init__(self, rows: int, waiter: Waiter) -> None:
        self._rows = rows
        self._waiter = waiter
        self._chunks: list[Chunk] = []
        self._done = 0
        """Number of chunks, from the first on, known to be complete; they nearly always complete in this order."""

    def add(self, chunk: Chunk) -> None:
        """Add rows that have been appended."""
        self._chunks.append(chunk)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The numbers of its rows in the batch: all, unless it is the `ShmaccumError.accepted` of an error."""
        return np.sort(np.concatenate([np.empty(0, np.int64), *(rows for _, rows, _ in self._by_batch())]))

    def _by_batch(self) -> Iterator[tuple[ProduceRequestResult, npt.NDArray[np.int64], int]]:
        return chain.from_iterable(chunk.by_batch() for chunk in self._chunks)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Add the rows accepted so far to errors of the block, as `ShmaccumError.accepted`."""
        try:
            yield
        except ShmaccumError as error:
            error.accepted = self if self._chunks else None
            raise

    @property
    def is_done(self) -> bool:
        """Whether every row is acknowledged or has failed. Only changes when the producer polls."""
        return self._all_done()

    def _all_done(self) -> bool:
        chunks, done = self._chunks, self._done
        while done < len(chunks) and chunks[done].is_done():
            done += 1
        self._done = done
        return done == len(chunks)

    def done(self) -> bool:
        """Return `is_done`."""
        return self._all_done()

    def cancelled(self) -> bool:
        """Return False: accepted rows cannot be recalled."""
        return False

    @property
    def error(self) -> ShmaccumError | None:
        """Why the first failed row failed; None if no row has so far."""
        errors = (chunk.error for chunk in self._chunks)
        return next((error for error in errors if error is not None), None)

    def exception(self, timeout: float | None = None) -> ShmaccumError | None:
        """Wait until all rows are complete; return why the first failed row failed, None if all are acknowledged."""
        self._wait(timeout)
        return self.error

    def result(self, timeout: float | None = None) -> ColumnsMetadata:
        """Do as `get`."""
        return self.get(timeout)

    def __await__(self) -> Generator[Any, None, ColumnsMetadata]:
        """Wait in the running event loop; return and raise as `get`."""
        if not self._all_done():
            yield from self._waiter.until(self._all_done)
        return self.get(0)

    def _wait(self, timeout: float | None) -> None:
        if not self._all_done() and not self._waiter.wait_until(self._all_done, timeout):
            waiting = sum(chunk.waiting for chunk in self._chunks)
            raise ResultTimeoutError(
                f"no acknowledgement of {waiting} of {self._rows} rows after waiting {timeout} s"
                f"{self._waiter.trouble()}"
            )

    def get(self, timeout: float | None = None) -> ColumnsMetadata:
        """Wait until all rows are acknowledged.

        Returns:
            Where they are. A row that is not of this future, since an error kept it out, is in partition -1.

        Raises:
            ResultTimeoutError: some are still pending after ``timeout`` seconds.
            KafkaError: why the first failed row failed; other rows may be acknowledged.
        """
        self._wait(timeout)
        error = self.error
        if error is not None:
            raise error
        partitions = np.full(self._rows, -1, np.int32)
        offsets = np.full(self._rows, -1, np.int64)
        for result, rows, start in self._by_batch():
            partitions[rows] = result.topic_partition.partition
            for first, stop, part in result.parts_between(start, start + len(rows)):
                if part.base_offset >= 0:
                    offset = part.base_offset - part.first
                    offsets[rows[first - start : stop - start]] = np.arange(offset + first, offset + stop)
        return ColumnsMetadata(partitions, offsets)
