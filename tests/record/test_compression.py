from __future__ import annotations

import gzip

import cramjam
import lz4.frame
import pytest
import xxhash
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec
from record_batches import COMBINATIONS, many_examples

from shmaccum.errors import CorruptRecordError
from shmaccum.record.compression import CompressionType, compress, decompress

NONE, GZIP, SNAPPY, LZ4, ZSTD = CompressionType

sections = st.binary(min_size=1, max_size=200) | st.integers(1, 800).map(lambda count: bytes(range(256)) * count)

their_decoders = {
    GZIP: gzip.decompress,
    SNAPPY: codec.snappy_decode,
    LZ4: lz4.frame.decompress,
    ZSTD: lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}
their_encoders = {
    GZIP: gzip.compress,
    SNAPPY: codec.snappy_encode,
    LZ4: codec.lz4_encode,
    ZSTD: codec.zstd_encode,
}


@many_examples
@given(st.sampled_from(COMBINATIONS), sections)
def test_other_libraries_read_it_and_are_read(kind: tuple[int, CompressionType], data: bytes) -> None:
    magic, compression = kind
    compressed = compress(compression, memoryview(data), magic)
    assert decompress(compression, compressed, magic) == data
    if magic == 2 and compression is not NONE:
        assert their_decoders[compression](compressed) == data
        assert decompress(compression, their_encoders[compression](data), 2) == data


@pytest.mark.parametrize("compression", [GZIP, SNAPPY, LZ4, ZSTD])
def test_no_more_comes_out_than_allowed(compression: CompressionType) -> None:
    bomb = compress(compression, bytes(100_000), 2)
    assert len(bomb) < 10_000
    assert len(decompress(compression, bomb, 2, max_size=100_000)) == 100_000
    with pytest.raises(CorruptRecordError, match="at most"):
        decompress(compression, bomb, 2, max_size=99_999)


WORDS = b" ".join(b"%d" % (number * number % 997) for number in range(4000))


def test_levels_that_others_count_otherwise() -> None:
    """Kafka's gzip has -1 for zlib's own choice, its lz4 has levels that LZ4 takes for the next that it has."""
    assert compress(GZIP, WORDS, 2, -1) == compress(GZIP, WORDS, 2, 6) == compress(GZIP, WORDS, 2)
    assert compress(LZ4, WORDS, 2, 1) == compress(LZ4, WORDS, 2, 2) == compress(LZ4, WORDS, 2, 3)
    assert compress(LZ4, WORDS, 2, 17) == compress(LZ4, WORDS, 2, 12)
    assert compress(ZSTD, WORDS, 2) == compress(ZSTD, WORDS, 2, 3)


def test_snappy_is_framed_as_the_java_client_frames_it() -> None:
    framed = compress(SNAPPY, bytes(40_000), 2)
    assert framed[:16] == bytes.fromhex("82 53 4e 41 50 50 59 00 00 00 00 01 00 00 00 01")
    first = int.from_bytes(framed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(framed[20 : 20 + first]) == 32 * 1024


def test_a_bare_snappy_block_is_read_too() -> None:
    assert decompress(SNAPPY, cramjam.snappy.compress_raw(b"librdkafka"), 2) == b"librdkafka"


@pytest.mark.parametrize("length", [-1, 0, 7, 2**31 - 1])
def test_a_snappy_block_of_impossible_length_is_corrupt(length: int) -> None:
    framed = compress(SNAPPY, b"", 2) + length.to_bytes(4, "big", signed=True) + b"12345"
    with pytest.raises(CorruptRecordError, match=f"{length} bytes"):
        decompress(SNAPPY, framed, 2)


def test_blocks_of_lz4_are_independent_and_their_header_has_the_right_checksum() -> None:
    """As Kafka's Java client reads them."""
    blocks_are_independent = 0x20
    frame = bytearray(compress(CompressionType.LZ4, b"one two three " * 1000, 2))
    assert frame[4] & blocks_are_independent
    assert frame[6] == xxhash.xxh32_intdigest(frame[4:6]) >> 8 & 0xFF
    frame[6] ^= 1
    with pytest.raises(CorruptRecordError):
        decompress(CompressionType.LZ4, bytes(frame), 2)
