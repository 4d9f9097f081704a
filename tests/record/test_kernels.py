"""The kernels in C give the bytes of their plain counterparts: both in one process, over the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_modules import plain
from record_batches import NOW, Sample, blobs, examples, header_lists, samples

import shmaccum
from shmaccum.record.columns import encoder, murmur2_columns, shares
from shmaccum.record.columns.bodies import ReadyBatches
from shmaccum.record.format import record_format
from shmaccum.record.v2 import records, varint

pytestmark = pytest.mark.skipif(not shmaccum.compiled, reason="the plain form has no kernels to compare with")

_PAIRS = (encoder, murmur2_columns, shares, records, varint)
_NAMES = [module.__name__ for module in _PAIRS]
PLAIN = dict(zip(_NAMES, plain(*_NAMES), strict=True)) if shmaccum.compiled else {}

longs = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**31 - 1)
columns = st.lists(st.none() | blobs, min_size=1, max_size=20)


def in_both(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function and its plain counterpart; return what both return."""
    found = function(*arguments, **named)
    assert getattr(PLAIN[function.__module__], function.__name__)(*arguments, **named) == found
    return found


def test_the_counterparts_are_plain() -> None:
    assert not PLAIN["shmaccum.record.columns.encoder"].COMPILED
    assert {str(module.__file__).rpartition(".")[2] for module in PLAIN.values()} == {"py"}
    assert encoder.COMPILED


@examples
@given(longs)
def test_varints(number: int) -> None:
    encoded = in_both(varint.encode_varint, number)
    assert in_both(varint.size_of_varint, number) == len(encoded)
    assert in_both(varint.decode_varint, encoded, 0) == (number, len(encoded))


@examples
@given(st.none() | blobs, st.none() | blobs, header_lists, counts, longs)
def test_a_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], offset: int, delta: int
) -> None:
    body = in_both(records.encode_body, key, value, headers)
    record = in_both(records.encode_record, offset, delta, 0, body)
    assert in_both(records.record_size, offset, delta, len(body)) == len(record)


@examples
@given(
    section=st.binary(max_size=300),
    more=st.lists(st.binary(max_size=50), max_size=2),
    attributes=st.integers(0, 2**15 - 1),
    record_count=st.integers(1, 2**31 - 1),
    times=st.tuples(longs, longs),
    producer=st.tuples(longs, st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
)
def test_the_header_of_a_batch(
    section: bytes, more: list[bytes], attributes: int, record_count: int, times: tuple, producer: tuple
) -> None:
    written = []
    for module in (records, PLAIN[records.__name__]):
        buffer = memoryview(bytearray(records.HEADER_SIZE) + section + b"behind")
        size = records.HEADER_SIZE + len(section)
        module.write_header(buffer, size, attributes, record_count, *times, *producer, tuple(map(memoryview, more)))
        written.append(bytes(buffer))
    assert written[0] == written[1]


@examples
@given(st.lists(st.integers(1, 500), min_size=1, max_size=60), st.integers(0, 20), counts, st.integers(1, 2000))
def test_rows_of_batches(sizes: list[int], overhead: int, first_room: int, room: int) -> None:
    in_both(shares.least_and_largest, np.array(sizes))
    in_both(shares.stops_of_batches, np.array(sizes), overhead, first_room % (room + 1), room)


@examples
@given(st.lists(st.integers(-1, 6), min_size=1, max_size=60), st.integers(1, 7))
def test_rows_of_partitions(partitions: list[int], count: int) -> None:
    order, groups = shares.grouped(np.array(partitions), count)
    plain_order, plain_groups = PLAIN[shares.__name__].grouped(np.array(partitions), count)
    assert order.tolist() == plain_order.tolist()
    assert groups == plain_groups


@examples
@given(columns, st.integers(1, 10_000))
def test_partitions_of_a_column(keys: list[bytes | None], partition_count: int) -> None:
    column = pa.array(keys, pa.binary())
    found = murmur2_columns.partitions_for_keys(column, partition_count)
    assert found.tolist() == PLAIN[murmur2_columns.__name__].partitions_for_keys(column, partition_count).tolist()


def content(ready: ReadyBatches) -> tuple[object, ...]:
    """Return the bytes of the only batch, and what else is known of it."""
    known = ready.cuts, ready.sizes, ready.largest, ready.base_timestamps, ready.max_timestamps
    return bytes(ready.records(0)), *known


@examples
@given(samples(2), st.data())
def test_the_records_of_columns(rows: list[Sample], data: st.DataObject) -> None:
    """In one batch: where batches end, the plain form decides by the most bytes that a record can take."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": name, "value": value} for name, value in row.headers] for row in rows]
    arguments = (
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
        pa.array(headers, kind) if data.draw(st.booleans(), label="with headers") else None,
        np.array([row.timestamp for row in rows]) if data.draw(st.booleans(), label="times differ") else NOW,
    )
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    first_offset, base = data.draw(counts, label="first offset"), data.draw(st.integers(0, 2**62), label="base")
    found = []
    for module in (encoder, PLAIN[encoder.__name__]):
        bodies = module.encode_columns(record_format(2), *arguments).take(order)
        (new,) = bodies.lay_out(0, 1 << 30, 1)
        added = bodies.add_to(1 << 30, first_offset, base)
        found.append((bodies.body_sizes.tolist(), content(new), content(added)))
    assert found[0] == found[1]
