"""Takes connections, and has each served by a process of its own, which dies with this one."""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import IO, Any, Final

from tools.sink.answers import Answers
from tools.sink.counters import OPEN, Counters
from tools.sink.produce import Stream, acknowledge
from tools.support.messages import PRODUCE
from tools.support.processes import die_with_parent

_HEAD: Final = struct.Struct(">ihhi")
"""Size of what follows it, kind of request, version, correlation id."""
_SIZE: Final = 4


class Sink:
    """Listens on a port of loopback.

    Args:
        otherwise: how many partitions topics have that are not in `partitions`; 0 means that there are none.

    Attributes:
        servers: ``bootstrap.servers``.
        partitions: topic -> how many it has; what is changed here is known on connections that are still to come.
        counters: of all connections.
    """

    def __init__(self, otherwise: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        port: int = self._listener.getsockname()[1]
        self.servers = f"127.0.0.1:{port}"
        self.partitions: dict[str, int] = {}
        self.counters = Counters()
        self._answers = Answers(port, self.partitions, otherwise)
        self._serving: set[int] = set()

    def serve_until(self, link: IO[Any] | Any) -> None:
        """Take connections until there is something to read from a file, a pipe or a connection, or it has ended."""
        both: list[Any] = [link, self._listener]
        while True:
            ready, _, _ = select.select(both, [], [], 1.0)
            self._reap()
            if self._listener in ready:
                self._take()
            elif link in ready:
                return

    def _take(self) -> None:
        connection, _ = self._listener.accept()
        row = self.counters.new_row()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._serving.add(pid)
            connection.close()
            return
        try:
            die_with_parent()
            if os.getppid() == parent:
                self._listener.close()
                serve(connection, row, self._answers)
        finally:
            os._exit(0)

    def _reap(self) -> None:
        for pid in list(self._serving):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._serving.discard(pid)


def serve(connection: socket.socket, counts: memoryview, answers: Answers) -> None:
    """Serve a connection until it ends."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = Stream(connection)
    counts[OPEN] = 1
    try:
        while True:
            head = stream.take(_HEAD.size)
            size, api_key, version, correlation_id = _HEAD.unpack(head)
            if api_key == PRODUCE:
                answer = acknowledge(stream, version, correlation_id, counts)
            else:
                frame = head + stream.take(size + _SIZE - _HEAD.size)
                answer = answers.answer(api_key, version, correlation_id, frame)
            connection.sendall(answer)
    except (EOFError, ConnectionError):
        pass
    finally:
        counts[OPEN] = 0
        connection.close()
