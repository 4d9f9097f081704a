"""Format 1: what is written is what kafka-python writes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from record_batches import NOW, Sample, few_examples, fill, samples

from shmaccum.errors import CorruptRecordError, IllegalStateError
from shmaccum.record import legacy
from shmaccum.record.compression import CompressionType, decompress
from shmaccum.record.format import record_format

THREE = [Sample(b"k%d" % i, b"v%d" % i, [], NOW + i) for i in range(3)]


@few_examples
@given(samples(1))
def test_a_set_is_what_kafka_python_builds(records: list[Sample]) -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 10**9)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value)
    assert fill(record_format(1), records) == builder.build()


def test_a_set_that_is_not_whole_gets_no_offsets() -> None:
    messages = memoryview(fill(record_format(1), THREE))
    for count in (2, 4):
        with pytest.raises(IllegalStateError, match=f"3 messages instead of {count}"):
            legacy.set_base_offset(messages, count, 0)
    with pytest.raises(CorruptRecordError, match="incomplete"):
        legacy.set_base_offset(messages[:-1], 3, 0)


def test_a_wrapper_has_the_last_offset_and_relative_ones_within() -> None:
    inner = memoryview(fill(record_format(1), THREE))
    wrapper = memoryview(legacy.compressed_set(inner, CompressionType.GZIP, None, 3, NOW + 2))
    legacy.set_base_offset(wrapper, 3, 1000)
    assert struct.unpack_from(">q", wrapper)[0] == 1002
    assert struct.unpack_from(">bbq", wrapper, 16) == (1, CompressionType.GZIP, NOW + 2)
    assert decompress(CompressionType.GZIP, wrapper[34:], 1) == inner
