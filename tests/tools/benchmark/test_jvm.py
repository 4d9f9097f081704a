"""What the JVM's producer is given to send."""

from __future__ import annotations

import io
import struct

import pytest

from tools.benchmark.contestants.jvm import write_records
from tools.benchmark.load import Load


@pytest.mark.parametrize("keys", [None, [b"k", b"", b"k"]])
def test_records_that_repeat_are_written_once(keys: list[bytes] | None) -> None:
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
