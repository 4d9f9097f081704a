from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from shmaccum.spark.worker import acknowledge_at_once

Ends = tuple[socket.socket, socket.socket]


def puts_off(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0


def take_turns(asking: socket.socket, answering: socket.socket) -> None:
    """Let them, until the kernel takes it that an answer follows soon."""
    while not puts_off(answering):
        asking.sendall(b"a row")
        answering.recv(100)
        answering.sendall(b"an answer")
        asking.recv(100)


@pytest.fixture
def ends() -> Iterator[Ends]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as asking,
    ):
        answering, _ = listening.accept()
        with answering:
            yield asking, answering


def test_every_task_acknowledges_at_once_after_turns(ends: Ends) -> None:
    for _ in range(2):
        take_turns(*ends)
        acknowledge_at_once()
        assert not puts_off(ends[1])


def test_connections_stay_as_they_are_otherwise(ends: Ends) -> None:
    asking, answering = ends
    other_ends = socket.socketpair()
    try:
        open_before = os.listdir("/proc/self/fd")
        acknowledge_at_once()
        assert os.listdir("/proc/self/fd") == open_before
        asking.sendall(b"rows")
        assert answering.recv(100) == b"rows"
        other_ends[0].sendall(b"beside")
        assert other_ends[1].recv(100) == b"beside"
    finally:
        for end in other_ends:
            end.close()
