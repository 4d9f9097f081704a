"""What an Arrow batch must look like to be sent, and which of its rows go where.

Everything here is done for whole columns. Imports pyarrow, an extra: only `Producer.send_batch` imports this.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shmaccum.accumulator.column_appender import PartitionRows
from shmaccum.errors import InvalidTimestampError, RecordTooLargeError, SerializationError
from shmaccum.partitioner import StickyPartitioner
from shmaccum.record.columns import ColumnBodies, encode_columns
from shmaccum.record.format import RecordFormat
from shmaccum.record.murmur2_columns import partitions_for_keys

COLUMNS: Final = ("key", "value", "partition", "headers", "timestamp")


def partition_columns(
    batch: pa.RecordBatch,
    record_format: RecordFormat,
    partition_count: int,
    sticky: StickyPartitioner,
    *,
    ignore_keys: bool,
    max_body_size: int,
) -> dict[int, PartitionRows]:
    """Encode a batch's rows and group them by partition, each group in the rows' order.

    Args:
        batch: columns by the names in `COLUMNS`.
        record_format: to encode them by.
        partition_count: of the topic.
        sticky: chooses for rows that have neither partition nor key.
        ignore_keys: ``partitioner.ignore.keys``.
        max_body_size: bytes that the body of a record may have.

    Raises:
        SerializationError: it is no batch, or a column is unknown, there twice, or of the wrong type.
        InvalidTimestampError: a timestamp is negative.
        RecordTooLargeError: a row is too large; says which.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise SerializationError(f"send_batch takes a pyarrow.RecordBatch, not {type(batch).__name__}")
    for name in batch.schema.names:
        if name not in COLUMNS:
            raise SerializationError(f"unknown column {name!r}: send_batch takes {', '.join(COLUMNS)}")
        if batch.schema.names.count(name) > 1:
            raise SerializationError(f"column {name!r} is there more than once")
    rows = batch.num_rows
    keys, values = _column(batch, "key"), _column(batch, "value")
    if values is None and keys is None:
        raise SerializationError("neither column 'value' nor column 'key' is there: nothing to send")
    bodies = encode_columns(record_format, keys, values, _option(batch, "headers"))
    _check_sizes(bodies, max_body_size)
    timestamps = _timestamps(_option(batch, "timestamp"), rows)
    partitions = _partitions(
        _option(batch, "partition"), None if ignore_keys else keys, bodies, partition_count, sticky
    )
    if not rows:
        return {}
    if (partitions == partitions[0]).all():
        return {int(partitions[0]): PartitionRows(bodies, timestamps, np.arange(rows))}
    order = np.argsort(partitions, kind="stable")
    numbers, starts = np.unique(partitions[order], return_index=True)
    groups = np.split(order, starts[1:])
    return {
        int(number): PartitionRows(bodies.take(group), timestamps[group], group)
        for number, group in zip(numbers, groups, strict=True)
    }


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _option(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """Return a column whose nulls are as if it were not given; one without a type has nothing else."""
    column = _column(batch, name)
    return None if column is None or pa.types.is_null(column.type) else column


def _int64(name: str, column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise SerializationError(f"column {name!r}: {error}") from error


def _check_sizes(bodies: ColumnBodies, limit: int) -> None:
    if not len(bodies):
        return
    largest = int(np.argmax(bodies.body_sizes))
    size = int(bodies.body_sizes[largest])
    if size > limit:
        raise RecordTooLargeError(
            f"Row {largest} is {size} bytes when serialized which is larger than {limit}, which is what "
            "max.request.size and buffer.memory leave room for; no row of the batch was sent"
        )


def _timestamps(column: pa.Array | None, rows: int) -> npt.NDArray[np.int64]:
    """Return milliseconds since the epoch; now, where there are none."""
    now = time.time_ns() // 1_000_000
    if column is None:
        return np.full(rows, now, np.int64)
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("ms"), safe=False)
    elif not pa.types.is_integer(column.type):
        raise SerializationError(f"column 'timestamp' must be a timestamp or an integer, not {column.type}")
    timestamps = np.asarray(pc.fill_null(_int64("timestamp", column), now), np.int64)
    if rows and timestamps.min() < 0:
        row = int(np.argmin(timestamps))
        raise InvalidTimestampError(f"timestamp of row {row} must be milliseconds since 1970, not {timestamps[row]}")
    return timestamps


def _partitions(
    column: pa.Array | None,
    keys: pa.Array | None,
    bodies: ColumnBodies,
    partition_count: int,
    sticky: StickyPartitioner,
) -> npt.NDArray[np.int64]:
    """Return each row's partition: the one given, or by its key's hash, or by the partition of the moment."""
    rows = len(bodies)
    if column is not None and not pa.types.is_integer(column.type):
        raise SerializationError(f"column 'partition' must be an integer, not {column.type}")
    chosen = np.full(rows, -1, np.int64)
    open_rows = np.ones(rows, np.bool_)
    if column is not None and column.null_count < rows:
        given = ~np.asarray(column.is_null())
        chosen[given] = np.asarray(pc.fill_null(_int64("partition", column), 0), np.int64)[given]
        open_rows &= ~given
    if keys is not None and open_rows.any():
        keyed = open_rows & ~np.asarray(keys.is_null())
        chosen[keyed] = partitions_for_keys(keys, partition_count)[keyed]
        open_rows &= ~keyed
    left = np.flatnonzero(open_rows)
    if len(left):
        chosen[left] = _sticky_partitions(bodies.body_sizes[left], sticky)
    return chosen


def _sticky_partitions(sizes: npt.NDArray[np.int64], sticky: StickyPartitioner) -> npt.NDArray[np.int64]:
    """Go through the partitions of the moment, one for each stretch of rows that makes a batch."""
    chosen = np.empty(len(sizes), np.int64)
    ends = np.cumsum(sizes)
    row = 0
    while row < len(sizes):
        before = int(ends[row - 1]) if row else 0
        stop = max(row + 1, int(np.searchsorted(ends, before + sticky.remaining, "right")))
        chosen[row:stop] = sticky.partition
        sticky.note_appended(int(ends[stop - 1]) - before, True)
        row = stop
    return chosen
