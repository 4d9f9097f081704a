"""The headers of a column of records, encoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shmaccum import _core
from shmaccum.errors import SerializationError
from shmaccum.record.columns.arrow import STRING_TYPES, binary_column, check_memory, nulls_of, numpy_of


def header_sections(headers: pa.Array) -> _core.Cells:
    """Return the header section of each record: the count of its headers, and the headers themselves.

    Args:
        headers: array of ``list<struct<key: string, value: binary>>``; a null list: none.

    Raises:
        SerializationError: it is another array, is inconsistent, or has a header without a name.
    """
    _check(headers)
    entries = headers.flatten()
    counts = numpy_of(pc.list_value_length(headers)).astype(np.int64)
    if headers.null_count:
        counts[nulls_of(headers)] = 0
    offsets = np.empty(len(counts) + 1, np.int64)
    # The headers of a row are adjacent, row by row.
    sections = _core.header_sections(
        counts, _cells("header names", entries, "key"), _cells("header values", entries, "value"), offsets
    )
    return _core.Cells(len(counts), 0, 8, 0, None, offsets, sections)


def _cells(name: str, entries: pa.Array, field: str) -> _core.Cells:
    column: Any = binary_column(name, pc.struct_field(entries, field))
    return _core.Cells(len(column), column.offset, 8, 0, *column.buffers())


def _check(headers: pa.Array) -> None:
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
