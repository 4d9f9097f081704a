"""Which rows of an Arrow batch go where: as the records one by one would, and each partition's in their order."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmaccum.accumulator.column_appender import PartitionRows
from shmaccum.columns import COLUMNS, partition_columns
from shmaccum.errors import SerializationError
from shmaccum.partitioner import StickyPartitioner
from shmaccum.record.format import record_format
from shmaccum.record.murmur2 import partition_for_key

FORMAT = record_format(2)


def partition(batch: pa.RecordBatch, count: int = 5, *, ignore_keys: bool = False) -> dict[int, PartitionRows]:
    sticky = StickyPartitioner(1 << 14, lambda: random.randrange(count))
    return partition_columns(batch, FORMAT, count, sticky, ignore_keys=ignore_keys, max_body_size=1 << 20)


def partition_of_each_row(parts: dict[int, PartitionRows], rows: int) -> list[int]:
    chosen = np.full(rows, -1)
    for number, part in parts.items():
        assert (np.diff(part.rows) > 0).all()
        assert (chosen[part.rows] == -1).all()
        assert len(part.bodies) == len(part.timestamps) == len(part.rows)
        chosen[part.rows] = number
    return list(chosen.tolist())


rows = st.lists(
    st.tuples(st.one_of(st.none(), st.binary(max_size=9)), st.one_of(st.none(), st.integers(0, 4))), max_size=40
)


@settings(deadline=None)
@given(rows, st.booleans())
def test_every_row_has_its_partition(given_rows: list[tuple[bytes | None, int | None]], ignore_keys: bool) -> None:
    """The one that it names, or else its key's, or else the one of the moment."""
    keys, numbers = [row[0] for row in given_rows], [row[1] for row in given_rows]
    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "partition": pa.array(numbers, pa.int32())})
    found = partition_of_each_row(partition(batch, ignore_keys=ignore_keys), len(given_rows))
    sticky = set()
    for key, number, there in zip(keys, numbers, found, strict=True):
        if number is not None:
            assert there == number
        elif key is not None and not ignore_keys:
            assert there == partition_for_key(key, 5)
        else:
            sticky.add(there)
    assert len(sticky) <= 1  # so few bytes are not yet a reason to move on


def test_bodies_are_those_of_the_rows() -> None:
    batch = pa.record_batch({"value": ["a", "bb", "ccc", "dddd"], "partition": [1, 0, 1, 0]})
    parts = partition(batch)
    for number, values in ((0, [b"bb", b"dddd"]), (1, [b"a", b"ccc"])):
        part = parts[number]
        encoded = part.bodies.encode(0, 2, np.arange(2), part.timestamps, int(part.timestamps[0]))
        expected = b"".join(
            FORMAT.encode_record(n, 0, 0, FORMAT.encode_body(None, value, ())) for n, value in enumerate(values)
        )
        assert bytes(encoded.data) == expected


def test_sticky_rows_move_on_after_a_batch() -> None:
    batch = pa.record_batch({"value": pa.array([bytes(1000)] * 200, pa.binary())})
    found = partition_of_each_row(partition(batch, 1000), 200)
    runs = np.diff(np.flatnonzero(np.diff([-1, *found, -1])))
    assert set(runs[:-1].tolist()) == {17}  # the first number of them that makes 16384 bytes


def test_no_rows() -> None:
    assert partition(pa.record_batch({"value": pa.array([], pa.string())})) == {}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_by_their_names(name: str) -> None:
    """Each of them may be there without the others, but for something to send."""
    column = {
        "partition": [0],
        "headers": pa.array([[]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
    batch = pa.record_batch({name: column.get(name, ["5"] if name != "timestamp" else [5])})
    if name in ("key", "value"):
        assert partition_of_each_row(partition(batch), 1) != [-1]
    else:
        with pytest.raises(SerializationError, match="nothing to send"):
            partition(batch)
