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
  a record needs no other checks.

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

from shmaccum import _core
from shmaccum._core import WORD, Geometry, Lane, Partition, Process, Slot, Super, Topic
from shmaccum.errors import SlabDamagedError
from shmaccum.shm.layout import (
    KEY_NUMBER_MASK,
    KEY_TOPIC_MASK,
    MAX_TRANSACTIONAL_ID,
    Refusal,
    SlotState,
    TopicState,
    column_of,
    state_of,
)

MAX_COUNT: Final = (1 << 63) - 1
"""The largest count, time or offset; a sum of two still fits into a word."""
_MAX_GENERATION: Final = (1 << 64 - _core.BATCH_SLOT_BITS) - 1
LAST_MS: Final = 1 << 47
"""Latest time of anything, in wall-clock milliseconds: the year 6429."""
_LAST_INCIDENT: Final = 1 << 47
"""A result word has 48 bits for an incident's number."""
MAX_EPOCH: Final = (1 << 15) - 1
"""A producer id's last epoch (``Short.MAX_VALUE``): a new producer id follows it."""
_ANY: Final = (1 << 64) - 1
_LAST_SEQUENCE: Final = MAX_EPOCH << 32 | (1 << 31) - 1
_NAME_BYTES: Final = (Topic.length - Topic.NAME) * WORD

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
    """Check all words that must be right before a slab with a checked geometry is used.

    Raises SlabDamagedError: a word has an impossible value; names it.
    """
    _refuse(name, _wrong_superblock(words, geometry))
    _refuse(name, _wrong_processes(words, geometry))
    check_tables(name, words, geometry)
    _refuse(name, _wrong_lanes(words, geometry))
    _refuse(name, _wrong_headers(words, geometry))
    _refuse(name, _wrong_chains(words, geometry))


def check_tables(name: str, words: memoryview, geometry: Geometry) -> None:
    """Check the topic and the partition table. Raises SlabDamagedError: a word has an impossible value; says which."""
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

    ``topics`` and ``partitions`` are how many entries are in use; ``partitions`` was read first.

    Raises SlabDamagedError: a word has an impossible value; says which.
    """
    check_counts(name, geometry, topics, partitions)
    _refuse(name, _wrong_topics(words, geometry, of_topics))
    _refuse(name, _wrong_partitions(words, geometry, topics, first_partition, partitions))


def check_counts(name: str, geometry: Geometry, topics: int, partitions: int) -> None:
    """Check how many entries of both tables are in use. Raises SlabDamagedError: more than the tables have."""
    if topics > geometry.max_topics:
        raise damaged(name, f"its topic table has {topics} entries in use, of {geometry.max_topics}")
    if partitions > geometry.max_partitions:
        raise damaged(name, f"its partition table has {partitions} entries in use, of {geometry.max_partitions}")


@contextlib.contextmanager
def reporting_damage(name: str, words: memoryview, geometry: Geometry) -> Iterator[None]:
    """Raise a SlabDamagedError in place of an error in the block that damage caused, which is its cause."""
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

    The package refuses wrong arguments by its own errors, so other errors come from damage. Errors that other
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
        Super.TURN: _ANY,
    } | dict.fromkeys(range(Super.TOKEN, Super.TOKEN + _core.TOKEN_WORDS), _ANY)
    names = _names_of(Super)
    # The words before determine the layout, and were checked before it was mapped.
    for word in range(Super.CREATED_MS, Super.length):
        limit = limits.get(word, MAX_COUNT)
        if words[word] > limit:
            yield f"word {names.get(word, word)} of its superblock is {words[word]}, more than {limit}"


def _wrong_processes(words: memoryview, geometry: Geometry) -> Iterator[str]:
    limits = [MAX_COUNT] * Process.length
    limits[Process.NAME : Process.BEFORE] = [_ANY] * (Process.BEFORE - Process.NAME)
    for entry, word, found in _above(words, geometry.process(0), geometry.max_processes, limits, Process):
        yield f"word {word} of process entry {entry} is {found}"


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
        refusals = words[at + Topic.REFUSALS : at + Topic.REFUSALS + len(Refusal)].tolist()
        if max(refusals) > MAX_COUNT or words[at + Topic.REFUSED_MS] > LAST_MS:
            yield f"topic entry {entry} has {max(refusals)} refusals, the last at {words[at + Topic.REFUSED_MS]} ms"
        name = words[at + Topic.NAME : at + Topic.length].tobytes()[:length]
        if not 0 < length <= _NAME_BYTES or not name.isascii() or not name.decode("ascii").isprintable():
            yield f"topic entry {entry} has the name {name!r}, of {length} bytes"


def _wrong_partitions(words: memoryview, geometry: Geometry, topics: int, first: int, stop: int) -> Iterator[str]:
    if first >= stop:
        return
    start = geometry.partition(first)
    keys = column_of(words, start + Partition.KEY, stop - first, Partition.length)
    lanes = words[Super.LANE_COUNT]  # a lane is added before its first partition
    for entry, key in enumerate(keys, first):
        lane, number = key >> _core.KEY_LANE_SHIFT, key & KEY_NUMBER_MASK
        topic = key >> _core.KEY_TOPIC_SHIFT & KEY_TOPIC_MASK
        if not 0 < topic <= topics or number >= geometry.max_partitions or lane > lanes:
            yield f"partition entry {entry} is number {number} of topic entry {topic - 1}, lane {lane - 1}"
    limits = [MAX_COUNT] * Partition.length
    limits[Partition.NEXT_SEQUENCE] = limits[Partition.ACKED_SEQUENCE] = _LAST_SEQUENCE
    for row, word, found in _above(words, start, stop - first, limits, Partition):
        yield f"word {word} of partition entry {first + row} is {found}"


def _wrong_lanes(words: memoryview, geometry: Geometry) -> Iterator[str]:
    count = words[Super.LANE_COUNT]
    if count > geometry.max_lanes:
        yield f"its lane table has {count} entries in use, of {geometry.max_lanes}"
        return
    limits = [_ANY] * Lane.length
    limits[: Lane.ID_LENGTH] = [MAX_COUNT] * Lane.ID_LENGTH
    limits[Lane.GENERATION] = _ANY  # leases count from bit 40 on, and wrap around
    limits[Lane.PRODUCER_EPOCH] = MAX_EPOCH
    limits[Lane.OPENED_MS] = LAST_MS
    limits[Lane.ID_LENGTH] = MAX_TRANSACTIONAL_ID
    for entry, word, found in _above(words, geometry.lane(0), count, limits, Lane):
        yield f"word {word} of lane {entry} is {found}"


def _wrong_headers(words: memoryview, geometry: Geometry) -> Iterator[str]:
    start, rows, width = geometry.header(0), geometry.slot_count, geometry.slot_words
    states = column_of(words, start + Slot.STATE, rows, width)
    counts = column_of(words, start + Slot.SLOTS, rows, width)  # after the states, before which they are stored
    generations = column_of(words, start + Slot.GENERATION, rows, width)
    of_partitions = column_of(words, start + Slot.PARTITION, rows, width)
    # After the headers: a partition is added before its first batch.
    partitions = words[Super.PARTITION_COUNT]
    is_any_newer = max(generations) > _MAX_GENERATION
    for slot, state in enumerate(states):
        if not (state or is_any_newer):
            continue
        if not _is_wrong((state, counts[slot], generations[slot], of_partitions[slot]), rows, partitions):
            continue
        # A header that changes during a read can look wrong. So it must be wrong in two reads, of the same allocation.
        at = geometry.header(slot)
        again, slots, generation, partition = (
            words[at + each] for each in (Slot.STATE, Slot.SLOTS, Slot.GENERATION, Slot.PARTITION)
        )
        partitions = words[Super.PARTITION_COUNT]
        is_same = (again, generation) == (state, generations[slot])
        if is_same and _is_wrong((again, slots, generation, partition), rows, partitions):
            yield (
                f"the header of slot {slot} says state {state_of(state)}, {slots} slots of {rows}, partition "
                f"entry {partition} of {partitions}, generation {generation}"
            )


def _is_wrong(header: tuple[int, int, int, int], slot_count: int, partitions: int) -> bool:
    """Return whether a header's words are impossible; SLOTS of a FREE slot is its last batch's, and means nothing."""
    state, slots, generation, partition = header
    kind = state_of(state)
    return (
        kind > SlotState.COMPLETING
        or generation > _MAX_GENERATION
        or (kind and not 1 <= slots <= slot_count)
        or (kind >= SlotState.OPEN and partition >= partitions)
    )


def _wrong_chains(words: memoryview, geometry: Geometry) -> Iterator[str]:
    """Yield, for each damaged chain, what is wrong with it.

    The counted links of a chain do not change until its first slot is FREE again. So a chain is followed between two
    reads of its first header, and a fault counts only if both are of the same allocation.
    """
    start, rows, width = geometry.header(0), geometry.slot_count, geometry.slot_words
    states = column_of(words, start + Slot.STATE, rows, width)
    counts = column_of(words, start + Slot.SLOTS, rows, width)
    found: dict[int, tuple[int, int]] = {}
    """Slot -> first slot and generation of its chain."""
    for first, seen in enumerate(states):
        if not state_of(seen) or counts[first] < 2:
            continue
        at = geometry.header(first)
        generation, state, count = (words[at + each] for each in (Slot.GENERATION, Slot.STATE, Slot.SLOTS))
        if not state_of(state) or count < 2:
            continue
        fault = _fault_of_chain(words, geometry, (first, generation), count, found)
        if fault and _is_held(words, geometry, (first, generation)):
            yield f"the chain of {count} slots from slot {first} {fault}"


def _fault_of_chain(
    words: memoryview, geometry: Geometry, chain: tuple[int, int], count: int, found: dict[int, tuple[int, int]]
) -> str:
    """Follow a chain to its last counted slot and note its slots; return what is wrong with it, or "".

    It visits no slot twice, so it ends whatever ``count`` is. A link behind the last counted slot is of a growth that
    its process did not finish.
    """
    slot = chain[0]
    found[slot] = chain
    for length in range(1, count):
        following = words[geometry.header(slot) + Slot.CHAIN]
        if not following:
            return f"has {length}"
        if following > geometry.slot_count:
            return f"continues in slot {following - 1}, of {geometry.slot_count}"
        slot = following - 1
        other = found.get(slot)
        if other == chain:
            return f"returns to slot {slot}"
        if state_of(words[geometry.header(slot) + Slot.STATE]):
            return f"continues in slot {slot}, which is another batch's"
        if other is not None and _is_held(words, geometry, other):
            return f"shares slot {slot} with the one from slot {other[0]}"
        found[slot] = chain
    return ""


def _is_held(words: memoryview, geometry: Geometry, chain: tuple[int, int]) -> bool:
    """Return whether a chain's first slot still belongs to the same allocation."""
    at = geometry.header(chain[0])
    return state_of(words[at + Slot.STATE]) != 0 and words[at + Slot.GENERATION] == chain[1]


def _above(
    words: memoryview, start: int, rows: int, limits: list[int], names: type
) -> Iterator[tuple[int, str | int, str]]:
    """Yield each word of a table that exceeds its limit: entry, name of the word, value and limit as text."""
    for word, limit in enumerate(limits):
        column = column_of(words, start + word, rows, len(limits))
        if max(column, default=0) > limit:
            for entry, each in enumerate(column):
                if each > limit:
                    yield entry, _names_of(names).get(word, word), f"{each}, more than {limit}"


def _names_of(region: type) -> dict[int, str]:
    return {number: name for name, number in vars(region).items() if name.isupper()}
