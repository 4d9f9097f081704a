from __future__ import annotations

import array
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record._crc32c import crc as crc32c_in_python
from kafka.record.default_records import DefaultRecordBatchBuilder
from record_batches import NOW, Sample, examples, few_examples, fill, samples, seal

from shmaccum.errors import SerializationError
from shmaccum.record import v2
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields
from shmaccum.record.format import record_format

PRODUCER = {"producer_id": 7, "producer_epoch": 5, "base_sequence": 9}
FIELDS = BatchFields(3, 1000, 2000, **PRODUCER)


def test_a_record_written_by_hand() -> None:
    body = v2.encode_body(b"k", None, [("é", b""), ("h", None)])
    assert body == b"\x02k\x01\x04\x04\xc3\xa9\x00\x02h\x01"
    assert v2.encode_record(1, 8, 10, body) == b"\x1c\x00\x03\x02" + body


@few_examples
@given(samples(2))
def test_a_batch_is_what_kafka_python_builds(records: list[Sample]) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, 7, 5, 9, 10**9)
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, record.headers)
    theirs = builder.build()
    fmt = record_format(2)
    ours = seal(fmt, fill(fmt, records), records, **PRODUCER)
    leader_epoch = slice(12, 16)  # it writes 0 where the Java client writes -1
    assert ours[leader_epoch] == b"\xff\xff\xff\xff"
    theirs[leader_epoch] = ours[leader_epoch]
    assert bytes(ours) == bytes(theirs)


@examples
@given(
    st.integers(0, 2**31 - 1) | st.integers(0, 9000),
    st.integers(-(2**63), 2**63 - 1) | st.integers(-9000, 9000),
    st.binary(max_size=100) | st.integers(8000, 9000).map(bytes),
)
def test_a_record_takes_little_more_than_its_body(offset: int, timestamp: int, body: bytes) -> None:
    size = len(v2.encode_record(offset, timestamp, 0, body))
    assert size - len(body) <= v2.RECORD_OVERHEAD_MAX


@pytest.mark.parametrize("field", [b"ab", bytearray(b"ab"), memoryview(b"xabx")[1:3], array.array("H", [0x6261])])
def test_any_bytes_like_object_will_do(field: bytes) -> None:
    assert v2.encode_body(field, field, [("h", field)]) == v2.encode_body(b"ab", b"ab", [("h", b"ab")])


@pytest.mark.parametrize(
    ("key", "value", "headers", "named"),
    [
        ("text", b"", [], "key"),
        (b"", 7, [], "value"),
        (b"", b"", [("h", 7)], "header 'h'"),
        (b"", b"", [("h", "\ud800")], "header 'h' is not valid Unicode"),
        (b"", b"", {b"h": b""}, "header's name"),
        (b"", b"", [(b"h", b"")], "header's name"),
        (b"", b"", [("\ud800", b"")], "Unicode"),
    ],
)
def test_what_is_not_serialized_is_refused(key: bytes, value: bytes, headers: list, named: str) -> None:
    with pytest.raises(SerializationError, match=named):
        v2.encode_body(key, value, headers)


def test_headers_are_pairs_or_a_dict_of_bytes_and_text() -> None:
    pairs = v2.encode_body(None, b"v", [("h", "größe".encode()), ("n", None)])
    assert v2.encode_body(None, b"v", {"h": "größe", "n": None}) == pairs
    assert v2.encode_body(None, b"v", [("h", "größe"), ("n", None)]) == pairs


def test_a_header_is_written_in_place_and_nothing_else() -> None:
    memory = bytearray(b"\xee" * 100)
    v2.write_header(memoryview(memory), 80, 0x08, FIELDS)
    assert memory[61:] == b"\xee" * 39
    crc = crc32c_in_python(bytes(memory[21:80]))
    assert v2.HEADER.unpack_from(memory) == (0, 68, -1, 2, crc, 0x08, 2, 1000, 2000, 7, 5, 9, 3)


def test_the_base_offset_is_not_covered_by_the_checksum() -> None:
    memory = bytearray(100)
    v2.write_header(memoryview(memory), 100, 0, FIELDS)
    sealed = bytes(memory)
    v2.set_base_offset(memoryview(memory), 2**40)
    assert memory[:8] == struct.pack(">q", 2**40)
    assert memory[8:] == sealed[8:]
    v2.write_header(memoryview(memory), 100, 0, FIELDS)
    assert bytes(memory) == sealed


def test_a_batch_without_records_has_a_header_only() -> None:
    memory = bytearray(61)
    v2.write_header(memoryview(memory), 61, 0, FIELDS._replace(record_count=0))
    assert v2.HEADER.unpack_from(memory)[6] == -1


def test_a_compressed_batch_leaves_the_records_alone() -> None:
    records = v2.encode_record(0, 0, 0, v2.encode_body(b"k", bytes(1000), ()))
    section = bytearray(records)
    batch = v2.compressed_batch(memoryview(section), CompressionType.GZIP, FIELDS)
    assert section == records
    assert len(batch) < 200
    assert v2.HEADER.unpack_from(batch)[5] == CompressionType.GZIP


def test_the_oldest_timestamp_of_a_batch_need_not_be_its_first() -> None:
    fmt = record_format(2)
    records = [Sample(None, None, [], NOW), Sample(None, None, [], NOW - 5)]
    assert fill(fmt, records)[61:] == bytes.fromhex("0c 00 00 00 01 01 000c 00 09 02 01 01 00")
