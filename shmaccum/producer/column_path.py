"""The path of an Arrow batch from `Producer.send_batch` into the slab.

It validates the batch and assigns its rows to partitions, on whole columns, in private memory. It imports pyarrow, an
extra, so only `Producer.send_batch` imports it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shmaccum._core import Rows, least_and_largest, stops_of_batches
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.append.waits import Waits
from shmaccum.errors import InvalidTimestampError, RecordTooLargeError, SerializationError
from shmaccum.producer.destinations import Destinations
from shmaccum.producer.partitioner import StickyPartitioner
from shmaccum.record import v2
from shmaccum.record.columns import (
    ColumnBodies,
    grouped,
    nulls_of,
    numpy_of,
    overhead_max_v2,
    partitions_for_keys,
    record_batch,
)
from shmaccum.record.format import RecordFormat

if TYPE_CHECKING:
    from shmaccum.transactions.transaction import Transaction

Int64Array: TypeAlias = npt.NDArray[np.int64]

COLUMNS: Final = ("key", "value", "partition", "headers", "timestamp")


class ColumnPath:
    """What `Producer.send_batch` works with, for one producer."""

    def __init__(self, accumulator: RecordAccumulator, destinations: Destinations) -> None:
        self._accumulator = accumulator
        self._destinations = destinations

    rows_of = staticmethod(record_batch)

    def future_for(self, batch: pa.RecordBatch) -> FutureColumnsMetadata:
        """Return a future for the rows of an Arrow batch; `sending` adds them as they are accepted."""
        return FutureColumnsMetadata(batch.num_rows, self._accumulator.pending)

    def sending(
        self, topic: str, batch: pa.RecordBatch, future: FutureColumnsMetadata, transaction: Transaction | None = None
    ) -> Waits[None]:
        """Append all rows of an Arrow batch.

        Args and errors: as in `Producer.send_batch`. The rows belong to ``transaction``, if it is not None.
        """
        started = time.monotonic()
        accumulator, destinations = self._accumulator, self._destinations
        entry, queues = yield from destinations.topic(topic, started)
        sticky = destinations.sticky_partitioner(entry)
        parts = partition_columns(
            batch,
            accumulator.state.format,
            len(queues),
            sticky,
            ignore_keys=destinations.ignore_keys,
            max_body_size=destinations.max_body_size,
            batch_size=accumulator.records.batch_size,
            open_room=0 if transaction else accumulator.open_room(queues[sticky.within(len(queues))]),
        )
        to = {}
        for partition in parts:
            to[partition] = (yield from destinations.queues_with(entry, partition, started))[partition]
        if transaction is not None:
            to = dict(zip(to, transaction.queues_for(to.values()), strict=True))
        deadline_s = started + destinations.max_block_ms / 1000
        for partition, part in parts.items():
            yield from accumulator.columns.appending(to[partition], part, future, deadline_s)


def partition_columns(
    batch: pa.RecordBatch,
    record_format: RecordFormat,
    partition_count: int,
    sticky: StickyPartitioner,
    *,
    ignore_keys: bool,
    max_body_size: int,
    batch_size: int,
    open_room: int,
) -> dict[int, Rows]:
    """Measure a batch's rows and group them by partition, each group in the rows' order.

    ``sticky`` chooses for rows that have neither partition nor key; ``open_room`` are the free bytes of its partition's
    open batch, as far as known. ``batch_size`` includes a batch's header.

    Raises:
        SerializationError: a column is unknown, duplicate, or of the wrong type.
        InvalidTimestampError: a timestamp is negative.
        RecordTooLargeError: a row is too large; names the row.
    """
    names: list[str] = batch.schema.names
    columns = dict(zip(names, batch.columns, strict=True))
    for name in columns:
        if name not in COLUMNS:
            raise SerializationError(f"unknown column {name!r}: send_batch takes {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise SerializationError(f"column {name!r} occurs more than once")
    keys, values = columns.get("key"), columns.get("value")
    if values is None and keys is None:
        raise SerializationError("nothing to send: send_batch needs a column 'value' or 'key'")
    timestamps = _timestamps(_option(columns, "timestamp"))
    bodies = ColumnBodies(record_format, keys, values, _option(columns, "headers"), timestamps)
    sizes = bodies.body_sizes
    if not len(sizes):
        return {}
    least, largest = least_and_largest(sizes)
    if largest > max_body_size:
        around = record_format.header_size + record_format.record_overhead_max  # counted, as by `send`
        raise RecordTooLargeError(
            f"Row {int(sizes.argmax())} is {largest + around} bytes when serialized which is larger than "
            f"{max_body_size + around}, the limit by max.request.size and buffer.memory; no row of the batch was sent"
        )
    partition, keys = _option(columns, "partition"), None if ignore_keys else keys
    room = batch_size - record_format.header_size
    overhead = record_format.record_overhead_max
    if record_format.magic == v2.MAGIC:
        spread_ms = 0 if isinstance(timestamps, int) else int(timestamps.max()) - int(timestamps.min())
        overhead = overhead_max_v2(largest, spread_ms, room // least)
    if partition is None and keys is None:
        runs = _sticky_runs(sizes, overhead, sticky, open_room, room)
        return {number: bodies.rows(start, stop) for number, start, stop in runs}
    chosen, is_open = _fixed_partitions(partition, keys, len(bodies), partition_count)
    left = np.flatnonzero(is_open)
    if len(left):
        sizes = sizes[left]
        for number, start, stop in _sticky_runs(sizes, overhead, sticky, open_room, room):
            chosen[left[start:stop]] = number
    order, groups = grouped(chosen, partition_count)
    return {number: bodies.rows(start, stop, order) for number, start, stop in groups}


def _option(columns: dict[str, pa.Array], name: str) -> pa.Array | None:
    """Return a column, or None if it is missing or of type null; its nulls mean "not given"."""
    column = columns.get(name)
    return None if column is None or pa.types.is_null(column.type) else column


def _int64(name: str, column: pa.Array, null: int) -> Int64Array:
    """Return the integers of a column, or the milliseconds of its timestamps, with ``null`` in place of nulls."""
    try:
        if pa.types.is_timestamp(column.type):
            in_utc = column.cast(pa.timestamp(column.type.unit))  # else the next step needs a database of time zones
            column = pc.floor_temporal(in_utc, unit="millisecond").cast(pa.timestamp("ms"))
        numbers: Int64Array = numpy_of(column.cast(pa.int64()))
    except pa.ArrowInvalid as error:
        raise SerializationError(f"column {name!r}: {error}") from error
    return np.where(nulls_of(column), null, numbers) if column.null_count else numbers


def _timestamps(column: pa.Array | None) -> Int64Array | int:
    """Return milliseconds since the epoch; now where none is given."""
    now = time.time_ns() // 1_000_000
    if column is None:
        return now
    if not (pa.types.is_timestamp(column.type) or pa.types.is_integer(column.type)):
        raise SerializationError(f"column 'timestamp' must be a timestamp or an integer, not {column.type}")
    timestamps = _int64("timestamp", column, now)
    if len(timestamps) and timestamps.min() < 0:
        row = int(np.argmin(timestamps))
        raise InvalidTimestampError(f"timestamp of row {row} must be milliseconds since 1970, not {timestamps[row]}")
    return timestamps


def _fixed_partitions(
    column: pa.Array | None, keys: pa.Array | None, rows: int, partition_count: int
) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """Return each row's partition, given or by its key's hash, and which rows have neither."""
    if column is None and keys is not None and not keys.null_count:
        return partitions_for_keys(keys, partition_count), np.zeros(rows, np.bool_)
    chosen, is_open = np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    if column is not None:
        if not pa.types.is_integer(column.type):
            raise SerializationError(f"column 'partition' must be an integer, not {column.type}")
        chosen, is_open = _int64("partition", column, 0), nulls_of(column)
    if keys is not None and is_open.any():
        chosen = np.where(is_open, partitions_for_keys(keys, partition_count), chosen)
        is_open = is_open & nulls_of(keys)
    return chosen, is_open


def _sticky_runs(
    sizes: Int64Array, overhead: int, sticky: StickyPartitioner, open_room: int, room: int
) -> list[tuple[int, int, int]]:
    """Return the sticky partitions and their rows: (partition, first row, row behind the last).

    The rows fill the sticky partition's open batch and then whole batches: only the last one has room left.
    """
    fits = int(sizes[0]) + overhead <= open_room
    stops = stops_of_batches(sizes, overhead, open_room if fits else room, room)
    runs: list[tuple[int, int, int]] = []
    batch = start = 0
    has_another = sticky.produced < sticky.sticky_bytes
    for partition, batches in sticky.spread(len(stops), int(fits or has_another)).items():
        batch += batches
        runs.append((partition, start, stops[batch - 1]))
        start = stops[batch - 1]
    last = sizes[stops[-2] if len(stops) > 1 else 0 :]
    sticky.note_appended(int(last.sum()) + overhead * len(last))
    return runs
