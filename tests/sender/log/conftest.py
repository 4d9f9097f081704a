"""Batches as the sender hands them over, and what an independent decoder finds in the files."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from kafka.record import MemoryRecords

from shmaccum.cluster import TopicPartition
from shmaccum.record.compression import CompressionType
from shmaccum.record.format import record_format
from shmaccum.sender.log.transport import NODE, LogTransport
from shmaccum.sender.transport import ProduceBatch, ProduceResponse

T0 = TopicPartition("t", 0)
NEVER = 2**63 - 1


def make_batch(
    values: list[bytes],
    *,
    to: TopicPartition = T0,
    magic: int = 2,
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    sequence: int = -1,
    epoch: int = 0,
) -> ProduceBatch:
    """Return a sealed batch of records without keys; record ``i`` has timestamp ``1000 + i``."""
    form = record_format(magic)
    records = b"".join(
        form.encode_record(i, 1000 + i, 1000, form.encode_body(None, value, ())) for i, value in enumerate(values)
    )
    epoch = epoch if producer_id >= 0 else -1
    payload = form.seal(
        memoryview(bytearray(form.header_size) + records),
        record_count=len(values),
        base_timestamp=1000,
        max_timestamp=999 + len(values),
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return ProduceBatch(to, payload, len(values), magic, producer_id, epoch, sequence, 999 + len(values), slot=7)


@pytest.fixture(name="make_batch")
def _make_batch() -> Callable[..., ProduceBatch]:
    return make_batch


def read_log(directory: Path) -> list[tuple[int, bytes]]:
    """Return (offset, value) of all records of a partition, as kafka-python decodes its segments."""
    found = []
    for segment in sorted(directory.glob("*.log")):
        stored = MemoryRecords(segment.read_bytes())
        while stored.has_next():
            batch = stored.next_batch()
            assert batch.validate_crc()
            found += [(record.offset, record.value) for record in batch]
        assert stored.valid_bytes() == segment.stat().st_size, f"{segment} ends in the middle of a batch"
    return found


@pytest.fixture(name="read_log")
def _read_log() -> Callable[[Path], list[tuple[int, bytes]]]:
    return read_log


class Sender:
    """Stands for the sender: one request, and its answers."""

    def __init__(self, transport: LogTransport) -> None:
        self.transport = transport

    def send(self, *batches: ProduceBatch, now_ms: int = 0) -> list[ProduceResponse]:
        self.transport.send(NODE, batches, now_ms)
        return self.transport.poll(0, -1)

    def offsets(self, *batches: ProduceBatch) -> list[int]:
        """Send, and expect every batch to be stored."""
        responses = self.send(*batches)
        assert [response.message for response in responses] == [""] * len(batches)
        return [response.base_offset for response in responses]


OpenSender = Callable[..., Sender]


@pytest.fixture
def open_sender(tmp_path: Path) -> Iterator[OpenSender]:
    """A function that starts a transport in ``tmp_path / "log"``; it is closed at the end, or by the test."""
    opened: list[LogTransport] = []

    def start(
        *,
        num_partitions: int = 1,
        segment_bytes: int = 1 << 30,
        flush_messages: int = NEVER,
        flush_ms: int = NEVER,
        magic: int = 2,
        topics: tuple[str, ...] = ("t",),
    ) -> Sender:
        transport = LogTransport(tmp_path / "log", num_partitions, segment_bytes, flush_messages, flush_ms, magic)
        transport.start()
        opened.append(transport)
        transport.request_update(topics)
        return Sender(transport)

    yield start
    for transport in opened:
        transport.close()


@pytest.fixture
def disk_full_beyond() -> Callable[[int], AbstractContextManager[None]]:
    """A context in which no file can grow beyond a size: ``write`` first writes a part, then fails with EFBIG."""

    @contextmanager
    def limit(size: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit
