"""The sizes of the slab's regions, and where each begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from shmaccum.abi import MAX_LANES
from shmaccum.errors import MESSAGE_BYTES
from shmaccum.shm.layout.fields import KEY_TOPIC_MASK
from shmaccum.shm.layout.statistics import Broker, Histogram, OfProcess, OfSender
from shmaccum.shm.layout.words import Incident, Process, Slot

WORD: Final = 8
CACHE_LINE: Final = 64
PAGE: Final = 4096

MAX_SLOTS: Final = (1 << 24) - 1
"""One less than the slot numbers of `Completion.BATCH`: all slots can be one chain."""
MAX_PROCESSES: Final = 1024

LOCK_POOL: Final = 0
"""Guards the bitmap, the waiters, and every step of a slot from or to FREE."""
LOCK_TABLES: Final = 1
"""Guards the topic table and the partition table."""
LOCK_STRIPES: Final = 2
"""First of the stripes: lock LOCK_STRIPES + p % STRIPES guards the deque of partition entry p, and the stripe's redo
area."""
STRIPES: Final = 16
LOCK_COUNT: Final = LOCK_STRIPES + STRIPES

SUPER_WORDS: Final = 64
TOKEN_WORDS: Final = 2
SETTINGS_SIZE: Final = 16384
"""Bytes in each copy of the settings: a word with the text's length and CRC-32, then the text."""
LOCK_WORDS: Final = CACHE_LINE // WORD
PROCESS_WORDS: Final = 48
PROCESS_COUNTERS: Final = Process.COMPRESSED - Process.RECORDS + 1
MAX_PROCESS_NAME: Final = (Process.BEFORE - Process.NAME) * WORD
"""Most bytes of a process's name; longer ones are cut."""
TOPIC_WORDS: Final = 48
PARTITION_WORDS: Final = 32
LANE_WORDS: Final = 40
MAX_TRANSACTIONAL_ID: Final = (LANE_WORDS - 8) * WORD
"""Most bytes of a transactional id."""
WAITER_WORDS: Final = 2
COMPLETION_WORDS: Final = 4
INCIDENT_WORDS: Final = Incident.TEXT + MESSAGE_BYTES // WORD
INCIDENTS: Final = 32
"""Incidents that are kept; the entry after them has the place of the sender's log."""
BROKERS: Final = 64
"""Broker entries; one more broker takes the place of the one that has been without a connection for longest."""
BROKER_WORDS: Final = 56
MAX_ADDRESS: Final = (BROKER_WORDS - Broker.ADDRESS) * WORD
"""Most bytes of a broker's address; longer ones are cut."""
HISTOGRAM_BUCKETS: Final = 246
"""Buckets of a histogram; the last one also counts all larger values."""
HISTOGRAM_WORDS: Final = Histogram.BUCKETS + HISTOGRAM_BUCKETS
PARTS_IN_FLIGHT: Final = 64
"""Parts of split batches that can be in flight at once, over all partitions: every ring has room for their results."""
NEARLY_FULL: Final = 0.9
"""Used fraction of the topic or partition table from which the log and ``shmaccum status`` warn."""
WAITERS: Final = 1024
"""Tickets in use at once, at most: threads of all processes that wait for memory."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes that determine a slab's layout. Slabs of equal geometry have the same layout.

    Attributes:
        slot_size: bytes in a slot, a positive multiple of 8.
        slot_count: slots.
        max_processes, max_topics, max_partitions, max_lanes: entries in the tables.
        redo_size: bytes in a stripe's redo area, a multiple of 8.
        ring_length: completions that a ring holds: between two of a producer's appends, each slot can complete once,
            and each part of a split batch that is in flight.
        contributor_words: words of the contributors' bitmap in a slot header.
        slot_words: words in a slot header, a whole number of cache lines.
        bitmap_size: bytes in the bitmap, whole words.
        settings, locks, processes, topics, partitions, lanes, incidents, brokers, histograms, waiters, rings, bitmap,
            headers, redo, slots: byte offsets of the regions.
        total_size: bytes in the whole segment.
    """

    slot_size: int
    slot_count: int
    max_processes: int = 128
    max_topics: int = 512
    max_partitions: int = 4096
    redo_size: int = 0
    max_lanes: int = 64

    ring_length: int = field(init=False, repr=False, compare=False)
    contributor_words: int = field(init=False, repr=False, compare=False)
    slot_words: int = field(init=False, repr=False, compare=False)
    bitmap_size: int = field(init=False, repr=False, compare=False)
    settings: int = field(init=False, repr=False, compare=False)
    locks: int = field(init=False, repr=False, compare=False)
    processes: int = field(init=False, repr=False, compare=False)
    topics: int = field(init=False, repr=False, compare=False)
    partitions: int = field(init=False, repr=False, compare=False)
    lanes: int = field(init=False, repr=False, compare=False)
    incidents: int = field(init=False, repr=False, compare=False)
    brokers: int = field(init=False, repr=False, compare=False)
    histograms: int = field(init=False, repr=False, compare=False)
    waiters: int = field(init=False, repr=False, compare=False)
    rings: int = field(init=False, repr=False, compare=False)
    bitmap: int = field(init=False, repr=False, compare=False)
    headers: int = field(init=False, repr=False, compare=False)
    redo: int = field(init=False, repr=False, compare=False)
    slots: int = field(init=False, repr=False, compare=False)
    total_size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.slot_size <= 0 or self.slot_size % WORD:
            raise ValueError(f"slot_size must be a positive multiple of {WORD}, not {self.slot_size}")
        if not 0 < self.slot_count <= MAX_SLOTS:
            raise ValueError(f"slot_count must be between 1 and {MAX_SLOTS}, not {self.slot_count}")
        if not 0 < self.max_processes <= MAX_PROCESSES:
            raise ValueError(f"max_processes must be between 1 and {MAX_PROCESSES}, not {self.max_processes}")
        if not 0 < self.max_lanes <= MAX_LANES:
            raise ValueError(f"max_lanes must be between 1 and {MAX_LANES}, not {self.max_lanes}")
        if self.max_topics <= 0 or self.max_partitions <= 0:
            raise ValueError(
                f"max_topics and max_partitions must be positive, not {self.max_topics} and {self.max_partitions}"
            )
        if self.max_topics >= KEY_TOPIC_MASK:
            raise ValueError(f"max_topics must be less than {KEY_TOPIC_MASK}, not {self.max_topics}")
        if self.redo_size < 0 or self.redo_size % WORD:
            raise ValueError(f"redo_size must be a multiple of {WORD}, not {self.redo_size}")
        contributor_words = -(-self.max_processes // 64)
        sizes = {
            "ring_length": self.slot_count + PARTS_IN_FLIGHT,
            "contributor_words": contributor_words,
            "slot_words": _round_up((Slot.CONTRIBUTORS + contributor_words) * WORD, CACHE_LINE) // WORD,
            "bitmap_size": -(-self.slot_count // 64) * WORD,
        }
        # Each region with the size of the one before it.
        regions = {
            "settings": SUPER_WORDS * WORD,
            "locks": 2 * SETTINGS_SIZE,
            "processes": LOCK_COUNT * LOCK_WORDS * WORD,
            "topics": self.max_processes * PROCESS_WORDS * WORD,
            "partitions": self.max_topics * TOPIC_WORDS * WORD,
            "lanes": self.max_partitions * PARTITION_WORDS * WORD,
            "incidents": self.max_lanes * LANE_WORDS * WORD,
            "brokers": (INCIDENTS + 1) * INCIDENT_WORDS * WORD,
            "histograms": BROKERS * BROKER_WORDS * WORD,
            "waiters": (len(OfSender) + BROKERS + self.max_processes * len(OfProcess)) * HISTOGRAM_WORDS * WORD,
            "rings": WAITERS * WAITER_WORDS * WORD,
            "bitmap": self.max_processes * sizes["ring_length"] * COMPLETION_WORDS * WORD,
            "headers": sizes["bitmap_size"],
            "redo": self.slot_count * sizes["slot_words"] * WORD,
            "slots": STRIPES * self.redo_size,
            "total_size": self.slot_count * self.slot_size,
        }
        end = 0
        for name, size_before in regions.items():
            end = _round_up(end + size_before, PAGE if name == "slots" else CACHE_LINE if name != "total_size" else 1)
            sizes[name] = end
        for name, size in sizes.items():
            object.__setattr__(self, name, size)

    def lock(self, number: int) -> int:
        """Word index of a lock's line."""
        return self.locks // WORD + number * LOCK_WORDS

    def process(self, entry: int) -> int:
        """Word index of a process entry."""
        return self.processes // WORD + entry * PROCESS_WORDS

    def topic(self, entry: int) -> int:
        """Word index of a topic entry."""
        return self.topics // WORD + entry * TOPIC_WORDS

    def partition(self, entry: int) -> int:
        """Word index of a partition entry."""
        return self.partitions // WORD + entry * PARTITION_WORDS

    def lane(self, entry: int) -> int:
        """Word index of a lane."""
        return self.lanes // WORD + entry * LANE_WORDS

    def incident(self, number: int) -> int:
        """Word index of an incident, by its number; a later incident reuses the entry."""
        return self.incidents // WORD + number % INCIDENTS * INCIDENT_WORDS

    def sender_log(self) -> int:
        """Word index of the entry, laid out as an incident, whose text is the place of the sender's log."""
        return self.incidents // WORD + INCIDENTS * INCIDENT_WORDS

    def broker(self, entry: int) -> int:
        """Word index of a broker entry."""
        return self.brokers // WORD + entry * BROKER_WORDS

    def sender_histogram(self, which: OfSender) -> int:
        """Word index of a histogram of the sender."""
        return self.histograms // WORD + which * HISTOGRAM_WORDS

    def broker_histogram(self, entry: int) -> int:
        """Word index of the histogram of a broker's latencies: microseconds from a request to its answer."""
        return self.histograms // WORD + (len(OfSender) + entry) * HISTOGRAM_WORDS

    def process_histogram(self, entry: int, which: OfProcess) -> int:
        """Word index of a histogram of a process."""
        before = len(OfSender) + BROKERS + entry * len(OfProcess)
        return self.histograms // WORD + (before + which) * HISTOGRAM_WORDS

    def ring(self, entry: int) -> int:
        """Word index of a process's completion ring."""
        return self.rings // WORD + entry * self.ring_length * COMPLETION_WORDS

    def waiter(self, cell: int) -> int:
        """Word index of a cell of the waiter queue."""
        return self.waiters // WORD + cell * WAITER_WORDS

    def header(self, slot: int) -> int:
        """Word index of a slot's header."""
        return self.headers // WORD + slot * self.slot_words

    def redo_area(self, partition: int) -> int:
        """Byte offset of the redo area for the deque of a partition entry."""
        return self.redo + partition % STRIPES * self.redo_size

    def slot(self, slot: int) -> int:
        """Byte offset of a slot's memory."""
        return self.slots + slot * self.slot_size


def column_of(words: memoryview, start: int, rows: int, width: int) -> list[int]:
    """Return one word of each entry of a table; without numpy, which a process that only sends does not import.

    Args:
        words: of the slab.
        start: index of that word in the first entry.
        rows: entries.
        width: words in an entry.
    """
    return words[start : start + rows * width : width].tolist()


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
