"""Kafka's variable-length integers: zig-zag, seven bits a byte, lowest first.

Zig-zag maps 0, -1, 1, -2 ... to 0, 1, 2, 3 ..., so that small numbers of either sign are short. A number takes one
to ten bytes; -1 takes one, and stands for the length of a null (``ByteUtils``; Protocol Buffers use the same).
"""

from __future__ import annotations

from typing import Final

from shmaccum.errors import CorruptRecordError
from shmaccum.record.fields import BytesLike

NULL: Final = b"\x01"
"""The varint -1: the length of a null key, value or header value."""

_MAX_BITS: Final = 64


def _encode(n: int) -> bytes:
    rest = (n << 1) ^ (n >> _MAX_BITS)
    if rest >> _MAX_BITS:
        raise OverflowError(f"{n} does not fit the 64 bits of a varint")
    encoded: list[int] = []
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class _Varints(dict[int, bytes]):
    """Encoded numbers. Those of the sizes and deltas of most records are kept: encoding takes five times as long."""

    def __missing__(self, n: int) -> bytes:
        encoded = _encode(n)
        if 0 <= n < _MOST:
            self[n] = encoded
        return encoded


_MOST: Final = 8192
_VARINTS: Final = _Varints()

encode_varint: Final = _VARINTS.__getitem__
"""Returns the one to ten bytes of a signed 64-bit number. Raises OverflowError if it needs more than 64 bits."""


def size_of_varint(n: int) -> int:
    """Return the size of `encode_varint`'s result for ``n`` (``ByteUtils.sizeOfVarlong``)."""
    return (max((n << 1 ^ n >> _MAX_BITS).bit_length(), 1) + 6) // 7


def decode_varint(buf: BytesLike, pos: int) -> tuple[int, int]:
    """Read the number at ``pos``.

    Returns:
        The number, and the position of the byte after it.

    Raises:
        CorruptRecordError: it runs past the end of ``buf`` or needs more than 64 bits.
    """
    start = pos
    zigzag = shift = 0
    try:
        while True:
            byte = buf[pos]
            pos += 1
            zigzag |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= _MAX_BITS:
                raise CorruptRecordError(f"varint at byte {start} is longer than {pos - start} bytes")
    except IndexError:
        raise CorruptRecordError(f"varint at byte {start} runs past the end, at byte {len(buf)}") from None
    if zigzag >> _MAX_BITS:
        raise CorruptRecordError(f"varint at byte {start} does not fit 64 bits")
    return zigzag >> 1 ^ -(zigzag & 1), pos
