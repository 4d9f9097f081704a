"""Arrow's arrays: checks, and the memory behind them.

Arrays and scalars are created from buffers and read through them. pyarrow's own conversions to numpy and Python, and
back, import pandas if it is installed. That takes longer than sending a million rows.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shmaccum.errors import SerializationError

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

    Args:
        given: has ``__arrow_c_array__`` or ``__arrow_c_stream__`` (Arrow's PyCapsule interface).

    Raises:
        SerializationError: it has neither, or its rows cannot be one batch.
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


def check_binary(name: str, array: pa.Array) -> None:
    """Refuse an array that is not of a binary or string type, or that is inconsistent.

    Raises:
        SerializationError: with the name of the column, ``name``.
    """
    if not isinstance(array, pa.Array):
        raise SerializationError(
            f"{name} must be a pyarrow.Array, as each chunk of a column is, not {type(array).__name__}"
        )
    if str(array.type) not in _BINARY_TYPES and not pa.types.is_fixed_size_binary(array.type):
        raise SerializationError(f"{name} must be of binary or string type, not {array.type}: cast or serialize them")
    check_memory(name, array, all_of_it=str(array.type) in _VIEW_TYPES)


def check_memory(name: str, array: pa.Array, *, all_of_it: bool) -> None:
    """Refuse an array that is inconsistent.

    Args:
        name: the column's.
        array: of any type.
        all_of_it: check every offset, of nested arrays too, because Arrow's kernels follow them without a check.
            Otherwise only the first and the last offset are checked.

    Raises:
        SerializationError: with the name of the column, ``name``.
    """
    try:
        array.validate(full=all_of_it)
    except pa.ArrowException as error:
        raise SerializationError(f"{name}: {error}") from error


def binary_column(name: str, array: pa.Array) -> pa.LargeBinaryArray:
    """Return an array of any binary or string type as ``large_binary``, without a copy of the data if possible.

    Raises:
        SerializationError: the array is of another type, or inconsistent; with the name of the column, ``name``.
    """
    check_binary(name, array)
    if str(array.type) in _VIEW_TYPES and array.null_count:
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
