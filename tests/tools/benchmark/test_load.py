"""What is sent is as large as it is said to be, and much alike whatever its form; also what the JVM is given."""

from __future__ import annotations

import io
import struct
import zlib

import pytest

from tools.benchmark.cases.jvm import write_records
from tools.benchmark.load import ROWS_A_BATCH, Load, make_batches, make_keys, make_values


@pytest.mark.parametrize("size", [10, 100, 1 << 10, 1 << 20])
def test_values_have_their_size_and_are_many(size: int) -> None:
    values = make_values(40, size)
    assert {len(value) for value in values} == {size}
    assert 10 < len(set(values)) <= 40
    assert values == make_values(40, size), "all contestants send the same"


def test_values_compress_but_not_to_nothing() -> None:
    batch = b"".join(make_values(160, 100))
    assert 3 < len(batch) / len(zlib.compress(batch)) < 10


def test_columns_are_the_same_records() -> None:
    count = ROWS_A_BATCH + 1
    rows = Load("t", make_values(count, 20), make_keys(count))
    columns = Load("t", batches=make_batches(count, 20, keys=True))
    assert [batch.num_rows for batch in columns.batches] == [ROWS_A_BATCH, 1]
    assert list(columns.calls(-1)) == [(value, key, -1) for value, key, _ in rows.calls()]
    assert (columns.count, columns.size) == (rows.count, rows.size) == (count, 30 * count)
    assert columns.first(10).count == ROWS_A_BATCH
    assert list(rows.first(10).calls()) == list(rows.calls())[:10]


@pytest.mark.parametrize("keys", [None, [b"k", b"", b"k"]])
def test_records_that_repeat_are_written_once_for_the_jvm(keys: list[bytes] | None) -> None:
    file = io.BytesIO()
    write_records(Load("t", [b"a", b"bc", b"a"], keys), file)
    file.seek(0)

    def number() -> int:
        return int(struct.unpack(">i", file.read(4))[0])

    def text() -> bytes | None:
        return None if (length := number()) < 0 else file.read(length)

    records = [(text(), text()) for _ in range(number())]
    first, second = (None, None) if keys is None else (b"k", b"")
    assert records == [(first, b"a"), (second, b"bc")]
    assert file.read() == b""
