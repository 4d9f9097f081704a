"""The bodies of a column of records, in Arrow's memory until they are written into batches.

A record's body does not depend on where the record goes. So rows are measured once and grouped by partition;
`shmaccum._core` appends them, byte for byte as `RecordFormat.encode_record` encodes single records. Below
the Spark layer, only the modules of this package import pyarrow.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shmaccum import _core
from shmaccum.errors import SerializationError, UnsupportedForMessageFormatError
from shmaccum.record import v2
from shmaccum.record.format import RecordFormat

STRING_TYPES: Final = frozenset(("string", "large_string", "string_view"))
_VIEW_TYPES: Final = frozenset(("string_view", "binary_view"))
_VIEW_SIZE: Final = 16
_BINARY_TYPES: Final = STRING_TYPES | {"binary", "large_binary", "binary_view", "null"}


class _ExportsArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


class _ExportsStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


ArrowRows: TypeAlias = pa.RecordBatch | _ExportsArray | _ExportsStream
"""Rows of columns: see `record_batch`."""


def record_batch(given: ArrowRows) -> pa.RecordBatch:
    """Return the rows of anything that exports Arrow data as one batch: without a copy, if they are in one piece.

    It has ``__arrow_c_array__`` or ``__arrow_c_stream__`` (Arrow's PyCapsule interface).

    Raises SerializationError: it has neither, or its rows cannot be one batch.
    """
    if isinstance(given, pa.RecordBatch):
        return given
    try:
        if hasattr(given, "__arrow_c_array__"):
            return pa.record_batch(given)
        if hasattr(given, "__arrow_c_stream__"):
            table = pa.table(given).combine_chunks()
            batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
            if len(batches) == 1:
                return batches[0]
            raise SerializationError(f"the rows take {len(batches)} batches of Arrow: send them in parts")
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SerializationError(f"send_batch cannot read the rows of a {type(given).__name__}: {error}") from error
    raise SerializationError(
        f"send_batch takes a pyarrow.RecordBatch or what exports Arrow data, not {type(given).__name__}: it has "
        "neither __arrow_c_array__ nor __arrow_c_stream__"
    )


def check_binary(name: str, array: pa.Array) -> str:
    """Return the name of a column's type; a SerializationError if it is not binary or string, or is inconsistent."""
    if not isinstance(array, pa.Array):
        raise SerializationError(
            f"{name} must be a pyarrow.Array, as each chunk of a column is, not {type(array).__name__}"
        )
    kind = str(array.type)
    if kind not in _BINARY_TYPES and not pa.types.is_fixed_size_binary(array.type):
        raise SerializationError(f"{name} must be of binary or string type, not {kind}: cast or serialize them")
    check_memory(name, array, all_of_it=kind in _VIEW_TYPES)
    return kind


def check_memory(name: str, array: pa.Array, *, all_of_it: bool) -> None:
    """Refuse an array that is inconsistent, by a SerializationError with its name.

    ``all_of_it`` checks every offset, of nested arrays too, because Arrow's kernels follow them without a check.
    Otherwise only the first and the last offset are checked.
    """
    try:
        array.validate(full=all_of_it)
    except pa.ArrowException as error:
        raise SerializationError(f"{name}: {error}") from error


def binary_column(name: str, array: pa.Array) -> pa.LargeBinaryArray:
    """Return a column of binary or string as ``large_binary``, if possible without a copy; raise as `check_binary`."""
    if check_binary(name, array) in _VIEW_TYPES and array.null_count:
        array = _without_views_of_nulls(array)
    column = array.cast(pa.large_binary())
    offsets = _offsets(column)
    if (offsets[1:] < offsets[:-1]).any():  # the code that uses them does not check
        row = int(np.argmax(offsets[1:] < offsets[:-1]))
        raise SerializationError(f"{name}: row {row} is outside the column's memory: its offsets are wrong")
    return column


def _without_views_of_nulls(array: pa.Array) -> pa.Array:
    """Return an array of views with an empty view for each null: Arrow does not validate these, but follows them."""
    valid, views, *data = array.buffers()
    cells = np.frombuffer(views, np.uint8)[: _VIEW_SIZE * (array.offset + len(array))].reshape(-1, _VIEW_SIZE).copy()
    cells[array.offset :][nulls_of(array)] = 0
    buffers = [valid, pa.py_buffer(cells), *data]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, array.offset)


def _offsets(array: pa.LargeBinaryArray) -> NDArray[np.int64]:
    if not len(array):
        return np.zeros(1, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * np.dtype(np.int64).itemsize)


def nulls_of(array: pa.Array) -> NDArray[np.bool_]:
    """Return for each element whether it is null."""
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    return numpy_of(pc.cast(array.is_null(), pa.uint8())).view(np.bool_)


def numpy_of(array: pa.Array) -> NDArray[Any]:
    """Return the memory behind an array of numbers; the number at a null is meaningless."""
    kind = np.dtype(str(array.type))
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)


def arrow_of(numbers: NDArray[np.int64]) -> pa.Int64Array:
    """Return numbers as an Arrow array over the same memory."""
    return pa.Int64Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


UNKNOWN_PARTITION: Final = -1
"""Partition of a null key, which has no hash (``RecordMetadata.UNKNOWN_PARTITION``)."""

_OFFSET_WIDTHS: Final = {"binary": 4, "string": 4, "large_binary": 8, "large_string": 8}
"""Bytes of an offset, for types whose offsets locate their bytes."""


class ColumnBodies:
    """The bodies of a column of records, with the other fields of each record that do not depend on its batch.

    Keys and values are arrays of binary or string, of any layout, nulls allowed; None: no record has one. ``headers``
    is an array of ``list<struct<key: string, value: binary>>``; None, or a null list: none. There is one timestamp, in
    milliseconds since the epoch, for each, or one for all.

    Raises:
        SerializationError: a column is of another type or inconsistent, the columns differ in length, or a header has
            no name.
        UnsupportedForMessageFormatError: there are headers, and the format has none.
    """

    def __init__(
        self,
        fmt: RecordFormat,
        keys: pa.Array | None,
        values: pa.Array | None,
        headers: pa.Array | None,
        timestamps: NDArray[np.int64] | int,
    ) -> None:
        lengths = {len(column) for column in (keys, values, headers) if column is not None}
        if len(lengths) != 1:
            raise SerializationError(f"keys, values and headers must have one length, not {sorted(lengths) or 'none'}")
        sections = None if headers is None else _header_sections(headers)
        if headers is not None and fmt.magic != v2.MAGIC:
            if len(headers.flatten()):
                raise UnsupportedForMessageFormatError(
                    f"message format {fmt.magic} has no headers, but a record has some: set message.format.version to "
                    "0.11.0 or newer"
                )
            sections = None
        self.body_sizes = np.empty(lengths.pop(), np.int64)
        self._bodies = _core.Bodies(
            fmt.magic,
            None if keys is None else cells_of("keys", keys),
            None if values is None else cells_of("values", values),
            sections,
            self.body_sizes,
            np.array([timestamps], np.int64) if isinstance(timestamps, int) else timestamps,
        )

    def __len__(self) -> int:
        return len(self.body_sizes)

    def rows(self, start: int, stop: int, order: NDArray[np.int64] | None = None) -> _core.Rows:
        """Return the rows from one place to another, in an order of their numbers, to be appended."""
        return _core.Rows(self._bodies, order, start, stop)


def cells_of(name: str, array: pa.Array) -> _core.Cells:
    """Return the cells of a column of any binary or string type; raise as `check_binary`."""
    width = _OFFSET_WIDTHS.get(check_binary(name, array))
    if width is None and pa.types.is_fixed_size_binary(array.type):
        valid, data = array.buffers()
        return _core.Cells(len(array), array.offset, 0, array.type.byte_width, valid, None, data)
    if width is None:
        array, width = binary_column(name, array), 8
    return _core.Cells(len(array), array.offset, width, 0, *array.buffers())


def overhead_max_v2(largest: int, spread_ms: int, offset_max: int) -> int:
    """Return the most bytes that a record of message format 2 takes beside its body, which has ``largest`` at most.

    ``spread_ms`` is the most between a record's timestamp and its batch's base timestamp, ``offset_max`` the largest
    place.
    """
    deltas = 1 + v2.size_of_varint(spread_ms) + v2.size_of_varint(offset_max)
    return deltas + v2.size_of_varint(deltas + largest)


def partitions_for_keys(array: pa.Array, partition_count: int) -> NDArray[np.int64]:
    """Return partitions as `partition_for_key`, `UNKNOWN_PARTITION` for null; raise as `check_binary`."""
    partitions = np.empty(len(array), np.int64)
    cells_of("keys", array).partitions(partitions, partition_count)
    return partitions


def grouped(partitions: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], list[tuple[int, int, int]]]:
    """Group rows by partition, in their order within each.

    There is at least one row. A row can name a partition beyond ``count``.

    Returns the rows' numbers, group by group; and for each group its partition, begin and end.
    """
    order, ends = np.empty(len(partitions), np.int64), np.zeros(count, np.int64)
    if _core.group(partitions, order, ends):
        bounds = [0, *ends.tolist()]
        return order, [(n, start, stop) for n, (start, stop) in enumerate(pairwise(bounds)) if start < stop]
    order = np.argsort(partitions, kind="stable")
    partitions = partitions[order]
    starts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    return order, [(int(partitions[start]), start, stop) for start, stop in pairwise(starts)]


def _header_sections(headers: pa.Array) -> _core.Cells:
    """Return the header section of each record: the count of its headers, and the headers themselves.

    The array is as of `ColumnBodies`.

    Raises SerializationError: it is another array, is inconsistent, or has a header without a name.
    """
    kind = headers.type
    entry = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    if (
        entry is None
        or not pa.types.is_struct(entry)
        or {field.name for field in entry} != {"key", "value"}
        or str(entry.field("key").type) not in STRING_TYPES
    ):
        raise SerializationError(f"headers must be of type list<struct<key: string, value: binary>>, not {kind}")
    check_memory("headers", headers, all_of_it=True)
    entries = headers.flatten()
    keys = pc.struct_field(entries, "key")
    if keys.null_count:
        row = pc.list_parent_indices(headers)[int(np.argmax(nulls_of(keys)))]
        raise SerializationError(
            f"headers must all have a name, but row {row} has one that is null or has a null key: leave it out"
        )
    counts = numpy_of(pc.list_value_length(headers)).astype(np.int64)
    if headers.null_count:
        counts[nulls_of(headers)] = 0
    offsets = np.empty(len(counts) + 1, np.int64)
    # The headers of a row are adjacent, row by row.
    sections = _core.header_sections(
        counts, _header_cells("header names", entries, "key"), _header_cells("header values", entries, "value"), offsets
    )
    return _core.Cells(len(counts), 0, 8, 0, None, offsets, sections)


def _header_cells(name: str, entries: pa.Array, field: str) -> _core.Cells:
    column: Any = binary_column(name, pc.struct_field(entries, field))
    return _core.Cells(len(column), column.offset, 8, 0, *column.buffers())
