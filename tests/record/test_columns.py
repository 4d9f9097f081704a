from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import NOW, Sample, examples, samples

import shmaccum
from shmaccum.errors import SerializationError, UnsupportedForMessageFormatError
from shmaccum.record.column_bodies import ColumnBodies, ReadyBatches
from shmaccum.record.columns import encode_columns
from shmaccum.record.columns_even import EvenBodies
from shmaccum.record.format import RecordFormat, record_format

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def header_array(rows: Sequence[Sequence[tuple[str, bytes | None]] | None], kind: pa.DataType = HEADERS) -> pa.Array:
    entries = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(entries, kind)


def split(ready: ReadyBatches) -> list[bytes]:
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


def encode_all(fmt: RecordFormat, *columns: pa.Array | None, one_timestamp: bool = False) -> list[bytes]:
    """Return the records, each of them the first one of a batch."""
    bodies = encode_columns(fmt, *columns, one_timestamp=one_timestamp)
    count = len(bodies)
    return split(bodies.encode(range(count), count, np.full(count, NOW))) if count else []


def one_by_one(fmt: RecordFormat, keys: Sequence, values: Sequence, headers: Sequence) -> list[bytes]:
    rows = zip(keys, values, headers, strict=True)
    return [fmt.encode_record(0, NOW, NOW, fmt.encode_body(key, value, row or ())) for key, value, row in rows]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_columns_give_the_bytes_of_single_records(magic: int) -> None:
    fmt = record_format(magic)

    @examples
    @given(samples(magic, min_size=0), st.data())
    def check(records: list[Sample], data: st.DataObject) -> None:
        count = len(records)
        skipped = data.draw(st.integers(0, count), label="rows sliced off")
        columns = encode_columns(
            fmt,
            pa.array([record.key for record in records], pa.binary())[skipped:],
            pa.array([record.value for record in records], pa.binary())[skipped:],
            header_array([record.headers for record in records])[skipped:],
        )
        rows = data.draw(st.permutations(range(count - skipped)), label="order")
        taken = columns.take(np.array(rows, np.int64))
        assert len(taken) == len(rows)
        chosen = [records[skipped + row] for row in rows]
        assert taken.body_sizes.tolist() == [
            len(fmt.encode_body(record.key, record.value, record.headers)) for record in chosen
        ]
        check_batches(fmt, taken, chosen, data)

    check()


def check_batches(fmt: RecordFormat, bodies: ColumnBodies, records: list[Sample], data: st.DataObject) -> None:
    """Encode some of the records for some batches, and compare with each encoded by itself."""
    if not records:
        return
    skipped = data.draw(st.integers(0, len(records) - 1), label="rows that are not of the part")
    bodies, records = bodies.part(skipped, len(records)), records[skipped:]
    starts = sorted(data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1), label="starts"))
    stop = data.draw(st.integers(starts[-1] + 1, len(records)), label="stop")
    first_offset = data.draw(st.sampled_from([0, 3, 60, 64, 8190]), label="first offset")
    base_timestamp = data.draw(st.none() | st.integers(NOW - 70, NOW + 70), label="base timestamp")
    timestamps = np.array([record.timestamp for record in records], np.int64)

    encoded = bodies.encode(starts, stop, timestamps, first_offset=first_offset, base_timestamp=base_timestamp)

    expected = []
    for number, (start, end) in enumerate(itertools.pairwise([*starts, stop])):
        first = number == 0
        base = base_timestamp if first and base_timestamp is not None else records[start].timestamp
        expected.append(
            [
                fmt.encode_record(
                    place + (first_offset if first else 0),
                    record.timestamp,
                    base,
                    fmt.encode_body(record.key, record.value, record.headers),
                )
                for place, record in enumerate(records[start:end])
            ]
        )
    assert split(encoded) == [b"".join(batch) for batch in expected]
    assert encoded.largest == [max(map(len, batch)) for batch in expected]
    base_timestamps = [base_timestamp or NOW, *timestamps[starts[1:]].tolist()]
    spread_ms = max(timestamps.max(), *base_timestamps) - min(timestamps.min(), *base_timestamps)
    overhead = bodies.overhead_max(int(spread_ms), (first_offset + stop) * int(bodies.body_sizes.max()))
    sizes = iter(bodies.body_sizes[starts[0] :].tolist())
    assert all(len(record) <= next(sizes) + overhead for batch in expected for record in batch)


even_columns = st.tuples(st.integers(1, 200), st.sampled_from([None, 0, 1, 63, 64]), st.sampled_from([None, 0, 9, 100]))


@given(even_columns, st.data())
def test_records_of_one_size_give_the_same_bytes(
    shape: tuple[int, int | None, int | None], data: st.DataObject
) -> None:
    count, *sizes = shape
    fields = [
        [None if size is None else random.randbytes(size) for _ in range(count)]
        for random, size in zip((Random(1), Random(2)), sizes, strict=True)
    ]
    fmt = record_format(2)
    bodies = encode_columns(fmt, *(pa.array(field, pa.binary()) for field in fields), None, one_timestamp=True)
    assert isinstance(bodies, EvenBodies) != shmaccum.compiled
    rows = np.random.default_rng(1).permutation(count)
    records = [Sample(fields[0][row], fields[1][row], (), NOW) for row in rows.tolist()]
    check_batches(fmt, bodies.take(rows), records, data)


@pytest.mark.parametrize("values", [[b"a", None], [b"a", b"bb"], [b"", b"b"], []])
def test_records_of_other_sizes_are_joined(values: list[bytes | None]) -> None:
    column = pa.array(values, pa.binary())
    assert not isinstance(encode_columns(record_format(2), None, column, None, one_timestamp=True), EvenBodies)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(3),
    ],
    ids=str,
)
def test_any_binary_or_string_type_will_do(magic: int, kind: pa.DataType) -> None:
    fmt = record_format(magic)
    column = pa.array([b"abc", None, b"xyz"], pa.binary()).cast(kind)
    rows = [b"abc", None, b"xyz"]
    assert encode_all(fmt, column, column, None) == one_by_one(fmt, rows, rows, [None] * 3)
    assert encode_all(fmt, column[1:], None, None) == one_by_one(fmt, rows[1:], [None] * 2, [None] * 2)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_column_may_be_missing_or_without_a_type(magic: int) -> None:
    fmt = record_format(magic)
    expected = one_by_one(fmt, [None] * 2, [b"v", None], [None] * 2)
    values = pa.array([b"v", None])
    assert encode_all(fmt, None, values, None) == expected
    assert encode_all(fmt, pa.nulls(2), values, None) == expected


def test_what_lies_beneath_a_null_is_not_sent() -> None:
    valid = pa.py_buffer(b"\x05")
    hidden = pa.BinaryArray.from_buffers(
        pa.binary(), 3, [valid, pa.py_buffer(np.array([0, 1, 7, 8], np.int32)), pa.py_buffer(b"asecretb")]
    )
    fmt = record_format(2)
    assert encode_all(fmt, hidden, hidden, None) == one_by_one(fmt, *[[b"a", None, b"b"]] * 2, [None] * 3)


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list])
@pytest.mark.parametrize("name_kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_headers_of_any_list_and_string_type_will_do(list_of: type, name_kind: pa.DataType) -> None:
    fmt = record_format(2)
    rows = [[("é", b"1"), ("b", None)], None, [], [("c", b"x" * 100)] * 70]
    kind = list_of(pa.struct([("value", pa.large_binary()), ("key", name_kind)]))
    absent = [None] * 3
    encoded = encode_all(fmt, None, None, header_array([[("skipped", b"")], *rows], kind)[2:])
    assert encoded == one_by_one(fmt, absent, absent, rows[1:])


def test_what_lies_beneath_a_null_list_is_not_sent() -> None:
    entries = header_array([[("a", b"1"), ("b", b"2"), ("c", b"3")]]).flatten()
    hidden = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), entries, mask=pa.array([False, True, False]))
    fmt = record_format(2)
    assert encode_all(fmt, None, None, hidden) == one_by_one(
        fmt, [None] * 3, [None] * 3, [[("a", b"1")], None, [("c", b"3")]]
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_no_headers(magic: int) -> None:
    fmt = record_format(magic)
    assert len(encode_columns(fmt, None, pa.array([b"v"]), header_array([None]))) == 1
    with pytest.raises(UnsupportedForMessageFormatError):
        encode_columns(fmt, None, pa.array([b"v"]), header_array([[("h", b"")]]))


@pytest.mark.parametrize("magic", [0, 2])
@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"keys": pa.array([1, 2])}, "keys.*int64"),
        ({"values": pa.array(["a", "b"]).dictionary_encode()}, "values.*dictionary"),
        ({"values": pa.chunked_array([["a"], ["b"]])}, "values.*ChunkedArray"),
        ({"values": ["a", "b"]}, "values.*list"),
        ({"headers": pa.array(["a", "b"])}, "headers.*string"),
        ({"headers": pa.array([[1], [2]])}, "headers.*list<item: int64>"),
        ({"headers": header_array([[(None, b"")], []])}, "headers.*name"),
        ({"headers": pa.array([[None], []], HEADERS)}, "headers.*name"),
        ({"values": pa.array(["a"]), "keys": pa.array(["a", "b"])}, r"\[1, 2\]"),
        ({}, "none"),
    ],
)
def test_columns_of_another_shape_are_refused(magic: int, columns: dict[str, pa.Array], complaint: str) -> None:
    with pytest.raises(SerializationError, match=complaint):
        encode_columns(record_format(magic), **{"keys": None, "values": None, "headers": None, **columns})


def test_header_values_must_be_binary() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.int64())]))
    with pytest.raises(SerializationError, match=r"header values.*int64"):
        encode_columns(record_format(2), None, None, pa.array([[{"key": "h", "value": 1}]], kind))


@given(st.data(), st.integers(0, 40), st.integers(1, 300))
def test_records_are_laid_out_over_batches(data: st.DataObject, overhead: int, room: int) -> None:
    sizes = data.draw(st.lists(st.integers(0, 120), min_size=1, max_size=60), label="sizes")
    bodies = encode_columns(record_format(2), None, pa.array(map(bytes, sizes), pa.binary()), None)
    first = data.draw(st.integers(0, len(sizes) - 1), label="first")
    overhead += 1
    taken = (bodies.body_sizes + overhead).tolist()
    fitting = bodies.fitting(overhead, room)
    assert sum(taken[:fitting]) <= room
    assert fitting == len(taken) or sum(taken[: fitting + 1]) > room
    starts = bodies.batch_starts(first, overhead, room)
    assert starts[0] == first
    for start, end in itertools.pairwise([*starts, len(taken)]):
        assert sum(taken[start:end]) <= room or end == start + 1
        assert end == len(taken) or sum(taken[start : end + 1]) > room


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
        encode_columns(record_format(2), **{"keys": None, "values": None, "headers": None, name: column})


@wrong_offsets
@offset_kinds
def test_offsets_that_are_changed_later_lead_nowhere(kind: pa.DataType, wrong: list[int]) -> None:
    """What is written is what was there at first, or nothing."""
    column, offsets = changeable(kind)
    bodies = encode_columns(record_format(2), column, column, None)
    ready = bodies.encode([0], 3, np.full(3, NOW))
    expected = bytes(ready.records(0))
    offsets[:] = wrong
    memory = memoryview(bytearray(ready.sizes[0] + 20))
    with pytest.raises(SerializationError) if shmaccum.compiled else contextlib.nullcontext():
        ready.write(memory, [10])
        assert bytes(memory[10:-10]) == expected
    assert not any(memory[:10])
    assert not any(memory[-10:])
