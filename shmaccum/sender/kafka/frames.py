"""Frames: what a connection carries are messages with their size, 4 bytes, in front."""

from __future__ import annotations

from typing import Final

from shmaccum.errors import NetworkError

MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
"""Far more than any answer to a producer has. What a single answer can need, its request knows."""

_SIZE_SIZE: Final = 4
"""Bytes of a frame's size, which does not count itself."""
_CORRELATION_ID_SIZE: Final = 4
"""Bytes that every answer begins with."""
_LAST_INT32: Final = 0x7FFF_FFFF
_INT32_RANGE: Final = 0x1_0000_0000
_TLS_ALERT_OR_HANDSHAKE: Final = (0x15, 0x16)


def read_int32(data: bytes, at: int) -> int:
    """Return a number as the protocol has it.

    Raises:
        IndexError: it is not whole.
    """
    number = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return number if number <= _LAST_INT32 else number - _INT32_RANGE


class FrameReader:
    """Cuts the bytes that arrive into frames."""

    def __init__(self) -> None:
        self._bytes = b""
        self._begin = 0
        self._more: list[bytes] = []
        """What came behind a frame that is not whole yet."""
        self._size = 0
        """Bytes in all."""

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive."""
        if self._begin == self._size:
            self._bytes = data  # most often one frame, or some of them
            self._begin = 0
            self._size = len(data)
        else:
            self._more.append(data)
            self._size += len(data)

    def next(self, largest: int, correlation_id: int) -> bytes | None:
        """Return the next frame without its size, None as long as it is not whole.

        A frame that cannot be the answer is refused by its first bytes: nobody waits for the rest, or keeps it.

        Args:
            largest: bytes that the answer can have; -1 if no answer is to come.
            correlation_id: what the answer begins with.

        Raises:
            NetworkError: it is no such answer, or the other side does not speak Kafka's protocol.
        """
        if not self._has(_SIZE_SIZE):
            return None
        size = read_int32(self._bytes, self._begin)
        if not 0 <= size <= MAX_FRAME_BYTES:
            raise NetworkError(f"this is no Kafka broker: it sent {self._guess(size)}")
        if largest < 0 or size < _CORRELATION_ID_SIZE:
            raise NetworkError("the broker sent an answer to nothing")
        if self._has(_SIZE_SIZE + _CORRELATION_ID_SIZE):
            found = read_int32(self._bytes, self._begin + _SIZE_SIZE)
            if found != correlation_id:
                raise NetworkError(f"the broker answered request {found} before request {correlation_id}")
        if size > largest:
            raise NetworkError(
                f"the broker's answer is to have {size} bytes, and what was asked takes {largest} at most"
            )
        if not self._has(_SIZE_SIZE + size):
            return None
        begin = self._begin + _SIZE_SIZE
        self._begin = begin + size
        return self._bytes[begin : self._begin]

    def _has(self, size: int) -> bool:
        """Say whether so many bytes are there, and put them together if they came in pieces."""
        if self._begin + size > self._size:
            return False
        if self._begin + size > len(self._bytes):
            self._bytes = b"".join((self._bytes[self._begin :], *self._more))
            self._more.clear()
            self._begin = 0
            self._size = len(self._bytes)
        return True

    def _guess(self, size: int) -> str:
        """Return what it is that came instead of a frame."""
        if self._bytes[self._begin] in _TLS_ALERT_OR_HANDSHAKE:
            return "TLS, so security.protocol should be SSL or SASL_SSL"
        return f"a message of {size} bytes"
