"""Checks the invariants of a slab at rest, after cleaning up after dead processes.

Each check states one invariant, and yields a line for each violation. It compares the indexes (bitmap, deques, counts)
with what it computes from the slot headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shmaccum._core import KEY_TOPIC_SHIFT, WORD, Partition, Process, Slot, Super, Topic
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import ShmaccumError
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields
from shmaccum.record.format import read_records
from shmaccum.shm.layout import KEY_TOPIC_MASK, SlotState, TopicState, owner_of, state_of
from shmaccum.shm.slab import Slab
from tools.support.accumulators import Accumulators
from tools.support.slabcheck import locks_in_use

_QUEUED: Final = (SlotState.OPEN, SlotState.CLOSED)
_SENT: Final = (SlotState.IN_FLIGHT, SlotState.COMPLETING)


def violations(accumulator: Accumulators, *, in_flight: bool) -> list[str]:
    """Return a line for each violation of an invariant in the slab.

    Args:
        accumulator: of the slab; its process is the only live one.
        in_flight: whether batches can be in flight that a dead sender left.
    """
    slab = accumulator.slab
    batches = [RecordBatch(slab.core, first) for first, _ in _taken(slab)]
    return [
        *locks_in_use(slab.name, slab.words, slab.geometry),
        *_only_this_process_is_left(slab),
        *_nobody_waits_for_memory(slab),
        *_every_slot_is_free_or_allocated_once(slab),
        *_the_bitmap_is_what_the_headers_say(slab),
        *_no_memory_is_a_dead_ones(slab),
        *_deques_are_what_the_headers_say(slab, batches),
        *_committed_records_are_whole(accumulator, batches),
        *([] if in_flight else _nothing_is_in_flight(slab, batches)),
        *_tables_are_whole(slab),
        *_rings_are_within_bounds(slab),
    ]


def _only_this_process_is_left(slab: Slab) -> Iterator[str]:
    """Dead processes have no table entry; there is no flush and no waiter."""
    for entry in range(slab.geometry.max_processes):
        at = slab.geometry.process(entry)
        if entry != slab.me and slab.words[at + Process.STATE]:
            yield f"process entry {entry} is still that of dead process {slab.words[at + Process.PID]}"
        if slab.words[at + Process.FLUSHING]:
            yield f"process entry {entry}: FLUSHING is {slab.words[at + Process.FLUSHING]}"


def _nobody_waits_for_memory(slab: Slab) -> Iterator[str]:
    """There is no ticket of a waiter."""
    head, tail = slab.words[Super.WAITER_HEAD], slab.words[Super.WAITER_TAIL]
    if head != tail:
        yield f"tickets {head} to {tail - 1} wait for memory"


def _taken(slab: Slab) -> Iterator[tuple[int, int]]:
    """Yield allocated slots by the headers: (first slot, number of slots)."""
    for slot in range(slab.geometry.slot_count):
        header = slab.geometry.header(slot)
        if state_of(slab.words[header + Slot.STATE]):
            yield slot, slab.words[header + Slot.SLOTS]


def _every_slot_is_free_or_allocated_once(slab: Slab) -> Iterator[str]:
    """Every chain has as many slots as its first header states, all in the slab, and no slot is in two chains."""
    taken: dict[int, int] = {}
    for first, count in _taken(slab):
        slots = list(_chain(slab, first, count))
        if len(slots) != count or len(set(slots)) != count:
            yield f"the chain of {count} slots at slot {first} has {slots}"
        for slot in set(slots):
            if slot in taken:
                yield f"slot {slot} is in the chains at {taken[slot]} and {first}"
            taken[slot] = first


def _chain(slab: Slab, first: int, count: int) -> Iterator[int]:
    """Yield a batch's slots, at most as many as the slab has. Links behind the last counted slot are no part of it."""
    yield (slot := first)
    for _ in range(min(count, slab.geometry.slot_count) - 1):
        following = slab.words[slab.geometry.header(slot) + Slot.CHAIN]
        if not 0 < following <= slab.geometry.slot_count:
            return
        yield (slot := following - 1)


def _the_bitmap_is_what_the_headers_say(slab: Slab) -> Iterator[str]:
    """A slot's bit is set if no chain has it; the count of free slots is the number of bits; peaks are not lower."""
    geometry, words = slab.geometry, slab.words
    taken = {slot for first, count in _taken(slab) for slot in _chain(slab, first, count)}
    bits = int.from_bytes(slab.buffer[geometry.bitmap : geometry.bitmap + geometry.bitmap_size], "little")
    free = {slot for slot in range(geometry.bitmap_size * 8) if bits >> slot & 1}
    expected = set(range(geometry.slot_count)) - taken
    if free != expected:
        yield f"the bitmap has {sorted(free)} free, the headers {sorted(expected)}"
    if words[Super.FREE_SLOTS] != len(expected):
        yield f"{words[Super.FREE_SLOTS]} slots are counted free, {len(expected)} are"
    if taken and words[Super.TOUCHED_SLOTS] <= max(taken):
        yield f"slot {max(taken)} is taken, but those from {words[Super.TOUCHED_SLOTS]} on were never"


def _no_memory_is_a_dead_ones(slab: Slab) -> Iterator[str]:
    """An ALLOCATED slot that is not in a deque yet has a live owner."""
    for first, _ in _taken(slab):
        state = slab.words[slab.geometry.header(first) + Slot.STATE]
        if state_of(state) == SlotState.ALLOCATED and not slab.owner_is_alive(state):
            yield f"slot {first} is allocated to dead process entry {owner_of(state)}"


def _deques_are_what_the_headers_say(slab: Slab, batches: list[RecordBatch]) -> Iterator[str]:
    """A partition's deque holds its OPEN and CLOSED batches, by position; only the last one is OPEN.

    Links lead both ways, ends and counts match, and the next position is after all used ones.
    """
    words = slab.words
    for entry in range(words[Super.PARTITION_COUNT]):
        at = slab.geometry.partition(entry)
        own = [each for each in batches if each.state in (*_QUEUED, *_SENT) and each.partition == entry]
        queued = sorted((each for each in own if each.state in _QUEUED), key=lambda each: each.position)
        expected = [each.slot for each in queued]
        found = list(_walk(slab, at))
        if found != expected:
            yield f"deque of partition entry {entry}: slots {found}, by the headers {expected}"
        before = 0
        for slot in found:
            if words[slab.geometry.header(slot) + Slot.PREVIOUS] != before:
                yield f"slot {slot}: behind slot {before - 1}, but its link leads elsewhere"
            before = slot + 1
        if words[at + Partition.TAIL] != before:
            yield f"partition entry {entry}: TAIL is {words[at + Partition.TAIL]}, and {before} is last"
        if words[at + Partition.QUEUED] != len(expected):
            yield f"partition entry {entry}: QUEUED is {words[at + Partition.QUEUED]}, not {len(expected)}"
        is_open = [each.slot + 1 for each in queued if each.state == SlotState.OPEN]
        if is_open not in ([], [before]) or words[at + Partition.OPEN] != sum(is_open):
            yield f"partition entry {entry}: OPEN is {words[at + Partition.OPEN]}, open by the headers {is_open}"
        positions = [each.position for each in own]
        if len(set(positions)) < len(own) or max(positions, default=-1) >= words[at + Partition.NEXT_POSITION]:
            yield f"partition entry {entry}: positions {positions}, next {words[at + Partition.NEXT_POSITION]}"
    strays = [each.slot for each in batches if each.partition >= words[Super.PARTITION_COUNT] and each.state in _QUEUED]
    if strays:
        yield f"slots {strays} are of partitions that there are not"


def _walk(slab: Slab, partition_at: int) -> Iterator[int]:
    """Yield a deque's slots from its head; stop one after the expected number."""
    following = slab.words[partition_at + Partition.HEAD]
    for _ in range(slab.geometry.slot_count + 1):
        if not following:
            return
        yield following - 1
        following = slab.words[slab.geometry.header((following - 1) % slab.geometry.slot_count) + Slot.NEXT]


def _committed_records_are_whole(accumulator: Accumulators, batches: list[RecordBatch]) -> Iterator[str]:
    """A batch holds the records and bytes that its commit word states, and they can be decoded."""
    for batch in batches:
        if batch.state not in (*_QUEUED, *_SENT):
            continue
        if not batch.record_count:
            yield f"{batch!r} is empty"
        if batch.stored_size > batch.buffer().slots * accumulator.slab.geometry.slot_size:
            yield f"{batch!r}: {batch.stored_size} bytes are more than its slots have"
        try:
            records = read_records(
                accumulator.format,
                memoryview(b"".join(batch.memory())),
                BatchFields(*batch.contents()),
                batch.compression or CompressionType.NONE,
            )
        except ShmaccumError as error:
            yield f"{batch!r}: {error}"
            continue
        if len(records) != batch.record_count:
            yield f"{batch!r}: {len(records)} records can be read"
        if max((record.timestamp for record in records), default=0) != batch.max_timestamp:
            yield f"{batch!r}: its largest timestamp is not {batch.max_timestamp}"


def _nothing_is_in_flight(slab: Slab, batches: list[RecordBatch]) -> Iterator[str]:
    """No batch is in flight, and no partition is counted or muted as if one were."""
    yield from (f"{batch!r} is nobody's" for batch in batches if batch.state in _SENT)
    for entry in range(slab.words[Super.PARTITION_COUNT]):
        at = slab.geometry.partition(entry)
        for word in ("IN_FLIGHT", "MUTED"):
            if slab.words[at + getattr(Partition, word)]:
                yield f"partition entry {entry}: {word} is {slab.words[at + getattr(Partition, word)]}"


def _tables_are_whole(slab: Slab) -> Iterator[str]:
    """Every topic has a unique name, a state, and its stated number of partitions; every entry has a topic."""
    words, geometry = slab.words, slab.geometry
    topics = range(words[Super.TOPIC_COUNT])
    found = set()
    for topic in topics:
        at = geometry.topic(topic)
        start = (at + Topic.NAME) * WORD
        name = bytes(slab.buffer[start : start + words[at + Topic.NAME_LENGTH]])
        if not name or name in found or words[at + Topic.STATE] not in tuple(TopicState)[1:]:
            yield f"topic entry {topic}: name {name!r}, state {words[at + Topic.STATE]}"
        found.add(name)
    keys = [words[geometry.partition(entry) + Partition.KEY] for entry in range(words[Super.PARTITION_COUNT])]
    if len(set(keys)) < len(keys) or any((key >> KEY_TOPIC_SHIFT & KEY_TOPIC_MASK) - 1 not in topics for key in keys):
        yield f"partition entries have the keys {keys}"
    for topic in topics:
        count = words[geometry.topic(topic) + Topic.PARTITIONS]
        missing = {topic + 1 << 32 | number for number in range(count)} - set(keys)
        if missing:
            yield f"topic entry {topic} is to have {count} partitions, {len(missing)} of which are not there"


def _rings_are_within_bounds(slab: Slab) -> Iterator[str]:
    """This process's completion ring is within its capacity. (The others' rings have no reader.)"""
    at = slab.geometry.process(slab.me)
    unread = slab.words[at + Process.RING_TAIL] - slab.words[at + Process.RING_HEAD]
    if not 0 <= unread <= slab.geometry.ring_length:
        yield f"the ring holds {unread} completions that are not read"
