"""Frames: what a connection carries are messages with their size, 4 bytes, in front."""

from __future__ import annotations

import struct
from typing import Final

from shmaccum.errors import NetworkError

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""Far more than any answer to a producer has."""

_SIZE: Final = struct.Struct(">i")
_TLS_ALERT_OR_HANDSHAKE: Final = (0x15, 0x16)


class FrameReader:
    """Cuts the bytes that arrive into frames."""

    def __init__(self) -> None:
        self._bytes: bytes | bytearray = b""
        self._begin = 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive."""
        if self._begin == len(self._bytes):
            self._bytes = data  # most often one frame, or some of them
        elif isinstance(self._bytes, bytearray):
            del self._bytes[: self._begin]
            self._bytes += data
        else:
            self._bytes = bytearray(self._bytes[self._begin :]) + data
        self._begin = 0

    def next(self) -> bytes | None:
        """Return the next frame without its size, None as long as it is not whole.

        Raises:
            NetworkError: the other side does not speak Kafka's protocol.
        """
        begin = self._begin + _SIZE.size
        if begin > len(self._bytes):
            return None
        (size,) = _SIZE.unpack_from(self._bytes, self._begin)
        if not 0 <= size <= MAX_FRAME_BYTES:
            raise NetworkError(f"this is no Kafka broker: it sent {self._guess(size)}")
        if begin + size > len(self._bytes):
            return None
        self._begin = begin + size
        return bytes(self._bytes[begin : self._begin])

    def _guess(self, size: int) -> str:
        """Return what it is that came instead of a frame."""
        if self._bytes[self._begin] in _TLS_ALERT_OR_HANDSHAKE:
            return "TLS, so security.protocol should be SSL or SASL_SSL"
        return f"a message of {size} bytes"
