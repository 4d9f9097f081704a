"""Whole Arrow columns to records: no Python runs per record.

What comes out is, byte for byte, what `RecordFormat.encode_record` gives for each record. There are several ways to it:
where the package is compiled, C writes the records to where they go (`shmaccum.record.columns_direct`); where it is
not, those of equal sizes are laid out by numpy (`shmaccum.record.columns_even`), and others are joined by Arrow's
kernels (`shmaccum.record.columns_joined`), which takes longer. Formats 0 and 1, which need a CRC-32 per record, go
through a loop.

Of the package below Spark, only the modules of this floor that are about columns import pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shmaccum.errors import SerializationError
from shmaccum.record import v2
from shmaccum.record.arrow import binary_column, offsets_of
from shmaccum.record.column_bodies import (
    ColumnBodies,
    EncodedBatches,
    base_timestamps,
    encoded_batches,
    places_in_batches,
)
from shmaccum.record.columns_even import Cells, EvenBodies, even_cells
from shmaccum.record.columns_joined import JoinedBodies, check_headers
from shmaccum.record.format import RecordFormat
from shmaccum.shm.memory import COMPILED

if COMPILED:
    from shmaccum.record.columns_direct import DirectBodies


def encode_columns(
    fmt: RecordFormat,
    keys: pa.Array | None,
    values: pa.Array | None,
    headers: pa.Array | None,
    *,
    one_timestamp: bool = False,
) -> ColumnBodies:
    """Encode the bodies of a column of records.

    Args:
        fmt: message format of the records.
        keys: array of binary or string, of any layout, nulls allowed; None: no record has a key.
        values: the same for the values.
        headers: array of ``list<struct<key: string, value: binary>>``; a null list, or None for all of them: none.
        one_timestamp: whether all of them will have the same timestamp.

    Raises:
        SerializationError: a column is of another type, the columns differ in length, or a header has no name.
        UnsupportedForMessageFormatError: a record has headers, and the format has no place for them.
    """
    lengths = {len(column) for column in (keys, values, headers) if column is not None}
    if len(lengths) != 1:
        raise SerializationError(f"keys, values and headers must have one length, not {sorted(lengths) or 'none'}")
    count = lengths.pop()
    if headers is not None:
        check_headers(headers)
    if COMPILED and fmt.magic == v2.MAGIC:
        return DirectBodies(count, keys, values, headers)
    key_column = None if keys is None else binary_column("keys", keys)
    value_column = None if values is None else binary_column("values", values)
    if fmt.magic == v2.MAGIC:
        even = _even_bodies(count, key_column, value_column) if one_timestamp and headers is None else None
        return even or JoinedBodies(count, key_column, value_column, headers)
    absent = [None] * count
    bodies = [
        fmt.encode_body(key, value, [(header["key"], header["value"]) for header in row_headers or ()])
        for key, value, row_headers in zip(
            absent if key_column is None else key_column.to_pylist(),
            absent if value_column is None else value_column.to_pylist(),
            absent if headers is None else headers.to_pylist(),
            strict=True,
        )
    ]
    return _SingleBodies(fmt, bodies)


def _even_bodies(count: int, keys: pa.LargeBinaryArray | None, values: pa.LargeBinaryArray | None) -> EvenBodies | None:
    """Return bodies of one size, if that is what they are."""
    cells: list[Cells | None] = []
    for column in (keys, values):
        if column is None or column.null_count == count:
            cells.append(None)
        elif (there := even_cells(column)) is not None:
            cells.append(there)
        else:
            return None
    return EvenBodies(count, *cells) if count else None


class _SingleBodies(ColumnBodies):
    """Bodies, and records, that are encoded one by one."""

    def __init__(self, fmt: RecordFormat, bodies: list[bytes]) -> None:
        self._fmt = fmt
        self._bodies = bodies
        self.body_sizes = np.array([*map(len, bodies)], np.int64)

    def take(self, rows: NDArray[np.int64]) -> Self:
        return type(self)(self._fmt, [self._bodies[row] for row in rows.tolist()])

    def part(self, start: int, stop: int) -> Self:
        return type(self)(self._fmt, self._bodies[start:stop])

    def overhead_max(self, spread_ms: int, room: int) -> int:
        return self._fmt.record_overhead_max

    def encode(
        self,
        starts: Sequence[int],
        stop: int,
        timestamps: NDArray[np.int64],
        *,
        first_offset: int = 0,
        base_timestamp: int | None = None,
    ) -> EncodedBatches:
        start = starts[0]
        records = [
            self._fmt.encode_record(offset_delta, timestamp, base, body)
            for offset_delta, timestamp, base, body in zip(
                places_in_batches(starts, stop, first_offset).tolist(),
                timestamps[start:stop].tolist(),
                base_timestamps(starts, stop, timestamps, base_timestamp).tolist(),
                self._bodies[start:stop],
                strict=True,
            )
        ]
        offsets = offsets_of(np.array([*map(len, records)], np.int64))
        return encoded_batches(memoryview(b"".join(records)), offsets, starts)
