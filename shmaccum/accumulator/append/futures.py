"""What the futures of appended rows and records share: who waits for them, and the future of a `Producer.send_batch`.

A record's future, and the result of a batch, which resolves all futures of its records at once, are in
``core/futures.pxi``. Futures are private to the process that appended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shmaccum._core import ProduceRequestResult
from shmaccum.cluster import RecordMetadata
from shmaccum.errors import ResultTimeoutError, ShmaccumError
from shmaccum.later import np

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmaccum.accumulator.append.pending_batches import PendingBatches

DeliveryCallback = Callable[[ShmaccumError | None, RecordMetadata | None], Any]
"""Called with (error, None) or (None, metadata), in the process that appended."""
NO_SIZES: Final = 0
"""The sizes of a null key and a null value."""


def sizes_word(key: int | None, value: int | None) -> int:
    """Return the sizes of a serialized key and value in one number, as `FutureRecordMetadata` has them."""
    return (0 if key is None else key + 1) << 32 | (0 if value is None else value + 1)


class Chunk(NamedTuple):
    """Rows of a column append that are in consecutive batches."""

    results: list[ProduceRequestResult]
    rows: npt.NDArray[np.int64]
    """Their numbers in the whole append, possibly among others."""
    cuts: list[int]
    """Where in ``rows`` each batch begins, and where the last one ends."""
    first: int
    """Index of their first record in the first batch; in the others it is 0."""

    def is_done(self) -> bool:
        """Return whether all of its rows are complete."""
        cuts, first = self.cuts, self.first
        for number, result in enumerate(self.results):
            if result.completed < first + cuts[number + 1] - cuts[number]:
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
        return sum(max(0, first + len(rows) - max(first, result.completed)) for result, rows, first in self.by_batch())

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

    def __init__(self, rows: int, waiter: PendingBatches) -> None:
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
        return self.done()

    def done(self) -> bool:
        """Return `is_done`."""
        chunks, done = self._chunks, self._done
        while done < len(chunks) and chunks[done].is_done():
            done += 1
        self._done = done
        return done == len(chunks)

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
        """Return the result: `get`."""
        return self.get(timeout)

    def __await__(self) -> Generator[Any, None, ColumnsMetadata]:
        """Wait in the running event loop; return and raise as `get`."""
        if not self.done():
            yield from self._waiter.until(self.done)
        return self.get(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done() and not self._waiter.wait_until(self.done, timeout):
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
