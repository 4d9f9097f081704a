"""The records: each has its writer, its number, and a checksum over all of itself.

value = writer (4 bytes) | number (8) | filler | CRC-32 (4) of all that and the key. A record's route follows from its
writer and number, so the check also knows the route of missing records.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

from tools.stress.options import SLOT_SIZE, TOPICS

_HEAD: Final = struct.Struct("<IQ")
_TAIL: Final = struct.Struct("<I")
SMALLEST: Final = _HEAD.size + _TAIL.size
"""Bytes in a value without filler."""
LARGE_SHARE: Final = 0.01
"""Share of the records that are larger than a slot."""
_LARGEST: Final = 4 * SLOT_SIZE
_KEYS: Final = 97

_FILLER: Final = random.Random(0).randbytes(2 * _LARGEST)


class Route(NamedTuple):
    """A record's route: to a given partition, by its key, or free."""

    partition: int | None
    key: bytes | None


def topic_of(writer: int, topics: Sequence[str] = TOPICS) -> str:
    """Return which of the topics a writer appends to."""
    return topics[writer % len(topics)]


def route_of(writer: int, number: int, partitions: int) -> Route:
    """Return a record's route: half of them to a partition, a quarter by key, a quarter free."""
    chance = (writer * 0x9E3779B1 ^ number * 0x85EBCA6B) >> 8 & 0xFFFFFF
    kind, chance = chance & 3, chance >> 2
    if kind < 2:
        return Route(chance % partitions, None)
    return Route(None, b"key %d" % (chance % _KEYS) if kind == 2 else None)


def make_value(writer: int, number: int, key: bytes | None, size: int) -> bytes:
    """Return the value of a record; about ``size`` bytes."""
    start = (writer * 31 + number * 17) % _LARGEST
    content = _HEAD.pack(writer, number) + _FILLER[start : start + max(0, size - SMALLEST)]
    return content + _TAIL.pack(crc32(content, crc32(key or b"")))


def read_value(key: bytes | None, value: bytes | None) -> tuple[int, int] | None:
    """Return writer and number of a record; None if it is not whole."""
    if value is None or len(value) < SMALLEST:
        return None
    content = memoryview(value)[: -_TAIL.size]
    if _TAIL.unpack_from(value, len(content))[0] != crc32(content, crc32(key or b"")):
        return None
    writer, number = _HEAD.unpack_from(value)
    return writer, number


def random_size(chance: random.Random, mean: int) -> int:
    """Return a size for a value: mostly around ``mean``, sometimes larger than a slot."""
    if chance.random() < LARGE_SHARE:
        return chance.randrange(SLOT_SIZE, _LARGEST)
    return chance.randrange(SMALLEST, max(SMALLEST + 1, 2 * mean))
