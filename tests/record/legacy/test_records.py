from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from record_batches import NOW, Sample, by_kafka_python, expected, few_examples, fill, samples

from shmaccum.errors import CorruptRecordError, IllegalStateError, SerializationError, UnsupportedCompressionTypeError
from shmaccum.record import legacy
from shmaccum.record.compression import CompressionType, decompress
from shmaccum.record.format import record_format

THREE = [Sample(b"k%d" % i, b"v%d" % i, [], NOW + i) for i in range(3)]


def messages(offsets: list[int]) -> memoryview:
    body = legacy.encode_body(None, b"value")
    return memoryview(bytearray(b"".join(legacy.encode_record(offset, NOW, body) for offset in offsets)))


def offsets_of(buf: memoryview) -> list[int]:
    return [struct.unpack_from(">q", buf, start)[0] for start, _ in legacy.message_spans(buf)]


def test_a_message_written_by_hand() -> None:
    covered = bytes.fromhex("01 00 000000000000002a 00000001 6b ffffffff")
    crc = zlib.crc32(covered).to_bytes(4, "big")
    assert legacy.encode_record(5, 42, legacy.encode_body(b"k", None)) == (
        bytes.fromhex("0000000000000005 00000017") + crc + covered
    )


@few_examples
@given(samples(1))
def test_a_set_is_what_kafka_python_builds(records: list[Sample]) -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 10**9)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value)
    assert fill(record_format(1), records) == builder.build()


def test_what_is_not_serialized_is_refused() -> None:
    with pytest.raises(SerializationError, match="key must be bytes-like or None, not str"):
        legacy.encode_body("text", None)


def test_offsets_are_assigned_in_place() -> None:
    buf = messages([0, 1, 2])
    legacy.set_base_offset(buf, 3, 1000)
    assert offsets_of(buf) == [1000, 1001, 1002]
    legacy.set_base_offset(buf, 3, 5)
    assert offsets_of(buf) == [5, 6, 7]


@pytest.mark.parametrize("offsets", [[0, 0], [0, 2, 1], [-1, 0]])
def test_offsets_must_increase(offsets: list[int]) -> None:
    with pytest.raises(IllegalStateError, match="offsets must increase"):
        legacy.check_offsets(messages(offsets), len(offsets))


@pytest.mark.parametrize("record_count", [2, 4])
def test_the_number_of_messages_must_be_right(record_count: int) -> None:
    with pytest.raises(IllegalStateError, match=f"3 messages instead of {record_count}"):
        legacy.set_base_offset(messages([0, 1, 2]), record_count, 0)


def test_a_torn_message_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="incomplete"):
        legacy.check_offsets(messages([0, 1, 2])[:-1], 3)


def test_the_wrapper_of_format_1_has_the_last_offset_and_relative_ones_within() -> None:
    inner = memoryview(fill(record_format(1), THREE))
    wrapper = memoryview(legacy.compressed_set(inner, CompressionType.GZIP, None, 3, NOW + 2))
    assert struct.unpack_from(">q", wrapper)[0] == 2
    assert struct.unpack_from(">bbq", wrapper, 16) == (1, CompressionType.GZIP, NOW + 2)
    assert decompress(CompressionType.GZIP, wrapper[34:], 1) == inner
    legacy.set_base_offset(wrapper, 3, 1000)
    assert struct.unpack_from(">q", wrapper)[0] == 1002
    assert decompress(CompressionType.GZIP, wrapper[34:], 1) == inner
    assert by_kafka_python(bytes(wrapper)) == expected(THREE, 1000)


def test_there_is_no_zstd() -> None:
    with pytest.raises(UnsupportedCompressionTypeError):
        legacy.compressed_set(messages([0]), CompressionType.ZSTD, None, 1, NOW)
