"""The layout: no regions overlap, and no offset moves without a new ABI version."""

from __future__ import annotations

import inspect
from enum import Enum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmaccum.cluster import MAX_TOPIC_LENGTH
from shmaccum.shm import layout
from shmaccum.shm.layout import (
    ABI_VERSION,
    CACHE_LINE,
    LOCK_COUNT,
    MAX_PROCESSES,
    MAX_SLOTS,
    PAGE,
    PROCESS_WORDS,
    UNFINISHED_OWNER,
    WAITERS,
    WORD,
    Geometry,
    Process,
    Slot,
    SlotState,
    Topic,
)

GEOMETRY = Geometry(slot_size=16384, slot_count=2048, max_processes=128, max_topics=512, max_partitions=4096)

_SIZES = ("ring_length", "slot_words", "bitmap_size")

ABI: dict[int, dict[str, Any]] = {
    3: {
        "Super": {
            "MAGIC": 0,
            "ABI": 1,
            "READY": 2,
            "TOTAL_SIZE": 3,
            "OWNER_UID": 4,
            "DIGEST": 5,
            "SLOT_SIZE": 6,
            "SLOT_COUNT": 7,
            "MAX_PROCESSES": 8,
            "MAX_TOPICS": 9,
            "MAX_PARTITIONS": 10,
            "CREATED_MS": 11,
            "REDO_SIZE": 12,
            "SENDER_ENTRY": 16,
            "SENDER_ASLEEP": 17,
            "SENDER_STARTS": 18,
            "PRODUCER_ID": 19,
            "PRODUCER_EPOCH": 20,
            "METADATA_REQUESTS": 21,
            "SENDER_WAKES": 22,
            "TOPIC_COUNT": 24,
            "PARTITION_COUNT": 25,
            "GENERATION": 26,
            "FREE_SLOTS": 32,
            "PEAK_SLOTS": 33,
            "TOUCHED_SLOTS": 34,
            "WAITER_HEAD": 35,
            "WAITER_TAIL": 36,
            "RECLAIMED_SLOTS": 37,
            "REBUILDS": 38,
            "BATCHES_SENT": 40,
            "RECORDS_SENT": 41,
            "BYTES_SENT": 42,
            "BATCHES_FAILED": 43,
            "RECORDS_FAILED": 44,
            "BATCHES_RETRIED": 45,
            "REQUESTS_SENT": 46,
            "FILL_BYTES": 47,
            "CAPACITY_BYTES": 48,
            "EPOCH_BUMPS": 50,
            "BATCHES_EXPIRED": 51,
            "RECORDS_LOST": 52,
        },
        "Lock": {"OWNER": 0, "TAKEOVERS": 1},
        "Process": {
            "STATE": 0,
            "PID": 1,
            "START_TIME": 2,
            "PID_NAMESPACE": 3,
            "INCARNATION": 4,
            "ROLES": 5,
            "ATTACHED_MS": 6,
            "WANTS": 8,
            "ASLEEP": 11,
            "FLUSHING": 12,
            "RING_HEAD": 13,
            "RING_TAIL": 16,
            "RECORDS": 24,
            "BYTES": 25,
            "BATCHES": 26,
            "WAIT_NS": 27,
            "WAITS": 28,
            "EXHAUSTED": 29,
            "COMPRESSED": 30,
            "PARKED": 32,
            "RELEASED": 50,
        },
        "Topic": {"STATE": 0, "PARTITIONS": 1, "ERROR": 2, "NAME_LENGTH": 3, "ANSWERS": 4, "NAME": 8},
        "Partition": {
            "KEY": 0,
            "LEADER": 1,
            "HEAD": 2,
            "TAIL": 3,
            "OPEN": 4,
            "QUEUED": 5,
            "NEXT_POSITION": 6,
            "HELD": 7,
            "NEXT_SEQUENCE": 8,
            "MUTED": 9,
            "IN_FLIGHT": 10,
            "RECORDS_SENT": 11,
            "BATCHES_SENT": 12,
            "RECORDS_FAILED": 13,
            "LAST_OFFSET": 14,
            "ACKED_SEQUENCE": 15,
        },
        "Slot": {
            "STATE": 0,
            "GENERATION": 1,
            "PARTITION": 2,
            "POSITION": 3,
            "COMMIT": 4,
            "MAX_TIMESTAMP": 5,
            "BASE_TIMESTAMP": 7,
            "CREATED_MS": 8,
            "ATTEMPTS": 9,
            "PRODUCER_ID": 10,
            "SEQUENCE": 11,
            "BASE_OFFSET": 12,
            "RESULT": 13,
            "NEXT": 14,
            "PREVIOUS": 15,
            "MAX_RECORD": 16,
            "DRAINED_MS": 17,
            "SETTLED": 18,
            "SEALING": 19,
            "COMPRESSED": 20,
            "REDO": 21,
            "PART": 22,
            "CONTRIBUTORS": 23,
        },
        "Completion": {"BATCH": 0, "BASE_OFFSET": 1, "RESULT": 2, "RANGE": 3},
        "SlotState": {"FREE": 0, "ALLOCATED": 1, "OPEN": 2, "CLOSED": 3, "IN_FLIGHT": 4, "COMPLETING": 5},
        "TopicState": {"UNUSED": 0, "REQUESTED": 1, "KNOWN": 2, "FAILED": 3},
        "Role": {"PRODUCER": 1, "SENDER": 2},
        "constants": {
            "STATE_MASK": 0xFF,
            "OWNER_SHIFT": 8,
            "OWNER_MASK": 0xFFFF,
            "SLOTS_SHIFT": 24,
            "SLOTS_MASK": 0xFFFFFF,
            "INCARNATION_SHIFT": 48,
            "COMMIT_SIZE_SHIFT": 25,
            "COMMIT_COUNT_MASK": 0xFFFFFF,
            "PROGRESS_SHIFT": 24,
            "PROGRESS_MASK": 0xFFFFFF,
            "RANGE_SHIFT": 32,
            "RANGE_MASK": 0xFFFFFFFF,
            "ATTEMPTS_SHIFT": 48,
            "TIME_MASK": 0xFFFFFFFFFFFF,
            "COMPRESSED_SIZE_SHIFT": 8,
            "COMPRESSION_MASK": 0xFF,
            "BATCH_SLOT_BITS": 24,
            "UNFINISHED_OWNER": 0xFFFF,
            "LOCK_POOL": 0,
            "LOCK_TABLES": 1,
            "LOCK_STRIPES": 2,
            "STRIPES": 16,
            "WAITERS": 1024,
            "PARTS_IN_FLIGHT": 64,
            "MAGIC": 0x4D55434341_4D4853,
        },
        "geometry": {
            "locks": 512,
            "processes": 1664,
            "topics": 75392,
            "partitions": 239232,
            "waiters": 763520,
            "rings": 771712,
            "bitmap": 9422464,
            "headers": 9422720,
            "redo": 9422720 + 2048 * 32 * 8,
            "slots": 9949184,
            "total_size": 43503616,
            "ring_length": 2112,
            "slot_words": 32,
            "bitmap_size": 256,
        },
        "entries": {
            "lock": 64 + 8,
            "process": 208 + 72,
            "topic": 9424 + 40,
            "partition": 29904 + 16,
            "ring": 96464 + 2112 * 4,
            "header": 1177840 + 32,
            "slot": 9949184 + 16384,
        },
    }
}
"""What every version of the layout puts where: a process of another version must never read a slab of this one."""

ABI[4] = ABI[3]  # but for ASLEEP's meaning

ABI[5] = ABI[4] | {"Super": ABI[4]["Super"] | {"ENOUGH_SLOTS": 39}}
ABI[6] = ABI[5] | {
    "Super": ABI[5]["Super"]
    | {"TOKEN": 13}
    | {"HEIR_MS": 53, "INCIDENTS": 55, "SENDER_RAN": 56, "LET_IN_MS": 57}
    | {"SETTINGS_GENERATION": 58, "LIMITS_CHANGED": 59, "LEAVE_REQUEST": 60},
    "Process": ABI[5]["Process"] | {"LIMITS": 7, "WAKEUP": 14},
    "Topic": ABI[5]["Topic"] | {"ID_HIGH": 5, "ID_LOW": 6, "CHANGED": 7},
    "Slot": ABI[5]["Slot"] | {"CHAIN": 23, "LINGER": 24, "CONTRIBUTORS": 25},
    "Waiter": {"HOLDER": 0, "SLOTS": 1},
    "Incident": {"NUMBER": 0, "CODE": 1, "FIRST_MS": 2, "LAST_MS": 3, "LASTS": 4, "LENGTH": 5, "TEXT": 8},
    "constants": ABI[5]["constants"]
    | {"INCIDENTS": 32, "SLEEP_BITS": 16}
    | {"LINGER_SHIFT": 8, "LIMITS_SHIFT": 32, "LIMITS_MASK": 0xFFFFFFFF, "SETTINGS_SIZE": 16384},
    "geometry": ABI[5]["geometry"]
    | {
        "incidents": 763520,
        "waiters": 780416,
        "rings": 796800,
        "bitmap": 9447552,
        "headers": 9447808,
        "redo": 9972096,
        "slots": 9973760,
        "total_size": 43528192,
    },
    "entries": ABI[5]["entries"]
    | {
        "incident": 95440 + 64,
        "waiter": 97552 + 2,
        "ring": 99600 + 2112 * 4,
        "header": 1180976 + 32,
        "slot": 9973760 + 16384,
    },
}
# The settings come after the superblock, all other regions after them.
ABI[6]["geometry"] = {
    name: offset if name in _SIZES else offset + 32768 for name, offset in ABI[6]["geometry"].items()
} | {"settings": 512}
ABI[6]["entries"] = {
    name: offset + (32768 if name == "slot" else 32768 // WORD) for name, offset in ABI[6]["entries"].items()
}


def tables() -> dict[str, dict[str, int]]:
    """Return the words of each kind of entry: the constants of its class."""
    return {
        name: {word: index for word, index in vars(member).items() if word.isupper()}
        for name, member in inspect.getmembers(layout, inspect.isclass)
        if member.__module__.startswith(layout.__name__) and not issubclass(member, Enum) and member is not Geometry
    }


def test_no_offset_moves_without_a_new_abi_version() -> None:
    enums = (layout.SlotState, layout.TopicState, layout.Role)
    expected = ABI[ABI_VERSION]
    actual: dict[str, object] = {**tables()}
    actual |= {enum.__name__: {member.name: member.value for member in enum} for enum in enums}
    actual["constants"] = {name: getattr(layout, name) for name in expected["constants"]}  # type: ignore[attr-defined]
    actual["geometry"] = {name: getattr(GEOMETRY, name) for name in expected["geometry"]}  # type: ignore[attr-defined]
    actual["entries"] = {name: getattr(GEOMETRY, name)(1) for name in expected["entries"]}  # type: ignore[attr-defined]

    assert actual == expected, "a new layout needs a new ABI_VERSION, and its own entry in ABI above"


def entry_words(geometry: Geometry) -> dict[str, int]:
    """Return how many words there are for each kind of entry."""
    return {
        "Super": layout.SUPER_WORDS,
        "Lock": layout.LOCK_WORDS,
        "Process": layout.PROCESS_WORDS,
        "Topic": layout.TOPIC_WORDS,
        "Partition": layout.PARTITION_WORDS,
        "Slot": geometry.slot_words,
        "Waiter": layout.WAITER_WORDS,
        "Incident": layout.INCIDENT_WORDS,
        "Completion": layout.COMPLETION_WORDS,
    }


@pytest.mark.parametrize("table", tables())
def test_the_words_of_an_entry_are_different_and_inside_of_it(table: str) -> None:
    words = tables()[table]

    assert len(set(words.values())) == len(words)
    assert all(0 <= word < entry_words(GEOMETRY)[table] for word in words.values())


def test_entries_of_several_words_do_not_overlap() -> None:
    assert (layout.TOPIC_WORDS - Topic.NAME) * WORD >= MAX_TOPIC_LENGTH
    assert Slot.BASE_TIMESTAMP - Slot.MAX_TIMESTAMP == 2  # two cells
    assert max(tables()["Slot"].values()) == Slot.CONTRIBUTORS


@given(st.integers(1, MAX_PROCESSES))
def test_a_slot_header_has_a_bit_for_every_process(max_processes: int) -> None:
    geometry = Geometry(64, 3, max_processes=max_processes)

    assert geometry.contributor_words * 64 >= max_processes
    assert geometry.slot_words >= Slot.CONTRIBUTORS + geometry.contributor_words
    assert geometry.slot_words * WORD % CACHE_LINE == 0


def test_words_with_different_writers_are_on_different_cache_lines() -> None:
    words_in_a_line = CACHE_LINE // WORD
    at_attach = {Process.STATE, Process.PID, Process.INCARNATION, Process.ROLES}
    by_itself = {Process.WANTS, Process.ASLEEP, Process.RING_HEAD}
    by_the_sender = {Process.RING_TAIL}
    counters = {Process.RECORDS, Process.WAITS}
    of_locks = {first + number for first in (Process.PARKED, Process.RELEASED) for number in range(LOCK_COUNT)}

    lines = [{word // words_in_a_line for word in words} for words in (at_attach, by_itself, by_the_sender, counters)]

    assert lines == [{0}, {1}, {2}, {3}]
    assert {word // words_in_a_line for word in of_locks}.isdisjoint({0, 1, 2, 3})
    assert len(of_locks) == 2 * LOCK_COUNT
    assert max(of_locks) < PROCESS_WORDS
    assert PROCESS_WORDS % words_in_a_line == 0
    assert words_in_a_line == layout.LOCK_WORDS


def test_the_fields_of_a_state_word_hold_their_largest_values_side_by_side() -> None:
    fields = [
        (0, layout.STATE_MASK, max(SlotState)),
        (layout.OWNER_SHIFT, layout.OWNER_MASK, MAX_PROCESSES - 1),
        (layout.SLOTS_SHIFT, layout.SLOTS_MASK, MAX_SLOTS),
        (layout.INCARNATION_SHIFT, 0xFFFF, 0xFFFF),
    ]

    assert all(largest <= mask for _, mask, largest in fields)
    assert all(shift + mask.bit_length() <= following for (shift, mask, _), (following, _, _) in pairwise(fields))
    assert layout.INCARNATION_SHIFT + 16 == 8 * WORD
    assert MAX_SLOTS - 1 < 1 << layout.BATCH_SLOT_BITS
    assert MAX_PROCESSES < UNFINISHED_OWNER  # an owner word is an entry + 1


geometries = st.builds(
    Geometry,
    slot_size=st.integers(1, 10_000).map(lambda words: words * WORD),
    slot_count=st.integers(1, 5000),
    max_processes=st.integers(1, MAX_PROCESSES),
    max_topics=st.integers(1, 2000),
    max_partitions=st.integers(1, 5000),
    redo_size=st.integers(0, 10_000).map(lambda words: words * WORD),
)


@given(geometries)
def test_the_regions_follow_each_other_and_do_not_overlap(geometry: Geometry) -> None:
    regions = [
        (0, layout.SUPER_WORDS * WORD),
        (geometry.settings, geometry.settings + 2 * layout.SETTINGS_SIZE),
        (geometry.locks, geometry.lock(LOCK_COUNT) * WORD),
        (geometry.processes, geometry.process(geometry.max_processes) * WORD),
        (geometry.topics, geometry.topic(geometry.max_topics) * WORD),
        (geometry.partitions, geometry.partition(geometry.max_partitions) * WORD),
        (geometry.incidents, (geometry.sender_log() + layout.INCIDENT_WORDS) * WORD),
        (geometry.waiters, geometry.waiter(WAITERS) * WORD),
        (geometry.rings, geometry.ring(geometry.max_processes) * WORD),
        (geometry.bitmap, geometry.bitmap + geometry.bitmap_size),
        (geometry.headers, geometry.header(geometry.slot_count) * WORD),
        (geometry.redo, geometry.redo_area(layout.STRIPES - 1) + geometry.redo_size),
        (geometry.slots, geometry.slot(geometry.slot_count)),
    ]

    assert all(start < end or start == geometry.redo for start, end in regions)
    assert all(end <= start for (_, end), (start, _) in pairwise(regions))
    assert all(start % CACHE_LINE == 0 for start, _ in regions)
    assert geometry.slots % PAGE == 0
    assert geometry.slot(geometry.slot_count) == geometry.total_size


def test_partitions_of_a_stripe_share_its_redo_area() -> None:
    """It is guarded by the same lock, and no two stripes' areas overlap."""
    geometry = Geometry(64, 8, redo_size=64)
    areas = [geometry.redo_area(partition) for partition in range(2 * layout.STRIPES)]

    assert areas[: layout.STRIPES] == areas[layout.STRIPES :]
    assert {later - earlier for earlier, later in pairwise(areas[: layout.STRIPES])} == {geometry.redo_size}


@given(geometries)
def test_rings_and_queues_have_room_for_the_maximum(geometry: Geometry) -> None:
    assert geometry.bitmap_size * 8 >= geometry.slot_count
    assert geometry.ring_length == geometry.slot_count + layout.PARTS_IN_FLIGHT
    assert geometry.ring(1) - geometry.ring(0) == geometry.ring_length * layout.COMPLETION_WORDS


def test_geometries_of_equal_sizes_are_equal() -> None:
    assert Geometry(16384, 2048) == GEOMETRY
    assert hash(Geometry(16384, 2048)) == hash(GEOMETRY)
    assert Geometry(16384, 2047) != GEOMETRY


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ({"slot_size": 0}, "slot_size"),
        ({"slot_size": -8}, "slot_size"),
        ({"slot_size": 12}, "slot_size"),
        ({"slot_count": 0}, "slot_count"),
        ({"slot_count": MAX_SLOTS + 1}, "slot_count"),
        ({"max_processes": 0}, "max_processes"),
        ({"max_processes": MAX_PROCESSES + 1}, "max_processes"),
        ({"max_topics": 0}, "max_topics"),
        ({"max_topics": -1}, "max_topics"),
        ({"max_partitions": 0}, "max_partitions"),
        ({"redo_size": -8}, "redo_size"),
        ({"redo_size": 12}, "redo_size"),
    ],
)
def test_impossible_sizes_are_refused(sizes: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Geometry(**{"slot_size": 64, "slot_count": 4, **sizes})


def test_the_largest_sizes_are_allowed() -> None:
    geometry = Geometry(WORD, MAX_SLOTS, max_processes=MAX_PROCESSES)

    assert geometry.ring_length > MAX_SLOTS
