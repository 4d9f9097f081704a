"""Damage to a slab by names of words: a list that can be read, stored, and repeated.

A list survives changes of the layout: names that no longer exist are skipped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from shmaccum._core import (
    BROKERS,
    INCIDENTS,
    LOCK_COUNT,
    SETTINGS_SIZE,
    WAITERS,
    WORD,
    Broker,
    Completion,
    Geometry,
    Histogram,
    Incident,
    Lane,
    Lock,
    Partition,
    Process,
    Slot,
    Super,
    Topic,
    Waiter,
)
from shmaccum.shm.layout import (
    OfProcess,
    OfSender,
)

_LARGEST: Final = (1 << 64) - 1


class Region(NamedTuple):
    """A table of the slab."""

    start: int
    """Index of its first word."""
    entries: int
    words: int
    """Words in an entry."""
    names: dict[str, int]
    """Words of an entry, by name."""


def regions(geometry: Geometry) -> dict[str, Region]:
    """Return all regions of a slab."""
    histograms = len(OfSender) + BROKERS + geometry.max_processes * len(OfProcess)
    rings = geometry.max_processes * geometry.ring_length
    return {
        "super": Region(0, 1, Super.length, _names(Super)),
        "settings": Region(geometry.settings // WORD, 2, SETTINGS_SIZE // WORD, {"HEAD": 0, "TEXT": 1}),
        "lock": Region(geometry.lock(0), LOCK_COUNT, Lock.length, _names(Lock)),
        "process": Region(geometry.process(0), geometry.max_processes, Process.length, _names(Process)),
        "topic": Region(geometry.topic(0), geometry.max_topics, Topic.length, _names(Topic)),
        "partition": Region(geometry.partition(0), geometry.max_partitions, Partition.length, _names(Partition)),
        "lane": Region(geometry.lane(0), geometry.max_lanes, Lane.length, _names(Lane)),
        "incident": Region(geometry.incident(0), INCIDENTS + 1, Incident.length, _names(Incident)),
        "broker": Region(geometry.broker(0), BROKERS, Broker.length, _names(Broker)),
        "histogram": Region(geometry.histograms // WORD, histograms, Histogram.length, _names(Histogram)),
        "waiter": Region(geometry.waiter(0), WAITERS, Waiter.length, _names(Waiter)),
        "completion": Region(geometry.rings // WORD, rings, Completion.length, _names(Completion)),
        "bitmap": Region(geometry.bitmap // WORD, -(-geometry.bitmap_size // WORD), 1, {}),
        "slot": Region(geometry.header(0), geometry.slot_count, geometry.slot_words, _names(Slot)),
        "memory": Region(geometry.slots // WORD, geometry.slot_count * geometry.slot_size // WORD, 1, {}),
    }


def _names(kind: type) -> dict[str, int]:
    return {name: number for name, number in vars(kind).items() if name.isupper()}


_WEIGHTS: Final = {
    "super": 5, "settings": 1, "lock": 2, "process": 4, "topic": 3, "partition": 8, "lane": 2, "incident": 1,
    "broker": 1, "histogram": 1, "waiter": 1, "completion": 1, "bitmap": 2, "slot": 12, "memory": 2,
}  # fmt: skip


class Damage(NamedTuple):
    """One word overwritten, or with ``word`` "*" a whole entry by random ones; "**" the whole table."""

    region: str
    entry: int
    word: str | int
    """By name, or, without one, by its number in the entry."""
    value: int
    """The value to write, or the seed of the random words."""

    def stores(self, geometry: Geometry) -> Iterator[tuple[int, int]]:
        """Yield its stores: index of the word, value."""
        region = regions(geometry).get(self.region)
        if region is None or self.entry >= region.entries:
            return
        at = region.start + self.entry * region.words
        if self.word in ("*", "**"):
            rng = random.Random(self.value)
            end = at + region.words if self.word == "*" else region.start + region.entries * region.words
            for index in range(at, end):
                yield index, rng.getrandbits(64)
            return
        offset = region.names.get(self.word) if isinstance(self.word, str) else self.word
        if offset is not None and offset < region.words:
            yield at + offset, self.value


def random_damage(rng: random.Random, geometry: Geometry, memory: bytes) -> list[Damage]:
    """Return some damage to a slab, of which a copy is given.

    Most of it overwrites words in use, with nearly valid or extreme values.
    """
    there = regions(geometry)
    words = memoryview(memory).cast("Q")
    return [_one(rng, there, words) for _ in range(rng.choice((1, 1, 1, 2, 3, 8)))]


def _one(rng: random.Random, there: dict[str, Region], words: memoryview) -> Damage:
    name = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    region = there[name]
    while region.entries == 0:
        name, region = rng.choice(list(there.items()))
    # The first entries are those in use.
    entry = rng.randrange(region.entries if rng.random() < 0.3 else min(region.entries, 8))
    if rng.random() < 0.04:
        return Damage(name, entry, rng.choice(("*", "*", "**")), rng.getrandbits(32))
    named: list[str | int] = [*region.names] or [*range(region.words)]
    word = rng.choice(named) if rng.random() < 0.95 else rng.randrange(region.words)
    at = region.start + entry * region.words + (region.names[word] if isinstance(word, str) else word)
    return Damage(name, entry, word, _value(rng, words, at))


def _value(rng: random.Random, words: memoryview, at: int) -> int:
    now: int = words[at]
    match rng.randrange(9):
        case 0:
            return rng.getrandbits(64)
        case 1:
            return rng.randrange(40)
        case 2:
            return 1 << rng.randrange(64)
        case 3:
            return (1 << rng.randrange(1, 65)) - 1
        case 4:
            return now ^ 1 << rng.randrange(64)
        case 5:
            return int(words[max(0, min(at + rng.choice((-32, -16, -1, 1, 16, 24, 32)), len(words) - 1))])
        case 6:
            return (now + rng.choice((-2, -1, 1, 2, 3))) & _LARGEST
        case 7:
            return rng.choice((0, _LARGEST, 1 << 63, (1 << 63) - 1, 1 << 32))
        case _:
            # One field of a packed word: its bytes, one by one.
            shift = 8 * rng.randrange(8)
            return now & ~(0xFF << shift) | rng.getrandbits(8) << shift
