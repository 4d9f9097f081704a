"""Non-blocking streams to a broker: TCP, or TLS over it.

Bytes go from their place straight into the system call (TCP) or the cipher (TLS); the caller keeps what did not fit.
A channel keeps no reference to a caller's memory: once it is closed, that memory can be reused.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

READ_SIZE: Final = 1 << 16
_MOST_READS: Final = 64
"""TLS records, of up to 16 KiB each, after which `TlsChannel.read` leaves the rest in the socket."""
_MOST_BUFFERS: Final = min(os.sysconf("SC_IOV_MAX"), 256)

Buffer: TypeAlias = bytes | bytearray | memoryview
Address: TypeAlias = tuple[socket.AddressFamily, tuple[Any, ...]]
"""Family and socket address, from ``socket.getaddrinfo``."""


class Channel:
    """A TCP connection, opening or open. Errors are OSError.

    Args:
        address: to connect to.
        send_buffer: bytes of the system's send buffer, -1 for its default.
        receive_buffer: bytes of its receive buffer, -1 for its default.
    """

    def __init__(self, address: Address, send_buffer: int, receive_buffer: int) -> None:
        family, peer = address
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
            if size >= 0:
                self._socket.setsockopt(socket.SOL_SOCKET, option, size)
        self._descriptor = self._socket.fileno()
        self._connecting = True
        if (code := self._socket.connect_ex(peer)) not in (0, errno.EINPROGRESS):
            self.close()
            raise OSError(code, os.strerror(code))

    def fileno(self) -> int:
        """Return the descriptor to wait on, -1 once closed."""
        return self._descriptor

    def open(self) -> int:
        """Continue opening; return the ``epoll`` event to wait for before the next call, 0 once open.

        Raises:
            OSError: it cannot be opened.
        """
        if self._connecting:
            if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
            try:
                self._socket.getpeername()
            except OSError as error:
                if error.errno != errno.ENOTCONN:
                    raise
                return select.EPOLLOUT
            self._connecting = False
        return 0

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Send as much as goes without waiting; return the bytes sent."""
        try:
            return self._socket.sendmsg(buffers if len(buffers) <= _MOST_BUFFERS else buffers[:_MOST_BUFFERS])
        except BlockingIOError:
            return 0

    def read(self) -> list[bytes]:
        """Return the bytes that have arrived, in the blocks they were read in.

        Raises:
            ConnectionError: the broker closed the connection.
        """
        try:
            return [_not_empty(self._socket.recv(READ_SIZE))]
        except BlockingIOError:
            return []

    def close(self) -> None:
        """Close the connection; unsent bytes are lost."""
        self._descriptor = -1
        self._socket.close()


class TlsChannel(Channel):
    """A TLS connection, opening or open.

    Args:
        address: to connect to.
        send_buffer: see `Channel`.
        receive_buffer: see `Channel`.
        context: trusted certificates, and our own.
        host: the name that the broker's certificate must have.
    """

    def __init__(
        self, address: Address, send_buffer: int, receive_buffer: int, context: ssl.SSLContext, host: str
    ) -> None:
        super().__init__(address, send_buffer, receive_buffer)
        self._context = context
        self._host = host
        self._tls: ssl.SSLSocket | None = None

    def open(self) -> int:
        """Continue connecting and the handshake (see `Channel.open`).

        Raises:
            ssl.SSLError: one side does not accept the other.
            OSError: the connection cannot be opened.
        """
        if self._tls is None:
            if event := super().open():
                return event
            self._tls = self._context.wrap_socket(
                self._socket, server_hostname=self._host, do_handshake_on_connect=False
            )
            self._socket = self._tls
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return select.EPOLLIN
        except ssl.SSLWantWriteError:
            return select.EPOLLOUT
        return 0

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Encrypt and send as much as goes without waiting; return the bytes of the buffers sent.

        The first unsent buffer must come first in the next call: OpenSSL can have begun to encrypt it.
        """
        written = 0
        for buffer in buffers:
            try:
                sent = self._socket.send(buffer)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                break
            written += sent
            if sent < len(buffer):
                break
        return written

    def read(self) -> list[bytes]:
        """Return the bytes that have arrived, including all that OpenSSL holds: those wake no ``epoll``.

        After `_MOST_READS` it leaves bytes in the socket: a broker that sends without end must not fill the memory.
        """
        assert self._tls is not None
        found: list[bytes] = []
        while True:
            try:
                found.append(_not_empty(self._socket.recv(READ_SIZE)))
                if len(found) >= _MOST_READS and not self._tls.pending():
                    return found
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return found
            except OSError:
                if not found:
                    raise
                return found  # the next call meets the same error


def _not_empty(data: bytes) -> bytes:
    if not data:
        raise ConnectionResetError(errno.ECONNRESET, "the broker closed the connection")
    return data
