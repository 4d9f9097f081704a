"""Frames: what a connection carries are messages with their size, 4 bytes, in front."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from shmaccum.errors import NetworkError

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""Far more than any answer to a producer has."""

_SIZE: Final = struct.Struct(">i")
_TLS_ALERT_OR_HANDSHAKE: Final = (0x15, 0x16)


class FrameReader:
    """Cuts the bytes that arrive into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes as they arrive, and yield the frames that are whole by now, without their sizes.

        Raises:
            NetworkError: the other side does not speak Kafka's protocol.
        """
        self._bytes += data
        while len(self._bytes) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._bytes)
            if not 0 <= size <= MAX_FRAME_BYTES:
                raise NetworkError(f"this is no Kafka broker: it sent {self._guess()}")
            end = _SIZE.size + size
            if len(self._bytes) < end:
                return
            frame = bytes(self._bytes[_SIZE.size : end])
            del self._bytes[:end]
            yield frame

    def _guess(self) -> str:
        """Return what it is that came instead of a frame."""
        if self._bytes[0] in _TLS_ALERT_OR_HANDSHAKE:
            return "TLS, so security.protocol should be SSL or SASL_SSL"
        return f"a message of {_SIZE.unpack_from(self._bytes)[0]} bytes"
