"""A broker that only acknowledges: what a client costs by itself, without what a broker would make of its batches.

``python -m tools.sink [--partitions 4]`` prints its address and serves until its standard input ends. It is the only
broker of its cluster; every topic that is asked about has so many partitions. Produce requests are walked through for
the partitions that they name, while the batches are thrown away by the kernel, without being copied or looked at; so
it keeps up with any client. What else a client asks is answered by kafka-python.
"""

from __future__ import annotations

import argparse
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
VERSIONS: Final = {PRODUCE: (3, 12), METADATA: (0, 12), API_VERSIONS: (0, 3), INIT_PRODUCER_ID: (0, 4)}

_FIRST_FLEXIBLE: Final = 9
_HEAD: Final = struct.Struct(">ihhi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_STORED: Final = struct.Struct(">ihqqq")
"""Partition, no error, base offset, append time, where the log starts."""


class _Stream:
    """What a client sends, byte by byte, and without those that nobody wants to see."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._scratch = bytearray(1 << 16)

    def take(self, size: int) -> bytes:
        data = self._connection.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise EOFError
        return data

    def number(self, form: struct.Struct) -> int:
        number: int = form.unpack(self.take(form.size))[0]
        return number

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def drop(self, size: int) -> None:
        while size:
            dropped = self._connection.recv_into(self._scratch, min(size, len(self._scratch)), socket.MSG_TRUNC)
            if not dropped:
                raise EOFError
            size -= dropped


class Sink:
    """Listens on a port of loopback.

    Args:
        partitions: of every topic.
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._others: dict[int, tuple[Any, Callable[[Any], Any]]] = {
            API_VERSIONS: (ApiVersionsRequest, self._api_versions),
            METADATA: (MetadataRequest, self._metadata),
            INIT_PRODUCER_ID: (InitProducerIdRequest, self._producer_id),
        }

    def serve(self) -> None:
        """Take connections, each in a thread of its own, for as long as the process lives."""
        while True:
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        with connection, suppress(EOFError, ConnectionError):
            stream = _Stream(connection)
            while True:
                head = stream.take(_HEAD.size)
                size, api_key, version, correlation_id = _HEAD.unpack(head)
                if api_key == PRODUCE:
                    answer = _acknowledge(stream, version, correlation_id)
                else:
                    frame = head + stream.take(size + _INT32.size - _HEAD.size)
                    answer = self._answer_other(api_key, version, correlation_id, frame)
                connection.sendall(answer)

    # --- all but Produce ----------------------------------------------------------------------------

    def _answer_other(self, api_key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        Request, answer = self._others[api_key]
        if api_key == API_VERSIONS and version > VERSIONS[api_key][1]:
            response = ApiVersionsResponse(version=0, error_code=35, api_keys=self._known(0), throttle_time_ms=0)
            response.API_VERSION = 0
        else:
            response = answer(Request[version].decode(frame, header=True, framed=True))
            response.API_VERSION = version
        response.with_header(correlation_id=correlation_id)
        return bytes(response.encode(header=True, framed=True))

    def _known(self, version: int) -> list[Any]:
        Known = ApiVersionsResponse.ApiVersion
        return [
            Known(version=version, api_key=key, min_version=low, max_version=high)
            for key, (low, high) in VERSIONS.items()
        ]

    def _api_versions(self, request: Any) -> Any:
        version = request.API_VERSION
        return ApiVersionsResponse(version=version, error_code=0, api_keys=self._known(version), throttle_time_ms=0)

    def _metadata(self, request: Any) -> Any:
        version = request.API_VERSION
        Topic, Broker = MetadataResponse.MetadataResponseTopic, MetadataResponse.MetadataResponseBroker
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
            for number in range(self._partitions)
        ]
        topics = [
            Topic(version=version, error_code=0, name=topic.name, is_internal=False, partitions=partitions)
            for topic in request.topics or []
        ]
        return MetadataResponse(
            version=version,
            throttle_time_ms=0,
            brokers=[Broker(version=version, node_id=1, host="127.0.0.1", port=self.port, rack=None)],
            cluster_id="sink",
            controller_id=1,
            topics=topics,
        )

    def _producer_id(self, request: Any) -> Any:
        return InitProducerIdResponse(
            version=request.API_VERSION, throttle_time_ms=0, error_code=0, producer_id=1, producer_epoch=0
        )


def _acknowledge(stream: _Stream, version: int, correlation_id: int) -> bytes:
    """Read a Produce request and return the answer, which is that everything is stored at offset 0."""
    flexible = version >= _FIRST_FLEXIBLE
    stream.drop(max(0, stream.number(_INT16)))  # client id
    if flexible:
        stream.drop(1)  # tags
        stream.drop(max(0, stream.varint() - 1))  # transactional id
    else:
        stream.drop(max(0, stream.number(_INT16)))
    stream.take(_ACKS_AND_TIMEOUT.size)
    rest = _rest_of_partition(version)
    end = b"\0" if flexible else b""

    def length() -> int:
        return stream.varint() - 1 if flexible else stream.number(_INT32)

    def array(size: int) -> bytes:
        return _varint(size + 1) if flexible else _INT32.pack(size)

    topics = length()
    answer = bytearray(_INT32.pack(correlation_id) + end + array(topics))
    for _ in range(topics):
        size = stream.varint() - 1 if flexible else stream.number(_INT16)
        name = stream.take(size)
        partitions = length()
        answer += (_varint(size + 1) if flexible else _INT16.pack(size)) + name + array(partitions)
        for _ in range(partitions):
            number = stream.number(_INT32)
            stream.drop(length() + len(end))
            answer += _STORED.pack(number, 0, 0, -1, 0)[: _STORED.size if version >= 5 else -8] + rest
        stream.drop(len(end))
        answer += end
    stream.drop(len(end))
    answer += _INT32.pack(0) + end
    return _INT32.pack(len(answer)) + answer


def _rest_of_partition(version: int) -> bytes:
    """Return what ends a partition's answer: no errors of single records, no message, no tags."""
    if version >= _FIRST_FLEXIBLE:
        return b"\1\0\0"
    return b"\0\0\0\0\xff\xff" if version == 8 else b""


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


@contextmanager
def running_sink(partitions: int) -> Iterator[str]:
    """Run a sink as a process of its own; the block gets its address, as for ``bootstrap.servers``."""
    command = [sys.executable, "-m", "tools.sink", "--partitions", str(partitions)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=4, help="of every topic")
    sink = Sink(parser.parse_args().partitions)
    threading.Thread(target=sink.serve, daemon=True).start()
    print(f"127.0.0.1:{sink.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
