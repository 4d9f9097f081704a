"""The bodies of a column of records, in Arrow's memory until they are written into batches.

A record's body does not depend on where the record goes. So bodies are sorted by partition and laid out over batches;
`shmaccum._core` measures and writes them, byte for byte as `RecordFormat.encode_record` encodes single records. Below
the Spark layer, only the modules of this package import pyarrow.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shmaccum import _core
from shmaccum.errors import SerializationError, UnsupportedForMessageFormatError
from shmaccum.record.columns.arrow import STRING_TYPES, binary_column, check_binary, check_memory, nulls_of, numpy_of
from shmaccum.record.format import RecordFormat
from shmaccum.record.v2 import records as v2
from shmaccum.record.v2.varint import size_of_varint

UNKNOWN_PARTITION: Final = -1
"""Partition of a null key, which has no hash (``RecordMetadata.UNKNOWN_PARTITION``)."""

_OFFSET_WIDTHS: Final = {"binary": 4, "string": 4, "large_binary": 8, "large_string": 8}
"""Bytes of an offset, for types whose offsets locate their bytes."""


class ColumnBodies:
    """The bodies of a column of records, with the other fields of each record that do not depend on its batch.

    A write raises a SerializationError if the columns' memory has changed since.

    Args:
        fmt: message format of the records.
        keys: array of binary or string, of any layout, nulls allowed; None: no record has a key.
        values: the same for the values.
        headers: array of ``list<struct<key: string, value: binary>>``; a null list: none; None: no record has any.
        timestamps: of the records, milliseconds since the epoch; or one number for all.

    Attributes:
        body_sizes, timestamps: bytes and timestamp of each.
        rows: the number of each record in the original column.

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
        count = lengths.pop()
        sections = None if headers is None else _header_sections(headers)
        if headers is not None and fmt.magic != v2.MAGIC:
            if len(headers.flatten()):
                raise UnsupportedForMessageFormatError(
                    f"message format {fmt.magic} has no headers, but a record has some: set message.format.version to "
                    "0.11.0 or newer"
                )
            sections = None
        self._bodies = _core.Bodies(
            fmt.magic,
            None if keys is None else cells_of("keys", keys),
            None if values is None else cells_of("values", values),
            sections,
        )
        self.body_sizes = np.empty(count, np.int64)
        self._bodies.body_sizes(self.body_sizes)
        if isinstance(timestamps, int):  # an array of one number with stride 0: no memory for each record
            timestamps = np.ndarray((count,), np.int64, np.array([timestamps]), strides=(0,))
        self.timestamps = timestamps
        self.rows = np.arange(count)

    def __len__(self) -> int:
        return len(self.body_sizes)

    def take(self, order: NDArray[np.int64]) -> Self:
        """Return the bodies with these numbers, in this order: grouped by partition, for example."""
        return self._of(order)

    def part(self, start: int, stop: int) -> Self:
        """Return the bodies ``start`` to ``stop``, without a copy."""
        return self._of(slice(start, stop))

    def _of(self, chosen: NDArray[np.int64] | slice) -> Self:
        bodies = object.__new__(type(self))
        bodies._bodies = self._bodies
        bodies.body_sizes, bodies.timestamps = self.body_sizes[chosen], self.timestamps[chosen]
        bodies.rows = self.rows[chosen]
        return bodies

    def add_to(self, room: int, first_offset: int, base_timestamp: int) -> _core.RowBatches | None:
        """Measure the first records for a batch that already has some; return None if none fits.

        Args:
            room: free bytes of the batch.
            first_offset: number of its records.
            base_timestamp: of the batch.
        """
        batches = self._batches()
        return batches if batches.add_to(room, first_offset, base_timestamp) else None

    def lay_out(self, first: int, room: int, most: int) -> _core.RowBatches:
        """Lay records out over new batches. Those behind the last of its ``cuts`` are not in them.

        A record that is larger than a whole batch gets its own batch.

        Args:
            first: the first record.
            room: bytes for records in a batch.
            most: most batches.
        """
        batches = self._batches()
        batches.lay_out(first, room, most)
        return batches

    def _batches(self) -> _core.RowBatches:
        return _core.RowBatches(_core.Rows(self._bodies, self.rows, self.body_sizes, self.timestamps))


def cells_of(name: str, array: pa.Array) -> _core.Cells:
    """Return the cells of a column of any binary or string type.

    Raises:
        SerializationError: the array is of another type, or inconsistent; with the name of the column, ``name``.
    """
    check_binary(name, array)
    width = _OFFSET_WIDTHS.get(str(array.type))
    if width is None and pa.types.is_fixed_size_binary(array.type):
        valid, data = array.buffers()
        return _core.Cells(len(array), array.offset, 0, array.type.byte_width, valid, None, data)
    if width is None:
        array, width = binary_column(name, array), 8
    return _core.Cells(len(array), array.offset, width, 0, *array.buffers())


def overhead_max_v2(largest: int, spread_ms: int, offset_max: int) -> int:
    """Return the most bytes that a record of message format 2 takes in addition to its body.

    Args:
        largest: bytes of the largest body.
        spread_ms: most milliseconds between a record's timestamp and its batch's base timestamp.
        offset_max: largest place of a record in its batch.
    """
    deltas = 1 + size_of_varint(spread_ms) + size_of_varint(offset_max)
    return deltas + size_of_varint(deltas + largest)


def partitions_for_keys(array: pa.Array, partition_count: int) -> NDArray[np.int64]:
    """Return the partition of each key as `partition_for_key` does, and `UNKNOWN_PARTITION` for a null.

    Args:
        array: keys, binary or string of any layout.
        partition_count: of the topic.

    Raises:
        SerializationError: the array is of another type.
    """
    partitions = np.empty(len(array), np.int64)
    cells_of("keys", array).partitions(partitions, partition_count)
    return partitions


def grouped(partitions: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], list[tuple[int, int, int]]]:
    """Group rows by partition, in their order within each.

    Args:
        partitions: of each row; at least one.
        count: number of partitions. A row can name another one.

    Returns:
        The rows' numbers, group by group; and for each group its partition, begin and end.
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

    Args:
        headers: array of ``list<struct<key: string, value: binary>>``; a null list: none.

    Raises:
        SerializationError: it is another array, is inconsistent, or has a header without a name.
    """
    _check_headers(headers)
    entries = headers.flatten()
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


def _check_headers(headers: pa.Array) -> None:
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
    keys = pc.struct_field(headers.flatten(), "key")
    if keys.null_count:
        row = pc.list_parent_indices(headers)[int(np.argmax(nulls_of(keys)))]
        raise SerializationError(
            f"headers must all have a name, but row {row} has one that is null or has a null key: leave it out"
        )
