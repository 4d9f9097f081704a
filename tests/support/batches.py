"""Batches as the sender hands them to a transport."""

from __future__ import annotations

from shmaccum._core import ProduceBatch
from shmaccum.cluster import TopicPartition
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields
from shmaccum.record.format import record_format

T0 = TopicPartition("t", 0)


def make_batch(
    values: list[bytes],
    *,
    to: TopicPartition = T0,
    magic: int = 2,
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    sequence: int = -1,
    epoch: int = 0,
    first_timestamp: int = 1000,
    key: bytes | None = None,
) -> ProduceBatch:
    """Return a sealed batch; record ``i`` has timestamp ``first_timestamp + i``, and all have the same key."""
    form = record_format(magic)
    records = b"".join(
        form.encode_record(i, first_timestamp + i, first_timestamp, form.encode_body(key, value, ()))
        for i, value in enumerate(values)
    )
    epoch = epoch if producer_id >= 0 else -1
    last_timestamp = first_timestamp + len(values) - 1
    payload = form.seal(
        memoryview(bytearray(form.header_size) + records),
        BatchFields(len(values), first_timestamp, last_timestamp, producer_id, epoch, sequence),
        compression,
    )
    return ProduceBatch(to, (payload,), len(values), magic, producer_id, epoch, sequence, last_timestamp, slot=7)


def scattered(batch: ProduceBatch, size: int) -> ProduceBatch:
    """Return a batch in views of a given size, each of memory of its own: as in slots that are not adjacent."""
    whole = b"".join(batch.payload)
    return with_payload(batch, *(bytearray(whole[begin : begin + size]) for begin in range(0, len(whole), size)))


def with_payload(batch: ProduceBatch, *views: bytearray | memoryview) -> ProduceBatch:
    return ProduceBatch(
        batch.topic_partition,
        tuple(map(memoryview, views)),
        batch.record_count,
        batch.magic,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.max_timestamp,
        batch.slot,
    )
