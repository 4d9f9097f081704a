"""What is compressed before it gets memory: the batches of columns, and large records."""

from __future__ import annotations

import random

import pytest
from accumulators import BATCH_SIZE, TP0, Log, add, as_sent, assert_empty, drain, first
from columns import append_columns
from fixture_types import OpenAccumulator
from record_batches import DECODERS

from shmaccum.record.compression import CompressionType

NONE, GZIP, SNAPPY, LZ4, ZSTD = CompressionType
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]


def noise(size: int) -> bytes:
    """Return bytes that no compression makes smaller."""
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_batches_of_columns_are_compressed_except_an_open_one(
    accumulate: OpenAccumulator, codec: CompressionType
) -> None:
    """That of single records, which was open before, is the sender's to compress, too."""
    accumulator = accumulate(compression_type=str(codec), buffer_memory=40 * BATCH_SIZE)
    add(accumulator, TP0, b"first")
    text = b"all work and no play " * (BATCH_SIZE // 72)
    values = [b"%d " % number + text for number in range(20)] + [bytes(2 * BATCH_SIZE), b"last"]
    append_columns(accumulator, TP0, values)
    log = Log(accumulator)
    compressions = []
    while batches := drain(accumulator):
        compressions += [batch.compression for batch in batches]
        log.take(batches)
    assert len(compressions) > 7
    assert compressions == [None] + [codec] * (len(compressions) - 2) + [None]
    assert log.values(TP0) == [b"first", *values]
    assert_empty(accumulator)


@pytest.mark.parametrize("size", [BATCH_SIZE, 8 * BATCH_SIZE])
@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("compressible", [True, False])
def test_a_large_record_is_compressed_if_that_makes_it_smaller(
    accumulate: OpenAccumulator, size: int, codec: CompressionType, compressible: bool
) -> None:
    accumulator = accumulate(compression_type=str(codec))
    value = bytes(size) if compressible else noise(size)
    add(accumulator, TP0, value)
    batch = first(accumulator, TP0)
    assert batch is not None
    assert batch.compression is (codec if compressible else NONE)
    assert batch.size > size, "what it was, for the statistics"
    assert (batch.stored_size < size // 2) == compressible
    (batch,) = drain(accumulator)
    for decode in DECODERS:
        assert [record.value for record in decode(as_sent(accumulator, batch))] == [value], decode.__name__
    Log(accumulator).take([batch])
    assert_empty(accumulator)
