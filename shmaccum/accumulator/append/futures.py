"""What the futures of appended rows and records share: who waits for them, and the future of a `Producer.send_batch`.

A record's future, and the result of a batch, which resolves all futures of its records at once, are in
``core/futures.pxi``. Futures are private to the process that appended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shmaccum._core import ProduceRequestResult, Rows
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


def _pieces(rows: Rows) -> Iterator[tuple[ProduceRequestResult, npt.NDArray[np.int64], int]]:
    """Yield the result of each batch that rows are in, their numbers, and the index of the first one's record in it."""
    for result, (start, stop), first in zip(rows.results, pairwise(rows.cuts), rows.firsts, strict=True):
        yield result, np.arange(start, stop) if rows.order is None else rows.order[start:stop], first


class ColumnsMetadata(NamedTuple):
    """Where the rows of a `send_batch` were stored: one item per row, in the rows' order."""

    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


class FutureColumnsMetadata:
    """Future of all rows of one `send_batch`, or of those that it had accepted before an error."""

    __slots__ = ("_count", "_done", "_rows", "_waiter")

    def __init__(self, rows: int, waiter: PendingBatches) -> None:
        self._count = rows
        self._waiter = waiter
        self._rows: list[Rows] = []
        self._done = 0
        """How many of these, from the first on, are known to be complete; they nearly always complete in this order."""

    def add(self, rows: Rows) -> None:
        """Add rows that are appended now."""
        self._rows.append(rows)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The numbers of its rows in the batch: all, unless it is the `ShmaccumError.accepted` of an error."""
        return np.sort(np.concatenate([np.empty(0, np.int64), *(rows for _, rows, _ in self._by_batch())]))

    def _by_batch(self) -> Iterator[tuple[ProduceRequestResult, npt.NDArray[np.int64], int]]:
        return chain.from_iterable(map(_pieces, self._rows))

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Add the rows accepted so far to errors of the block, as `ShmaccumError.accepted`."""
        try:
            yield
        except ShmaccumError as error:
            error.accepted = self if any(rows.results for rows in self._rows) else None
            raise

    @property
    def is_done(self) -> bool:
        """Whether every row is acknowledged or has failed. Only changes when the producer polls."""
        return self.done()

    def done(self) -> bool:
        """Return `is_done`."""
        rows, done = self._rows, self._done
        while done < len(rows) and rows[done].is_done():
            done += 1
        self._done = done
        return done == len(rows)

    def cancelled(self) -> bool:
        """Return False: accepted rows cannot be recalled."""
        return False

    @property
    def error(self) -> ShmaccumError | None:
        """Why the first failed row failed; None if no row has so far."""
        for result, rows, first in self._by_batch():
            if result.earlier is not None or (result.last is not None and result.last.failure is not None):
                for _, _, part in result.parts_between(first, first + len(rows)):
                    if part.failure is not None:
                        return part.failure()
        return None

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
            waiting = sum(
                max(0, first + len(rows) - max(first, result.completed)) for result, rows, first in self._by_batch()
            )
            raise ResultTimeoutError(
                f"no acknowledgement of {waiting} of {self._count} rows after waiting {timeout} s"
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
        partitions = np.full(self._count, -1, np.int32)
        offsets = np.full(self._count, -1, np.int64)
        for result, rows, start in self._by_batch():
            partitions[rows] = result.topic_partition.partition
            for first, stop, part in result.parts_between(start, start + len(rows)):
                if part.base_offset >= 0:
                    offset = part.base_offset - part.first
                    offsets[rows[first - start : stop - start]] = np.arange(offset + first, offset + stop)
        return ColumnsMetadata(partitions, offsets)
