from __future__ import annotations

import lz4.frame
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec
from record_batches import examples

from shmaccum.errors import CorruptRecordError
from shmaccum.record.compression import CompressionType, decompress
from shmaccum.record.lz4_frame import compress_frame

BLOCKS_ARE_INDEPENDENT = 0x20
DATA = b"one two three " * 1000


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_blocks_are_independent(magic: int) -> None:
    assert compress_frame(DATA, magic)[4] & BLOCKS_ARE_INDEPENDENT


@pytest.mark.parametrize("magic", [1, 2])
def test_the_header_checksum_is_right_since_format_1(magic: int) -> None:
    frame = compress_frame(DATA, magic)
    assert frame[6] == xxhash.xxh32_intdigest(frame[4:6]) >> 8 & 0xFF


def test_the_header_checksum_of_format_0_is_wrong_as_old_consumers_expect_it() -> None:
    frame = compress_frame(DATA, 0)
    assert frame[6] == xxhash.xxh32_intdigest(frame[:6]) >> 8 & 0xFF
    assert codec.lz4_decode_old_kafka(frame) == DATA


@examples
@given(st.binary(min_size=1, max_size=300), st.booleans(), st.integers(0, 255))
def test_format_0_is_read_whatever_the_header_checksum(data: bytes, store_size: bool, checksum: int) -> None:
    frame = bytearray(lz4.frame.compress(data, block_linked=False, store_size=store_size))
    frame[14 if store_size else 6] = checksum
    assert decompress(CompressionType.LZ4, bytes(frame), 0) == data


def test_frames_of_kafka_python_for_old_brokers_are_read() -> None:
    assert decompress(CompressionType.LZ4, codec.lz4_encode_old_kafka(DATA), 0) == DATA


def test_format_1_insists_on_the_right_checksum() -> None:
    with pytest.raises(CorruptRecordError):
        decompress(CompressionType.LZ4, compress_frame(DATA, 0), 1)
