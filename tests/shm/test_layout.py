"""The layout: no offset moves without a new ABI version, and only the core knows one."""

from __future__ import annotations

import ast
import hashlib
import json
from itertools import pairwise
from pathlib import Path

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
LAYOUT = (19, "e034fb9be5b9cc93")
"""The ABI version, and the digest of its layout."""
STRUCTS = (
    *("Super", "Lock", "Process", "Topic", "Partition", "Lane", "Slot"),
    *("Completion", "Waiter", "Incident", "Broker", "Histogram"),
)
ENUMS = ("SlotState", "TopicState", "Refusal", "Role", "BrokerState", "OfSender", "OfProcess")
CONSTANTS = (
    *("STATE_MASK", "OWNER_SHIFT", "OWNER_MASK", "INCARNATION_SHIFT", "COMMIT_SIZE_SHIFT", "COMMIT_COUNT_MASK"),
    *("PROGRESS_SHIFT", "PROGRESS_MASK", "ATTEMPTS_SHIFT", "TIME_MASK", "COMPRESSION_MASK"),
    *("BATCH_SLOT_BITS", "UNFINISHED", "LOCK_POOL", "LOCK_TABLES", "LOCK_STRIPES", "STRIPES", "WAITERS", "MAGIC"),
    *("PARTS_IN_FLIGHT", "INCIDENTS", "BROKERS", "HISTOGRAM_BUCKETS", "SLEEP_BITS", "LINGER_SHIFT", "LIMITS_SHIFT"),
    *("LIMITS_MASK", "SETTINGS_SIZE", "KEY_TOPIC_SHIFT", "KEY_LANE_SHIFT", "LANE_ERROR"),
)
REGIONS = (
    *("locks", "processes", "topics", "partitions", "lanes", "waiters", "rings", "bitmap", "headers", "slots"),
    *("incidents", "settings", "brokers", "histograms", "total_size", "ring_length", "slot_words", "bitmap_size"),
)
ENTRIES = (
    *("lock", "process", "topic", "partition", "lane", "ring", "header", "slot", "incident", "waiter"),
    *("broker", "broker_histogram"),
)


def words_of(struct: str) -> dict[str, int]:
    return {word: number for word, number in vars(getattr(_core, struct)).items() if word.isupper()}


def test_no_offset_moves_without_a_new_abi_version() -> None:
    """A process of another version must never read a slab of this one. `docs/slab-layout.md` shows what has moved."""
    constants = vars(layout) | vars(_core)
    parts = {
        "structs": {struct: words_of(struct) for struct in STRUCTS},
        "enums": {enum: {member.name: member.value for member in getattr(layout, enum)} for enum in ENUMS},
        "constants": {name: constants[name] for name in CONSTANTS},
        "regions": {name: getattr(GEOMETRY, name) for name in REGIONS},
        "entries": {name: getattr(GEOMETRY, name)(1) for name in ENTRIES},
    }
    said = json.dumps(parts, sort_keys=True)
    digest = hashlib.sha256(said.encode()).hexdigest()[:16]
    assert (ABI_VERSION, digest) == LAYOUT, "another layout needs another ABI_VERSION"


PACKAGE = Path(shmaccum.__file__).parent


def name_of(node: ast.expr) -> str:
    """Return the last name of an expression: `words` of `slab.words`."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def numbered(module: Path) -> list[str]:
    """Return the indexes of a slab's words in which a number stands."""
    nodes = ast.walk(ast.parse(module.read_text()))
    accesses = [each for each in nodes if isinstance(each, ast.Subscript) and "words" in name_of(each.value)]
    return [ast.unparse(each) for each in accesses for part in ast.walk(each.slice) if isinstance(part, ast.Constant)]


def test_only_the_core_knows_the_place_of_a_word() -> None:
    """Other code has no number of its own in an index of the slab's words: each comes from the core."""
    found = {str(module): numbered(module) for module in PACKAGE.rglob("*.py")}
    assert len(found) > 100
    assert {module: places for module, places in found.items() if places} == {}


def test_entries_of_several_words_do_not_overlap() -> None:
    assert (Topic.length - Topic.NAME) * WORD >= MAX_TOPIC_LENGTH
    assert (Lane.length - Lane.ID) * WORD == layout.MAX_TRANSACTIONAL_ID == rules.MAX_TRANSACTIONAL_ID
    assert Slot.BASE_TIMESTAMP - Slot.MAX_TIMESTAMP == 2  # two cells
    assert max(words_of("Slot").values()) == Slot.CONTRIBUTORS
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
