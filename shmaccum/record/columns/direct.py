"""Encodes columns in C, straight into the batches' memory: message format 2 only.

Used only in the compiled form. In the plain form `joined` produces the same records.
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
"""Bytes of an offset, for types whose offsets locate their bytes."""


class DirectBodies(ColumnBodies):
    """Bodies of any sizes, which stay in the columns until they are written to a batch.

    A write raises a SerializationError if the columns' memory has changed since.

    Args:
        count: number of bodies.
        keys: array of binary or string, of any layout, nulls allowed; None: no record has a key.
        values: the same for the values.
        headers: array of ``list<struct<key: string, value: binary>>``, or None.
        timestamps: as in `ColumnBodies`.

    Raises:
        SerializationError: a column is of another type, or inconsistent.
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
        """Return the bodies with these numbers, in this order."""
        taken = self._of(order)
        taken._records = FastRows(self._bodies, taken.rows, taken.body_sizes, taken.timestamps)
        return taken

    def part(self, start: int, stop: int) -> Self:
        """Return the bodies ``start`` to ``stop``, without a copy."""
        part = self._of(slice(start, stop))
        part._records = self._records.part(start, stop)
        return part

    def add_to(self, room: int, first_offset: int, base_timestamp: int) -> FastBatches | None:
        """Measure the first records for a batch that already has some, as in `ColumnBodies.add_to`."""
        batches = FastBatches(self._records)
        return batches if batches.add_to(room, first_offset, base_timestamp) else None

    def lay_out(self, first: int, room: int, most: int) -> Iterator[FastBatches]:
        """Measure records for new batches, as in `ColumnBodies.lay_out`."""
        while first < len(self):
            batches = FastBatches(self._records)
            first = batches.lay_out(first, room, most)
            yield batches


def cells_of(name: str, array: pa.Array) -> FastCells:
    """Return the cells of a column of any binary or string type.

    Raises:
        SerializationError: the array is of another type, or inconsistent; with the name of the column, ``name``.
    """
    check_binary(name, array)
    width = _OFFSET_WIDTHS.get(str(array.type))
    if width is None and pa.types.is_fixed_size_binary(array.type):
        valid, data = array.buffers()
        return FastCells(len(array), array.offset, 0, array.type.byte_width, valid, None, data)
    if width is None:
        array, width = binary_column(name, array), 8
    return FastCells(len(array), array.offset, width, 0, *array.buffers())
