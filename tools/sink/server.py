"""Takes connections, and has each served by a process of its own, which dies with this one."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

from tools.sink.produce import OPEN, Counters, Stream, acknowledge
from tools.sink.produce import VERSIONS as PRODUCE_VERSIONS
from tools.support import messages
from tools.support.messages import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE, api_versions
from tools.support.processes import die_with_parent

_HEAD: Final = struct.Struct(">ihhi")
"""Size of what follows it, kind of request, version, correlation id."""
_SIZE: Final = 4


VERSIONS: Final = {
    PRODUCE: PRODUCE_VERSIONS,
    METADATA: (1, 8),
    API_VERSIONS: (0, 3),
    INIT_PRODUCER_ID: (0, 1),
    # Consumers' requests are not answered, but librdkafka tells by them which formats of records a broker takes.
    messages.FETCH: (0, 11),
    messages.FIND_COORDINATOR: (0, 2),
}
_UNSUPPORTED_VERSION: Final = 35
_UNKNOWN_TOPIC: Final = 3


class Answers:
    """Answers whatever is not Produce, for a `Sink`."""

    def __init__(self, port: int, partitions: Mapping[str, int], otherwise: int) -> None:
        self._port = port
        self._partitions = partitions
        self._otherwise = otherwise
        self._known: dict[int, Callable[[bytes], Any]] = {
            API_VERSIONS: lambda frame: api_versions(VERSIONS),
            METADATA: self._metadata,
            INIT_PRODUCER_ID: lambda frame: messages.response(
                INIT_PRODUCER_ID, producer_id=int.from_bytes(os.urandom(4)), producer_epoch=0
            ),
        }

    def answer(self, api_key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        """Return the answer to a request, size in front; raise EOFError for one of a kind that is not answered."""
        if api_key not in self._known:
            raise EOFError(f"a request of kind {api_key} is not answered")
        if api_key == API_VERSIONS and version > VERSIONS[API_VERSIONS][1]:
            return messages.encoded(api_versions(VERSIONS, error_code=_UNSUPPORTED_VERSION), 0, correlation_id)
        return messages.encoded(self._known[api_key](frame), version, correlation_id)

    def _metadata(self, frame: bytes) -> Any:
        asked = messages.decoded(frame).topics
        names = list(self._partitions) if asked is None else [topic.name for topic in asked]
        topics = [(name, self._partitions.get(name, self._otherwise)) for name in names]
        answer = messages.metadata([(1, self._port)], topics)
        for topic in answer.topics:
            topic.error_code = 0 if topic.partitions else _UNKNOWN_TOPIC
        return answer


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
