"""Encodes whole Arrow columns to records: no Python runs for each record.

The result equals `RecordFormat.encode_record` for each record, byte for byte. In the compiled form, C writes the
records into their batches (`shmaccum.record.columns.direct`). In the plain form, Arrow's kernels join them
(`shmaccum.record.columns.joined`). Formats 0 and 1 need a CRC-32 for each record, and use a loop.

Below the Spark layer, only the modules of this package import pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shmaccum._compiled import COMPILED
from shmaccum.errors import SerializationError
from shmaccum.record.columns.arrow import binary_column, offsets_of
from shmaccum.record.columns.bodies import ColumnBodies, CopiedBodies, bounds_and_largest, places_in_batches
from shmaccum.record.columns.joined import JoinedBodies, check_headers
from shmaccum.record.format import RecordFormat
from shmaccum.record.v2 import records as v2

if COMPILED:
    from shmaccum.record.columns.direct import DirectBodies


def encode_columns(
    fmt: RecordFormat,
    keys: pa.Array | None,
    values: pa.Array | None,
    headers: pa.Array | None,
    timestamps: NDArray[np.int64] | int,
) -> ColumnBodies:
    """Encode the bodies of a column of records.

    Args:
        fmt: message format of the records.
        keys: array of binary or string, of any layout, nulls allowed; None: no record has a key.
        values: the same for the values.
        headers: array of ``list<struct<key: string, value: binary>>``; a null list: none; None: no record has any.
        timestamps: of the records, milliseconds since the epoch; or one number for all.

    Raises:
        SerializationError: a column is of another type, the columns differ in length, or a header has no name.
        UnsupportedForMessageFormatError: a record has headers, and the format has none.
    """
    lengths = {len(column) for column in (keys, values, headers) if column is not None}
    if len(lengths) != 1:
        raise SerializationError(f"keys, values and headers must have one length, not {sorted(lengths) or 'none'}")
    count = lengths.pop()
    if headers is not None:
        check_headers(headers)
    if COMPILED and fmt.magic == v2.MAGIC:
        return DirectBodies(count, keys, values, headers, timestamps)
    key_column = None if keys is None else binary_column("keys", keys)
    value_column = None if values is None else binary_column("values", values)
    if fmt.magic == v2.MAGIC:
        return JoinedBodies(count, key_column, value_column, headers, timestamps)
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
    return _SingleBodies(fmt, bodies, timestamps)


class _SingleBodies(CopiedBodies):
    """Bodies and records that are encoded one by one."""

    def __init__(self, fmt: RecordFormat, bodies: list[bytes], timestamps: NDArray[np.int64] | int) -> None:
        super().__init__(np.array([*map(len, bodies)], np.int64), timestamps)
        self._fmt = fmt
        self._bodies = bodies

    def take(self, order: NDArray[np.int64]) -> Self:
        bodies = self._of(order)
        bodies._bodies = [self._bodies[number] for number in order.tolist()]
        return bodies

    def part(self, start: int, stop: int) -> Self:
        bodies = self._of(slice(start, stop))
        bodies._bodies = self._bodies[start:stop]
        return bodies

    def overhead_max(self, spread_ms: int, offset_max: int) -> int:
        return self._fmt.record_overhead_max

    def _encode(
        self, starts: Sequence[int], stop: int, first_offset: int, bases: NDArray[np.int64]
    ) -> tuple[memoryview, list[int], list[int]]:
        start = starts[0]
        records = [
            self._fmt.encode_record(offset_delta, timestamp, base, body)
            for offset_delta, timestamp, base, body in zip(
                places_in_batches(starts, stop, first_offset).tolist(),
                self.timestamps[start:stop].tolist(),
                np.repeat(bases, np.diff([*starts, stop])).tolist(),
                self._bodies[start:stop],
                strict=True,
            )
        ]
        offsets = offsets_of(np.array([*map(len, records)], np.int64))
        return memoryview(b"".join(records)), *bounds_and_largest(offsets, starts)
