"""Checks the invariants of a slab at rest, after cleaning up after dead processes.

What the slot headers say of the indexes is checked by `tools.support.oracle`, which shares no code with the package.
Here are the invariants that need an attached process. Each check states one, and yields a line for each violation.
"""

from __future__ import annotations

from collections.abc import Iterator

from shmaccum._core import KEY_TOPIC_SHIFT, WORD, Partition, Process, Slot, Super, Topic
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import ShmaccumError
from shmaccum.record.fields import BatchFields
from shmaccum.record.format import read_records
from shmaccum.shm.layout import KEY_TOPIC_MASK, SlotState, TopicState, owner_of, state_of
from shmaccum.shm.slab import Slab
from tools.support import oracle
from tools.support.accumulators import Accumulators
from tools.support.slabcheck import locks_in_use, waiters


def violations(accumulator: Accumulators) -> list[str]:
    """Return a line for each violation of an invariant in the slab; this process is the only live one."""
    slab = accumulator.slab
    if wrong := oracle.violations(slab.core):
        return wrong
    states = {slot: slab.words[slab.geometry.header(slot) + Slot.STATE] for slot in range(slab.geometry.slot_count)}
    batches = [RecordBatch(slab.core, slot) for slot, state in states.items() if state_of(state)]
    return [
        *locks_in_use(slab.name, slab.words, slab.geometry),
        *waiters(slab.words),
        *_only_this_process_is_left(slab),
        *_no_memory_is_a_dead_ones(slab, states),
        *_committed_records_are_whole(accumulator, batches),
        *_tables_are_whole(slab),
    ]


def _only_this_process_is_left(slab: Slab) -> Iterator[str]:
    """Dead processes have no table entry; there is no flush."""
    for entry in range(slab.geometry.max_processes):
        at = slab.geometry.process(entry)
        if entry != slab.me and slab.words[at + Process.STATE]:
            yield f"process entry {entry} is still that of dead process {slab.words[at + Process.PID]}"
        if slab.words[at + Process.FLUSHING]:
            yield f"process entry {entry}: FLUSHING is {slab.words[at + Process.FLUSHING]}"


def _no_memory_is_a_dead_ones(slab: Slab, states: dict[int, int]) -> Iterator[str]:
    """An ALLOCATED slot that is not in a deque yet has a live owner."""
    for slot, state in states.items():
        if state_of(state) == SlotState.ALLOCATED and not slab.owner_is_alive(state):
            yield f"slot {slot} is allocated to dead process entry {owner_of(state)}"


def _committed_records_are_whole(accumulator: Accumulators, batches: list[RecordBatch]) -> Iterator[str]:
    """A batch holds the records that its commit word states, and they can be decoded."""
    for batch in batches:
        if batch.state == SlotState.ALLOCATED:
            continue
        if not batch.record_count:
            yield f"{batch!r} is empty"
        try:
            whole = memoryview(b"".join(batch.memory()))
            records = read_records(accumulator.format, whole, BatchFields(*batch.contents()))
        except ShmaccumError as error:
            yield f"{batch!r}: {error}"
            continue
        if len(records) != batch.record_count:
            yield f"{batch!r}: {len(records)} records can be read"
        if max((record.timestamp for record in records), default=0) != batch.max_timestamp:
            yield f"{batch!r}: its largest timestamp is not {batch.max_timestamp}"


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
