"""Encodes records of one size in message format 2: numpy lays out whole batches.

It needs keys of one length, values of one length, no nulls, no headers and one timestamp. Then records of a batch
differ in size only by their offset deltas. So all batches with the same number of records have the same layout, and
one strided copy for each field fills that field in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Final, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shmaccum.record.columns.arrow import offsets_and_data
from shmaccum.record.columns.bodies import CopiedBodies, overhead_max_v2
from shmaccum.record.v2.varint import NULL, encode_varint, encode_varints, size_of_varint

Cells: TypeAlias = NDArray[np.void]
"""Items of equal size."""

_ATTRIBUTES: Final = b"\0"
_NO_HEADERS: Final = b"\0"
_HEADS: Final = 64
"""Most kinds of records whose heads are cached. Full batches need two and use them again and again; each timestamp
delta of records that are added to a batch later needs two more."""


class _Shape(NamedTuple):
    """All that the layout of a batch's records depends on, except their bodies."""

    records: int
    first_offset: int
    """Offset delta of the first record."""
    timestamp_delta: int
    """Of all records."""


class _Run(NamedTuple):
    """Adjacent records of a batch whose offset deltas have the same encoded size."""

    first: int
    """The first of them, counted from the start of the layout."""
    stop: int
    at: int
    """Where they begin in the layout, in bytes."""
    end: int
    """Where they end."""
    size: int
    """Bytes of each."""
    heads: Cells
    """The beginning of each: all bytes before the first field that differs between records."""


class EvenBodies(CopiedBodies):
    """Bodies of one size, whose records have one timestamp.

    Args:
        count: number of bodies; at least one.
        keys: without nulls, all of one size; None: no record has a key.
        values: the same for the values.
        timestamp: of all records.
    """

    def __init__(self, count: int, keys: Cells | None, values: Cells | None, timestamp: int) -> None:
        self._fields: list[tuple[bytes, Cells]] = []
        """Bytes that are equal in each body, and the cells after them, which are not."""
        same = b""
        for cells in (keys, values):
            same += NULL if cells is None else encode_varint(cells.itemsize)
            if cells is not None and cells.itemsize:
                self._fields.append((same, cells))
                same = b""
        self._tail = same + _NO_HEADERS
        self._size = sum(len(same) + cells.itemsize for same, cells in self._fields) + len(self._tail)
        super().__init__(np.full(count, self._size, np.int64), timestamp)

    def take(self, order: NDArray[np.int64]) -> Self:
        """Return the bodies with these numbers, in this order."""
        bodies = self._of(order)
        # clip: the default mode makes another copy, so that it can leave the result unchanged if a row is missing.
        bodies._fields = [(same, cells.take(order, mode="clip")) for same, cells in self._fields]
        return bodies

    def part(self, start: int, stop: int) -> Self:
        """Return the bodies ``start`` to ``stop``, without a copy."""
        bodies = self._of(slice(start, stop))
        bodies._fields = [(same, cells[start:stop]) for same, cells in self._fields]
        return bodies

    def overhead_max(self, spread_ms: int, offset_max: int) -> int:
        """Return the most bytes that any of these records takes in addition to its body."""
        return overhead_max_v2(self._size, spread_ms, offset_max)

    def _encode(
        self, starts: Sequence[int], stop: int, first_offset: int, bases: NDArray[np.int64]
    ) -> tuple[memoryview, list[int], list[int]]:
        row = starts[0]
        shapes = [_Shape(end - start, 0, 0) for start, end in pairwise([*starts, stop])]
        shapes[0] = _Shape(shapes[0].records, first_offset, int(self.timestamps[row] - bases[0]))
        lead = self._fields[0][0] if self._fields else b""
        alike = [(shape, len(list(same)), _layout(shape, lead, self._size)) for shape, same in groupby(shapes)]
        bounds, largest = [0], []
        for _, batches, runs in alike:
            size, end = runs[-1].end, bounds[-1]
            bounds += range(end + size, end + batches * size + 1, size)
            largest += [runs[-1].size] * batches
        data = np.empty(bounds[-1], np.uint8)
        at = 0
        for shape, batches, runs in alike:
            for run in runs:
                self._write(data, at, run, row, (batches, shape.records), runs[-1].end)
            at += batches * runs[-1].end
            row += batches * shape.records
        return data.data, bounds, largest

    def _write(
        self, data: NDArray[np.uint8], at: int, run: _Run, row: int, shape: tuple[int, int], batch_size: int
    ) -> None:
        """Write one run of each batch; ``shape``: batches, and records in each, from ``row`` and ``at`` on."""
        at += run.at
        places, strides = (shape[0], run.stop - run.first), (batch_size, run.size)
        np.ndarray(places, run.heads.dtype, data, at, strides)[...] = run.heads
        at += run.heads.itemsize
        for number, (same, cells) in enumerate(self._fields):
            if number:  # the first one is part of the heads
                np.ndarray(places, f"V{len(same)}", data, at, strides)[...] = np.void(same)
                at += len(same)
            rows = cells[row : row + shape[0] * shape[1]].reshape(shape)
            np.ndarray(places, cells.dtype, data, at, strides)[...] = rows[:, run.first : run.stop]
            at += cells.itemsize
        np.ndarray(places, f"V{len(self._tail)}", data, at, strides)[...] = np.void(self._tail)


def _layout(shape: _Shape, lead: bytes, body_size: int) -> list[_Run]:
    """Return the runs in which the records of a batch are laid out.

    Args:
        shape: of the batch.
        lead: what all bodies begin with.
        body_size: bytes of each, with ``lead``.
    """
    runs: list[_Run] = []
    at, offset, end = 0, shape.first_offset, shape.first_offset + shape.records
    while offset < end:
        offset_size = size_of_varint(offset)
        low = 1 << 7 * offset_size - 8 if offset_size > 1 else 0
        stop = min(end, 1 << 7 * offset_size - 1)
        # More heads than needed here, so that somewhat longer batches find them in the cache.
        size, heads = _heads(low, 1 << (stop - 1).bit_length(), shape.timestamp_delta, lead, body_size)
        first, behind = offset - shape.first_offset, stop - shape.first_offset
        runs.append(_Run(first, behind, at, at + (stop - offset) * size, size, heads[offset - low : stop - low]))
        at, offset = runs[-1].end, stop
    return runs


@lru_cache(_HEADS)
def _heads(low: int, high: int, timestamp_delta: int, lead: bytes, body_size: int) -> tuple[int, Cells]:
    """Return the size, and the heads, of records with offset deltas from ``low`` to ``high``, all of equal size.

    The other arguments are those of `_layout`.
    """
    deltas = _ATTRIBUTES + encode_varint(timestamp_delta)
    offset_size = size_of_varint(low)
    size = len(deltas) + offset_size + body_size
    before, behind = encode_varint(size) + deltas, len(lead)
    offsets, _ = encode_varints(np.arange(low, high))
    heads = np.empty((high - low, len(before) + offset_size + behind), np.uint8)
    heads[:, : len(before)] = np.frombuffer(before, np.uint8)
    heads[:, len(before) : len(before) + offset_size] = offsets.T
    heads[:, len(before) + offset_size :] = np.frombuffer(lead, np.uint8)
    return size_of_varint(size) + size, heads.view(f"V{heads.shape[1]}").reshape(-1)


def even_cells(array: pa.LargeBinaryArray) -> Cells | None:
    """Return the elements of an array if they are of one size and none is null; None if not, or if it is empty."""
    if array.null_count or not len(array):
        return None
    offsets, data = offsets_and_data(array)
    size = int(offsets[1])
    if offsets[-1] != size * len(array) or (np.diff(offsets) != size).any():
        return None
    return data.view(f"V{size}") if size else np.empty(len(array), "V0")
