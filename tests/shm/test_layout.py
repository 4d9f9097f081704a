"""The layout: no offset moves without a new ABI version, and only the core knows one."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import pytest

import shmaccum
from shmaccum import _core
from shmaccum._core import (
    CACHE_LINE,
    MAX_PROCESSES,
    MAX_SLOTS,
    UNFINISHED,
    WORD,
    Geometry,
    Incident,
    Lane,
    Process,
    Slot,
    Topic,
)
from shmaccum.abi import ABI_VERSION
from shmaccum.cluster import MAX_TOPIC_LENGTH
from shmaccum.config import rules
from shmaccum.errors import MESSAGE_BYTES
from shmaccum.shm import layout
from shmaccum.shm.layout import SlotState

GEOMETRY = Geometry(slot_size=16384, slot_count=2048, max_processes=128, max_topics=512, max_partitions=4096)


def at(text: str) -> dict[str, int]:
    """Read a table of words: a number is an offset, and the names behind it follow each other from there on."""
    words: dict[str, int] = {}
    offset = 0
    for each in text.split():
        if each.isdigit():
            offset = int(each)
        else:
            words[each] = offset
            offset += 1
    return words


ABI_OF_VERSION = 16
ABI: dict[str, dict[str, int]] = {
    "Super": at(
        "0 MAGIC ABI READY TOTAL_SIZE OWNER_UID DIGEST SLOT_SIZE SLOT_COUNT MAX_PROCESSES MAX_TOPICS "
        "MAX_PARTITIONS CREATED_MS 13 TOKEN 15 KEEPS_CHECKSUMS SENDER_ENTRY SENDER_ASLEEP SENDER_STARTS "
        "PRODUCER_ID PRODUCER_EPOCH METADATA_REQUESTS SENDER_WAKES 24 TOPIC_COUNT PARTITION_COUNT GENERATION "
        "MAX_LANES LANE_COUNT LANES_CHANGED REFUSALS 32 "
        "FREE_SLOTS PEAK_SLOTS TOUCHED_SLOTS WAITER_HEAD WAITER_TAIL RECLAIMED_SLOTS REBUILDS ENOUGH_SLOTS "
        "BATCHES_SENT RECORDS_SENT BYTES_SENT BATCHES_FAILED RECORDS_FAILED BATCHES_RETRIED REQUESTS_SENT "
        "FILL_BYTES CAPACITY_BYTES 50 EPOCH_BUMPS BATCHES_EXPIRED RECORDS_LOST HEIR_MS METADATA_MS INCIDENTS "
        "SENDER_RAN LET_IN_MS SETTINGS_GENERATION TIMEOUTS_CHANGED LEAVE_REQUEST WAITING_SINCE_MS "
        "LARGEST_BATCH BATCHES_SPLIT"
    ),
    "Lock": at("0 OWNER TAKEOVERS"),
    "Process": at(
        "0 STATE PID START_TIME PID_NAMESPACE INCARNATION ROLES ATTACHED_MS SHORTEST_TIMEOUT LOOP_ASLEEP "
        "LOOP_DOORBELL ASLEEP FLUSHING RING_HEAD WAKEUP 16 RING_TAIL 24 RECORDS BYTES BATCHES WAIT_NS WAITS EXHAUSTED "
        "COMPRESSED 32 NAME_LENGTH NAME 41 BEFORE"
    ),
    "Topic": at(
        "0 STATE PARTITIONS ERROR NAME_LENGTH ANSWERS ID_HIGH ID_LOW CHANGED REFUSALS 14 REFUSED_ERROR REFUSED_MS NAME"
    ),
    "Partition": at(
        "0 KEY LEADER HEAD TAIL OPEN QUEUED NEXT_POSITION HELD NEXT_SEQUENCE MUTED IN_FLIGHT RECORDS_SENT "
        "BATCHES_SENT RECORDS_FAILED LAST_OFFSET ACKED_SEQUENCE "
        "BYTES_SENT BATCHES_RETRIED BATCHES_FAILED ERROR ERROR_MS BATCHES_DRAINED RECORDS_DRAINED BYTES_DRAINED "
        "COMPRESSION_DRAINED RECORDS_RETRIED MAX_BYTES"
    ),
    "Lane": at("0 HOLDER GENERATION PRODUCER_ID PRODUCER_EPOCH VERSION ERROR OPENED_MS ID_LENGTH ID"),
    "Slot": at(
        "0 STATE GENERATION PARTITION POSITION COMMIT MAX_TIMESTAMP 7 BASE_TIMESTAMP CREATED_MS ATTEMPTS "
        "PRODUCER_ID SEQUENCE BASE_OFFSET RESULT NEXT PREVIOUS MAX_RECORD 18 COMPLETED "
        "COMPRESSED PART CHAIN LINGER FULL OPENED_US LIMITS SLOTS CHECKSUMS CONTRIBUTORS"
    ),
    "Completion": at("0 BATCH BASE_OFFSET RESULT RANGE"),
    "SlotState": at("0 FREE ALLOCATED OPEN CLOSED IN_FLIGHT COMPLETING"),
    "TopicState": at("0 UNUSED REQUESTED KNOWN FAILED"),
    "Refusal": at("0 TOPIC MEMORY TOO_LARGE LOCK ARGUMENT OTHER"),
    "Role": at("1 PRODUCER SENDER"),
    "Waiter": at("0 HOLDER SLOTS"),
    "Incident": at("0 NUMBER CODE FIRST_MS LAST_MS LASTS LENGTH COUNT PLACE TEXT"),
    "Broker": at(
        "0 STATE NODE SINCE_MS CONNECTIONS FAILURES IN_FLIGHT OLDEST_MS ANSWERS LATENCY_US THROTTLES THROTTLE_MS "
        "LONGEST_THROTTLE_MS THROTTLED_MS INCIDENT INCIDENT_MS ANSWERED_MS REQUESTS BYTES_OUT "
        "LARGEST_REQUEST BYTES_IN CLOSED REFUSED LOGINS_AGAIN ADDRESS_LENGTH ADDRESS"
    ),
    "Histogram": at("0 TOTAL LARGEST BUCKETS"),
    "BrokerState": at("0 UNUSED IDLE CONNECTING READY FAILED"),
    "OfSender": at("0 QUEUE_TIME DELIVERY_TIME BATCH_RECORDS BATCH_FILL COMPRESSION"),
    "OfProcess": at("0 MEMORY_WAIT RECORD_SIZE"),
    "constants": {
        "STATE_MASK": 0xFF,
        "OWNER_SHIFT": 8,
        "OWNER_MASK": 0xFFFF,
        "INCARNATION_SHIFT": 48,
        "COMMIT_SIZE_SHIFT": 25,
        "COMMIT_COUNT_MASK": 0xFFFFFF,
        "PROGRESS_SHIFT": 24,
        "PROGRESS_MASK": 0xFFFFFF,
        "ATTEMPTS_SHIFT": 48,
        "TIME_MASK": 0xFFFFFFFFFFFF,
        "COMPRESSED_SIZE_SHIFT": 8,
        "COMPRESSION_MASK": 0xFF,
        "BATCH_SLOT_BITS": 24,
        "UNFINISHED": 0xFFFF,
        "LOCK_POOL": 0,
        "LOCK_TABLES": 1,
        "LOCK_STRIPES": 2,
        "STRIPES": 16,
        "WAITERS": 1024,
        "PARTS_IN_FLIGHT": 64,
        "MAGIC": 0x4D554343414D4853,
        "INCIDENTS": 32,
        "BROKERS": 64,
        "HISTOGRAM_BUCKETS": 246,
        "SLEEP_BITS": 16,
        "LINGER_SHIFT": 8,
        "LIMITS_SHIFT": 32,
        "LIMITS_MASK": 0xFFFFFFFF,
        "SETTINGS_SIZE": 16384,
        "KEY_TOPIC_SHIFT": 32,
        "KEY_LANE_SHIFT": 52,
        "LANE_ERROR": 1 << 16,
    },
    "geometry": {
        "locks": 33280,
        "processes": 34432,
        "topics": 83584,
        "partitions": 280192,
        "lanes": 1328768,
        "waiters": 2039616,
        "rings": 2056000,
        "bitmap": 10706752,
        "headers": 10707008,
        "slots": 11235328,
        "total_size": 44789760,
        "ring_length": 2112,
        "slot_words": 32,
        "bitmap_size": 256,
        "incidents": 1349248,
        "settings": 512,
        "brokers": 1366144,
        "histograms": 1394816,
    },
    "entries": {
        "lock": 4168,
        "process": 4352,
        "topic": 10496,
        "partition": 35056,
        "lane": 166136,
        "ring": 265448,
        "header": 1338408,
        "slot": 11251712,
        "incident": 168720,
        "waiter": 254954,
        "broker": 170824,
        "broker_histogram": 175840,
    },
}
"""What this version of the layout puts where: a process of another version must never read a slab of it."""
ENTRIES = (
    *("Super", "Lock", "Process", "Topic", "Partition", "Lane", "Slot"),
    *("Completion", "Waiter", "Incident", "Broker", "Histogram"),
)


def test_no_offset_moves_without_a_new_abi_version() -> None:
    enums = (
        layout.SlotState,
        layout.TopicState,
        layout.Refusal,
        layout.Role,
        layout.BrokerState,
        layout.OfSender,
        layout.OfProcess,
    )
    actual: dict[str, object] = {
        name: {word: number for word, number in vars(getattr(_core, name)).items() if word.isupper()}
        for name in ENTRIES
    }
    actual |= {enum.__name__: {member.name: member.value for member in enum} for enum in enums}
    constants = vars(layout) | vars(_core)
    actual["constants"] = {name: constants[name] for name in ABI["constants"]}
    actual["geometry"] = {name: getattr(GEOMETRY, name) for name in ABI["geometry"]}
    actual["entries"] = {name: getattr(GEOMETRY, name)(1) for name in ABI["entries"]}
    assert (ABI_VERSION, actual) == (ABI_OF_VERSION, ABI), "another layout needs another ABI_VERSION"


PACKAGE = Path(shmaccum.__file__).parent
MODULES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


def name_of(node: ast.expr) -> str:
    """Return the last name of an expression: `words` of `slab.words`."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@pytest.mark.parametrize("module", MODULES)
def test_only_the_core_knows_the_place_of_a_word(module: str) -> None:
    """Other code has no number of its own in an index of the slab's words: each comes from the core."""
    tree = ast.parse((PACKAGE / module).read_text())
    accesses = [each for each in ast.walk(tree) if isinstance(each, ast.Subscript) and "words" in name_of(each.value)]
    numbers = [
        ast.unparse(each) for each in accesses for part in ast.walk(each.slice) if isinstance(part, ast.Constant)
    ]
    assert not numbers


def test_entries_of_several_words_do_not_overlap() -> None:
    assert (_core.Topic.length - Topic.NAME) * WORD >= MAX_TOPIC_LENGTH
    assert (_core.Lane.length - Lane.ID) * WORD == layout.MAX_TRANSACTIONAL_ID == rules.MAX_TRANSACTIONAL_ID
    assert Slot.BASE_TIMESTAMP - Slot.MAX_TIMESTAMP == 2  # two cells
    assert max(ABI["Slot"].values()) == Slot.CONTRIBUTORS
    assert (Incident.length - Incident.TEXT) * WORD == MESSAGE_BYTES
    assert (len(layout.OfSender), len(layout.OfProcess)) == (_core.SENDER_HISTOGRAMS, _core.PROCESS_HISTOGRAMS)


def test_words_with_different_writers_are_on_different_cache_lines() -> None:
    words_in_a_line = CACHE_LINE // WORD
    at_attach = {Process.STATE, Process.PID, Process.INCARNATION, Process.ROLES}
    by_itself = {Process.ASLEEP, Process.RING_HEAD}
    by_the_sender = {Process.RING_TAIL}
    counters = {Process.RECORDS, Process.WAITS}
    for_people = {Process.NAME_LENGTH, Process.NAME, Process.BEFORE}
    lines = [{word // words_in_a_line for word in words} for words in (at_attach, by_itself, by_the_sender, counters)]
    assert lines == [{0}, {1}, {2}, {3}]
    assert {word // words_in_a_line for word in for_people}.isdisjoint({0, 1, 2, 3})
    assert Process.length % words_in_a_line == 0
    assert words_in_a_line == _core.Lock.length


def test_the_fields_of_a_state_word_hold_their_largest_values_side_by_side() -> None:
    fields = [
        (0, _core.STATE_MASK, max(SlotState)),
        (_core.OWNER_SHIFT, _core.OWNER_MASK, MAX_PROCESSES - 1),
        (_core.INCARNATION_SHIFT, 0xFFFF, 0xFFFF),
    ]
    assert all(largest <= mask for _, mask, largest in fields)
    assert all(shift + mask.bit_length() <= following for (shift, mask, _), (following, _, _) in pairwise(fields))
    assert _core.INCARNATION_SHIFT + 16 == 8 * WORD
    assert MAX_SLOTS - 1 < 1 << _core.BATCH_SLOT_BITS
    assert MAX_PROCESSES < UNFINISHED  # an owner word is an entry + 1
