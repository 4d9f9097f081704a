"""librdkafka's ``partitioner``: which partition a record's key selects.

Its default hashes keys by CRC-32, where Kafka's Java producer and ours use murmur2. A program that changes its import
must not change the partitions of its keys. Where librdkafka would choose at random, these return None: our sticky
partitioner chooses, which makes larger batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final

from shmaccum.producer.partitioner import partition_for_key

Partitioner = Callable[[bytes | None, int], int | None]
"""Returns the partition for a serialized key and a number of partitions; None where it does not matter."""


def _fnv1a(key: bytes | None, count: int) -> int:
    value = 0x811C9DC5
    for byte in key or b"":
        value = (value ^ byte) * 0x01000193 & 0xFFFF_FFFF
    return min(value, (1 << 32) - value) % count  # of the hash as a signed number, without its sign


DEFAULT: Final = "consistent_random"
"""librdkafka's default."""

PARTITIONERS: Final[Mapping[str, Partitioner]] = {
    "random": lambda key, count: None,
    "consistent": lambda key, count: zlib.crc32(key or b"") % count,
    "consistent_random": lambda key, count: zlib.crc32(key) % count if key else None,  # an empty key counts as none
    "murmur2": lambda key, count: partition_for_key(key or b"", count),
    "murmur2_random": lambda key, count: None if key is None else partition_for_key(key, count),
    "fnv1a": _fnv1a,
    "fnv1a_random": lambda key, count: None if key is None else _fnv1a(key, count),
}
"""By librdkafka's names."""
