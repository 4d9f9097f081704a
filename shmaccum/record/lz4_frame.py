"""LZ4 frames with the header checksum that Kafka expects in each message format.

The header checksum of an LZ4 frame covers its descriptor. Kafka before 0.10 computed it over the four bytes of the
frame's magic number too (KAFKA-3160), and its consumers required that. So a frame in message format 0 is written with
the wrong checksum, and read with any checksum (``Lz4BlockOutputStream``, ``Lz4BlockInputStream``).
"""

from __future__ import annotations

from typing import Final

from shmaccum.later import cramjam
from shmaccum.record.fields import BytesLike

_DESCRIPTOR: Final = 4
"""Where the descriptor begins: after the frame's magic number."""
_CONTENT_SIZE_FLAG: Final = 0x08
FAST: Final = 0
"""LZ4's fast compressor. Kafka's default level selects it, the others its high one (``Lz4BlockOutputStream``)."""
LEAST_HIGH_LEVEL: Final = 3
"""The first level that selects the high compressor in LZ4's frames; Kafka's levels 1 and 2 mean it, too."""


def compress_frame(data: BytesLike, magic: int, level: int = FAST) -> bytes:
    """Return ``data`` as one frame of independent blocks, the only kind that Kafka's Java client reads."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it accepts only bytes
    frame = bytearray(compressor.finish())
    if magic == 0:
        end = _checksum_position(frame)
        frame[end] = _header_checksum(frame[:end])
    return bytes(frame)


def readable_frame(frame: BytesLike, magic: int) -> BytesLike:
    """Return the frame as any LZ4 library reads it: message format 0 needs a corrected header checksum.

    Raises:
        IndexError: the frame ends within its header.
    """
    if magic != 0:
        return frame
    repaired = bytearray(frame)
    end = _checksum_position(repaired)
    repaired[end] = _header_checksum(repaired[_DESCRIPTOR:end])
    return repaired


def _checksum_position(frame: bytearray) -> int:
    descriptor_size = 10 if frame[_DESCRIPTOR] & _CONTENT_SIZE_FLAG else 2
    return _DESCRIPTOR + descriptor_size


def _header_checksum(covered: bytearray) -> int:
    return _xxh32(covered) >> 8 & 0xFF


_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_MASK: Final = 0xFFFFFFFF


def _xxh32(data: bytearray) -> int:
    """Return xxHash32 with seed 0 of fewer than 16 bytes: no header is longer."""
    prime1, prime2, prime3, prime4, prime5 = _PRIMES
    words_end = len(data) & ~3
    digest = prime5 + len(data)
    for position in range(0, words_end, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        digest = _rotate_left(digest + word * prime3, 17) * prime4
    for byte in data[words_end:]:
        digest = _rotate_left(digest + byte * prime5, 11) * prime1
    digest &= _MASK
    digest = (digest ^ digest >> 15) * prime2 & _MASK
    digest = (digest ^ digest >> 13) * prime3 & _MASK
    return digest ^ digest >> 16


def _rotate_left(word: int, bits: int) -> int:
    word &= _MASK
    return (word << bits | word >> 32 - bits) & _MASK
