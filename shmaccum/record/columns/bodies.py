"""Bodies of a column of records, and their layout in batches: common to all encoders.

A record's body does not depend on where the record goes. So bodies are sorted by partition and laid out over batches;
each encoder keeps them in its own form until it encodes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shmaccum.record.v2.varint import size_of_varint


class ReadyBatches(Protocol):
    """The records of some batches, ready to be written into the batches' memory."""

    @property
    def cuts(self) -> list[int]:
        """The first record of each batch, and the one after the last."""

    @property
    def sizes(self) -> list[int]:
        """Bytes of each batch's records."""

    @property
    def largest(self) -> list[int]:
        """Bytes in the largest record of each batch."""

    @property
    def base_timestamps(self) -> list[int]:
        """The base timestamp of each batch."""

    @property
    def max_timestamps(self) -> list[int]:
        """The largest timestamp of each batch's records."""

    def write(self, memory: memoryview, places: list[int], first: int = 0) -> None:
        """Write the records of batches.

        Args:
            memory: to write to.
            places: where the records of each of these batches begin in it.
            first: the number of the first of these batches.
        """

    def records(self, number: int) -> memoryview:
        """Return the records of a batch in private memory."""


class EncodedBatches(NamedTuple):
    """`ReadyBatches` that are already encoded: batch ``i`` is ``data[bounds[i]:bounds[i + 1]]``."""

    data: memoryview
    """Records back to back. It keeps the buffer behind it alive."""
    bounds: list[int]
    """In bytes; one more than batches."""
    largest: list[int]
    cuts: list[int]
    base_timestamps: list[int]
    max_timestamps: list[int]

    @property
    def sizes(self) -> list[int]:
        """Bytes of each batch's records."""
        return [end - begin for begin, end in pairwise(self.bounds)]

    def write(self, memory: memoryview, places: list[int], first: int = 0) -> None:
        """Write the records of batches, as in `ReadyBatches.write`."""
        for number, place in enumerate(places, first):
            records = self.records(number)
            memory[place : place + len(records)] = records

    def records(self, number: int) -> memoryview:
        """Return the records of a batch."""
        return self.data[self.bounds[number] : self.bounds[number + 1]]


class ColumnBodies(ABC):
    """The bodies of a column of records, with the other fields of each record that do not depend on its batch.

    Args:
        body_sizes: bytes of each body.
        timestamps: of each record, milliseconds since the epoch; or one number for all.

    Attributes:
        body_sizes, timestamps: the same, one for each.
        rows: the number of each record in the original column.
    """

    def __init__(self, body_sizes: NDArray[np.int64], timestamps: NDArray[np.int64] | int) -> None:
        self.body_sizes = body_sizes
        if isinstance(timestamps, int):  # an array of one number with stride 0: no memory for each record
            timestamps = np.ndarray((len(body_sizes),), np.int64, np.array([timestamps]), strides=(0,))
        self.timestamps = timestamps
        self.rows = np.arange(len(body_sizes))

    def __len__(self) -> int:
        return len(self.body_sizes)

    @abstractmethod
    def take(self, order: NDArray[np.int64]) -> Self:
        """Return the bodies with these numbers, in this order: grouped by partition, for example."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Self:
        """Return the bodies ``start`` to ``stop``, without a copy."""

    def _of(self, chosen: NDArray[np.int64] | slice) -> Self:
        """Return a copy with the chosen records in all attributes that every kind of bodies has."""
        bodies = object.__new__(type(self))  # like `copy`, but without the pickle protocol
        bodies.__dict__.update(self.__dict__)
        bodies.body_sizes, bodies.timestamps = self.body_sizes[chosen], self.timestamps[chosen]
        bodies.rows = self.rows[chosen]
        return bodies

    @abstractmethod
    def add_to(self, room: int, first_offset: int, base_timestamp: int) -> ReadyBatches | None:
        """Prepare the first records for a batch that already has some; return None if none fits.

        Args:
            room: free bytes of the batch.
            first_offset: number of its records.
            base_timestamp: of the batch.
        """

    @abstractmethod
    def lay_out(self, first: int, room: int, most: int) -> Iterator[ReadyBatches]:
        """Lay records out over new batches, and prepare these, some at a time.

        A record that is larger than a whole batch gets a batch of its own.

        Args:
            first: the first record.
            room: bytes for records in a batch.
            most: most batches at a time.
        """


class CopiedBodies(ColumnBodies):
    """Bodies that are encoded into private memory first, and then copied into their batches.

    The layout uses the largest size that a record can have.
    """

    @abstractmethod
    def overhead_max(self, spread_ms: int, offset_max: int) -> int:
        """Return the most bytes that any of these records takes in addition to its body.

        Args:
            spread_ms: most milliseconds between a record's timestamp and its batch's base timestamp.
            offset_max: largest place of a record in its batch.
        """

    def add_to(self, room: int, first_offset: int, base_timestamp: int) -> EncodedBatches | None:
        """Encode the first records for a batch that already has some, as in `ColumnBodies.add_to`."""
        least = int(self.body_sizes.min())
        earliest, latest = int(self.timestamps.min()), int(self.timestamps.max())
        spread_ms = max(latest, base_timestamp) - min(earliest, base_timestamp)
        overhead = self.overhead_max(spread_ms, first_offset + room // least)
        sizes = self.body_sizes[: room // (least + overhead) + 1] + overhead
        count = int(np.cumsum(sizes).searchsorted(room, "right"))
        return self.encode([0], count, first_offset=first_offset, base_timestamp=base_timestamp) if count else None

    def lay_out(self, first: int, room: int, most: int) -> Iterator[EncodedBatches]:
        """Encode records for new batches, as in `ColumnBodies.lay_out`."""
        if first == len(self):
            return
        spread_ms = int(self.timestamps.max()) - int(self.timestamps.min())
        ends = np.cumsum(self.body_sizes + self.overhead_max(spread_ms, room // int(self.body_sizes.min())))
        begin = int(ends[first - 1]) if first else 0
        while first < len(ends):
            starts: list[int] = []
            while first < len(ends) and len(starts) < most:
                starts.append(first)
                first = max(first + 1, int(ends.searchsorted(begin + room, "right")))
                begin = int(ends[first - 1])
            yield self.encode(starts, first)

    def encode(
        self, starts: Sequence[int], stop: int, *, first_offset: int = 0, base_timestamp: int | None = None
    ) -> EncodedBatches:
        """Encode records ``starts[0]`` to ``stop`` for their batches.

        Args:
            starts: first record of each batch, in increasing order.
            stop: the record after the last.
            first_offset: place of the first record in the first batch; in the other batches it is 0.
            base_timestamp: base timestamp of the first batch; by default its first record's, as in the others.
        """
        bases = self.timestamps[list(starts)]
        if base_timestamp is not None:
            bases[0] = base_timestamp
        data, bounds, largest = self._encode(starts, stop, first_offset, bases)
        latest = np.maximum.reduceat(self.timestamps[starts[0] : stop], np.array(starts) - starts[0])
        return EncodedBatches(data, bounds, largest, [*starts, stop], bases.tolist(), latest.tolist())

    @abstractmethod
    def _encode(
        self, starts: Sequence[int], stop: int, first_offset: int, bases: NDArray[np.int64]
    ) -> tuple[memoryview, list[int], list[int]]:
        """Return the data, bounds and largest records of `EncodedBatches`; ``bases``: each batch's base timestamp."""


def overhead_max_v2(largest: int, spread_ms: int, offset_max: int) -> int:
    """Return `CopiedBodies.overhead_max` for message format 2 and bodies of at most ``largest`` bytes."""
    deltas = 1 + size_of_varint(spread_ms) + size_of_varint(offset_max)
    return deltas + size_of_varint(deltas + largest)


def places_in_batches(starts: Sequence[int], stop: int, first_offset: int) -> NDArray[np.int64]:
    """Return the offset delta of each record; the arguments are those of `CopiedBodies.encode`."""
    counts = np.diff([*starts, stop])
    deltas: NDArray[np.int64] = np.arange(starts[0], stop) - np.repeat(starts, counts)
    deltas[: counts[0]] += first_offset
    return deltas


def bounds_and_largest(offsets: NDArray[np.int64], starts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the bounds of batches and the largest record of each batch, in bytes.

    Args:
        offsets: where each record begins, and where the last one ends.
        starts: first record of each batch; ``offsets`` begins with the first one.
    """
    firsts = np.array(starts) - starts[0]
    bounds = offsets[np.append(firsts, len(offsets) - 1)]
    return bounds.tolist(), np.maximum.reduceat(np.diff(offsets), firsts).tolist()
