"""Kafka's hash of keys, which selects a partition (``Utils.murmur2``, ``BuiltInPartitioner``).

It is 32-bit MurmurHash2 with Kafka's seed. All Kafka clients that want a key in the same partition must compute the
same bits.
"""

from __future__ import annotations

from typing import Final

from shmaccum._core import murmur2

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF
POSITIVE: Final = 0x7FFFFFFF
"""Clears the sign of a 32-bit number, as ``Utils.toPositive`` does."""


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a serialized key (``BuiltInPartitioner.partitionForKey``)."""
    return (murmur2(key) & POSITIVE) % partition_count


__all__ = ["MASK", "MULTIPLIER", "POSITIVE", "SEED", "murmur2", "partition_for_key"]
