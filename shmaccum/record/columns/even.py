"""Columns to records of message format 2, all of one size: numpy lays out whole batches at a time.

Where keys, and values, are as long as each other, without nulls and headers, and the timestamps are the same, records
of a batch differ in size only by their offset deltas. So all batches with the same number of records are laid out
alike, and one strided copy for each field fills it in in all of them.
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
"""Items of so many bytes each."""

_ATTRIBUTES: Final = b"\0"
_NO_HEADERS: Final = b"\0"
_HEADS: Final = 64
"""Heads of so many kinds of records are remembered: there are two for those of full batches, which come again and
again, and two more for every timestamp delta of those that are added to a batch later."""


class _Shape(NamedTuple):
    """What the layout of a batch's records depends on, besides their bodies."""

    records: int
    first_offset: int
    """Offset delta of the first of them."""
    timestamp_delta: int
    """That of all of them."""


class _Run(NamedTuple):
    """Records of a batch, one behind the other, whose offset deltas take as many bytes as each other."""

    first: int
    """The first of them, counted from where the layout begins."""
    stop: int
    at: int
    """Where they begin in the layout, in bytes."""
    end: int
    """Where they end."""
    size: int
    """Bytes of each."""
    heads: Cells
    """What each begins with: all in front of the first field that is not the same in all."""


class EvenBodies(CopiedBodies):
    """Bodies of one size, whose records have one timestamp.

    Args:
        count: how many; at least one.
        keys: without nulls, all of one size; None: no record has a key.
        values: the same for the values.
        timestamp: of all records.
    """

    def __init__(self, count: int, keys: Cells | None, values: Cells | None, timestamp: int) -> None:
        self._fields: list[tuple[bytes, Cells]] = []
        """Bytes that are the same in each body, and what follows them and is not."""
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
        """Return the bodies of these numbers, in that order."""
        bodies = self._of(order)
        # mode: the default copies once more, to be able to leave the result as it was if a row is not there.
        bodies._fields = [(same, cells.take(order, mode="clip")) for same, cells in self._fields]
        return bodies

    def part(self, start: int, stop: int) -> Self:
        """Return the bodies ``start`` to ``stop``, without copying them."""
        bodies = self._of(slice(start, stop))
        bodies._fields = [(same, cells[start:stop]) for same, cells in self._fields]
        return bodies

    def overhead_max(self, spread_ms: int, offset_max: int) -> int:
        """Return the most bytes that any of these records takes besides its body."""
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
        """Write one run of records of so many (batches, records) from ``row`` on, laid out from ``at`` on."""
        at += run.at
        places, strides = (shape[0], run.stop - run.first), (batch_size, run.size)
        np.ndarray(places, run.heads.dtype, data, at, strides)[...] = run.heads
        at += run.heads.itemsize
        for number, (same, cells) in enumerate(self._fields):
            if number:  # that of the first one is in the heads
                np.ndarray(places, f"V{len(same)}", data, at, strides)[...] = np.void(same)
                at += len(same)
            rows = cells[row : row + shape[0] * shape[1]].reshape(shape)
            np.ndarray(places, cells.dtype, data, at, strides)[...] = rows[:, run.first : run.stop]
            at += cells.itemsize
        np.ndarray(places, f"V{len(self._tail)}", data, at, strides)[...] = np.void(self._tail)


def _layout(shape: _Shape, lead: bytes, body_size: int) -> list[_Run]:
    """Return the runs that the records of a batch are laid out in.

    Args:
        shape: of the batch.
        lead: what all bodies begin with.
        body_size: bytes of each, ``lead`` included.
    """
    runs: list[_Run] = []
    at, offset, end = 0, shape.first_offset, shape.first_offset + shape.records
    while offset < end:
        offset_size = size_of_varint(offset)
        low = 1 << 7 * offset_size - 8 if offset_size > 1 else 0
        stop = min(end, 1 << 7 * offset_size - 1)
        # More of them than are needed here, so that they are found again for batches that are somewhat longer.
        size, heads = _heads(low, 1 << (stop - 1).bit_length(), shape.timestamp_delta, lead, body_size)
        first, behind = offset - shape.first_offset, stop - shape.first_offset
        runs.append(_Run(first, behind, at, at + (stop - offset) * size, size, heads[offset - low : stop - low]))
        at, offset = runs[-1].end, stop
    return runs


@lru_cache(_HEADS)
def _heads(low: int, high: int, timestamp_delta: int, lead: bytes, body_size: int) -> tuple[int, Cells]:
    """Return the size of records with offset deltas from ``low`` to ``high``, of equal size, and what each begins with.

    The other arguments are as of `_layout`.
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
    """Return the elements of an array, if there are any, all of one size, and none is null; None if not."""
    if array.null_count or not len(array):
        return None
    offsets, data = offsets_and_data(array)
    size = int(offsets[1])
    if offsets[-1] != size * len(array) or (np.diff(offsets) != size).any():
        return None
    return data.view(f"V{size}") if size else np.empty(len(array), "V0")
