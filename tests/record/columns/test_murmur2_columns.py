from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import examples

from shmaccum.errors import SerializationError
from shmaccum.record.columns.murmur2_columns import UNKNOWN_PARTITION, murmur2_column, partitions_for_keys
from shmaccum.record.murmur2 import murmur2, partition_for_key

key_lists = st.lists(st.none() | st.binary(max_size=9) | st.binary(min_size=100, max_size=120), max_size=60)


@examples
@given(key_lists, st.integers(0, 5))
def test_a_column_is_hashed_as_its_keys_are(keys: list[bytes | None], skipped: int) -> None:
    column = pa.array(keys, pa.binary())[skipped:]
    digests = murmur2_column(column)
    partitions = partitions_for_keys(column, 13)
    assert digests.dtype == np.uint32
    for key, digest, partition in zip(keys[skipped:], digests.tolist(), partitions.tolist(), strict=True):
        if key is None:
            assert partition == UNKNOWN_PARTITION
        else:
            assert digest == murmur2(key) & 0xFFFFFFFF
            assert partition == partition_for_key(key, 13)


@pytest.mark.parametrize("long_key_count", [1, 16, 17])
def test_a_few_keys_may_be_much_longer_than_the_others(long_key_count: int) -> None:
    keys = [b"short-%d" % i for i in range(100)] + [b"x" * (5000 + i) for i in range(long_key_count)]
    assert murmur2_column(pa.array(keys)).tolist() == [murmur2(key) & 0xFFFFFFFF for key in keys]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view(), pa.binary(6)]
)
def test_any_binary_or_string_type(kind: pa.DataType) -> None:
    expected = [murmur2(key) & 0xFFFFFFFF for key in (b"foobar", b"barfoo")]
    assert murmur2_column(pa.array(["foobar", "barfoo"], pa.string()).cast(pa.binary()).cast(kind)).tolist() == expected


def test_other_types_are_refused() -> None:
    with pytest.raises(SerializationError, match=r"keys.*int64"):
        murmur2_column(pa.array([1]))
