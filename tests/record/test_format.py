from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import (
    COMBINATIONS,
    DECODERS,
    NOW,
    Case,
    Sample,
    cases,
    expected,
    few_examples,
    fill,
    many_examples,
    samples,
    seal,
    stored,
)

from shmaccum.errors import ConfigError, CorruptRecordError, IllegalStateError
from shmaccum.record.compression import CompressionType, compress
from shmaccum.record.fields import BatchFields, Record
from shmaccum.record.format import (
    BatchPart,
    RecordFormat,
    message_format_magic,
    read_records,
    record_format,
    write_part,
)

ONE = [Sample(b"key", b"value", [], NOW)]


@many_examples
@given(cases, st.sampled_from([0, 1000, 2**40]))
def test_independent_decoders_read_a_log_of_every_batch(case: Case, base_offset: int) -> None:
    (magic, compression), records = case
    following = base_offset + len(records)
    log = stored(magic, records, compression, base_offset) + stored(magic, records, compression, following)
    for decode in DECODERS:
        assert decode(log) == expected([*records, *records], base_offset), decode.__name__


@pytest.mark.parametrize(("magic", "compression"), COMBINATIONS)
def test_to_seal_again_gives_the_same_batch(magic: int, compression: CompressionType) -> None:
    fmt = record_format(magic)
    slot = fill(fmt, ONE * 5)
    records = bytes(slot[fmt.header_size :])
    producer = {"producer_id": 3, "producer_epoch": 1, "base_sequence": 8} if magic == 2 else {}
    first = seal(fmt, slot, ONE * 5, compression, **producer)
    as_sent = bytes(first)
    assert bytes(seal(fmt, slot, ONE * 5, compression, **producer)) == as_sent
    assert slot[fmt.header_size :] == records
    assert (first.obj is slot) == (compression is CompressionType.NONE)
    # The log transport may have set the offset before the sender died.
    fmt.set_base_offset(first, 5, 1000)
    again = seal(fmt, slot, ONE * 5, compression, **producer)
    fmt.set_base_offset(again, 5, 0)
    for decode in DECODERS:
        assert decode(bytes(again)) == expected(ONE * 5), decode.__name__


@many_examples
@given(st.sampled_from(CompressionType), samples(2))
def test_records_that_were_compressed_ahead(compression: CompressionType, records: list[Sample]) -> None:
    """Byte for byte what sealing makes of the uncompressed ones, and in place."""
    fmt = record_format(2)
    slot = fill(fmt, records)
    ahead = memoryview(slot[: fmt.header_size] + compress(compression, slot[fmt.header_size :], 2))
    sealed = seal(fmt, ahead, records, compression, 3, 1, 8, compressed=True)
    assert sealed.obj is ahead.obj
    assert sealed == seal(fmt, slot, records, compression, 3, 1, 8)


@many_examples
@given(cases, st.data())
def test_a_batch_whose_memory_is_not_adjacent(case: Case, data: st.DataObject) -> None:
    """The same bytes as in adjacent memory; format 2 leaves what it does not compress in place."""
    (magic, compression), records = case
    fmt = record_format(magic)
    slot = fill(fmt, records)
    where = st.integers(max(fmt.header_size, 1), len(slot))
    cuts = [0, *sorted(data.draw(st.lists(where, min_size=1, max_size=4), "cuts")), len(slot)]
    views = [memoryview(slot[begin:end]) for begin, end in pairwise(cuts)]
    sealed = seal(fmt, slot, records, compression)

    first = seal(fmt, views[0], records, compression, rest=tuple(views[1:]))

    in_place = magic == 2 and compression is CompressionType.NONE
    assert (first.obj is views[0].obj) == in_place
    assert b"".join((first, *(views[1:] if in_place else []))) == sealed
    assert b"".join(views)[fmt.header_size :] == slot[fmt.header_size :]


@pytest.mark.parametrize("magic", [1, 2])
def test_a_record_never_takes_more_than_the_most_it_may(magic: int) -> None:
    fmt = record_format(magic)
    body = fmt.encode_body(None, b"x" * 2_000_000, [])
    for base_timestamp in (0, 2**62):
        record = fmt.encode_record(2**31 - 1, 2**62, base_timestamp, body)
        assert len(record) <= len(body) + fmt.record_overhead_max


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
def test_a_set_of_messages_whose_offsets_do_not_increase_is_not_sealed(compression: CompressionType) -> None:
    fmt = record_format(1)
    with pytest.raises(IllegalStateError, match="offsets must increase"):
        seal(fmt, fill(fmt, ONE) * 2, ONE * 2, compression)


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        *[(version, 1) for version in ("v1", "0.10.0", "0.10.0-IV1", "0.10.2.1", "0.10.2-IV0")],
        *[(version, 2) for version in ("v2", "0.11.0", "0.11.0-IV2", "1.0", "2.8-IV1", "3.0-IV1", "3.9.0", "4.0")],
    ],
)
def test_a_version_of_kafka_names_a_format(version: str, magic: int) -> None:
    assert message_format_magic(version) == magic


@pytest.mark.parametrize("version", ["", "2", "v0", "v3", "0.7.0", "0.9.0.1", "0.12.0", "3.0-IV", "3.0 ", "latest"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=r"message\.format\.version"):
        message_format_magic(version)


# --- batches made smaller --------------------------------------------------------------------------------


def records_of(fmt: RecordFormat, batch: bytearray, records: list[Sample]) -> list[Record]:
    timestamps = [record.timestamp for record in records]
    return read_records(fmt, memoryview(batch), BatchFields(len(records), timestamps[0], max(timestamps)))


def parts_of(fmt: RecordFormat, records: list[Record], max_size: int | None) -> list[BatchPart]:
    parts = []
    while records:
        parts.append(write_part(fmt, records, max_size))
        records = records[parts[-1].fields.record_count :]
    return parts


@pytest.mark.parametrize("magic", [1, 2])
@few_examples
@given(data=st.data(), max_size=st.none() | st.integers(0, 30_000), base_offset=st.integers(0, 2**40))
def test_pieces_hold_the_records_of_the_whole(
    magic: int, data: st.DataObject, max_size: int | None, base_offset: int
) -> None:
    """And all records in one piece are the batch itself."""
    fmt, records = record_format(magic), data.draw(samples(magic))
    slot = fill(fmt, records)
    before = bytes(slot)
    parts = parts_of(fmt, records_of(fmt, slot, records), max_size)
    assert bytes(slot) == before
    if len(parts) == 1:
        assert bytes(parts[0].memory) == before
        assert parts[0].fields[1:3] == (records[0].timestamp, max(record.timestamp for record in records))
    found = []
    for part in parts:
        assert max_size is None or part.fields.record_count == 1 or len(part.memory) <= max_size
        sealed = fmt.seal(part.memory, part.fields, CompressionType.NONE)
        fmt.set_base_offset(sealed, part.fields.record_count, base_offset + len(found))
        (first, *others) = [decode(bytes(sealed)) for decode in DECODERS]
        assert all(other == first for other in others)
        found += first
    assert found == expected(records, base_offset)


def test_a_record_that_is_too_large_is_a_piece_by_itself() -> None:
    fmt = record_format(2)
    samples = [Sample(None, bytes(size), [], NOW) for size in (10, 10, 500, 10, 10)]
    records = records_of(fmt, fill(fmt, samples), samples)
    assert [part.fields.record_count for part in parts_of(fmt, records, 200)] == [2, 1, 2]


def test_damaged_memory_is_refused() -> None:
    fmt = record_format(2)
    batch = fill(fmt, [Sample(None, b"value", [], NOW)])
    batch[fmt.header_size] = 0x7E
    with pytest.raises(CorruptRecordError):
        read_records(fmt, memoryview(batch), BatchFields(1, NOW, NOW))
