"""Whole Arrow columns to records: the bodies of all rows in one column, the bytes moved by Arrow's kernels.

A record's body does not depend on where the record goes. So the bodies are made first, for all rows; then they are
put in another order if need be, and encoded, any run of rows at a time, with the deltas of the batches that they go
to. What comes out is, byte for byte, what `RecordFormat.encode_record` gives for each record.

In message format 2 no Python runs per record: numpy makes the varints, and ``binary_join_element_wise`` and
``take`` move the rest, in a fifth of the time that indexing the bytes with numpy takes. Formats 0 and 1 need a
CRC-32 per record, and go through a loop.

This is the one module of the package below Spark that imports pyarrow.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shmaccum.errors import SerializationError
from shmaccum.record import v2
from shmaccum.record.format import RecordFormat
from shmaccum.record.varint import NULL, encode_varint, encode_varints

_Varints: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Matrix and lengths, as `encode_varints` gives them."""

_STRING_TYPES: Final = frozenset(("string", "large_string", "string_view"))
_BINARY_TYPES: Final = _STRING_TYPES | {"binary", "large_binary", "binary_view", "null"}


class EncodedColumns(NamedTuple):
    """Records back to back: record ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    data: memoryview
    """Read-only bytes. As long as it lives, so does the buffer that it shows."""
    offsets: NDArray[np.int64]
    """In bytes; one more than there are records."""


class ColumnBodies:
    """The encoded bodies of a column of records.

    Attributes:
        body_sizes: bytes of each body.
    """

    body_sizes: NDArray[np.int64]

    def __init__(self, fmt: RecordFormat, bodies: pa.LargeBinaryArray) -> None:
        self._fmt = fmt
        self._bodies = bodies
        self.body_sizes = np.diff(offsets_and_data(bodies)[0])

    def __len__(self) -> int:
        return len(self._bodies)

    def take(self, indices: NDArray[np.integer[Any]]) -> ColumnBodies:
        """Return the bodies at ``indices``, in that order: grouped by partition, for example."""
        return type(self)(self._fmt, self._bodies.take(pa.array(indices)))

    def encode(
        self,
        start: int,
        stop: int,
        offset_deltas: NDArray[np.int64],
        timestamps: NDArray[np.int64],
        base_timestamps: NDArray[np.int64] | int,
    ) -> EncodedColumns:
        """Encode the records of rows ``start`` to ``stop``, which may go to any number of batches.

        Args:
            start: first row.
            stop: the row behind the last.
            offset_deltas: place of each of these records in its batch, from 0.
            timestamps: of each of these records, milliseconds since the epoch.
            base_timestamps: base timestamp of each record's batch, or the one that they share.
        """
        records = [
            self._fmt.encode_record(offset_delta, timestamp, base_timestamp, body)
            for offset_delta, timestamp, base_timestamp, body in zip(
                offset_deltas.tolist(),
                timestamps.tolist(),
                np.broadcast_to(base_timestamps, timestamps.shape).tolist(),
                self._bodies[start:stop].to_pylist(),
                strict=True,
            )
        ]
        return EncodedColumns(memoryview(b"".join(records)), _offsets(np.array([*map(len, records)], np.int64)))


class _DefaultColumnBodies(ColumnBodies):
    """The bodies of message format 2."""

    def encode(
        self,
        start: int,
        stop: int,
        offset_deltas: NDArray[np.int64],
        timestamps: NDArray[np.int64],
        base_timestamps: NDArray[np.int64] | int,
    ) -> EncodedColumns:
        attributes = np.zeros((1, stop - start), np.uint8), np.ones(stop - start, np.int64)
        timestamp_deltas = encode_varints(timestamps - base_timestamps)
        deltas = encode_varints(offset_deltas)
        sizes = self.body_sizes[start:stop] + 1 + timestamp_deltas[1] + deltas[1]
        heads = _pack(encode_varints(sizes), attributes, timestamp_deltas, deltas)
        offsets, data = offsets_and_data(_join(heads, self._bodies[start:stop]))
        return EncodedColumns(data.data, offsets)


def encode_columns(
    fmt: RecordFormat, keys: pa.Array | None, values: pa.Array | None, headers: pa.Array | None
) -> ColumnBodies:
    """Encode the bodies of a column of records.

    Args:
        fmt: message format of the records.
        keys: array of binary or string, of any layout, nulls allowed; None: no record has a key.
        values: the same for the values.
        headers: array of ``list<struct<key: string, value: binary>>``; a null list, or None for all of them: none.

    Raises:
        SerializationError: a column is of another type, the columns differ in length, or a header has no name.
        UnsupportedForMessageFormatError: a record has headers, and the format has no place for them.
    """
    lengths = {len(column) for column in (keys, values, headers) if column is not None}
    if len(lengths) != 1:
        raise SerializationError(f"keys, values and headers must have one length, not {sorted(lengths) or 'none'}")
    key_column = None if keys is None else binary_column("keys", keys)
    value_column = None if values is None else binary_column("values", values)
    if headers is not None:
        _check_headers(headers)
    if fmt.magic == v2.MAGIC:
        bodies = _join(*_sized(key_column), *_sized(value_column), *_header_sections(headers))
        return _DefaultColumnBodies(fmt, bodies)
    absent = [None] * lengths.pop()
    bodies = [
        fmt.encode_body(key, value, [(header["key"], header["value"]) for header in row_headers or ()])
        for key, value, row_headers in zip(
            absent if key_column is None else key_column.to_pylist(),
            absent if value_column is None else value_column.to_pylist(),
            absent if headers is None else headers.to_pylist(),
            strict=True,
        )
    ]
    return ColumnBodies(fmt, pa.array(bodies, pa.large_binary()))


def binary_column(name: str, array: pa.Array) -> pa.LargeBinaryArray:
    """Return an array of any binary or string type as ``large_binary``, without copying data where that is possible.

    Raises:
        SerializationError: the array is of another type; says so of the column ``name``.
    """
    if not isinstance(array, pa.Array):
        raise SerializationError(
            f"{name} must be a pyarrow.Array, as each chunk of a column is, not {type(array).__name__}"
        )
    if str(array.type) not in _BINARY_TYPES and not pa.types.is_fixed_size_binary(array.type):
        raise SerializationError(f"{name} must be of binary or string type, not {array.type}: cast or serialize them")
    return array.cast(pa.large_binary())


def offsets_and_data(array: pa.LargeBinaryArray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the memory behind an array: element ``i`` is ``data[offsets[i]:offsets[i + 1]]``, unless it is null."""
    _, offset_buffer, data_buffer = array.buffers()
    if len(array) == 0 or data_buffer is None:
        return np.zeros(len(array) + 1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int64, len(array) + 1, array.offset * np.dtype(np.int64).itemsize)
    return offsets - offsets[0], np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]


def _large_binary(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _join(*columns: pa.LargeBinaryArray | pa.LargeBinaryScalar) -> pa.LargeBinaryArray:
    """Join the columns row by row; a null counts as nothing."""
    nothing = pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(*columns, nothing, null_handling="replace", null_replacement="")


def _pack(*columns: _Varints) -> pa.LargeBinaryArray:
    """Join columns of varints row by row."""
    rows_of_bytes = np.concatenate([matrix for matrix, _ in columns])
    are_used = np.concatenate([np.arange(len(matrix))[:, np.newaxis] < lengths for matrix, lengths in columns])
    sizes = np.sum([lengths for _, lengths in columns], axis=0)
    return _large_binary(_offsets(sizes), rows_of_bytes.T[are_used.T])


def _sized(column: pa.LargeBinaryArray | None) -> list[pa.LargeBinaryArray | pa.LargeBinaryScalar]:
    """Return what `_join` makes a column of varint lengths and data of; None is a column of nulls."""
    if column is None:
        return [pa.scalar(NULL, pa.large_binary())]
    sizes = pc.fill_null(pc.binary_length(column), -1).to_numpy()
    return [_pack(encode_varints(sizes)), column]


def _check_headers(headers: pa.Array) -> None:
    kind = headers.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    entry = kind.value_type if is_list else None
    if (
        entry is None
        or not pa.types.is_struct(entry)
        or {field.name for field in entry} != {"key", "value"}
        or str(entry.field("key").type) not in _STRING_TYPES
    ):
        raise SerializationError(f"headers must be of type list<struct<key: string, value: binary>>, not {kind}")
    if pc.struct_field(headers.flatten(), "key").null_count:
        raise SerializationError("headers must all have a name, but one has a null for its key, or is null itself")


def _header_sections(headers: pa.Array | None) -> list[pa.LargeBinaryArray | pa.LargeBinaryScalar]:
    """Return what `_join` makes the header sections of the records of: their counts, and the headers themselves."""
    if headers is None:
        return [pa.scalar(encode_varint(0), pa.large_binary())]
    entries = headers.flatten()
    names = binary_column("header names", pc.struct_field(entries, "key"))
    values = binary_column("header values", pc.struct_field(entries, "value"))
    offsets, data = offsets_and_data(_join(*_sized(names), *_sized(values)))
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    # The headers of a row follow each other, so that its section is one slice of all headers there are.
    return [_pack(encode_varints(counts)), _large_binary(offsets[_offsets(counts)], data)]
