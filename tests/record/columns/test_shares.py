"""How the rows of columns are shared out: by partitions, and by the batches that they fill."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from record_batches import examples

from shmaccum._core import least_and_largest, stops_of_batches
from shmaccum.errors import SerializationError
from shmaccum.record.columns import UNKNOWN_PARTITION, grouped, partitions_for_keys

key_lists = st.lists(st.none() | st.binary(max_size=9) | st.binary(min_size=100, max_size=120), max_size=60)


@examples
@given(key_lists, st.integers(0, 5))
def test_a_column_is_hashed_as_its_keys_are(keys: list[bytes | None], skipped: int) -> None:
    partitions = partitions_for_keys(pa.array(keys, pa.binary())[skipped:], 13)
    assert partitions.dtype == np.int64
    assert partitions.tolist() == [
        UNKNOWN_PARTITION if key is None else (murmur2(key) & 0x7FFFFFFF) % 13 for key in keys[skipped:]
    ]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view(), pa.binary(6)]
)
def test_any_binary_or_string_type(kind: pa.DataType) -> None:
    column = pa.array(["foobar", "barfoo"], pa.string()).cast(pa.binary()).cast(kind)
    expected = [(murmur2(key) & 0x7FFFFFFF) % 1000 for key in (b"foobar", b"barfoo")]
    assert partitions_for_keys(column, 1000).tolist() == expected


def test_other_types_are_refused() -> None:
    with pytest.raises(SerializationError, match=r"keys.*int64"):
        partitions_for_keys(pa.array([1]), 3)


@examples
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(0, 9), st.integers(0, 60), st.integers(1, 90))
def test_a_batch_ends_with_the_last_row_that_fits(sizes: list[int], overhead: int, first_room: int, room: int) -> None:
    stops, filled, left = [], 0, first_room
    for row, size in enumerate(sizes):
        if filled and filled + size + overhead > left:
            stops.append(row)
            filled, left = 0, room
        filled += size + overhead
    assert stops_of_batches(np.array(sizes), overhead, first_room, room) == [*stops, len(sizes)]
    assert least_and_largest(np.array(sizes)) == (min(sizes), max(sizes))


@examples
@given(st.lists(st.integers(-1, 6), min_size=1, max_size=30), st.integers(1, 7))
def test_rows_are_grouped_in_their_order(partitions: list[int], count: int) -> None:
    """Also rows of partitions that do not exist, or not yet: these are an error for the caller to report."""
    order, groups = grouped(np.array(partitions), count)
    assert {number: order[start:stop].tolist() for number, start, stop in groups} == {
        number: [row for row, there in enumerate(partitions) if there == number] for number in set(partitions)
    }
    assert [stop for _, _, stop in groups[:-1]] == [start for _, start, _ in groups[1:]]
