from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from record_batches import examples

from shmaccum.errors import SerializationError
from shmaccum.record.columns.bodies import UNKNOWN_PARTITION, partitions_for_keys

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


def test_a_topic_without_partitions() -> None:
    with pytest.raises(ZeroDivisionError):
        partitions_for_keys(pa.array([b"key"]), 0)
