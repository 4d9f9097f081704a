from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from kafka.record import MemoryRecordsBuilder
from record_batches import (
    COMBINATIONS,
    NOW,
    Case,
    Sample,
    by_ourselves,
    cases,
    expected,
    fill,
    many_examples,
    seal,
    stored,
)

from shmaccum.errors import CorruptRecordError
from shmaccum.record import legacy, v2
from shmaccum.record.compression import CompressionType, compress
from shmaccum.record.fields import TIMESTAMP_TYPE_MASK, BatchFields, TimestampType, whole_entries
from shmaccum.record.format import Batch, iter_batches, record_format
from shmaccum.record.v2 import encode_varint

THREE = [Sample(b"k", b"v%d" % i, [], NOW + 1 - i) for i in range(3)]


def batch_of(section: bytes, record_count: int, attributes: int = 0) -> bytes:
    """A batch of format 2 with a right checksum, whatever is in it."""
    buf = bytearray(v2.HEADER_SIZE) + section
    v2.write_header(memoryview(buf), len(buf), attributes, BatchFields(record_count, NOW, NOW + 1))
    return bytes(buf)


def message(value: bytes | None, offset: int = 0, attributes: int = 0) -> bytes:
    return legacy.encode_record(offset, NOW, legacy.encode_body(None, value), attributes)


def wrapper(messages: bytes, offset: int) -> bytes:
    return message(compress(CompressionType.GZIP, messages, 1), offset, CompressionType.GZIP)


def only_batch(log: bytes, check_crc: bool = True) -> Batch:
    (batch,) = iter_batches(log, check_crc=check_crc)
    return batch


def test_the_header_of_a_batch() -> None:
    fmt = record_format(2)
    records = THREE
    sealed = seal(fmt, fill(fmt, records), records, CompressionType.LZ4, 7, 5, 9)
    fmt.set_base_offset(sealed, 3, 1000)
    batch = only_batch(sealed)
    assert (batch.position, batch.size, batch.magic) == (0, len(sealed), 2)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (1000, 1002, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW + 1, NOW + 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 5, 9)
    assert (batch.attributes, batch.compression) == (3, CompressionType.LZ4)
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.crc == int.from_bytes(sealed[17:21], "big")
    assert batch.is_valid()


def test_a_wrapper_message_is_a_batch() -> None:
    log = stored(1, THREE, CompressionType.GZIP, 1000)
    batch = only_batch(log)
    assert (batch.size, batch.magic, batch.compression) == (len(log), 1, CompressionType.GZIP)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (1000, 1002, 3)
    assert batch.max_timestamp == NOW + 1
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.is_valid()


def test_each_message_of_an_uncompressed_set_is_a_batch() -> None:
    log = stored(1, THREE, base_offset=1000)
    batches = list(iter_batches(log))
    found = [(batch.base_offset, batch.last_offset, batch.record_count) for batch in batches]
    assert found == [(offset, offset, 1) for offset in (1000, 1001, 1002)]
    assert [batch.position for batch in batches] == [0, len(log) // 3, 2 * len(log) // 3]


@many_examples
@given(cases)
def test_batches_of_kafka_python_are_read(case: Case) -> None:
    (magic, compression), records = case
    builder = MemoryRecordsBuilder(magic, int(compression), 10**9)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    builder.close()
    assert by_ourselves(bytes(builder.buffer())) == expected(records)


def test_a_log_may_change_its_format() -> None:
    log = b"".join(stored(magic, THREE, CompressionType.GZIP, 10 * magic) for magic in (1, 2, 1))
    assert [record.offset for record in by_ourselves(log)] == [10, 11, 12, 20, 21, 22, 10, 11, 12]
    assert [batch.magic for batch in iter_batches(log)] == [1, 2, 1]


def test_under_log_append_time_all_records_have_the_time_of_the_log() -> None:
    section = v2.encode_record(0, 5, 0, v2.encode_body(None, b"", ()))
    batch = only_batch(batch_of(section, 1, attributes=TIMESTAMP_TYPE_MASK))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.records()] == [NOW + 1]

    inner = compress(CompressionType.GZIP, legacy.encode_record(0, 5, legacy.encode_body(None, None)), 1)
    batch = only_batch(message(inner, 0, CompressionType.GZIP | 0x08))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.records()] == [NOW]


@pytest.mark.parametrize("compression", CompressionType)
def test_a_batch_that_compaction_emptied_has_no_records(compression: CompressionType) -> None:
    assert list(only_batch(batch_of(b"", 0, attributes=compression)).records()) == []


def test_the_wrapper_of_an_old_librdkafka_has_offset_0() -> None:
    log = wrapper(message(b"a", 5) + message(b"b", 6), offset=0)
    assert [record.offset for record in by_ourselves(log)] == [5, 6]


@pytest.mark.parametrize(("magic", "compression"), COMBINATIONS)
def test_a_log_cut_short_anywhere_keeps_its_whole_batches(magic: int, compression: CompressionType) -> None:
    first, second = (stored(magic, THREE[:1], compression, offset) for offset in (0, 1))
    log = first + second
    for end in range(len(log)):
        whole = len(first) if end >= len(first) else 0
        assert len(whole_entries(memoryview(log)[:end])) == whole
        batches = iter_batches(log[:end])
        if whole:
            assert next(batches).size == whole
        if end > whole:
            with pytest.raises(CorruptRecordError, match=f"byte {whole}"):
                next(batches)
    assert sum(batch.size for batch in iter_batches(log)) == len(log)


@pytest.mark.parametrize(("magic", "compression"), COMBINATIONS)
def test_no_changed_byte_goes_unnoticed(magic: int, compression: CompressionType) -> None:
    log = stored(magic, THREE[:1], compression)
    size, not_the_leader_epoch = range(8, 12), range(16 if magic == 2 else 12, len(log))
    for position in itertools.chain(size, not_the_leader_epoch):
        damaged = bytearray(log)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptRecordError):
            list(iter_batches(damaged))


def test_a_wrong_checksum_can_be_looked_at() -> None:
    damaged = bytearray(stored(2, THREE))
    damaged[-2] ^= 0x01  # the last byte of the last value
    batch = only_batch(damaged, check_crc=False)
    assert not batch.is_valid()
    assert [record.value for record in batch.records()] == [b"v0", b"v1", b"v3"]


def record_of(*fields: bytes | int) -> bytes:
    body = b"".join(encode_varint(field) if isinstance(field, int) else field for field in fields)
    return encode_varint(len(body)) + body


def sized(key_size: int, value_size: int) -> bytes:
    """A message that claims sizes of its key and its value."""
    log = bytearray(message(b""))
    struct.pack_into(">ii", log, legacy.BODY_OFFSET, key_size, value_size)
    return bytes(log)


def entry(magic: int, size: int) -> bytes:
    log = bytearray(112)
    struct.pack_into(">i", log, 8, size)
    log[16] = magic
    return bytes(log)


EMPTY = record_of(b"\0", 0, 0, -1, -1, 0)


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        # A record of format 2.
        (batch_of(EMPTY, 2), "2 records in 7 bytes"),
        *[(batch_of(EMPTY, count), f"{count} records") for count in (2**31 - 1, -1)],
        (batch_of(EMPTY + b"\0", 1), "1 bytes after its last record"),
        (batch_of(record_of(b"\0", 0, 0, -1, -1, 0, b"x"), 1), "fields end 1 bytes earlier"),
        (batch_of(record_of(b"\0", 0, 0, -2, -1, 0), 1), "-2 bytes"),
        (batch_of(record_of(b"\0", 0, 0, 2**40, -1, 0), 1), "1099511627776 bytes"),
        (batch_of(record_of(b"\0", 0, 0, -1, 4, b"abc"), 1), "4 bytes"),
        *[(batch_of(record_of(b"\0", 0, 0, -1, -1, count), 1), f"{count} headers") for count in (-1, 2**31 - 1)],
        (batch_of(record_of(b"\0", 0, 0, -1, -1, 1, -1, -1), 1), "name of a header is null"),
        (batch_of(record_of(b"\0", 0, 0, -1, -1, 1, 1, b"\xff", -1), 1), "not UTF-8"),
        (batch_of(record_of(b"\0", 0, 0, -1, -1), 1), "7 bytes|6 bytes|runs past the end"),
        *[(batch_of(encode_varint(size) + bytes(10), 1), f"{size} bytes") for size in (-5, 2**31, 0)],
        *[(batch_of(b"\0" * 7, 1, attributes), f"compression id {attributes}") for attributes in (5, 6, 7)],
        # A message of format 1.
        *[(sized(size, 0), f"claims to have {size}") for size in (-2, 2**31 - 1)],
        (sized(1, 0), "ends before its value"),
        *[(sized(-1, size), f"claims to have {size}") for size in (1, -2)],
        (legacy.encode_record(0, NOW, legacy.encode_body(None, None) + b"x"), "1 bytes after its value"),
        # What every entry of a log begins with.
        *[(entry(1, size), "the least is 22") for size in (21, -1)],
        (entry(2, 48), "its header alone takes 61"),
        (entry(2, 2**31 - 1), "incomplete"),
        *[(entry(magic, 100), f"magic {magic}") for magic in (0, 3, 255)],
    ],
)
def test_what_is_corrupt_says_why(log: bytes, complaint: str) -> None:
    with pytest.raises(CorruptRecordError, match=complaint):
        list(only_batch(log, check_crc=False).records())


def foreign() -> bytes:
    """Return a message of format 0."""
    inner = bytearray(message(b""))
    inner[16] = 0
    return bytes(inner)


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        (message(None, 0, CompressionType.GZIP), "no value"),
        (wrapper(b"", 0), "no inner messages"),
        (wrapper(foreign(), 0), "wrapper"),
        (wrapper(wrapper(message(b"", 0), 0), 0), "compressed itself"),
        (wrapper(message(b"", 0)[:-1], 0), "incomplete"),
        (message(b"12345678", 0, CompressionType.ZSTD), "zstd"),
        (message(b"12345678", 0, CompressionType.GZIP), "gzip"),
    ],
)
def test_what_can_be_wrong_with_a_wrapper(log: bytes, complaint: str) -> None:
    batch = only_batch(log)
    with pytest.raises(CorruptRecordError, match=complaint):
        list(batch.records())
    with pytest.raises(CorruptRecordError, match=complaint):
        _ = batch.base_offset


def test_the_offset_of_a_wrapper_is_not_less_than_those_within() -> None:
    batch = only_batch(wrapper(message(b"a", 5), offset=4))
    with pytest.raises(CorruptRecordError, match="less than offset 5"):
        list(batch.records())
