"""Serves the metrics by HTTP: ``/metrics``, and ``/`` with a link to it.

There is no authentication and no TLS: who can connect can read names of slabs and topics, and numbers. So the address
is 127.0.0.1 unless another is asked for.

A few threads at most serve, one request each, and a request has a few seconds in all. So slow or silent clients cost a
bounded amount. A client too many takes the place of the oldest one, so they cannot keep others out either.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final
from urllib.parse import urlsplit

from shmaccum.abi import VERSION
from shmaccum.errors import ConfigError
from shmaccum.observe.prometheus import SlabCollector, exposition

logger = logging.getLogger(__name__)

CLIENTS: Final = 8
"""Requests served at once."""
TIMEOUT_S: Final = 5.0
"""For a whole request, and again for the answer to it."""
_MAX_HEAD: Final = 16_384
"""Bytes of a request's line and headers."""
_PAGE: Final = f"""\
<!doctype html><title>shmaccum</title><h1>shmaccum {VERSION}</h1><p><a href="/metrics">Metrics</a></p>
""".encode()


class MetricsServer(ThreadingMixIn, TCPServer):
    """Listens at one address as soon as it is made; serves from `serve_forever`, or from `start` on in a thread.

    Port 0 is any free one. Raises ConfigError: nothing can listen there; says why.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = CLIENTS

    def __init__(self, host: str, port: int, collector: SlabCollector) -> None:
        self.collector: Final = collector
        self._places = threading.BoundedSemaphore(CLIENTS)
        self._served: Final[dict[socket.socket, None]] = {}
        """The connections that have a place, oldest first."""
        self._thread: threading.Thread | None = None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family = found[0][0]
            super().__init__(found[0][4], _Handler)  # type: ignore[arg-type]  # its stub knows only IPv4
        except OSError as error:
            raise ConfigError(
                f"cannot listen at {_bracketed(host)}:{port}: {error.strerror or error}; choose another address or "
                "port, or end the program that has it"
            ) from error

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self.server_address[:2]
        return f"http://{_bracketed(str(host))}:{port}/metrics"

    def start(self) -> None:
        """Serve in a thread."""
        self._thread = threading.Thread(target=self.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and end the thread of `start`."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client in a thread; end the oldest connection if there are `CLIENTS` already."""
        if not self._places.acquire(blocking=False):
            for oldest in list(self._served)[:1]:
                with contextlib.suppress(OSError):  # it has just ended
                    oldest.shutdown(socket.SHUT_RDWR)
            # A shut connection ends its thread's reads and writes at once.
            if not self._places.acquire(timeout=TIMEOUT_S):
                self.shutdown_request(request)
                return
        self._served[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: socket.socket) -> None:
        del self._served[request]
        self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error, unless it is a client's that leaves early or is too slow."""
        if not isinstance(sys.exception(), OSError):
            logger.exception("a request for metrics failed")


def _bracketed(host: str) -> str:
    """Return a host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


class _Handler(BaseHTTPRequestHandler):
    """Serves one request."""

    server: MetricsServer
    server_version = f"shmaccum/{VERSION}"

    def setup(self) -> None:
        """Read the whole head first, so that one deadline holds for all of it."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BytesIO(_head(self.connection))
        self.connection.settimeout(TIMEOUT_S)  # of `sendall`: for all of an answer

    def do_GET(self) -> None:
        """Answer a request."""
        try:
            path = urlsplit(self.path).path
        except ValueError as error:
            self.send_error(HTTPStatus.BAD_REQUEST, explain=str(error))
            return
        if path == "/metrics":
            text = exposition(self.server.collector, ",".join(self.headers.get_all("Accept", ())))
            self._answer(text.media_type, text.content)
        elif path == "/":
            self._answer("text/html; charset=utf-8", _PAGE)
        else:
            self.send_error(HTTPStatus.NOT_FOUND, explain="The metrics are at /metrics.")

    do_HEAD = do_GET

    def _answer(self, media_type: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: there is one every few seconds."""


def _head(connection: socket.socket) -> bytes:
    """Return a request's line and headers; what there is of it if the client is too slow or too long-winded."""
    deadline = time.monotonic() + TIMEOUT_S
    head = b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) < _MAX_HEAD:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        received = connection.recv(4096)
        if not received or time.monotonic() > deadline:
            return b""
        head += received
    return head
