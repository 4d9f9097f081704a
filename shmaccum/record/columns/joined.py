"""Encodes records of any sizes in message format 2, with numpy and Arrow's kernels.

numpy makes the varints, Arrow moves the bytes. Each record is joined from its parts once: sizes and deltas, packed by
numpy, before the key, the size of the value, the value, the headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shmaccum.errors import SerializationError
from shmaccum.record.columns.arrow import (
    STRING_TYPES,
    BinaryColumn,
    arrow_of,
    binary_column,
    check_memory,
    constant,
    join,
    large_binary,
    nulls_of,
    numpy_of,
    offsets_and_data,
    offsets_of,
    sizes_of,
)
from shmaccum.record.columns.bodies import CopiedBodies, bounds_and_largest, overhead_max_v2, places_in_batches
from shmaccum.record.v2.varint import encode_varints, sizes_of_varints

_Varints: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Matrix and lengths, as `encode_varints` returns them."""

_ATTRIBUTES = b"\0"
_NO_HEADERS = b"\0"


class _Field:
    """A key or value column: its bytes, and the length before each of them."""

    def __init__(self, data: pa.LargeBinaryArray | None, sizes: NDArray[np.int64]) -> None:
        self.data = data
        """None: all are null."""
        self.sizes = sizes
        """-1 for a null."""

    def encoded_sizes(self) -> NDArray[np.int64]:
        """Return the bytes of each, with its length."""
        return sizes_of_varints(self.sizes) + np.maximum(self.sizes, 0)

    def take(self, rows: NDArray[np.int64]) -> _Field:
        return _Field(None if self.data is None else self.data.take(arrow_of(rows)), self.sizes[rows])

    def part(self, start: int, stop: int) -> _Field:
        return _Field(None if self.data is None else self.data[start:stop], self.sizes[start:stop])


class JoinedBodies(CopiedBodies):
    """Bodies of any sizes.

    Args:
        count: number of bodies.
        keys: array of keys, nulls allowed; None: no record has a key.
        values: the same for the values.
        headers: array of ``list<struct<key: string, value: binary>>``, or None.
        timestamps: as in `ColumnBodies`.
    """

    def __init__(
        self,
        count: int,
        keys: pa.LargeBinaryArray | None,
        values: pa.LargeBinaryArray | None,
        headers: pa.Array | None,
        timestamps: NDArray[np.int64] | int,
    ) -> None:
        nulls = np.full(count, -1, np.int64)
        self._key = _Field(keys, nulls if keys is None else sizes_of(keys))
        self._value = _Field(values, nulls if values is None else sizes_of(values))
        self._headers = None if headers is None else header_sections(headers)
        body_sizes = self._key.encoded_sizes() + self._value.encoded_sizes()
        body_sizes += len(_NO_HEADERS) if self._headers is None else sizes_of(self._headers)
        super().__init__(body_sizes, timestamps)

    def take(self, order: NDArray[np.int64]) -> Self:
        """Return the bodies with these numbers, in this order."""
        bodies = self._of(order)
        bodies._key, bodies._value = self._key.take(order), self._value.take(order)
        bodies._headers = None if self._headers is None else self._headers.take(arrow_of(order))
        return bodies

    def part(self, start: int, stop: int) -> Self:
        """Return the bodies ``start`` to ``stop``, without a copy."""
        bodies = self._of(slice(start, stop))
        bodies._key, bodies._value = self._key.part(start, stop), self._value.part(start, stop)
        bodies._headers = None if self._headers is None else self._headers[start:stop]
        return bodies

    def overhead_max(self, spread_ms: int, offset_max: int) -> int:
        """Return the most bytes that any of these records takes in addition to its body."""
        return overhead_max_v2(int(self.body_sizes.max()), spread_ms, offset_max)

    def _encode(
        self, starts: Sequence[int], stop: int, first_offset: int, bases: NDArray[np.int64]
    ) -> tuple[memoryview, list[int], list[int]]:
        start = starts[0]
        each_base = np.repeat(bases, np.diff([*starts, stop]))
        timestamp_deltas = encode_varints(self.timestamps[start:stop] - each_base)
        deltas = encode_varints(places_in_batches(starts, stop, first_offset))
        sizes = self.body_sizes[start:stop] + len(_ATTRIBUTES) + timestamp_deltas[1] + deltas[1]
        attributes = np.zeros((1, stop - start), np.uint8), np.ones(stop - start, np.int64)
        head = [encode_varints(sizes), attributes, timestamp_deltas, deltas]
        columns: list[BinaryColumn] = []
        for field in (self._key.part(start, stop), self._value.part(start, stop)):
            head.append(encode_varints(field.sizes))
            if field.data is not None:
                columns += _pack(*head), field.data
                head = []
        if head:
            columns.append(_pack(*head))
        columns.append(constant(_NO_HEADERS) if self._headers is None else self._headers[start:stop])
        offsets, data = offsets_and_data(join(*columns))
        return data.data, *bounds_and_largest(offsets, starts)


def _pack(*columns: _Varints) -> pa.LargeBinaryArray:
    """Join columns of varints row by row."""
    width = sum(len(matrix) for matrix, _ in columns)
    cells = np.empty((len(columns[0][1]), width), np.uint8)
    used = np.ones(cells.shape, np.bool_)
    sizes = np.zeros(len(cells), np.int64)
    column = 0
    for matrix, lengths in columns:
        sizes += lengths
        for place, cell in enumerate(matrix):
            cells[:, column] = cell
            if place:  # every varint has a first byte
                used[:, column] = lengths > place
            column += 1
    return large_binary(offsets_of(sizes), cells[used])


def check_headers(headers: pa.Array) -> None:
    """Refuse an array that is not one of headers, is inconsistent, or has a header without a name.

    Raises:
        SerializationError: with the reason.
    """
    kind = headers.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    entry = kind.value_type if is_list else None
    if (
        entry is None
        or not pa.types.is_struct(entry)
        or {field.name for field in entry} != {"key", "value"}
        or str(entry.field("key").type) not in STRING_TYPES
    ):
        raise SerializationError(f"headers must be of type list<struct<key: string, value: binary>>, not {kind}")
    check_memory("headers", headers, all_of_it=True)
    if pc.struct_field(headers.flatten(), "key").null_count:
        raise SerializationError("headers must all have a name, but one is null or has a null key")


def header_sections(headers: pa.Array) -> pa.LargeBinaryArray:
    """Return the header sections of the records: the count of headers, and the headers themselves."""
    entries = headers.flatten()
    names = binary_column("header names", pc.struct_field(entries, "key"))
    values = binary_column("header values", pc.struct_field(entries, "value"))
    name_sizes, value_sizes = encode_varints(sizes_of(names)), encode_varints(sizes_of(values))
    offsets, data = offsets_and_data(join(_pack(name_sizes), names, _pack(value_sizes), values))
    counts = numpy_of(pc.list_value_length(headers)).astype(np.int64)
    if headers.null_count:
        counts[nulls_of(headers)] = 0
    # The headers of a row are adjacent, so its section is one slice of all headers.
    return join(_pack(encode_varints(counts)), large_binary(offsets[offsets_of(counts)], data))
