"""Batches made smaller: no record is lost, changed or moved, wherever a batch is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import DECODERS, NOW, Sample, examples, expected, fill, samples

from shmaccum.errors import CorruptRecordError
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields
from shmaccum.record.format import RecordFormat, record_format
from shmaccum.record.reader import Record
from shmaccum.record.split import BatchPart, read_records, write_part


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
def test_pieces_hold_the_records_of_the_whole(magic: int) -> None:
    fmt = record_format(magic)

    @examples
    @given(samples(magic), st.integers(0, 30_000), st.integers(0, 2**40))
    def check(records: list[Sample], max_size: int, base_offset: int) -> None:
        slot = fill(fmt, records)
        offset = base_offset
        found = []
        for part in parts_of(fmt, records_of(fmt, slot, records), max_size):
            assert part.fields.record_count == 1 or len(part.memory) <= max_size
            sealed = fmt.seal(part.memory, part.fields, CompressionType.NONE)
            fmt.set_base_offset(sealed, part.fields.record_count, offset)
            batch = bytes(sealed)
            offset += part.fields.record_count
            (first, *others) = [decode(batch) for decode in DECODERS]
            assert all(other == first for other in others)
            found += first
        assert found == expected(records, base_offset)

    check()


@pytest.mark.parametrize("magic", [1, 2])
def test_all_records_in_one_piece_are_the_batch_itself(magic: int) -> None:
    fmt = record_format(magic)

    @examples
    @given(samples(magic))
    def check(records: list[Sample]) -> None:
        slot = fill(fmt, records)
        before = bytes(slot)
        (part,) = parts_of(fmt, records_of(fmt, slot, records), None)
        assert bytes(slot) == bytes(part.memory) == before
        assert part.fields.base_timestamp == records[0].timestamp
        assert part.fields.max_timestamp == max(record.timestamp for record in records)

    check()


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
