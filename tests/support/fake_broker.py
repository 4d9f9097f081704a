"""A broker that says what a test tells it to: for what no real one can be made to say.

It knows one topic, "t", of two partitions, and is the only broker. Every request has its answer in `answers`, by
API key; a test replaces it. kafka-python encodes responses and decodes requests.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tools.support import messages
from tools.support.messages import (
    API_VERSIONS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    response,
)
from tools.support.proxy import Server


class Request:
    """A request.

    Attributes:
        frame: the whole of it, with its size in front.
        came: when, by the monotonic clock.
    """

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.came = time.monotonic()
        _, self.api_key, self.version, self.correlation_id = struct.unpack_from(">ihhi", frame)

    @cached_property
    def asked(self) -> Any:
        """What it says, as kafka-python's object."""
        return messages.decoded(self.frame)

    def encoded(self, response: Any) -> bytes:
        """Return the answer to it as it goes over the wire."""
        return messages.encoded(response, self.version, self.correlation_id)


Answer = Callable[[Request], Any]
"""Returns a response of kafka-python's, or the bytes to send, or None to stay silent; EOFError closes."""


class FakeBroker(Server):
    """Listens on a port of loopback; ``with`` closes it.

    Attributes:
        answers: API key -> what to answer.
        versions: API key -> the versions that it claims to know.
        requests: all that came.
        connections: when each was accepted, by the monotonic clock.
        most_connections: further ones are ended at once, as by ``max.connections.per.ip``.
    """

    def __init__(self, port: int = 0) -> None:
        self.requests: list[Request] = []
        self.connections: list[float] = []
        self.most_connections = 1000
        self.versions = {PRODUCE: (3, 12), METADATA: (0, 13), API_VERSIONS: (0, 4), INIT_PRODUCER_ID: (0, 5)}
        self.answers: dict[int, Answer] = {
            API_VERSIONS: self.api_versions,
            METADATA: self.metadata,
            INIT_PRODUCER_ID: lambda request: producer_id_of(77),
            PRODUCE: lambda request: produced((0, 0), (1, 0)),
        }
        super().__init__(port)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def of(self, api_key: int) -> list[Request]:
        return [request for request in self.requests if request.api_key == api_key]

    def api_versions(self, request: Request) -> Any:
        return messages.api_versions(self.versions)

    def metadata(self, request: Request, **changes: Any) -> Any:
        """Answer truthfully, but for what is changed: ``leader``, ``epoch``, ``error``, ``partition_count``,
        ``brokers`` (by number), ``names`` of topics, ``topic_id``, ``top_level_error``.
        """
        count = changes.get("partition_count", 2)
        answer = messages.metadata(
            [(number, broker.port) for number, broker in changes.get("brokers", [(1, self)])],
            [(name, count) for name in changes.get("names", ["t"])],
            leader=changes.get("leader", 1),
            epoch=changes.get("epoch", 3),
            error_code=changes.get("error", 0),
            topic_id=changes.get("topic_id"),
        )
        answer.error_code = changes.get("top_level_error", 0)
        return answer

    def let_in(self, mechanism: str) -> None:
        """Let everybody in by a mechanism of SASL, whatever they send."""
        self.versions |= {SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}
        self.answers[SASL_HANDSHAKE] = lambda request: response(SASL_HANDSHAKE, mechanisms=[mechanism])
        self.answers[SASL_AUTHENTICATE] = lambda request: authenticated()

    def send(self, data: bytes) -> None:
        """Send bytes that are no answer to anything, over the newest connection."""
        self._sockets[-1].sendall(data)

    def _serve(self, connection: socket.socket) -> None:
        if self._sockets.index(connection) < self.most_connections:
            super()._serve(connection)
        else:
            connection.close()

    def serve(self, connection: socket.socket) -> None:
        self.connections.append(time.monotonic())
        for frame in self.frames(connection):
            request = Request(frame)
            self.requests.append(request)
            answer = self.answers[request.api_key](request)
            if isinstance(answer, bytes):
                connection.sendall(answer)
            elif answer is not None:
                connection.sendall(request.encoded(answer))


def silent(request: Request) -> None:
    """Never answer."""


def producer_id_of(producer_id: int, error_code: int = 0, throttle_ms: int = 0) -> Any:
    return response(
        INIT_PRODUCER_ID,
        throttle_time_ms=throttle_ms,
        error_code=error_code,
        producer_id=producer_id,
        producer_epoch=0,
    )


def authenticated(error_code: int = 0, said: str | None = None, data: bytes = b"") -> Any:
    return response(SASL_AUTHENTICATE, error_code=error_code, error_message=said, auth_bytes=data)


def produced(*partitions: tuple[int, int], throttle_ms: int = 0, **more: Any) -> Any:
    """Return the response to a Produce request to partitions of "t", given as number and error code.

    ``more`` are fields of every partition's answer, as ``current_leader``, and ``node_endpoints``.
    """
    endpoints = {"node_endpoints": more.pop("node_endpoints")} if "node_endpoints" in more else {}
    answers = [
        {"index": number, "error_code": code, "base_offset": -1 if code else 100 + number} | more
        for number, code in partitions
    ]
    return messages.produced({"t": answers}, throttle_time_ms=throttle_ms, **endpoints)
