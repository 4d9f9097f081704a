"""A broker that only acknowledges: what a client costs by itself, and exact counts of what it sent.

It is the only broker of its cluster, and knows Produce up to version 8, whose fields are of fixed size. Every
connection is served by a process of its own, so that many clients do not wait for one interpreter; what they count lies
in memory that they share. Batches are read, looked at for their number of records, and thrown away. Requests other than
Produce are few, and left to kafka-python's codec.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
FETCH, FIND_COORDINATOR = 1, 10
VERSIONS: Final = {PRODUCE: (3, 8), METADATA: (1, 8), API_VERSIONS: (0, 3), INIT_PRODUCER_ID: (0, 1)}
OFFERED: Final = VERSIONS | {FETCH: (0, 11), FIND_COORDINATOR: (0, 2)}
"""Consumers' requests are not answered, but librdkafka tells by them which formats of records a broker takes."""
UNSUPPORTED_VERSION: Final = 35

COUNTS: Final = ("open", "producing", "requests", "batches", "records", "bytes")
"""What is counted of a connection: whether it is open, and carried a batch; Produce requests; batches, the records and
bytes in them."""

_ROWS: Final = 1024
_BUFFER: Final = 2 << 20
_HEAD: Final = struct.Struct(">ihhi")
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_TWO_INTS: Final = struct.Struct(">ii")
_RECORD_COUNT_AT: Final = 57
_STORED: Final = struct.Struct(">ihqqq")
"""Partition, no error, base offset, append time, where the log starts."""
_PR_SET_PDEATHSIG: Final = 1


class Counters:
    """The counts of all connections: a row each, which one process writes."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _ROWS * len(COUNTS) * 8)
        self._words = memoryview(self._memory).cast("Q")
        self._of_former = [0] * len(COUNTS)
        self._used = 0

    def new_row(self) -> memoryview:
        """Return the row of a new connection: that of the oldest one, once there have been so many."""
        start = self._used % _ROWS * len(COUNTS)
        self._used += 1
        row = self._words[start : start + len(COUNTS)]
        for place, count in enumerate(row):
            self._of_former[place] += count
            row[place] = 0
        return row

    def totals(self) -> dict[str, int]:
        """Return the sums over all connections that there have been."""
        return {
            name: self._of_former[place] + sum(self._words[place :: len(COUNTS)]) for place, name in enumerate(COUNTS)
        }


class SinkService:
    """Listens on a port of loopback; see `Service`."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._port: int = self._listener.getsockname()[1]
        self.servers = f"127.0.0.1:{self._port}"
        self._partitions: dict[str, int] = {}
        self._counters = Counters()
        self._records_before: dict[str, int] = {}
        self._serving: set[int] = set()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Know a topic, on connections that are still to come."""
        self._partitions[topic] = partitions
        self._records_before[topic] = self._counters.totals()["records"]

    def delete_topic(self, topic: str) -> None:
        """Forget a topic."""
        del self._partitions[topic], self._records_before[topic]

    def records(self, topic: str) -> int:
        """Return how many records have come since the topic was made: there is one topic at a time."""
        return self._counters.totals()["records"] - self._records_before[topic]

    def counts(self) -> dict[str, int]:
        """Return the sums of what all connections carried."""
        return self._counters.totals()

    def wait(self, link: Connection) -> None:
        """Take connections until the tool says something."""
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
        row = self._counters.new_row()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._serving.add(pid)
            connection.close()
            return
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                self._listener.close()
                serve(connection, row, self._answer)
        finally:
            os._exit(0)

    def _reap(self) -> None:
        for pid in list(self._serving):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._serving.discard(pid)

    # --- all but Produce ----------------------------------------------------------------------------

    def _answer(self, api_key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        if api_key == API_VERSIONS and version > VERSIONS[API_VERSIONS][1]:
            version = 0
            response = self._api_versions(0, UNSUPPORTED_VERSION)
        elif api_key == API_VERSIONS:
            response = self._api_versions(version, 0)
        elif api_key == METADATA:
            response = self._metadata(version, MetadataRequest[version].decode(frame, header=True, framed=True))
        elif api_key == INIT_PRODUCER_ID:
            InitProducerIdRequest[version].decode(frame, header=True, framed=True)
            response = InitProducerIdResponse(
                version=version,
                throttle_time_ms=0,
                error_code=0,
                producer_id=int.from_bytes(os.urandom(4)),
                producer_epoch=0,
            )
        else:
            raise EOFError(f"a request of kind {api_key} was not offered")
        response.API_VERSION = version
        response.with_header(correlation_id=correlation_id)
        return bytes(response.encode(header=True, framed=True))

    def _api_versions(self, version: int, error: int) -> Any:
        Known = ApiVersionsResponse.ApiVersion
        keys = [
            Known(version=version, api_key=key, min_version=low, max_version=high)
            for key, (low, high) in OFFERED.items()
        ]
        return ApiVersionsResponse(version=version, error_code=error, api_keys=keys, throttle_time_ms=0)

    def _metadata(self, version: int, request: Any) -> Any:
        asked = list(self._partitions) if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            version=version,
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    version=version, node_id=1, host="127.0.0.1", port=self._port, rack=None
                )
            ],
            cluster_id="sink",
            controller_id=1,
            topics=[self._topic(version, topic) for topic in asked],
        )

    def _topic(self, version: int, topic: str) -> Any:
        Topic = MetadataResponse.MetadataResponseTopic
        partitions = [
            Topic.MetadataResponsePartition(
                version=version,
                error_code=0,
                partition_index=number,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for number in range(self._partitions.get(topic, 0))
        ]
        error = 0 if partitions else 3
        return Topic(version=version, error_code=error, name=topic, is_internal=False, partitions=partitions)


def serve(connection: socket.socket, counts: memoryview, answer_other: Callable[[int, int, int, bytes], bytes]) -> None:
    """Serve a connection until it ends."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    counts[0] = 1
    try:
        for frame in frames(connection):
            _, api_key, version, correlation_id = _HEAD.unpack_from(frame)
            if api_key == PRODUCE:
                connection.sendall(acknowledge(frame, version, correlation_id, counts))
            else:
                connection.sendall(answer_other(api_key, version, correlation_id, bytes(frame)))
    except (EOFError, ConnectionError):
        pass
    finally:
        counts[0] = 0
        connection.close()


def frames(connection: socket.socket) -> Iterator[memoryview]:
    """Yield whole requests, size in front; each is gone when the next one is asked for."""
    buffer = memoryview(bytearray(_BUFFER))
    start = end = 0
    while True:
        while end - start >= _INT.size and end - start >= (size := _INT.unpack_from(buffer, start)[0] + _INT.size):
            yield buffer[start : start + size]
            start += size
        if end - start >= _INT.size and size > len(buffer):
            buffer, end, start = _moved(buffer, start, end, size), end - start, 0
        elif end == len(buffer) or start == end:
            buffer[: end - start] = bytes(buffer[start:end])
            start, end = 0, end - start
        got = connection.recv_into(buffer[end:])
        if not got:
            raise EOFError
        end += got


def _moved(buffer: memoryview, start: int, end: int, size: int) -> memoryview:
    larger = memoryview(bytearray(2 * size))
    larger[: end - start] = buffer[start:end]
    return larger


def acknowledge(frame: memoryview, version: int, correlation_id: int, counts: memoryview) -> bytes:
    """Return the answer to a Produce request, which is that everything is stored, and count what is in it."""
    at = _HEAD.size
    at += _SHORT.size + max(0, _SHORT.unpack_from(frame, at)[0])  # client id
    at += _SHORT.size + max(0, _SHORT.unpack_from(frame, at)[0])  # transactional id
    at += _SHORT.size + _INT.size  # acks, timeout
    (topics,) = _INT.unpack_from(frame, at)
    at += _INT.size
    stored_size = _STORED.size if version >= 5 else _STORED.size - 8
    tail = _INT.pack(0) + _SHORT.pack(-1) if version == 8 else b""  # no errors of single records, no message
    batches = records = size = 0
    answer = [_INT.pack(correlation_id), _INT.pack(topics)]
    for _ in range(topics):
        name_end = at + _SHORT.size + _SHORT.unpack_from(frame, at)[0]
        answer.append(bytes(frame[at : name_end + _INT.size]))  # the name, and the number of partitions
        (partitions,) = _INT.unpack_from(frame, name_end)
        at = name_end + _INT.size
        for _ in range(partitions):
            number, length = _TWO_INTS.unpack_from(frame, at)
            at += _TWO_INTS.size
            records += _INT.unpack_from(frame, at + _RECORD_COUNT_AT)[0]
            batches += 1
            size += length
            at += length
            answer.append(_STORED.pack(number, 0, 0, -1, 0)[:stored_size] + tail)
    answer.append(_INT.pack(0))
    counts[1] = 1
    counts[2] += 1
    counts[3] += batches
    counts[4] += records
    counts[5] += size
    body = b"".join(answer)
    return _INT.pack(len(body)) + body
