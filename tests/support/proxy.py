"""A proxy between clients and a broker that does to their conversation what networks do.

It reads the frames of Kafka's protocol: four bytes of size; then in a request api key, version and correlation id, in a
response the correlation id. So a test can say "the answer to the next Produce request is lost"::

    with Proxy(node.port) as proxy:
        node.advertised_port = proxy.port      # before the cluster starts
        lost = proxy.lose_response(PRODUCE)
        ...                                    # let a client produce
        lost.wait()                            # the broker has stored the records; no client knows

There is nothing to read in TLS: with ``frames=False`` it forwards bytes, and can stall, refuse and cut.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import NamedTuple

from tools.kafka.ports import free_port

PRODUCE = 0
FETCH = 1
METADATA = 3
INIT_PRODUCER_ID = 22

PATIENCE_S = 60.0
_REQUEST = struct.Struct(">ihhi")
"""Size, api key, api version, correlation id."""
_RESPONSE = struct.Struct(">ii")
"""Size, correlation id."""


class Fault:
    """What happens to the next requests of a kind: here, nothing but that it is noted.

    Attributes:
        api_key: of the requests.
        longer_than: shorter ones are left alone, in bytes.
        left: how many more it is to happen to.
        happened: the correlation ids of those that it has happened to.
    """

    def __init__(self, api_key: int, times: int) -> None:
        self.api_key = api_key
        self.longer_than = 0
        self.left = times
        self.happened: list[int] = []
        self._times = times
        self._all_happened = threading.Event()

    def note(self, correlation_id: int) -> None:
        """Note that it has happened to a request."""
        self.happened.append(correlation_id)
        if len(self.happened) == self._times:
            self._all_happened.set()

    def wait(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until it has happened as often as it was to."""
        assert self._all_happened.wait(timeout_s), f"it has happened to {self.happened}, and not {self._times} times"

    def has_happened(self) -> bool:
        """Say whether it has happened as often as it was to."""
        return self._all_happened.is_set()


class CutRequest(Fault):
    """Cuts the connection after this many bytes of a longer request, its size included, have gone to the broker."""

    def __init__(self, api_key: int, times: int, after: int) -> None:
        super().__init__(api_key, times)
        self.longer_than = after


class LoseResponse(Fault):
    """The broker does what it is asked to, and its answer is lost: with the connection, or in silence."""

    def __init__(self, api_key: int, times: int, cut: bool) -> None:
        super().__init__(api_key, times)
        self.cut = cut


class Answer(NamedTuple):
    """A response.

    Attributes:
        at_s: monotonic seconds, just before it was forwarded.
        frame: all of it.
    """

    at_s: float
    frame: bytes


class Listen(Fault):
    """Requests and their answers are noted, and pass.

    Attributes:
        requests: when each came, in monotonic seconds.
        answers: as they were forwarded.
    """

    def __init__(self, api_key: int) -> None:
        super().__init__(api_key, sys.maxsize)
        self.requests: list[float] = []
        self.answers: list[Answer] = []


class Proxy:
    """A port that leads to another port of this machine; ``with Proxy(port) as proxy`` closes it.

    Its methods may be called from any thread. Bytes that are already between two sockets still arrive.

    Attributes:
        port: where it listens.
        requests: how many requests of each api key have come.
    """

    def __init__(self, to_port: int, *, frames: bool = True) -> None:
        self.port = free_port()
        self.requests: Counter[int] = Counter()
        self.running = threading.Event()
        self._to_port = to_port
        self._frames = frames
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._connections: set[_Connection] = set()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self.resume()
        self.accept()

    def watch(self, api_key: int, times: int = 1) -> Fault:
        """Do nothing to the next requests of a kind but note that they came."""
        return self._arm(Fault(api_key, times))

    @contextmanager
    def listen(self, api_key: int) -> Iterator[Listen]:
        """Note the requests of a kind that come meanwhile, and their answers."""
        listening = Listen(api_key)
        self._arm(listening)
        yield listening
        with self._lock:
            self._faults.remove(listening)

    def cut_request(self, api_key: int, after: int, times: int = 1) -> Fault:
        """Cut the connection in the middle of the next requests of a kind, after ``after`` of their bytes."""
        return self._arm(CutRequest(api_key, times, after))

    def lose_response(self, api_key: int, times: int = 1, *, cut: bool = True) -> Fault:
        """Lose the answers to the next requests of a kind; without ``cut``, the connection stays, and never answers."""
        return self._arm(LoseResponse(api_key, times, cut))

    def stall(self) -> None:
        """Keep all connections, accept new ones, and forward nothing, either way."""
        self.running.clear()

    def resume(self) -> None:
        """Forward again, and first what was held."""
        self.running.set()

    def refuse(self) -> None:
        """Refuse new connections, as a machine does where nothing listens, and cut those that there are."""
        listener, acceptor = self._listener, self._acceptor
        if listener is not None and acceptor is not None:
            listener.shutdown(socket.SHUT_RDWR)  # ends the wait in `accept`
            acceptor.join()
            listener.close()
        self._listener = self._acceptor = None
        self.cut()

    def accept(self) -> None:
        """Accept connections (again)."""
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._acceptor = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
            self._acceptor.start()

    def cut(self) -> None:
        """Cut all connections; new ones are welcome."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut()

    def close(self) -> None:
        """End it, with all its connections."""
        self.refuse()
        self.resume()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.join()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take_fault(self, api_key: int, size: int) -> Fault | None:
        """Count a request of this size, and return the fault that applies to it."""
        with self._lock:
            self.requests[api_key] += 1
            for fault in self._faults:
                if fault.api_key == api_key and fault.left and size > fault.longer_than:
                    fault.left -= 1
                    return fault
        return None

    def give_back(self, fault: Fault) -> None:
        """Take a fault back from a request to which it will not happen any more: it is another one's turn."""
        with self._lock:
            fault.left += 1

    def forget(self, connection: _Connection) -> None:
        """Note that a connection has ended."""
        with self._lock:
            self._connections.discard(connection)

    def _arm(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # refused from now on
            try:
                broker = socket.create_connection(("127.0.0.1", self._to_port))
            except OSError:
                client.close()  # the broker is down
                continue
            connection = _Connection(self, client, broker, self._frames)
            with self._lock:
                self._connections.add(connection)
            connection.start()


class _Connection:
    """A client's connection, and the one to the broker that it leads to; forwards until either side ends."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket, frames: bool) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._frames = frames
        self._awaited: dict[int, LoseResponse | Listen] = {}
        for side in (client, broker):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        """Begin to forward."""
        self._thread.start()

    def cut(self) -> None:
        """End both sides; the threads see it, and close the sockets."""
        for side in (self._client, self._broker):
            with suppress(OSError):  # it has ended already
                side.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _serve(self) -> None:
        requests, responses = self._forward_requests, self._forward_responses
        if not self._frames:
            requests = partial(self._forward_bytes, self._client, self._broker)
            responses = partial(self._forward_bytes, self._broker, self._client)
        back = threading.Thread(target=self._until_end, args=(responses,), daemon=True)
        back.start()
        self._until_end(requests)
        back.join()
        for fault in self._awaited.values():  # the answers to these will not come any more
            self._proxy.give_back(fault)
        self._client.close()
        self._broker.close()
        self._proxy.forget(self)

    def _until_end(self, forward: Callable[[], None]) -> None:
        with suppress(OSError, EOFError):
            forward()
        self.cut()  # what one side did, the other one is to see

    def _forward_requests(self) -> None:
        while True:
            frame = _read_frame(self._client)
            _, api_key, _, correlation_id = _REQUEST.unpack_from(frame)
            fault = self._proxy.take_fault(api_key, len(frame))
            self._proxy.running.wait()
            if isinstance(fault, CutRequest):
                with suppress(OSError):  # the broker has closed it already: the rest cannot arrive either way
                    self._broker.sendall(frame[: fault.longer_than])
                fault.note(correlation_id)  # before the client can see it
                self.cut()
                return
            if isinstance(fault, Listen):
                fault.requests.append(time.monotonic())
            if isinstance(fault, LoseResponse | Listen):
                self._awaited[correlation_id] = fault
            elif fault is not None:
                fault.note(correlation_id)
            self._broker.sendall(frame)

    def _forward_responses(self) -> None:
        while True:
            frame = _read_frame(self._broker)
            _, correlation_id = _RESPONSE.unpack_from(frame)
            fault = self._awaited.pop(correlation_id, None)
            self._proxy.running.wait()
            if isinstance(fault, Listen):
                fault.answers.append(Answer(time.monotonic(), frame))
            if fault is not None:
                fault.note(correlation_id)  # before the client can see it
            if not isinstance(fault, LoseResponse):
                self._client.sendall(frame)
            elif fault.cut:
                self.cut()

    def _forward_bytes(self, source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(1 << 16):
            self._proxy.running.wait()
            target.sendall(data)


def _read_frame(source: socket.socket) -> bytes:
    """Read a frame, with its size in front; EOFError where the stream ends instead."""
    head = _read(source, 4)
    return head + _read(source, int.from_bytes(head))


def _read(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(data)
