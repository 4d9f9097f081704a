"""CRC-32C, by the processor's instruction and by tables, beside another library's."""

from __future__ import annotations

from types import ModuleType

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from shmaccum import _core

STREAMS = 3 * 512
"""Bytes that the instruction takes as three streams at once."""
LONG = 1 << 16
"""Bytes from which on the checksum is made without the GIL."""
SIZES = [0, 1, 7, 8, 9, STREAMS - 1, STREAMS, STREAMS + 1, 5 * STREAMS + 13, LONG - 1, LONG, LONG + 1]


@pytest.fixture(params=["instruction", "tables"])
def core(request: pytest.FixtureRequest) -> ModuleType:
    return _core if request.param == "instruction" else request.getfixturevalue("stepping")


def test_it_is_that_of_another_library(core: ModuleType) -> None:
    for size in SIZES:
        data = bytes(number * number % 251 for number in range(size))
        assert core.crc32c_of(data) == crc32c(data)
        assert core.crc32c_of(memoryview(bytearray(data)), 0x1234_5678) == crc32c(data, 0x1234_5678)


@given(st.binary(max_size=3 * STREAMS), st.binary(max_size=3 * STREAMS), st.integers(0, 7))
def test_it_continues_wherever_the_bytes_begin(before: bytes, data: bytes, skipped: int) -> None:
    view = memoryview(data)[skipped:]
    assert _core.crc32c_of(view, _core.crc32c_of(before)) == crc32c(before + bytes(view))


def test_bytes_with_gaps_are_refused() -> None:
    with pytest.raises(BufferError, match="contiguous"):
        _core.crc32c_of(memoryview(bytes(8))[::2])
