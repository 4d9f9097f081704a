"""The tables of a slab, with the names of their words."""

from __future__ import annotations

from typing import Any, NamedTuple

from shmaccum import _core as core
from shmaccum._core import WAITERS, WORD, Geometry, Slot, Super
from shmaccum.shm.layout import OfProcess, OfSender


class Region(NamedTuple):
    """A table of the slab: the index of its first word, its entries, the words in an entry, and their names."""

    start: int
    entries: int
    words: int
    names: dict[str, int]


def regions(geometry: Geometry) -> dict[str, Region]:
    histograms = len(OfSender) + core.BROKERS + geometry.max_processes * len(OfProcess)
    rings = geometry.max_processes * geometry.ring_length
    tables: dict[str, tuple[int, int, Any]] = {
        "lock": (geometry.lock(0), core.LOCK_COUNT, core.Lock),
        "process": (geometry.process(0), geometry.max_processes, core.Process),
        "topic": (geometry.topic(0), geometry.max_topics, core.Topic),
        "partition": (geometry.partition(0), geometry.max_partitions, core.Partition),
        "lane": (geometry.lane(0), geometry.max_lanes, core.Lane),
        "incident": (geometry.incident(0), core.INCIDENTS + 1, core.Incident),
        "broker": (geometry.broker(0), core.BROKERS, core.Broker),
        "histogram": (geometry.histograms // WORD, histograms, core.Histogram),
        "waiter": (geometry.waiter(0), WAITERS, core.Waiter),
        "completion": (geometry.rings // WORD, rings, core.Completion),
    }
    return {
        "super": Region(0, 1, Super.length, _names(Super)),
        "settings": Region(geometry.settings // WORD, 2, core.SETTINGS_SIZE // WORD, {"HEAD": 0, "TEXT": 1}),
        **{name: Region(start, count, kind.length, _names(kind)) for name, (start, count, kind) in tables.items()},
        "bitmap": Region(geometry.bitmap // WORD, -(-geometry.bitmap_size // WORD), 1, {}),
        "slot": Region(geometry.header(0), geometry.slot_count, geometry.slot_words, _names(Slot)),
        "memory": Region(geometry.slots // WORD, geometry.slot_count * geometry.slot_size // WORD, 1, {}),
    }


def _names(kind: type) -> dict[str, int]:
    return {name: number for name, number in vars(kind).items() if name.isupper()}
