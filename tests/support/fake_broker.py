"""A broker that says what a test tells it to: for what no real one can be made to say.

It knows one topic, "t", of two partitions, and is the only broker. Every request has its answer in `answers`, by
API key; a test replaces it. Responses are encoded by kafka-python.
"""

from __future__ import annotations

import io
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import InitProducerIdResponse, ProduceResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36

_HEAD = struct.Struct(">ihhi")


class Request(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    frame: bytes
    """The whole of it, with its size in front."""
    came: float
    """When, by the monotonic clock."""


Answer = Callable[[Request], Any]
"""Returns a response of kafka-python's, or the bytes to send, or None to stay silent; EOFError closes."""


class FakeBroker:
    """Listens on a port of loopback; ``with`` closes it.

    Attributes:
        answers: API key -> what to answer.
        versions: API key -> the versions that it claims to know.
        requests: all that came.
        connections: when each was accepted, by the monotonic clock.
        fragments: what came of requests that were never whole.
    """

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[Request] = []
        self.connections: list[float] = []
        self.fragments: list[bytes] = []
        self.versions = {PRODUCE: (3, 12), METADATA: (0, 13), API_VERSIONS: (0, 4), INIT_PRODUCER_ID: (0, 5)}
        self.answers: dict[int, Answer] = {
            API_VERSIONS: self.api_versions,
            METADATA: self.metadata,
            INIT_PRODUCER_ID: lambda request: producer_id_of(77),
            PRODUCE: lambda request: produced((0, 0), (1, 0)),
        }
        self._running = threading.Event()
        self._running.set()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def of(self, api_key: int) -> list[Request]:
        """Return the requests of a kind that came so far."""
        return [request for request in self.requests if request.api_key == api_key]

    def api_versions(self, request: Request) -> Any:
        Known = ApiVersionsResponse.ApiVersion
        keys = [
            Known(version=request.version, api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        return ApiVersionsResponse(version=request.version, error_code=0, api_keys=keys, throttle_time_ms=0)

    def metadata(self, request: Request, **changes: Any) -> Any:
        """Answer truthfully, but for what is changed: ``leader``, ``epoch``, ``error``, ``partition_count``,
        ``brokers`` (by number), ``names`` of topics, ``topic_id``, ``top_level_error``.
        """
        version = request.version
        Topic, Broker = MetadataResponse.MetadataResponseTopic, MetadataResponse.MetadataResponseBroker
        partitions = [
            Topic.MetadataResponsePartition(
                version=version,
                error_code=0,
                partition_index=number,
                leader_id=changes.get("leader", 1),
                leader_epoch=changes.get("epoch", 3),
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for number in range(changes.get("partition_count", 2))
        ]
        topics = [
            Topic(
                version=version,
                error_code=changes.get("error", 0),
                name=name,
                topic_id=changes.get("topic_id"),
                is_internal=False,
                partitions=partitions,
            )
            for name in changes.get("names", ["t"])
        ]
        return MetadataResponse(
            version=version,
            throttle_time_ms=0,
            brokers=[
                Broker(version=version, node_id=number, host="127.0.0.1", port=broker.port, rack=None)
                for number, broker in changes.get("brokers", [(1, self)])
            ],
            cluster_id="fake",
            controller_id=1,
            topics=topics,
            error_code=changes.get("top_level_error", 0),
        )

    def let_in(self, mechanism: str) -> None:
        """Let everybody in by a mechanism of SASL, whatever they send."""
        self.versions |= {SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2)}
        self.answers[SASL_HANDSHAKE] = lambda request: SaslHandshakeResponse(error_code=0, mechanisms=[mechanism])
        self.answers[SASL_AUTHENTICATE] = lambda request: authenticated()

    def send(self, data: bytes) -> None:
        """Send bytes that are no answer to anything, over the newest connection."""
        self._sockets[-1].sendall(data)

    def pause(self) -> None:
        """Read nothing any more."""
        self._running.clear()

    def resume(self) -> None:
        """Read on."""
        self._running.set()

    def cut(self) -> None:
        """End all connections."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it; its port refuses connections from now on."""
        with suppress(OSError):  # it has been stopped before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.resume()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(time.monotonic())
                self._sockets.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, EOFError), connection:
            while True:
                frame = self._read(connection, 4)
                frame += self._read(connection, int.from_bytes(frame))
                _, api_key, version, correlation_id = _HEAD.unpack_from(frame)
                request = Request(api_key, version, correlation_id, frame, time.monotonic())
                self.requests.append(request)
                answer = self.answers[api_key](request)
                if isinstance(answer, bytes):
                    connection.sendall(answer)
                elif answer is not None:
                    connection.sendall(encoded(answer, request))

    def _read(self, connection: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._running.wait()
            more = connection.recv(min(size - len(data), 1 << 16))
            if not more:
                self.fragments.append(bytes(data))
                raise EOFError
            data += more
        return bytes(data)


def topics_of(request: Request) -> list[str]:
    """Return the topics that a Metadata request asks about."""
    buffer = io.BytesIO(request.frame[4:])
    kind = MetadataRequest[request.version]
    kind.parse_header(buffer)
    return [topic.name for topic in kind.decode(buffer).topics]


def encoded(response: Any, request: Request) -> bytes:
    """Return a response as it goes over the wire in answer to a request."""
    response.API_VERSION = request.version
    response.with_header(correlation_id=request.correlation_id)
    return bytes(response.encode(header=True, framed=True))


def producer_id_of(producer_id: int, error_code: int = 0, throttle_ms: int = 0) -> Any:
    """Return the response to an InitProducerId request."""
    return InitProducerIdResponse(
        throttle_time_ms=throttle_ms, error_code=error_code, producer_id=producer_id, producer_epoch=0
    )


def authenticated(error_code: int = 0, said: str | None = None, data: bytes = b"") -> Any:
    """Return the response to a SaslAuthenticate request."""
    return SaslAuthenticateResponse(error_code=error_code, error_message=said, auth_bytes=data, session_lifetime_ms=0)


def produced(*partitions: tuple[int, int], throttle_ms: int = 0, **more: Any) -> Any:
    """Return the response to a Produce request to partitions of "t", given as number and error code.

    ``more`` are fields of every partition's answer, as ``current_leader``, and ``node_endpoints``.
    """
    Topic = ProduceResponse.TopicProduceResponse
    endpoints = more.pop("node_endpoints", [])
    answers = [
        Topic.PartitionProduceResponse(
            **{
                "index": number,
                "error_code": code,
                "base_offset": -1 if code else 100 + number,
                "log_append_time_ms": -1,
                "log_start_offset": 0,
                "record_errors": [],
                "error_message": None,
            }
            | more
        )
        for number, code in partitions
    ]
    topic = Topic(name="t", partition_responses=answers)
    tagged = {"node_endpoints": endpoints} if endpoints else {}
    return ProduceResponse(responses=[topic], throttle_time_ms=throttle_ms, **tagged)
