"""Compression of Kafka's batches, byte-compatible with its Java client, with cramjam.

The unit of compression is a whole section of records. Nothing here trusts compressed input: at most ``max_size`` bytes
come out of it, whatever it claims, and any defect raises a `CorruptRecordError`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Final

from shmaccum.errors import CorruptRecordError, UnsupportedCompressionTypeError
from shmaccum.later import cramjam, np
from shmaccum.record.fields import BytesLike

MAX_DECOMPRESSED_SIZE: Final = 256 * 1024 * 1024
"""Default limit for the bytes of a decompressed section of records: far above any batch that Kafka accepts."""

COMPRESSION_CODEC_MASK: Final = 0x07
"""Bits of a batch's attributes with the id of its compression, in every message format."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""Magic, version of the writer, oldest version of a reader (``org.xerial.snappy.SnappyCodec``)."""
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")

_LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
"""Magic; version 1 with independent blocks and no checksums; blocks of 64 KiB; checksum of these two bytes."""
_LZ4_BLOCK_SIZE: Final = 64 * 1024
_LZ4_PLAIN: Final = 1 << 31
"""Bit in a block's length: it is not compressed."""
_LZ4_LENGTH: Final = struct.Struct("<I")
_LZ4_LEAST_HIGH: Final = 3
"""The first level of the high compressor in the library's frames; Kafka's levels 1 and 2 mean it, too."""
_LZ4_END: Final = _LZ4_LENGTH.pack(0)

_DEFLATE_LEVEL: Final = 6
"""zlib's meaning of -1, the default of ``compression.gzip.level``."""


class CompressionType(enum.IntEnum):
    """Kafka's compression types; the value is the id in a batch's attributes, `str` is Kafka's name."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def for_name(cls, name: str) -> CompressionType:
        """Return the type of a ``compression.type``. Raises UnsupportedCompressionTypeError: there is none."""
        for compression in cls:
            if str(compression) == name:
                return compression
        known = ", ".join(map(str, cls))
        raise UnsupportedCompressionTypeError(f"unknown compression type {name!r}: use one of {known}")

    @classmethod
    def for_attributes(cls, attributes: int) -> CompressionType:
        """Return the type in a batch's attributes. Raises CorruptRecordError: Kafka has no type with that id."""
        try:
            return cls(attributes & COMPRESSION_CODEC_MASK)
        except ValueError:
            raise CorruptRecordError(f"unknown compression id {attributes & COMPRESSION_CODEC_MASK}") from None


DEFAULT_LEVELS: Final = {CompressionType.GZIP: -1, CompressionType.LZ4: 9, CompressionType.ZSTD: 3}
"""Kafka's default for the types that have levels (KIP-390)."""


def compress(compression: CompressionType, data: BytesLike, magic: int, level: int | None = None) -> bytes:
    """Compress a section of records.

    ``level`` is as in ``compression.<type>.level``; None for Kafka's default, and for types without levels.

    Raises UnsupportedCompressionTypeError: zstd in a message format before 2 (KIP-110).
    """
    if level is None:
        level = DEFAULT_LEVELS.get(compression, 0)
    match compression:
        case CompressionType.NONE:
            return bytes(data)
        case CompressionType.GZIP:
            return bytes(cramjam.gzip.compress(data, level=_DEFLATE_LEVEL if level < 0 else level))
        case CompressionType.SNAPPY:
            return _compress_snappy(data)
        case CompressionType.LZ4:
            if level == DEFAULT_LEVELS[CompressionType.LZ4]:
                return _compress_lz4(data)
            return _compress_lz4_high(data, max(level, _LZ4_LEAST_HIGH))
        case CompressionType.ZSTD:
            if magic < 2:
                raise UnsupportedCompressionTypeError(
                    f"zstd needs message format 2, not {magic}: set message.format.version to 2.1 or newer"
                )
            return bytes(cramjam.zstd.compress(data, level=level))


def _compress_lz4_high(data: BytesLike, level: int) -> bytes:
    """Return ``data`` as `_compress_lz4`, by LZ4's high compressor."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it accepts only bytes
    return bytes(compressor.finish())


def _compress_lz4(data: BytesLike) -> bytes:
    """Return ``data`` as one frame of independent blocks, the only kind that Kafka's Java client reads.

    The library's own frames would hold the GIL. It is LZ4's fast compressor: Kafka's default level selects it, the
    others the high one (``Lz4BlockOutputStream``).
    """
    view = memoryview(data)
    parts: list[BytesLike] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        plain = view[start : start + _LZ4_BLOCK_SIZE]
        block = memoryview(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += _LZ4_LENGTH.pack(len(block)), block
        else:
            parts += _LZ4_LENGTH.pack(len(plain) | _LZ4_PLAIN), plain
    return b"".join((*parts, _LZ4_END))


def decompress(
    compression: CompressionType, data: BytesLike, magic: int, max_size: int = MAX_DECOMPRESSED_SIZE
) -> bytes:
    """Undo `compress`, or the compression of another client; the data can be any bytes.

    Raises CorruptRecordError: ``data`` is invalid, or decompresses to more than ``max_size`` bytes.
    """
    try:
        match compression:
            case CompressionType.NONE:
                return bytes(data)
            case CompressionType.GZIP:
                return _decompress_with(cramjam.gzip.decompress_into, data, max_size)
            case CompressionType.SNAPPY:
                return _decompress_snappy(data, max_size)
            case CompressionType.LZ4:
                return _decompress_with(cramjam.lz4.decompress_into, data, max_size)
            case CompressionType.ZSTD:
                if magic < 2:
                    raise CorruptRecordError(f"a batch of message format {magic} claims to be compressed with zstd")
                return _decompress_with(cramjam.zstd.decompress_into, data, max_size)
    except (cramjam.DecompressionError, IndexError, struct.error) as error:
        raise CorruptRecordError(
            f"cannot decompress {len(data)} bytes of {compression} into at most {max_size}: {error}"
        ) from error


def _decompress_with(decompress_into: Callable[..., int], data: BytesLike, max_size: int) -> bytes:
    out = np.empty(max_size, np.uint8)  # untouched pages cost nothing
    size = decompress_into(data, out)
    return out[:size].tobytes()


def _compress_snappy(data: BytesLike) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += _BLOCK_LENGTH.pack(len(block)), block
    return b"".join(parts)


def _decompress_snappy(data: BytesLike, max_size: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_size)  # librdkafka writes one bare block
    parts: list[bytes] = []
    room = max_size
    position = len(_XERIAL_HEADER)
    while position < len(view):
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise CorruptRecordError(f"snappy block at byte {position} claims to have {length} bytes")
        block = _decompress_snappy_block(view[position : position + length], room)
        room -= len(block)
        position += length
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, room: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > room:
        raise CorruptRecordError(f"snappy block of {len(block)} bytes claims to hold {size}; at most {room} fit")
    return bytes(cramjam.snappy.decompress_raw(block))
