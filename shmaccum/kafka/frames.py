"""Cuts a connection's bytes into frames: 4-byte size, then a message."""

from __future__ import annotations

import struct
from typing import Final

from shmaccum.errors import NetworkError

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""Far more than any answer to a producer. The limit of a single answer comes from its request."""

_SIZE_SIZE: Final = 4
"""Bytes of the size, which does not count itself."""
_CORRELATION_ID_SIZE: Final = 4
"""Every answer begins with a correlation id."""
_HEAD_SIZE: Final = _SIZE_SIZE + _CORRELATION_ID_SIZE
_INT32: Final = struct.Struct(">i")
_HTTP: Final = int.from_bytes(b"HTTP")
_TLS_ALERT_OR_HANDSHAKE: Final = (0x15, 0x16)


class FrameReader:
    """Cuts the bytes that arrive into frames."""

    def __init__(self) -> None:
        self._bytes = b""
        self._begin = 0
        self._more: list[bytes] = []
        """Bytes that came after `_bytes`, while a frame is not whole."""
        self.left = 0
        """Bytes that have arrived and were not returned."""

    def feed(self, data: bytes) -> None:
        """Add bytes as they arrive."""
        if not self.left:
            self._bytes = data  # most often whole frames, which are not copied
            self._begin = 0
        else:
            self._more.append(data)
        self.left += len(data)

    def next(self, largest: int, correlation_id: int) -> bytes | None:
        """Return the next frame without its size, None until it is whole.

        ``largest`` is -1 if no request is in flight, which ``correlation_id`` names.

        A frame that cannot be the answer is refused by its first bytes, before it takes time and memory.

        Raises NetworkError: the frame is not the answer, or the other side does not speak Kafka's protocol.
        """
        left = self.left
        if left < _SIZE_SIZE:
            return None
        if len(self._bytes) < self._begin + _HEAD_SIZE:
            self._join()
        (size,) = _INT32.unpack_from(self._bytes, self._begin)
        if not 0 <= size <= MAX_FRAME_BYTES:
            raise NetworkError(f"not a Kafka broker: it sent {self._guess(size)}")
        if largest < 0 or size < _CORRELATION_ID_SIZE:
            raise NetworkError(f"the broker sent a frame of {size} bytes that answers no request")
        if left >= _HEAD_SIZE:
            (found,) = _INT32.unpack_from(self._bytes, self._begin + _SIZE_SIZE)
            if found != correlation_id:
                raise NetworkError(f"the broker answered request {found} before request {correlation_id}")
        if size > largest:
            raise NetworkError(
                f"the broker announced an answer of {size} bytes; one to this request has {largest} at most"
            )
        if left < _SIZE_SIZE + size:
            return None
        if len(self._bytes) < self._begin + _SIZE_SIZE + size:
            self._join()
        begin = self._begin + _SIZE_SIZE
        self._begin = begin + size
        self.left = left - _SIZE_SIZE - size
        return self._bytes[begin : self._begin]

    def _join(self) -> None:
        """Join the bytes if they came in several reads."""
        self._bytes = b"".join((self._bytes[self._begin :], *self._more))
        self._more.clear()
        self._begin = 0

    def _guess(self, size: int) -> str:
        """Describe what came instead of a frame."""
        if self._bytes[self._begin] in _TLS_ALERT_OR_HANDSHAKE:
            return "TLS; set security.protocol to SSL or SASL_SSL"
        if size == _HTTP:
            return "HTTP, so it is a web server or proxy; check the port in bootstrap.servers"
        return f"a message of {size} bytes"
