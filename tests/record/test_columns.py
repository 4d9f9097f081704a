"""Columns: their rows become the bytes of single records, in the batches and partitions that are right for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from record_batches import NOW, Sample, examples, few_examples, samples

from shmaccum._core import RowBatches, least_and_largest, stops_of_batches
from shmaccum.errors import SerializationError, UnsupportedForMessageFormatError
from shmaccum.record.columns import UNKNOWN_PARTITION, ColumnBodies, grouped, partitions_for_keys
from shmaccum.record.format import RecordFormat, record_format

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def header_array(rows: Sequence[Sequence[tuple[str, bytes | None]] | None], kind: pa.DataType = HEADERS) -> pa.Array:
    entries = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(entries, kind)


def split(ready: RowBatches) -> list[bytes]:
    """Return the records of each batch; those of all but the first, from where they are written to."""
    sizes = ready.sizes
    places = [number + sum(sizes[1:number]) for number in range(1, len(sizes))]
    memory = memoryview(bytearray(sum(sizes[1:]) + len(sizes) + 1))
    ready.write(memory, places, 1)
    written = [bytes(memory[place : place + size]) for place, size in zip(places, sizes[1:], strict=True)]
    for place, records in zip(places, written, strict=True):
        memory[place : place + len(records)] = bytes(len(records))
    assert not any(memory)  # nothing is written to any other place
    first = bytes(ready.records(0))
    assert len(first) == sizes[0]
    return [first, *written]


def laid_out(bodies: ColumnBodies, first: int, room: int, most: int) -> Iterator[RowBatches]:
    """Yield the batches of all records, some at a time."""
    while first < len(bodies):
        yield (ready := bodies.lay_out(first, room, most))
        first = ready.cuts[-1]


def encode_all(fmt: RecordFormat, *columns: pa.Array | None) -> list[bytes]:
    """Return the records, each of them the first one of a batch."""
    bodies = ColumnBodies(fmt, *columns, NOW)
    return [batch for ready in laid_out(bodies, 0, 1, 2) for batch in split(ready)]


def one_by_one(fmt: RecordFormat, keys: Sequence, values: Sequence, headers: Sequence) -> list[bytes]:
    rows = zip(keys, values, headers, strict=True)
    return [fmt.encode_record(0, NOW, NOW, fmt.encode_body(key, value, row or ())) for key, value, row in rows]


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
    rows = data.draw(st.permutations(range(count - skipped)), label="order")
    taken = columns.take(np.array(rows, np.int64))
    assert taken.rows.tolist() == rows
    chosen = [records[skipped + row] for row in rows]
    assert taken.body_sizes.tolist() == [
        len(fmt.encode_body(record.key, record.value, record.headers)) for record in chosen
    ]
    check_batches(fmt, taken, chosen, data)


def check_batches(fmt: RecordFormat, bodies: ColumnBodies, records: list[Sample], data: st.DataObject) -> None:
    """Lay some of the records out over batches, and compare with each encoded alone."""
    if not records:
        return
    skipped = data.draw(st.integers(0, len(records) - 1), label="rows that are not of the part")
    bodies, records = bodies.part(skipped, len(records)), records[skipped:]
    rooms = st.integers(0, 500) | st.integers(0, 100_000)
    added = 0
    if data.draw(st.booleans(), label="there is an open batch"):
        room, first_offset = data.draw(rooms, label="its room"), data.draw(st.sampled_from([1, 60, 64, 8190]))
        base_timestamp = data.draw(st.integers(NOW - 70, NOW + 70), label="base timestamp")
        ready = bodies.add_to(room, first_offset, base_timestamp)
        if ready is not None:
            added = check_ready(fmt, ready, 0, records, room, first_offset, base_timestamp)
    room, most = data.draw(rooms, label="room"), data.draw(st.integers(1, 3), label="batches at a time")
    first = added
    for ready in laid_out(bodies, first, room, most):
        stop = check_ready(fmt, ready, first, records, room)
        assert len(ready.sizes) == most or (len(ready.sizes) < most and stop == len(records))
        first = stop
    assert first == len(records)


def check_ready(
    fmt: RecordFormat,
    ready: RowBatches,
    first: int,
    records: list[Sample],
    room: int,
    first_offset: int = 0,
    base_timestamp: int | None = None,
) -> int:
    """Compare batches with their records encoded one by one; return the record behind them."""
    assert ready.cuts[0] == first
    expected, bases = [], []
    for start, end in itertools.pairwise(ready.cuts):
        bases.append(records[start].timestamp if base_timestamp is None else base_timestamp)
        expected.append(
            [
                fmt.encode_record(
                    place, record.timestamp, bases[-1], fmt.encode_body(record.key, record.value, record.headers)
                )
                for place, record in enumerate(records[start:end], first_offset)
            ]
        )
    assert split(ready) == [b"".join(batch) for batch in expected]
    assert ready.sizes == [sum(map(len, batch)) for batch in expected]
    assert ready.largest == [max(map(len, batch)) for batch in expected]
    assert ready.base_timestamps == bases
    assert ready.max_timestamps == [
        max(record.timestamp for record in records[start:end]) for start, end in itertools.pairwise(ready.cuts)
    ]
    for batch, size in zip(expected, ready.sizes, strict=True):
        assert size <= room or (len(batch) == 1 and base_timestamp is None)
    return ready.cuts[-1]


one_size = st.tuples(st.integers(1, 200), st.sampled_from([None, 0, 1, 63, 64]), st.sampled_from([None, 0, 9, 100]))


@few_examples
@given(one_size, st.data())
def test_records_of_one_size_give_the_same_bytes(
    shape: tuple[int, int | None, int | None], data: st.DataObject
) -> None:
    count, *sizes = shape
    fields = [
        [None if size is None else random.randbytes(size) for _ in range(count)]
        for random, size in zip((Random(1), Random(2)), sizes, strict=True)
    ]
    fmt = record_format(2)
    bodies = ColumnBodies(fmt, *(pa.array(field, pa.binary()) for field in fields), None, NOW)
    rows = np.random.default_rng(1).permutation(count)
    records = [Sample(fields[0][row], fields[1][row], (), NOW) for row in rows.tolist()]
    check_batches(fmt, bodies.take(rows), records, data)


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


@few_examples
@given(st.data(), st.integers(1, 2000), st.sampled_from([0, 60, 8190]))
def test_records_are_laid_out_over_batches(data: st.DataObject, room: int, first_offset: int) -> None:
    """As many go into a batch as surely fit: what they are reckoned to take is exact, or a few bytes more for each."""
    sizes = data.draw(st.lists(st.integers(0, 120), min_size=1, max_size=150), label="sizes")
    fmt = record_format(2)
    bodies = ColumnBodies(fmt, None, pa.array(map(bytes, sizes), pa.binary()), None, NOW)
    taken = [len(fmt.encode_record(0, NOW, NOW, fmt.encode_body(None, bytes(size), ()))) for size in sizes]

    def is_full(size: int, start: int, end: int) -> bool:
        spare = 4
        return end == len(taken) or size + taken[end] + spare > room

    ready = bodies.add_to(room, first_offset, NOW)
    if ready is None:
        assert is_full(0, 0, 0)
    else:
        assert ready.sizes[0] <= room
        assert is_full(ready.sizes[0], 0, ready.cuts[1])
    first = data.draw(st.integers(0, len(sizes) - 1), label="first")
    for ready in laid_out(bodies, first, room, 4):
        for size, (start, end) in zip(ready.sizes, itertools.pairwise(ready.cuts), strict=True):
            assert size <= room or end == start + 1
            assert is_full(size, start, end)


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
    """No byte behind the batch is written."""
    column, offsets = changeable(kind)
    ready = ColumnBodies(record_format(2), column, column, None, NOW).lay_out(0, 1000, 1)
    offsets[:] = wrong
    memory = memoryview(bytearray(ready.sizes[0] + 20))
    with pytest.raises(SerializationError):
        ready.write(memory, [10])
    assert not any(memory[:10])
    assert not any(memory[-10:])


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
    ready = ColumnBodies(record_format(2), None, column, None, NOW).lay_out(0, 1000, 1)
    plain = pa.array([b"", None, b""], pa.binary())
    expected = ColumnBodies(record_format(2), None, plain, None, NOW).lay_out(0, 1000, 1)
    assert bytes(ready.records(0)) == bytes(expected.records(0))


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
