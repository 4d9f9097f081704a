"""Rules for the words of a slab, and the error for a word that breaks one.

Only its users write into a slab, and none of them writes anything impossible. Memory can be damaged nevertheless: by a
stray write of a native library in one of these processes, by another program, by a flipped bit. A damaged slab is
refused or survived. It must not hang a process, use memory without bound, or cause a write outside of its place. What
is checked where:

* What fixes the layout: before anything is mapped (`shmaccum.shm.segment`).
* Tables and states, which everything else depends on: here, at every attach and before a sender serves. New and changed
  entries are checked whenever a process reads them.
* Indexes: wherever they are used, except in the append of a record. An error leaves their lock unfinished, so that its
  next holder rebuilds them from the slot headers.
* What a header says of its records: by the sender, when it seals them. It fails only that batch.
* Anything else ends in a Python error, which `reporting_damage` turns into one that names the damage. So the append of
  a record needs no checks of its own.

Each rule holds at any moment, also while another process changes the word, or after one died in the change. There are
no rules for the bytes of records, since damaged ones cannot be told from others.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt

from shmaccum.errors import SlabDamagedError
from shmaccum.shm.layout import (
    BATCH_SLOT_BITS,
    KEY_LANE_SHIFT,
    KEY_NUMBER_MASK,
    KEY_TOPIC_MASK,
    KEY_TOPIC_SHIFT,
    LANE_WORDS,
    LOCK_COUNT,
    MAX_TRANSACTIONAL_ID,
    PARTITION_WORDS,
    PROCESS_WORDS,
    SUPER_WORDS,
    TOKEN_WORDS,
    TOPIC_WORDS,
    WORD,
    Geometry,
    Lane,
    Partition,
    Process,
    Slot,
    SlotState,
    Super,
    Topic,
    TopicState,
    slots_of,
    state_of,
)

Words = npt.NDArray[np.uint64]

MAX_COUNT: Final = (1 << 63) - 1
"""The largest count, time or offset; a sum of two still fits into a word."""
_MAX_GENERATION: Final = (1 << 64 - BATCH_SLOT_BITS) - 1
LAST_MS: Final = 1 << 47
"""Latest time of anything, in wall-clock milliseconds: the year 6429."""
_LAST_INCIDENT: Final = 1 << 47
"""A result word has 48 bits for an incident's number."""
MAX_EPOCH: Final = (1 << 15) - 1
"""A producer id's last epoch (``Short.MAX_VALUE``): a new producer id follows it."""
_ANY: Final = (1 << 64) - 1
_LAST_SEQUENCE: Final = MAX_EPOCH << 32 | (1 << 31) - 1
_NAME_BYTES: Final = (TOPIC_WORDS - Topic.NAME) * WORD

_ERRORS_OF_DAMAGE: Final = (LookupError, ValueError, ArithmeticError, TypeError, struct.error)
"""What a damaged word leads to where it is not checked: an index or a number that does not fit."""
_PACKAGE: Final = __name__.partition(".")[0]


def damaged(name: str, what: str) -> SlabDamagedError:
    """Return the error for damage to a slab."""
    return SlabDamagedError(
        f"slab {name!r} is damaged: {what}; end the programs that use it, then `shmaccum destroy {name} --force` "
        "removes it, with the records that it still holds"
    )


def check(name: str, words: memoryview, geometry: Geometry) -> None:
    """Check all words that must be right before a slab is used.

    Args:
        name: the slab's.
        words: all of its memory.
        geometry: its layout, already checked.

    Raises:
        SlabDamagedError: a word has an impossible value; names it.
    """
    _refuse(name, _wrong_superblock(words, geometry))
    _refuse(name, _wrong_processes(words, geometry))
    check_tables(name, words, geometry)
    _refuse(name, _wrong_lanes(words, geometry))
    _refuse(name, _wrong_headers(words, geometry))
    _refuse(name, _wrong_chains(words, geometry))


def check_tables(name: str, words: memoryview, geometry: Geometry) -> None:
    """Check the topic and the partition table.

    Raises:
        SlabDamagedError: a word has an impossible value; says which.
    """
    # In this order: a partition is added after its topic.
    partitions = words[Super.PARTITION_COUNT]
    topics = words[Super.TOPIC_COUNT]
    check_entries(name, words, geometry, range(topics), topics, 0, partitions)


def check_entries(
    name: str,
    words: memoryview,
    geometry: Geometry,
    of_topics: Iterable[int],
    topics: int,
    first_partition: int,
    partitions: int,
) -> None:
    """Check some entries of the topic table, and the last ones of the partition table.

    Args:
        name: the slab's.
        words: all of its memory.
        geometry: its layout.
        of_topics: the topic entries to check.
        topics: how many topic entries are in use.
        first_partition: the first partition entry to check.
        partitions: how many partition entries are in use; read before ``topics``.

    Raises:
        SlabDamagedError: a word has an impossible value; says which.
    """
    check_counts(name, geometry, topics, partitions)
    _refuse(name, _wrong_topics(words, geometry, of_topics))
    _refuse(name, _wrong_partitions(words, geometry, topics, first_partition, partitions))


def check_counts(name: str, geometry: Geometry, topics: int, partitions: int) -> None:
    """Check how many entries of the topic and the partition table are in use.

    Raises:
        SlabDamagedError: more than the tables have.
    """
    if topics > geometry.max_topics:
        raise damaged(name, f"its topic table has {topics} entries in use, of {geometry.max_topics}")
    if partitions > geometry.max_partitions:
        raise damaged(name, f"its partition table has {partitions} entries in use, of {geometry.max_partitions}")


@contextlib.contextmanager
def reporting_damage(name: str, words: memoryview, geometry: Geometry) -> Iterator[None]:
    """Report an error in the block that damage caused as damage.

    Raises:
        SlabDamagedError: instead of that error, which is its cause.
    """
    try:
        yield
    except _ERRORS_OF_DAMAGE as error:
        found = explain(error, name, words, geometry)
        if found is None:
            raise
        raise found from error


def explain(error: BaseException, name: str, words: memoryview, geometry: Geometry) -> SlabDamagedError | None:
    """Return the error to raise for one that damage caused; None for any other error."""
    if not isinstance(error, _ERRORS_OF_DAMAGE) or not _is_raised_by_package(error.__traceback__):
        return None
    try:
        check(name, words, geometry)
    except SlabDamagedError as found:
        return found
    except ValueError:
        return None  # it has been detached meanwhile, and its words cannot be read
    return damaged(name, f"its words contradict each other ({type(error).__name__}: {error})")


def _is_raised_by_package(trace: TracebackType | None) -> bool:
    """Return whether this package raised the error, itself or by a library that it called.

    The package refuses wrong arguments by errors of its own, so its other errors come from damage. Errors that other
    code raises in the middle of a call, such as a serializer or a signal handler, are not about the slab.
    """
    raised_by = ""
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package != "numpy" and package not in sys.stdlib_module_names:
            raised_by = package
        trace = trace.tb_next
    return raised_by == _PACKAGE


def _refuse(name: str, findings: Iterator[str]) -> None:
    for finding in findings:
        raise damaged(name, finding)


def _wrong_superblock(words: memoryview, geometry: Geometry) -> Iterator[str]:
    limits = {
        Super.CREATED_MS: LAST_MS,
        Super.SENDER_ENTRY: geometry.max_processes,
        Super.PRODUCER_EPOCH: MAX_EPOCH,
        Super.ENOUGH_SLOTS: geometry.slot_count,
        Super.INCIDENTS: _LAST_INCIDENT,
    } | dict.fromkeys(range(Super.TOKEN, Super.TOKEN + TOKEN_WORDS), _ANY)
    names = _names_of(Super)
    # The words before determine the layout, and were checked before it was mapped.
    for word in range(Super.CREATED_MS, SUPER_WORDS):
        limit = limits.get(word, MAX_COUNT)
        if words[word] > limit:
            yield f"word {names.get(word, word)} of its superblock is {words[word]}, more than {limit}"


def _wrong_processes(words: memoryview, geometry: Geometry) -> Iterator[str]:
    table = _rows(words, geometry.processes, geometry.max_processes, PROCESS_WORDS)
    limits = np.full(PROCESS_WORDS, MAX_COUNT, np.uint64)
    limits[Process.WANTS] = LOCK_COUNT
    limits[Process.NAME : Process.BEFORE] = _ANY
    names = _names_of(Process)
    for entry, word in np.argwhere(table > limits).tolist():
        limit = int(limits[word])
        yield f"word {names.get(word, word)} of process entry {entry} is {table[entry, word]}, more than {limit}"


def _wrong_topics(words: memoryview, geometry: Geometry, entries: Iterable[int]) -> Iterator[str]:
    for entry in entries:
        at = geometry.topic(entry)
        state, length = words[at + Topic.STATE], words[at + Topic.NAME_LENGTH]
        if not TopicState.REQUESTED <= state <= TopicState.FAILED:
            yield f"topic entry {entry} is in state {state}"
        if words[at + Topic.PARTITIONS] > geometry.max_partitions:
            yield f"topic entry {entry} has {words[at + Topic.PARTITIONS]} partitions, of {geometry.max_partitions}"
        if words[at + Topic.ANSWERS] > MAX_COUNT:
            yield f"topic entry {entry} has {words[at + Topic.ANSWERS]} answers, more than {MAX_COUNT}"
        name = words[at + Topic.NAME : at + TOPIC_WORDS].tobytes()[:length]
        if not 0 < length <= _NAME_BYTES or not name.isascii() or not name.decode("ascii").isprintable():
            yield f"topic entry {entry} has the name {name!r}, of {length} bytes"


def _wrong_partitions(words: memoryview, geometry: Geometry, topics: int, first: int, stop: int) -> Iterator[str]:
    if first >= stop:
        return
    table = _rows(words, geometry.partitions + first * PARTITION_WORDS * WORD, stop - first, PARTITION_WORDS)
    keys = table[:, Partition.KEY]
    of_lane, number = keys >> np.uint64(KEY_LANE_SHIFT), keys & np.uint64(KEY_NUMBER_MASK)
    of_topic = keys >> np.uint64(KEY_TOPIC_SHIFT) & np.uint64(KEY_TOPIC_MASK)
    wrong = (of_topic == 0) | (of_topic > topics) | (number >= geometry.max_partitions)
    wrong |= of_lane > words[Super.LANE_COUNT]  # a lane is added before its first partition
    for row in np.flatnonzero(wrong).tolist():
        yield (
            f"partition entry {first + row} is number {number[row]} of topic entry {int(of_topic[row]) - 1}, lane "
            f"{int(of_lane[row]) - 1}"
        )
    limits = np.full(PARTITION_WORDS, MAX_COUNT, np.uint64)
    limits[[Partition.NEXT_SEQUENCE, Partition.ACKED_SEQUENCE]] = _LAST_SEQUENCE
    names = _names_of(Partition)
    for row, word in np.argwhere(table > limits).tolist():
        limit = int(limits[word])
        yield f"word {names.get(word, word)} of partition entry {first + row} is {table[row, word]}, more than {limit}"


def _wrong_lanes(words: memoryview, geometry: Geometry) -> Iterator[str]:
    count = words[Super.LANE_COUNT]
    if count > geometry.max_lanes:
        yield f"its lane table has {count} entries in use, of {geometry.max_lanes}"
        return
    limits = np.full(LANE_WORDS, _ANY, np.uint64)
    limits[: Lane.ID_LENGTH] = MAX_COUNT
    limits[Lane.PRODUCER_EPOCH] = MAX_EPOCH
    limits[Lane.OPENED_MS] = LAST_MS
    limits[Lane.ID_LENGTH] = MAX_TRANSACTIONAL_ID
    names = _names_of(Lane)
    table = _rows(words, geometry.lanes, count, LANE_WORDS)
    for entry, word in np.argwhere(table > limits).tolist():
        limit = int(limits[word])
        yield f"word {names.get(word, word)} of lane {entry} is {table[entry, word]}, more than {limit}"


def _wrong_headers(words: memoryview, geometry: Geometry) -> Iterator[str]:
    first = _rows(words, geometry.headers, geometry.slot_count, geometry.slot_words)
    second = _rows(words, geometry.headers, geometry.slot_count, geometry.slot_words)
    # After the headers: a partition is added before its first batch.
    partitions = words[Super.PARTITION_COUNT]
    # A header that changes during a read can look wrong. So it must be wrong in both reads, of the same allocation.
    same = (first[:, Slot.STATE] == second[:, Slot.STATE]) & (first[:, Slot.GENERATION] == second[:, Slot.GENERATION])
    wrong = same & _is_wrong(first, partitions) & _is_wrong(second, partitions)
    for slot in np.flatnonzero(wrong).tolist():
        state = int(first[slot, Slot.STATE])
        yield (
            f"the header of slot {slot} says state {state_of(state)}, {slots_of(state)} slots of "
            f"{geometry.slot_count}, partition entry {first[slot, Slot.PARTITION]} of {partitions}, "
            f"generation {first[slot, Slot.GENERATION]}"
        )


def _is_wrong(headers: Words, partitions: int) -> npt.NDArray[np.bool_]:
    """Return, for each header, whether its state, number of slots, generation or partition is impossible."""
    states = state_of(headers[:, Slot.STATE])
    slots = slots_of(headers[:, Slot.STATE])
    taken = states != SlotState.FREE
    held = states >= SlotState.OPEN
    return np.asarray(
        (states > SlotState.COMPLETING)
        | (headers[:, Slot.GENERATION] > _MAX_GENERATION)
        | (taken & ((slots < 1) | (slots > len(headers))))
        | (held & (headers[:, Slot.PARTITION] >= partitions))
    )


def _wrong_chains(words: memoryview, geometry: Geometry) -> Iterator[str]:
    """Yield, for each damaged chain, what is wrong with it.

    The links of a chain do not change until its first slot is FREE again. So a chain is followed between two reads of
    its first header, and a fault counts only if both are of the same allocation.
    """
    headers = _rows(words, geometry.headers, geometry.slot_count, geometry.slot_words)
    taken = state_of(headers[:, Slot.STATE]) != SlotState.FREE
    found: dict[int, tuple[int, int]] = {}
    """Slot -> first slot and generation of its chain."""
    for first in np.flatnonzero(taken & (slots_of(headers[:, Slot.STATE]) > 1)).tolist():
        generation = words[geometry.header(first) + Slot.GENERATION]
        state = words[geometry.header(first) + Slot.STATE]
        count = slots_of(state)
        if not state_of(state) or count < 2:
            continue
        fault = _fault_of_chain(words, geometry, (first, generation), count, found)
        if fault and _is_held(words, geometry, (first, generation)):
            yield f"the chain of {count} slots from slot {first} {fault}"


def _fault_of_chain(
    words: memoryview, geometry: Geometry, chain: tuple[int, int], count: int, found: dict[int, tuple[int, int]]
) -> str:
    """Follow a chain and note its slots; return what is wrong with it, or "". It visits no slot twice, so it ends."""
    slot, length = chain[0], 1
    found[slot] = chain
    while following := words[geometry.header(slot) + Slot.CHAIN]:
        if following > geometry.slot_count:
            return f"continues in slot {following - 1}, of {geometry.slot_count}"
        slot, length = following - 1, length + 1
        other = found.get(slot)
        if other == chain:
            return f"returns to slot {slot}"
        if state_of(words[geometry.header(slot) + Slot.STATE]):
            return f"continues in slot {slot}, which is another batch's"
        if other is not None and _is_held(words, geometry, other):
            return f"shares slot {slot} with the one from slot {other[0]}"
        found[slot] = chain
    return "" if length == count else f"has {length}"


def _is_held(words: memoryview, geometry: Geometry, chain: tuple[int, int]) -> bool:
    """Return whether a chain's first slot still belongs to the same allocation."""
    at = geometry.header(chain[0])
    return state_of(words[at + Slot.STATE]) != 0 and words[at + Slot.GENERATION] == chain[1]


def _rows(words: memoryview, start: int, rows: int, width: int) -> Words:
    """Return a copy of a table, one row of words for each entry."""
    first = start // WORD
    with words[first : first + rows * width] as table:
        return np.array(table, np.uint64).reshape(rows, width)


def _names_of(region: type) -> dict[int, str]:
    return {number: name for name, number in vars(region).items() if name.isupper()}
