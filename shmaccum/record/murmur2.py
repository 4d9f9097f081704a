"""Kafka's hash of keys, which selects a partition (``Utils.murmur2``, ``BuiltInPartitioner``).

It is 32-bit MurmurHash2 with Kafka's seed. All Kafka clients that want a key in the same partition must compute the
same bits.
"""

from __future__ import annotations

import struct
from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF
POSITIVE: Final = 0x7FFFFFFF
"""Clears the sign of a 32-bit number, as ``Utils.toPositive`` does."""

# Copies for this module alone: C numbers in the compiled form.
_SEED: Final = SEED
_MULTIPLIER: Final = MULTIPLIER
_MASK: Final = MASK
_POSITIVE: Final = POSITIVE

_UNPACK_WORDS: Final = [struct.Struct(f"<{count}I").unpack_from for count in range(65)]
"""Readers of keys up to 259 bytes: looking a format up takes as long as hashing a word."""


def murmur2(data: bytes) -> int:
    """Return the hash as in Java: a signed number of 32 bits."""
    digest = _murmur2_unsigned(data)
    return digest - 0x100000000 if digest > _POSITIVE else digest


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a serialized key (``BuiltInPartitioner.partitionForKey``)."""
    return (_murmur2_unsigned(key) & _POSITIVE) % partition_count


def _murmur2_unsigned(data: bytes) -> int:
    # Truncated to 32 bits only where a higher bit would come back down: each truncation costs as much as a product.
    size = len(data)
    count = size >> 2
    words = _UNPACK_WORDS[count](data) if count < len(_UNPACK_WORDS) else struct.unpack_from(f"<{count}I", data)
    digest = _SEED ^ size
    for word in words:
        word = word * _MULTIPLIER & _MASK
        digest = (digest * _MULTIPLIER ^ (word ^ word >> 24) * _MULTIPLIER) & _MASK
    rest = size & 3
    if rest:
        word = data[size - rest]
        if rest > 1:
            word |= data[size - rest + 1] << 8
        if rest > 2:
            word |= data[size - 1] << 16
        digest = (digest ^ word) * _MULTIPLIER & _MASK
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _MASK
    return digest ^ digest >> 15
