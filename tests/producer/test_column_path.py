"""Which rows of an Arrow batch go where: as the records one by one would, and each partition's in their order."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import run_python

from shmaccum.errors import SerializationError
from shmaccum.producer.column_path import COLUMNS, partition_columns
from shmaccum.producer.partitioner import StickyPartitioner, partition_for_key
from shmaccum.record.columns import ColumnBodies
from shmaccum.record.format import record_format

FORMAT = record_format(2)


class Topic:
    """A topic whose deques no column looks at."""

    queues = ()


def partition(batch: pa.RecordBatch, count: int = 5, *, ignore_keys: bool = False) -> dict[int, ColumnBodies]:
    sticky = StickyPartitioner(Topic(), 1 << 14, lambda times: random.choices(range(count), k=times))
    return partition_columns(
        batch, FORMAT, count, sticky, ignore_keys=ignore_keys, max_body_size=1 << 20, batch_size=1 << 14, open_room=0
    )


def partition_of_each_row(parts: dict[int, ColumnBodies], rows: int) -> list[int]:
    chosen = np.full(rows, -1)
    for number, part in parts.items():
        assert (np.diff(part.rows) > 0).all()
        assert (chosen[part.rows] == -1).all()
        assert len(part.body_sizes) == len(part.timestamps) == len(part.rows)
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
        encoded = part.lay_out(0, 1000, 1)
        expected = b"".join(
            FORMAT.encode_record(n, 0, 0, FORMAT.encode_body(None, value, ())) for n, value in enumerate(values)
        )
        assert bytes(encoded.records(0)) == expected


def test_sticky_rows_move_on_after_a_batch() -> None:
    batch = pa.record_batch({"value": pa.array([bytes(1000)] * 200, pa.binary())})
    random.seed(1)
    found = partition_of_each_row(partition(batch, 1000), 200)
    runs = np.diff(np.flatnonzero(np.diff([-1, *found, -1])))
    assert len(runs) == len(set(found))  # each has its rows in one piece
    assert len(runs) > 10
    assert all(run % 16 == 0 for run in runs[:-1].tolist())  # whole batches of 1010 bytes a record


def test_rows_without_partition_or_key_among_others() -> None:
    keys = [b"a", None, b"b", None]
    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "partition": pa.array([None, 3, 4, None], pa.int8())})
    found = partition_of_each_row(partition(batch), 4)
    assert found[:3] == [partition_for_key(b"a", 5), 3, 4]


@pytest.mark.parametrize("number", [-1, 70_000])
def test_a_partition_that_cannot_be_is_grouped_all_the_same(number: int) -> None:
    """To refuse it is for those who know the topic."""
    batch = pa.record_batch({"value": ["a", "b", "c"], "partition": [0, number, 0]})
    assert {given: part.rows.tolist() for given, part in partition(batch).items()} == {0: [0, 2], number: [1]}


def test_what_lies_beneath_a_null_is_not_looked_at() -> None:
    hidden = pa.Int64Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([-5, 4], np.int64))]
    )
    batch = pa.record_batch({"value": ["a", "b"], "partition": hidden, "timestamp": hidden})
    parts = partition(batch, 1_000_000)
    assert parts[4].timestamps.tolist() == [4]
    assert all(part.timestamps[0] > 1_600_000_000_000 for number, part in parts.items() if number != 4)
    assert sum(map(len, (part.rows for part in parts.values()))) == 2


def test_pandas_is_not_imported() -> None:
    """It takes a second, and pyarrow imports it for many conversions if it is there."""
    code = """if True:
        import sys
        import numpy as np
        import pyarrow as pa
        from shmaccum.producer.column_path import partition_columns
        from shmaccum.producer.partitioner import StickyPartitioner
        from shmaccum.record.format import record_format

        text = pa.StringArray.from_buffers(3, pa.py_buffer(np.array([0, 1, 2, 4], np.int32)), pa.py_buffer(b"abcd"))
        one_null = [pa.py_buffer(bytes([5])), pa.py_buffer(np.arange(3))]
        numbers = pa.Int64Array.from_buffers(pa.int64(), 3, one_null)
        sticky = StickyPartitioner(None, 100, lambda times: [0] * times)
        for columns in ({"value": text}, {"key": text, "value": text, "partition": numbers, "timestamp": numbers}):
            batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
            for part in partition_columns(
                batch, record_format(2), 3, sticky, ignore_keys=False, max_body_size=999, batch_size=1000, open_room=0
            ).values():
                part.lay_out(0, 1000, 1)
        print("pandas" in sys.modules)
    """
    done = run_python("-c", code)
    assert (done.returncode, done.stdout) == (0, "False\n")


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
