"""What every way to encode columns has in common: the bodies of a column of records, and the batches that they become.

A record's body does not depend on where the record goes. So it is the bodies that are put in the order of their
partitions and laid out over batches; how they are kept until they are encoded is each way's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shmaccum.record.varint import size_of_varint


class ReadyBatches(Protocol):
    """The records of some batches, ready to be written to where they belong."""

    @property
    def sizes(self) -> list[int]:
        """Bytes of each batch's records."""

    @property
    def largest(self) -> list[int]:
        """Bytes in the largest record of each batch."""

    def write(self, memory: memoryview, places: list[int], first: int = 0) -> None:
        """Write the records of batches.

        Args:
            memory: to write to.
            places: where in it the records of each of these batches begin.
            first: the number of the first of these batches.
        """

    def records(self, number: int) -> memoryview:
        """Return the records of a batch in memory that is nobody else's."""


class EncodedBatches(NamedTuple):
    """`ReadyBatches` whose records are there already: those of batch ``i`` are ``data[bounds[i]:bounds[i + 1]]``."""

    data: memoryview
    """Records back to back. As long as it lives, so does the buffer that it shows."""
    bounds: list[int]
    """In bytes; one more than there are batches."""
    largest: list[int]

    @property
    def sizes(self) -> list[int]:
        """Bytes of each batch's records."""
        return [end - begin for begin, end in pairwise(self.bounds)]

    def write(self, memory: memoryview, places: list[int], first: int = 0) -> None:
        """Write the records of batches, as `ReadyBatches.write` says."""
        for number, place in enumerate(places, first):
            records = self.records(number)
            memory[place : place + len(records)] = records

    def records(self, number: int) -> memoryview:
        """Return the records of a batch."""
        return self.data[self.bounds[number] : self.bounds[number + 1]]


class ColumnBodies(ABC):
    """The bodies of a column of records.

    Attributes:
        body_sizes: bytes of each body.
    """

    body_sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.body_sizes)

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return the bodies of ``rows``, in that order: grouped by partition, for example."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Self:
        """Return the bodies of rows ``start`` to ``stop``, without copying them."""

    @abstractmethod
    def overhead_max(self, spread_ms: int, room: int) -> int:
        """Return the most bytes that any of these records takes besides its body.

        Args:
            spread_ms: most milliseconds between a record's timestamp and its batch's base timestamp.
            room: bytes that a batch has for records.
        """

    def fitting(self, overhead: int, room: int) -> int:
        """Return how many records, from the first on, surely fit into so many bytes.

        Args:
            overhead: what each may take besides its body, as `overhead_max` says.
            room: bytes.
        """
        sizes = self.body_sizes[: room // overhead + 1] + overhead
        return int(np.cumsum(sizes).searchsorted(room, "right"))

    def batch_starts(self, first: int, overhead: int, room: int) -> list[int]:
        """Lay records out over batches; return the first record of each.

        A record for which a whole batch has no room gets one of its own.

        Args:
            first: the first record.
            overhead: what each may take besides its body, as `overhead_max` says.
            room: bytes that a batch has for records.
        """
        ends = np.cumsum(self.body_sizes + overhead)
        starts, begin = [], int(ends[first - 1]) if first else 0
        while first < len(ends):
            starts.append(first)
            first = max(first + 1, int(ends.searchsorted(begin + room, "right")))
            begin = int(ends[first - 1])
        return starts

    @abstractmethod
    def encode(
        self,
        starts: Sequence[int],
        stop: int,
        timestamps: NDArray[np.int64],
        *,
        first_offset: int = 0,
        base_timestamp: int | None = None,
    ) -> ReadyBatches:
        """Encode the records of rows ``starts[0]`` to ``stop`` for the batches that they go to.

        Args:
            starts: first row of each batch, in increasing order.
            stop: the row behind the last.
            timestamps: of all rows, milliseconds since the epoch.
            first_offset: place of the first record in the first batch; the others begin with their first record.
            base_timestamp: base timestamp of the first batch; by default that of the first record, as in the others.
        """


def overhead_max_v2(body_sizes: NDArray[np.int64], spread_ms: int, room: int) -> int:
    """Return `ColumnBodies.overhead_max` of message format 2."""
    if not len(body_sizes):
        return 0
    offset_delta = room // int(body_sizes.min())  # more than there can be: a body has three bytes at least
    deltas = 1 + size_of_varint(spread_ms) + size_of_varint(offset_delta)
    return deltas + size_of_varint(deltas + int(body_sizes.max()))


def places_in_batches(starts: Sequence[int], stop: int, first_offset: int) -> NDArray[np.int64]:
    """Return the offset delta of each record; the arguments are those of `ColumnBodies.encode`."""
    counts = np.diff([*starts, stop])
    deltas: NDArray[np.int64] = np.arange(starts[0], stop) - np.repeat(starts, counts)
    deltas[: counts[0]] += first_offset
    return deltas


def base_timestamps(
    starts: Sequence[int], stop: int, timestamps: NDArray[np.int64], base_timestamp: int | None
) -> NDArray[np.int64]:
    """Return the base timestamp of each record's batch; the arguments are those of `ColumnBodies.encode`."""
    bases = timestamps[list(starts)]
    if base_timestamp is not None:
        bases[0] = base_timestamp
    each: NDArray[np.int64] = np.repeat(bases, np.diff([*starts, stop]))
    return each


def encoded_batches(data: memoryview, offsets: NDArray[np.int64], starts: Sequence[int]) -> EncodedBatches:
    """Return records as they go to batches.

    Args:
        data: the records.
        offsets: where each of them begins, and where the last one ends.
        starts: first row of each batch; the first of all is the first record's.
    """
    firsts = np.array(starts) - starts[0]
    bounds = offsets[np.append(firsts, len(offsets) - 1)]
    return EncodedBatches(data, bounds.tolist(), np.maximum.reduceat(np.diff(offsets), firsts).tolist())
