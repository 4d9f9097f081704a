"""Batches made smaller: no record is lost, changed or moved, wherever a batch is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_batches import DECODERS, NOW, Sample, expected, few_examples, fill, samples

from shmaccum.errors import CorruptRecordError
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields, Record
from shmaccum.record.format import BatchPart, RecordFormat, read_records, record_format, write_part


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
