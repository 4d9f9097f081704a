"""Batches as the sender hands them over, and what an independent decoder finds in the files."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from batches import make_batch
from kafka.record import MemoryRecords

from shmaccum.sender.log.log_transport import NODE, LogTransport
from shmaccum.sender.transport import ProduceBatch, ProduceResponse

NEVER = 2**63 - 1


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


def put_device(segment: Path, device: str) -> None:
    """Have this process's descriptors of a segment lead to a device: a disk that fails in the middle of the work.

    ``/dev/full`` takes no byte, ``/dev/null`` takes everything; neither can be cut or synced.
    """
    replacement = os.open(device, os.O_RDWR)
    found = 0
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(FileNotFoundError):  # the one that the listing itself used
            if os.readlink(f"/proc/self/fd/{number}") == str(segment):
                os.dup2(replacement, number)
                found += 1
    os.close(replacement)
    assert found == 1


@pytest.fixture(name="put_device")
def _put_device() -> Callable[[Path, str], None]:
    return put_device


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
