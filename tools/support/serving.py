"""A server of frames on loopback that accepts, pauses, cuts and refuses: what fake brokers and the proxy share."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self


class Server:
    """Listens, and serves each connection in a thread; ``with`` closes it. Its methods may be called from any thread.

    Attributes:
        port: where it listens.
        running: is set but while it is paused.
        fragments: what came of frames that were never whole.
    """

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.running = threading.Event()
        self.fragments: list[bytes] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.resume()
        self.accept()

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

    def refuse(self) -> None:
        """Refuse new connections, as a machine does where nothing listens, and cut those that there are."""
        if self._listener is not None:
            shut(self._listener)  # ends the wait in `accept`
            self._acceptor.join()
            self._listener.close()
            self._listener = None
        self.cut()

    def accept(self) -> None:
        """Accept connections (again)."""
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self.port = self._listener.getsockname()[1]
            self._acceptor = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
            self._acceptor.start()

    def stop(self) -> None:
        """End it, with all its connections; its port refuses new ones."""
        self.refuse()
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

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # refused from now on
            while True:
                connection, _ = listener.accept()
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
