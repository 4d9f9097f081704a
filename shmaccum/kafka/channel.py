"""A non-blocking stream to a broker: TCP here, and TLS over it in `shmaccum.kafka.tls`.

Bytes go from their place straight into the system call or the cipher, but for small buffers, which TLS copies into one
record. The caller keeps what did not fit. A channel keeps no reference to a caller's memory: once it is closed, that
memory can be reused.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

READ_SIZE: Final = 1 << 16
_MOST_BUFFERS: Final = min(os.sysconf("SC_IOV_MAX"), 256)

Buffer: TypeAlias = bytes | bytearray | memoryview
Address: TypeAlias = tuple[socket.AddressFamily, tuple[Any, ...]]
"""Family and socket address, from ``socket.getaddrinfo``."""


class Channel:
    """A TCP connection, opening or open. Errors are OSError; a buffer of -1 bytes has the system's default size."""

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

        Raises OSError: it cannot be opened.
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

        Raises ConnectionError: the broker closed the connection.
        """
        try:
            return [not_empty(self._socket.recv(READ_SIZE))]
        except BlockingIOError:
            return []

    def reason(self, error: OSError) -> str:
        """Return why an error ended this connection."""
        return error.strerror or type(error).__name__

    def is_refusal(self, error: OSError) -> bool:
        """Return whether an error means that one side does not accept the other's certificate or version."""
        return False

    def close(self) -> None:
        """Close the connection; unsent bytes are lost."""
        self._descriptor = -1
        self._socket.close()


def not_empty(data: bytes) -> bytes:
    """Return what was received. Raises ConnectionResetError: it is empty: the broker closed the connection."""
    if not data:
        raise ConnectionResetError(errno.ECONNRESET, "the broker closed the connection")
    return data
