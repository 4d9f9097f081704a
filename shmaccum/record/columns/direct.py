"""Columns to records of message format 2 without anything in between: in C, straight into the batches' memory.

Only where the package is compiled. Everywhere else `columns_even` and `columns_joined` give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shmaccum.record.columns.arrow import binary_column, check_binary
from shmaccum.record.columns.bodies import ColumnBodies
from shmaccum.record.columns.fastcolumns import FastBatches, FastBodies, FastCells, FastRows
from shmaccum.record.columns.joined import header_sections

_OFFSET_WIDTHS: Final = {"binary": 4, "string": 4, "large_binary": 8, "large_string": 8}
"""Bytes of an offset of each type whose bytes are where its offsets say."""


class DirectBodies(ColumnBodies):
    """Bodies of any sizes, which stay in the columns until they are written to a batch.

    What is made of them raises a SerializationError where it is written, if somebody has changed the columns' memory
    meanwhile.

    Args:
        count: how many.
        keys: array of binary or string, of any layout, nulls allowed; None: no record has a key.
        values: the same for the values.
        headers: array of ``list<struct<key: string, value: binary>>``, or None.
        timestamps: as `ColumnBodies` has them.

    Raises:
        SerializationError: a column is of another type, or not what it says.
    """

    def __init__(
        self,
        count: int,
        keys: pa.Array | None,
        values: pa.Array | None,
        headers: pa.Array | None,
        timestamps: NDArray[np.int64] | int,
    ) -> None:
        self._bodies = FastBodies(
            None if keys is None else cells_of("keys", keys),
            None if values is None else cells_of("values", values),
            None if headers is None else cells_of("headers", header_sections(headers)),
        )
        super().__init__(np.empty(count, np.int64), timestamps)
        self._bodies.body_sizes(self.body_sizes)
        self._records = FastRows(self._bodies, self.rows, self.body_sizes, self.timestamps)

    def take(self, order: NDArray[np.int64]) -> Self:
        """Return the bodies of these numbers, in that order."""
        taken = self._of(order)
        taken._records = FastRows(self._bodies, taken.rows, taken.body_sizes, taken.timestamps)
        return taken

    def part(self, start: int, stop: int) -> Self:
        """Return the bodies ``start`` to ``stop``, without copying them."""
        part = self._of(slice(start, stop))
        part._records = self._records.part(start, stop)
        return part

    def add_to(self, room: int, first_offset: int, base_timestamp: int) -> FastBatches | None:
        """Measure the first records for a batch that has some already, as `ColumnBodies.add_to` says."""
        batches = FastBatches(self._records)
        return batches if batches.add_to(room, first_offset, base_timestamp) else None

    def lay_out(self, first: int, room: int, most: int) -> Iterator[FastBatches]:
        """Measure records for new batches, as `ColumnBodies.lay_out` says."""
        while first < len(self):
            batches = FastBatches(self._records)
            first = batches.lay_out(first, room, most)
            yield batches


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
