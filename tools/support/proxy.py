"""A proxy between clients and a broker that does to their conversation what networks do.

It reads the frames of Kafka's protocol: four bytes of size; then in a request api key, version and correlation id, in a
response the correlation id. So a test can say "the answer to the next Produce request is lost"::

    with Proxy(node.port) as proxy:
        node.advertised_port = proxy.port      # before the cluster starts
        lost = proxy.lose_response(PRODUCE)
        ...                                    # let a client produce
        lost.wait()                            # the broker has stored the records; no client knows

With a delay it reads no frames, which it could not in TLS: what the broker sends comes later, as from far away.

`Server` is the part of it that fake brokers have, too: it accepts, pauses and cuts.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, Self

PATIENCE_S: Final = 60.0
_CHUNK: Final = 1 << 20


class Server:
    """Listens, and serves each connection in a thread; ``with`` closes it. Its methods may be called from any thread.

    Attributes:
        running: is set but while it is paused.
        fragments: what came of frames that were never whole.
    """

    def __init__(self, port: int = 0) -> None:
        self.running = threading.Event()
        self.fragments: list[bytes] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.resume()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def serve(self, connection: socket.socket) -> None:
        """Serve a connection until it ends; OSError and EOFError end it, too."""
        raise NotImplementedError

    def pause(self) -> None:
        """Keep all connections, accept new ones, and do nothing with what comes."""
        self.running.clear()

    def resume(self) -> None:
        """Go on, and first with what came during the pause."""
        self.running.set()

    def cut(self) -> None:
        """Cut all connections; new ones are welcome. Bytes that are already between two sockets still arrive."""
        for each in list(self._sockets):
            shut(each)

    def stop(self) -> None:
        """End it, with all its connections; its port refuses new ones."""
        shut(self._listener)  # ends the wait in `accept`
        self._acceptor.join()
        self._listener.close()
        self.cut()
        self.resume()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def frames(self, connection: socket.socket) -> Iterator[bytes]:
        """Yield what comes, frame by frame, size in front, until the connection ends."""
        while True:
            frame, size = bytearray(), 4
            while len(frame) < size:
                more = connection.recv(min(size - len(frame), 1 << 16))
                if not more:
                    self.fragments.append(bytes(frame))
                    return
                self.running.wait()
                frame += more
                if len(frame) == 4:
                    size += int.from_bytes(frame)
            yield bytes(frame)

    def _accept(self) -> None:
        with suppress(OSError):  # it is stopped
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, EOFError), connection:
            self.serve(connection)


def shut(connection: socket.socket) -> None:
    """End a connection both ways, or a listener's wait in `accept`; the thread that serves it closes it."""
    with suppress(OSError):  # it has ended already
        connection.shutdown(socket.SHUT_RDWR)


class Answer(NamedTuple):
    """A response, and the monotonic seconds just before it was forwarded."""

    at_s: float
    frame: bytes


class Fault:
    """What happens to the next requests of a kind, ``times`` times, and to their answers, which are noted.

    With ``after``, the broker gets this many bytes of a request that is longer, and the connection is cut. Else the
    broker's answer can be lost, and the connection with it. ``left`` is how many more requests it happens to.
    """

    def __init__(
        self, api_key: int, times: int, after: int | None = None, *, loses: bool = False, cuts: bool = False
    ) -> None:
        self.api_key, self.times, self.after, self.loses, self.cuts = api_key, times, after, loses, cuts
        self.left = times
        self.happened = 0
        self.requests: list[float] = []
        self.answers: list[Answer] = []
        self._all_happened = threading.Event()

    def is_for(self, frame: bytes) -> bool:
        return self.left > 0 and int.from_bytes(frame[4:6]) == self.api_key and len(frame) > (self.after or 0)

    def note(self) -> None:
        self.happened += 1
        if self.happened == self.times:
            self._all_happened.set()

    def wait(self) -> None:
        assert self._all_happened.wait(PATIENCE_S), f"it has happened {self.happened} times, and not {self.times} times"


class Proxy(Server):
    """A port that leads to another port of this machine.

    Args:
        to_port: where it leads to.
        delay_s: by which all bytes come back later; it reads no frames then.
        window: most bytes of a connection's requests that it forwards within the delay, as a broker's receive buffer
            limits them; 0: no limit.
    """

    def __init__(self, to_port: int, *, delay_s: float = 0.0, window: int = 0) -> None:
        self._to_port, self._delay_s, self._window = to_port, delay_s, window
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        super().__init__()

    @contextmanager
    def listen(self, api_key: int) -> Iterator[Fault]:
        """Do nothing to the requests of a kind that come meanwhile, and to their answers, but note them."""
        listening = self._arm(Fault(api_key, sys.maxsize))
        yield listening
        with self._lock:
            self._faults.remove(listening)

    def cut_request(self, api_key: int, after: int) -> Fault:
        """Cut the connection in the middle of the next request of a kind, after ``after`` of its bytes."""
        return self._arm(Fault(api_key, 1, after))

    def lose_response(self, api_key: int, times: int = 1, *, cut: bool = True) -> Fault:
        """Lose the answers to the next requests of a kind; without ``cut``, the connection stays, and never answers."""
        return self._arm(Fault(api_key, times, loses=True, cuts=cut))

    def serve(self, client: socket.socket) -> None:
        """Forward what comes, both ways, until either side ends, and end the other one."""
        with socket.create_connection(("127.0.0.1", self._to_port)) as broker:
            broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(broker)
            awaited: dict[bytes, Fault] = {}
            requests = partial(self._forward_requests, client, broker, awaited)
            responses = partial(self._forward_responses, broker, client, awaited)
            if self._delay_s:
                requests = partial(self._forward_bytes, client, broker)
                responses = partial(self._forward_later, broker, client)

            def until_end(forward: Callable[[], None]) -> None:
                with suppress(OSError):
                    forward()
                shut(client)
                shut(broker)

            back = threading.Thread(target=until_end, args=(responses,), daemon=True)
            back.start()
            until_end(requests)
            back.join()
            with self._lock:
                for fault in awaited.values():  # the answers to these will not come any more: it is others' turn
                    fault.left += 1

    def _arm(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def _fault_of(self, request: bytes) -> Fault | None:
        with self._lock:
            fault = next((each for each in self._faults if each.is_for(request)), None)
            if fault is not None:
                fault.left -= 1
                fault.requests.append(time.monotonic())
        return fault

    def _forward_requests(self, client: socket.socket, broker: socket.socket, awaited: dict[bytes, Fault]) -> None:
        for frame in self.frames(client):
            fault = self._fault_of(frame)
            if fault is not None and fault.after is not None:
                with suppress(OSError):  # the broker has closed it already: the rest cannot arrive either way
                    broker.sendall(frame[: fault.after])
                fault.note()  # before the client can see it
                return
            if fault is not None:
                awaited[frame[8:12]] = fault
            broker.sendall(frame)

    def _forward_responses(self, broker: socket.socket, client: socket.socket, awaited: dict[bytes, Fault]) -> None:
        for frame in self.frames(broker):
            fault = awaited.pop(frame[4:8], None)
            if fault is not None:
                fault.answers.append(Answer(time.monotonic(), frame))
                fault.note()  # before the client can see it
            if fault is None or not fault.loses:
                client.sendall(frame)
            elif fault.cuts:
                return

    def _forward_later(self, source: socket.socket, target: socket.socket) -> None:
        """Forward bytes after the delay; another thread reads ahead, so that the delay costs no throughput."""
        later: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def note() -> None:
            data = b"-"
            while data:
                try:
                    data = source.recv(_CHUNK)
                except OSError:
                    data = b""
                later.put((time.monotonic() + self._delay_s, data))

        threading.Thread(target=note, daemon=True).start()
        while (due_and_data := later.get())[1]:
            time.sleep(max(0.0, due_and_data[0] - time.monotonic()))
            target.sendall(due_and_data[1])

    def _forward_bytes(self, source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(self._window or _CHUNK):
            target.sendall(data)
            if self._window:
                time.sleep(self._delay_s * len(data) / self._window)
