"""Records of both formats: what is written is what kafka-python writes."""

from __future__ import annotations

import array
import struct

import pytest
from hypothesis import given
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.util import decode_varint as kafka_decode_varint
from kafka.record.util import encode_varint as kafka_encode_varint
from record_batches import NOW, Sample, few_examples, fill, samples, seal

from shmaccum.errors import CorruptRecordError, IllegalStateError
from shmaccum.record import legacy, v2
from shmaccum.record.compression import CompressionType, decompress
from shmaccum.record.format import record_format
from shmaccum.record.v2 import decode_varint, encode_varint, size_of_varint

THREE = [Sample(b"k%d" % i, b"v%d" % i, [], NOW + i) for i in range(3)]


@few_examples
@given(samples(2))
def test_a_batch_is_what_kafka_python_builds(records: list[Sample]) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, 7, 5, 9, 10**9)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, record.headers)
    theirs = builder.build()
    fmt = record_format(2)
    ours = seal(fmt, fill(fmt, records), records, producer_id=7, producer_epoch=5, base_sequence=9)
    leader_epoch = slice(12, 16)  # it writes 0 where the Java client writes -1
    assert ours[leader_epoch] == b"\xff\xff\xff\xff"
    theirs[leader_epoch] = ours[leader_epoch]
    assert bytes(ours) == bytes(theirs)


@pytest.mark.parametrize("field", [b"ab", bytearray(b"ab"), memoryview(b"xabx")[1:3], array.array("H", [0x6261])])
def test_any_bytes_like_object_will_do(field: bytes) -> None:
    assert v2.encode_body(field, field, [("h", field)]) == v2.encode_body(b"ab", b"ab", [("h", b"ab")])


def test_varints_are_those_of_kafka_python() -> None:
    edges = [sign * (1 << bits) + step for bits in range(63) for sign in (1, -1) for step in (-1, 0, 1)]
    for number in (*edges, 2**63 - 1, -(2**63)):
        theirs = bytearray()
        kafka_encode_varint(number, theirs.append)
        encoded = encode_varint(number)
        assert encoded == theirs
        assert size_of_varint(number) == len(encoded)
        assert kafka_decode_varint(encoded, 0) == (number, len(encoded))
        assert decode_varint(b"\xff\xff" + encoded + b"\xff", 2) == (number, 2 + len(encoded))
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError, match="64 bits"):
            encode_varint(number)


def test_an_overlong_number_is_corrupt_but_may_be_padded_as_the_java_client_allows() -> None:
    assert decode_varint(b"\x82\x80\x00", 0) == (1, 3)
    with pytest.raises(CorruptRecordError, match="longer than 10 bytes"):
        decode_varint(b"\x80" * 10 + b"\x00", 0)
    with pytest.raises(CorruptRecordError, match="does not fit"):
        decode_varint(b"\xff" * 9 + b"\x02", 0)
    with pytest.raises(CorruptRecordError, match="runs past the end"):
        decode_varint(b"\x80", 0)


# --- format 1 -------------------------------------------------------------------------------------------


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
