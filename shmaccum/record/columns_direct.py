"""Columns to records of message format 2 without anything in between: in C, straight into the batches' memory.

Only where the package is compiled. Everywhere else `columns_even` and `columns_joined` give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shmaccum.record.arrow import binary_column, check_binary
from shmaccum.record.column_bodies import ColumnBodies, ReadyBatches, overhead_max_v2
from shmaccum.record.columns_joined import header_sections
from shmaccum.record.fastcolumns import FastBatches, FastBodies, FastCells, batch_starts, fitting

_OFFSET_WIDTHS: Final = {"binary": 4, "string": 4, "large_binary": 8, "large_string": 8}
"""Bytes of an offset of each type whose bytes are where its offsets say."""


class DirectBodies(ColumnBodies):
    """Bodies of any sizes, which stay in the columns until they are written to a batch.

    Args:
        count: how many.
        keys: array of binary or string, of any layout, nulls allowed; None: no record has a key.
        values: the same for the values.
        headers: array of ``list<struct<key: string, value: binary>>``, or None.

    Raises:
        SerializationError: a column is of another type, or not what it says.
    """

    def __init__(self, count: int, keys: pa.Array | None, values: pa.Array | None, headers: pa.Array | None) -> None:
        self._records = FastBodies(
            None if keys is None else cells_of("keys", keys),
            None if values is None else cells_of("values", values),
            None if headers is None else cells_of("headers", header_sections(headers)),
        )
        self._rows = np.arange(count)
        self.body_sizes = np.empty(count, np.int64)
        self._records.body_sizes(self.body_sizes)

    def _of(self, chosen: NDArray[np.int64] | slice) -> Self:
        bodies = type(self).__new__(type(self))
        bodies._records, bodies._rows = self._records, self._rows[chosen]
        bodies.body_sizes = self.body_sizes[chosen]
        return bodies

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return the bodies of ``rows``, in that order."""
        return self._of(rows)

    def part(self, start: int, stop: int) -> Self:
        """Return the bodies of rows ``start`` to ``stop``, without copying them."""
        return self._of(slice(start, stop))

    def overhead_max(self, spread_ms: int, room: int) -> int:
        """Return the most bytes that any of these records takes besides its body."""
        return overhead_max_v2(self.body_sizes, spread_ms, room)

    def fitting(self, overhead: int, room: int) -> int:
        """Return how many records fit, as `ColumnBodies.fitting` says."""
        return fitting(self.body_sizes, overhead, room)

    def batch_starts(self, first: int, overhead: int, room: int) -> list[int]:
        """Lay records out over batches, as `ColumnBodies.batch_starts` says."""
        return batch_starts(self.body_sizes, first, overhead, room)

    def encode(
        self,
        starts: Sequence[int],
        stop: int,
        timestamps: NDArray[np.int64],
        *,
        first_offset: int = 0,
        base_timestamp: int | None = None,
    ) -> ReadyBatches:
        """Measure the records that `ColumnBodies.encode` encodes; what is returned encodes them where they go.

        It raises a SerializationError then if somebody has changed the columns' memory meanwhile.
        """
        base = int(timestamps[starts[0]]) if base_timestamp is None else base_timestamp
        return FastBatches(
            self._records, self._rows, self.body_sizes, timestamps, list(starts), stop, first_offset, base
        )


def cells_of(name: str, array: pa.Array) -> FastCells:
    """Return the cells of a column of any binary or string type.

    Raises:
        SerializationError: the array is of another type, or not what it says; says so of the column ``name``.
    """
    check_binary(name, array)
    width = _OFFSET_WIDTHS.get(str(array.type))
    if width is None and pa.types.is_fixed_size_binary(array.type):
        valid, data = array.buffers()
        return FastCells(len(array), array.offset, 0, array.type.byte_width, valid, None, data)
    if width is None:
        array, width = binary_column(name, array), 8
    return FastCells(len(array), array.offset, width, 0, *array.buffers())
