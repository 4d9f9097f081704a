"""Records to try, batches made of them, and the decoders of others that read the batches back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords as KafkaPythonRecords

from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields, Record
from shmaccum.record.format import RecordFormat, iter_batches, record_format

NOW = 1_700_000_000_000

examples, few_examples = settings(max_examples=60), settings(max_examples=30)
"""Enough to meet the corner cases that the strategies below aim at, and quick."""


class Sample(NamedTuple):
    """One record before it has an offset."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


blobs = st.binary(max_size=20) | st.integers(60, 20_000).map(lambda size: b"\xa5" * size)
"""Bytes whose lengths take one, two and three bytes as a varint."""

timestamps = st.integers(NOW - 10_000, NOW + 10_000) | st.integers(0, 2**62)
"""Most of them close together, in any order; some so far apart that a delta takes nine bytes."""

header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


def samples(magic: int, min_size: int = 1) -> st.SearchStrategy[list[Sample]]:
    """Lists of records that the format can hold."""
    headers = header_lists if magic == 2 else st.just([])
    sample = st.builds(Sample, st.none() | blobs, st.none() | blobs, headers, timestamps)
    return st.lists(sample, min_size=min_size, max_size=12)


COMBINATIONS = [
    (magic, compression)
    for magic in (1, 2)
    for compression in CompressionType
    if magic == 2 or compression is not CompressionType.ZSTD
]
Case = tuple[tuple[int, CompressionType], list[Sample]]
cases = st.sampled_from(COMBINATIONS).flatmap(lambda kind: st.tuples(st.just(kind), samples(kind[0])))
"""A format and a compression, and records for them."""
many_examples = settings(max_examples=90)
"""About ten of each combination."""


def fill(fmt: RecordFormat, records: Sequence[Sample]) -> bytearray:
    """What the accumulator leaves in a slot: the header's place, and the records."""
    slot = bytearray(fmt.header_size)
    for index, record in enumerate(records):
        body = fmt.encode_body(record.key, record.value, record.headers)
        slot += fmt.encode_record(index, record.timestamp, records[0].timestamp, body)
    return slot


def seal(
    fmt: RecordFormat,
    slot: bytearray | memoryview,
    records: Sequence[Sample],
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compressed: bool = False,
    rest: tuple[memoryview, ...] = (),
) -> memoryview:
    """What the sender makes of the slot."""
    return fmt.seal(
        memoryview(slot),
        BatchFields(
            len(records),
            records[0].timestamp,
            max(record.timestamp for record in records),
            producer_id,
            producer_epoch,
            base_sequence,
        ),
        compression,
        compressed=compressed,
        rest=rest,
    )


def stored(
    magic: int, records: Sequence[Sample], compression: CompressionType = CompressionType.NONE, base_offset: int = 0
) -> bytes:
    fmt = record_format(magic)
    sealed = seal(fmt, fill(fmt, records), records, compression)
    fmt.set_base_offset(sealed, len(records), base_offset)
    return bytes(sealed)


def expected(records: Sequence[Sample], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, record.timestamp, record.key, record.value, tuple(record.headers))
        for index, record in enumerate(records)
    ]


Decoder = Callable[[bytes], list[Record]]


def _as_record(record: object) -> Record:
    timestamp = -1 if record.timestamp is None else record.timestamp
    return Record(record.offset, timestamp, record.key, record.value, tuple(record.headers))


def by_ourselves(log: bytes) -> list[Record]:
    return [record for batch in iter_batches(log) for record in batch.records()]


def by_kafka_python(log: bytes) -> list[Record]:
    found = []
    for batch in KafkaPythonRecords(log):
        assert batch.validate_crc()
        found += map(_as_record, batch)
    return found


def by_aiokafka(log: bytes) -> list[Record]:
    found = []
    batches = AiokafkaRecords(log)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        found += map(_as_record, batch)
    return found


DECODERS: Sequence[Decoder] = [by_ourselves, by_kafka_python, by_aiokafka]
