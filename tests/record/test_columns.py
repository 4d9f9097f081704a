"""Columns: their rows become the bytes of single records, in the batches and partitions that are right for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from record_batches import NOW, examples, few_examples, samples

from shmaccum._core import FutureRecordMetadata, ProduceRequestResult, Rows, least_and_largest, stops_of_batches
from shmaccum.cluster import TopicPartition
from shmaccum.errors import SerializationError, UnsupportedForMessageFormatError
from shmaccum.record.columns import UNKNOWN_PARTITION, ColumnBodies, grouped, partitions_for_keys
from shmaccum.record.format import RecordFormat, record_format

RESULT = ProduceRequestResult(TopicPartition("t", 0), 1, None)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def header_array(rows: Sequence[Sequence[tuple[str, bytes | None]] | None], kind: pa.DataType = HEADERS) -> pa.Array:
    entries = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(entries, kind)


def bodies_of(rows: Rows) -> list[tuple[int, bytes]]:
    """Return the timestamp and the body of each row, as of one that is appended alone."""
    found = []
    while rows.left:
        found.append(rows.next_record())
        rows.note(FutureRecordMetadata(RESULT, len(found), 0))
    return found


def encode_all(fmt: RecordFormat, *columns: pa.Array | None) -> list[bytes]:
    bodies = ColumnBodies(fmt, *columns, NOW)
    return [body for _, body in bodies_of(bodies.rows(0, len(bodies)))]


def one_by_one(fmt: RecordFormat, keys: Sequence, values: Sequence, headers: Sequence) -> list[bytes]:
    rows = zip(keys, values, headers, strict=True)
    return [fmt.encode_body(key, value, row or ()) for key, value, row in rows]


@pytest.mark.parametrize("magic", [1, 2])
@few_examples
@given(data=st.data())
def test_columns_give_the_bytes_of_single_records(magic: int, data: st.DataObject) -> None:
    fmt = record_format(magic)
    records = data.draw(samples(magic, min_size=0))
    count = len(records)
    skipped = data.draw(st.integers(0, count), label="rows sliced off")
    columns = ColumnBodies(
        fmt,
        pa.array([record.key for record in records], pa.binary())[skipped:],
        pa.array([record.value for record in records], pa.binary())[skipped:],
        header_array([record.headers for record in records])[skipped:],
        np.array([record.timestamp for record in records], np.int64)[skipped:],
    )
    order = data.draw(st.none() | st.permutations(range(count - skipped)), label="order")
    start = data.draw(st.integers(0, count - skipped), label="rows before the first one")
    rows = columns.rows(start, count - skipped, None if order is None else np.array(order, np.int64))
    chosen = [records[skipped + row] for row in range(count - skipped)]
    encoded = [fmt.encode_body(record.key, record.value, record.headers) for record in chosen]
    assert columns.body_sizes.tolist() == list(map(len, encoded))
    expected = [(chosen[row].timestamp, encoded[row]) for row in (order or range(len(chosen)))]
    assert bodies_of(rows) == expected[start:]


def test_bytes_beneath_a_null_are_not_sent() -> None:
    valid = pa.py_buffer(b"\x05")
    hidden = pa.BinaryArray.from_buffers(
        pa.binary(), 3, [valid, pa.py_buffer(np.array([0, 1, 7, 8], np.int32)), pa.py_buffer(b"asecretb")]
    )
    fmt = record_format(2)
    assert encode_all(fmt, hidden, hidden, None) == one_by_one(fmt, *[[b"a", None, b"b"]] * 2, [None] * 3)


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list])
@pytest.mark.parametrize("name_kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_headers_of_any_list_and_string_type(list_of: type, name_kind: pa.DataType) -> None:
    fmt = record_format(2)
    rows = [[("é", b"1"), ("b", None)], None, [], [("c", b"x" * 100)] * 70]
    kind = list_of(pa.struct([("value", pa.large_binary()), ("key", name_kind)]))
    absent = [None] * 3
    encoded = encode_all(fmt, None, None, header_array([[("skipped", b"")], *rows], kind)[2:])
    assert encoded == one_by_one(fmt, absent, absent, rows[1:])


def test_headers_beneath_a_null_list_are_not_sent() -> None:
    entries = header_array([[("a", b"1"), ("b", b"2"), ("c", b"3")]]).flatten()
    hidden = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), entries, mask=pa.array([False, True, False]))
    fmt = record_format(2)
    assert encode_all(fmt, None, None, hidden) == one_by_one(
        fmt, [None] * 3, [None] * 3, [[("a", b"1")], None, [("c", b"3")]]
    )


def test_old_formats_have_no_headers() -> None:
    fmt = record_format(1)
    assert len(ColumnBodies(fmt, None, pa.array([b"v"]), header_array([None]), NOW)) == 1
    with pytest.raises(UnsupportedForMessageFormatError):
        ColumnBodies(fmt, None, pa.array([b"v"]), header_array([[("h", b"")]]), NOW)


def changeable(kind: pa.DataType) -> tuple[pa.Array, np.ndarray]:
    """Return a column of three cells of three bytes, and its offsets, which can be changed."""
    offsets = np.array([0, 3, 6, 9], np.int64 if pa.types.is_large_binary(kind) else np.int32)
    return pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcabcabc")]), offsets


wrong_offsets = pytest.mark.parametrize(
    "wrong", [[0, 5, 2, 9], [0, -4, 3, 9], [0, 900, 1000, 9], [0, 3, 6, 1 << 30], [-(1 << 30), 3, 6, 9]]
)
offset_kinds = pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)


@wrong_offsets
@offset_kinds
@pytest.mark.parametrize("name", ["keys", "values"])
def test_offsets_that_lead_elsewhere_are_refused(name: str, kind: pa.DataType, wrong: list[int]) -> None:
    """Before anything is read from there."""
    column, offsets = changeable(kind)
    offsets[:] = wrong
    with pytest.raises(SerializationError):
        ColumnBodies(record_format(2), **{"keys": None, "values": None, "headers": None, name: column}, timestamps=NOW)


@wrong_offsets
@offset_kinds
def test_offsets_that_are_changed_later_lead_nowhere(kind: pa.DataType, wrong: list[int]) -> None:
    column, offsets = changeable(kind)
    rows = ColumnBodies(record_format(2), column, column, None, NOW).rows(0, 3)
    offsets[:] = wrong
    with pytest.raises(SerializationError, match="changed"):
        bodies_of(rows)


def changeable_headers() -> tuple[pa.Array, dict[str, np.ndarray]]:
    """Return the headers of three records, two each, and the memory of what leads to them, which can be changed."""
    lists, names = np.array([0, 2, 4, 6], np.int32), np.arange(7, dtype=np.int32)
    views = np.zeros((6, 4), np.int32)
    values = pa.Array.from_buffers(pa.binary_view(), 6, [None, pa.py_buffer(views)])
    keys = pa.Array.from_buffers(pa.string(), 6, [None, pa.py_buffer(names), pa.py_buffer(b"abcdef")])
    entries = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    kind = pa.list_(entries.type)
    column = pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(lists)], children=[entries])
    return column, {"lists": lists, "names": names, "views": views.reshape(-1)}


@pytest.mark.parametrize("wrong", [-1, 1000, 1 << 30, -(1 << 31)])
@pytest.mark.parametrize(("memory", "index"), [("lists", 1), ("names", 1), ("views", 4)])
def test_headers_that_are_elsewhere_are_refused(memory: str, index: int, wrong: int) -> None:
    """Arrow's own kernels, which read them, would follow any offset."""
    headers, memories = changeable_headers()
    values = pa.array([b"1", b"2", b"3"], pa.binary())
    ColumnBodies(record_format(2), None, values, headers, NOW)
    memories[memory][index] = wrong
    with pytest.raises(SerializationError):
        ColumnBodies(record_format(2), None, values, headers, NOW)


def test_views_of_nulls_are_not_followed() -> None:
    views = np.zeros((3, 4), np.int32)
    views[1] = -1, 1 << 30, 1 << 30, 1 << 30
    validity = pa.py_buffer(bytes([0b101]))
    column = pa.Array.from_buffers(pa.binary_view(), 3, [validity, pa.py_buffer(views)])
    plain = pa.array([b"", None, b""], pa.binary())
    assert encode_all(record_format(2), None, column, None) == encode_all(record_format(2), None, plain, None)


# --- how rows are shared out: by partitions, and by the batches that they fill ----------------------------


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
