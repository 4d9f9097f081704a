from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import NOW, Sample, examples, samples

from shmaccum.errors import SerializationError, UnsupportedForMessageFormatError
from shmaccum.record.columns import EncodedColumns, encode_columns
from shmaccum.record.format import RecordFormat, record_format

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def header_array(rows: Sequence[Sequence[tuple[str, bytes | None]] | None], kind: pa.DataType = HEADERS) -> pa.Array:
    entries = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(entries, kind)


def split(encoded: EncodedColumns) -> list[bytes]:
    assert encoded.offsets[0] == 0
    assert encoded.offsets[-1] == len(encoded.data)
    bounds = encoded.offsets.tolist()
    return [bytes(encoded.data[start:stop]) for start, stop in itertools.pairwise(bounds)]


def encode_all(fmt: RecordFormat, *columns: pa.Array | None) -> list[bytes]:
    bodies = encode_columns(fmt, *columns)
    count = len(bodies)
    return split(bodies.encode(0, count, np.zeros(count, np.int64), np.full(count, NOW), NOW))


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
        start = data.draw(st.integers(0, len(rows)), label="start")
        stop = data.draw(st.integers(start, len(rows)), label="stop")
        deltas = data.draw(st.lists(st.integers(0, 9000), min_size=stop - start, max_size=stop - start))
        chosen = [records[skipped + row] for row in rows[start:stop]]
        base_timestamps = [record.timestamp - 100 * delta for record, delta in zip(chosen, deltas, strict=True)]

        encoded = taken.encode(
            start,
            stop,
            np.array(deltas, np.int64),
            np.array([record.timestamp for record in chosen], np.int64),
            np.array(base_timestamps, np.int64),
        )

        bodies = [fmt.encode_body(record.key, record.value, record.headers) for record in chosen]
        assert taken.body_sizes[start:stop].tolist() == [len(body) for body in bodies]
        assert split(encoded) == [
            fmt.encode_record(delta, record.timestamp, base_timestamp, body)
            for delta, record, base_timestamp, body in zip(deltas, chosen, base_timestamps, bodies, strict=True)
        ]

    check()


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_one_base_timestamp_may_serve_all(magic: int) -> None:
    fmt = record_format(magic)
    bodies = encode_columns(fmt, None, pa.array([b"a", b"b"]), None)
    deltas, timestamps = np.arange(2), np.array([NOW, NOW - 7])
    shared = bodies.encode(0, 2, deltas, timestamps, NOW)
    assert split(shared) == split(bodies.encode(0, 2, deltas, timestamps, np.full(2, NOW)))


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


def test_a_batch_is_filled_by_one_assignment() -> None:
    encoded = encode_columns(record_format(2), None, pa.array([b"value"]), None).encode(
        0, 1, np.zeros(1, np.int64), np.full(1, NOW), NOW
    )
    slot = memoryview(bytearray(100))
    slot[61 : 61 + len(encoded.data)] = encoded.data
    assert bytes(slot[61:]).startswith(bytes(encoded.data))
