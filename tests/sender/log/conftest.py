"""Batches as the sender hands them over, and what an independent decoder finds in the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.sender.log.log_transport import NODE, LogTransport

NEVER = 2**63 - 1


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
