"""The deque: its links are right after every operation, and after a death at every line of every operation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from accumulators import BATCH_SIZE, TP0, TP1, Log, add, assert_empty, created_ms, drain, first, queued
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killpoints import die_before, lines_of

from shmaccum.accumulator import partition_queue
from shmaccum.accumulator.record_accumulator import RecordAccumulator
from shmaccum.cluster import TopicPartition
from shmaccum.shm.layout import STATE_MASK, Partition, Slot, SlotState, Super

OpenAccumulator = Callable[..., RecordAccumulator]

HALF = bytes(BATCH_SIZE // 2)
"""A value of which one fits a batch, and two do not."""


@pytest.fixture
def accumulator(accumulate: OpenAccumulator) -> RecordAccumulator:
    return accumulate(linger_ms=0, retry_backoff_ms=0, retry_backoff_max_ms=0)


def assert_whole(accumulator: RecordAccumulator, of: TopicPartition) -> None:
    """The links, the ends and the count say what the headers say."""
    words, geometry = accumulator.slab.words, accumulator.slab.geometry
    queue = accumulator.map.queues[of]
    with queue.lock:
        pass  # whoever takes it from a dead holder makes the deque anew
    at = geometry.partition(queue.entry)
    headers = accumulator.slab.headers
    states = headers[:, Slot.STATE] & np.uint64(STATE_MASK)
    mine = (headers[:, Slot.PARTITION] == queue.entry) & np.isin(states, (SlotState.OPEN, SlotState.CLOSED))
    slots = np.flatnonzero(mine)
    expected = slots[np.argsort(headers[slots, Slot.POSITION])].tolist()

    linked, before = [], 0
    slot = words[at + Partition.HEAD]
    while slot:
        header = geometry.header(slot - 1)
        assert words[header + Slot.PREVIOUS] == before
        linked.append(slot - 1)
        before, slot = slot, words[header + Slot.NEXT]
    assert linked == expected
    assert words[at + Partition.TAIL] == before
    assert words[at + Partition.QUEUED] == len(queue) == len(expected)
    open_slots = [slot for slot in expected if states[slot] == SlotState.OPEN]
    assert open_slots in ([], expected[-1:])
    assert words[at + Partition.OPEN] == (open_slots[0] + 1 if open_slots else 0)
    positions = headers[slots, Slot.POSITION].tolist()
    assert words[at + Partition.NEXT_POSITION] > max(positions, default=-1)


def numbers(values: list[bytes | None]) -> list[int]:
    return [int(value.rstrip(b"\0")) for value in values if value is not None]


def test_empty(accumulator: RecordAccumulator) -> None:
    assert first(accumulator, TP0) is None
    assert queued(accumulator, TP0) == 0
    assert_whole(accumulator, TP0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["append", "append", "drain", "put back first", "put back last"]), max_size=30))
def test_any_sequence_of_operations(accumulator: RecordAccumulator, operations: list[str]) -> None:
    """In whatever order batches come and go and come back, they stay in the order of append."""
    in_flight = []
    appended = 0
    for operation in operations:
        if operation == "append" and accumulator.pool.available_memory():
            add(accumulator, TP0, b"%d" % appended + HALF)
            appended += 1
        elif operation == "drain":
            in_flight += drain(accumulator)
        elif operation.startswith("put back") and in_flight:
            accumulator.reenqueue(in_flight.pop(0 if operation == "put back first" else -1), 0)
        assert_whole(accumulator, TP0)
    for batch in in_flight:
        accumulator.reenqueue(batch, 0)
    log = Log(accumulator)
    log.take_all()
    assert numbers(log.values(TP0)) == list(range(appended))
    assert_empty(accumulator)


def test_deques_of_one_stripe_do_not_mix(accumulate: OpenAccumulator) -> None:
    """Sixteen partitions further on, the same lock guards another deque: a rebuild must tell them apart."""
    accumulator = accumulate(linger_ms=0)
    accumulator.map.request("other")
    accumulator.map.update("other", 20, None)
    near, far = (queue.topic_partition for queue in accumulator.map.by_entry if queue.entry % 16 == 3)
    for number in range(3):
        add(accumulator, near, b"near%d" % number + HALF)
        add(accumulator, far, b"far%d" % number + HALF)
    partition_queue.rebuild_stripe(accumulator.slab, 3)
    assert_whole(accumulator, near)
    assert_whole(accumulator, far)


# --- death ----------------------------------------------------------------------------------------------


class Scene:
    """A deque, something that is done to it, and the batches that must be in it afterwards."""

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self.accumulator = accumulator

    def prepare(self) -> None:
        """Set up the deque."""

    def act(self) -> None:
        """Do it; in a child that dies over it."""

    def values(self) -> set[tuple[int, ...]]:
        """Return all that the deque may hold afterwards, once a new sender has recovered."""
        raise NotImplementedError

    def append(self, *values: int) -> None:
        for value in values:
            add(self.accumulator, TP0, b"%d" % value + HALF)


class AppendToEmpty(Scene):
    def act(self) -> None:
        self.append(0)

    def values(self) -> set[tuple[int, ...]]:
        return {(), (0,)}


class AppendBehindOpen(Scene):
    def prepare(self) -> None:
        self.append(0, 1)

    def act(self) -> None:
        self.append(2)

    def values(self) -> set[tuple[int, ...]]:
        return {(0, 1), (0, 1, 2)}


class PopOnly(Scene):
    def prepare(self) -> None:
        self.append(0)

    def act(self) -> None:
        drain(self.accumulator)

    def values(self) -> set[tuple[int, ...]]:
        return {(0,)}


class PopFirstOfMany(PopOnly):
    def prepare(self) -> None:
        self.append(0, 1, 2)

    def values(self) -> set[tuple[int, ...]]:
        return {(0, 1, 2)}


class PutBackIntoEmpty(Scene):
    number = 0
    """Which of the batches in flight comes back."""
    in_flight = 1

    def prepare(self) -> None:
        self.append(*range(self.in_flight))
        self.batches = [drain(self.accumulator)[0] for _ in range(self.in_flight)]

    def act(self) -> None:
        self.accumulator.reenqueue(self.batches[self.number], 0)

    def values(self) -> set[tuple[int, ...]]:
        return {tuple(range(self.in_flight))}


class PutBackBetween(PutBackIntoEmpty):
    number = 1
    in_flight = 3

    def prepare(self) -> None:
        super().prepare()
        self.accumulator.reenqueue(self.batches[2], 0)
        self.accumulator.reenqueue(self.batches[0], 0)


class PutBackInFrontOfOpen(PutBackIntoEmpty):
    def prepare(self) -> None:
        super().prepare()
        self.append(1)

    def values(self) -> set[tuple[int, ...]]:
        return {(0, 1)}


class PutBackAtTheEnd(PutBackIntoEmpty):
    number = 1
    in_flight = 2

    def prepare(self) -> None:
        super().prepare()
        self.accumulator.reenqueue(self.batches[0], 0)


@pytest.mark.parametrize(
    "kind",
    [
        AppendToEmpty,
        AppendBehindOpen,
        PopOnly,
        PopFirstOfMany,
        PutBackIntoEmpty,
        PutBackBetween,
        PutBackInFrontOfOpen,
        PutBackAtTheEnd,
    ],
)
def test_death_at_every_line(accumulator: RecordAccumulator, kind: type[Scene]) -> None:
    """Whoever uses the deque next finds it whole, with exactly the batches that its operations made part of it."""
    scene = kind(accumulator)

    def afterwards() -> tuple[int, ...]:
        rebuilds = accumulator.slab.words[Super.REBUILDS]
        accumulator.recover()
        assert_whole(accumulator, TP0)
        was_rebuilt.append(accumulator.slab.words[Super.REBUILDS] > rebuilds)
        log = Log(accumulator)
        add(accumulator, TP0, b"99")
        assert_whole(accumulator, TP0)
        log.take_all()
        accumulator.pool.reclaim()
        assert_empty(accumulator)
        accumulator.acks.poll()
        assert not accumulator.acks.incomplete()
        found = numbers(log.values(TP0))
        assert found.pop() == 99
        return tuple(found)

    was_rebuilt: list[bool] = []
    scene.prepare()
    lines = lines_of(scene.act, partition_queue)
    afterwards()
    was_rebuilt.clear()
    for line in lines:
        scene.prepare()
        die_before(line, scene.act, partition_queue)
        assert afterwards() in scene.values(), str(line)
    assert any(was_rebuilt)


def test_death_leaves_other_partitions_alone(accumulator: RecordAccumulator) -> None:
    """A lock in a dead hand holds up its own partitions until somebody uses one of them, and nobody else."""

    def act() -> None:
        add(accumulator, TP0)

    line = lines_of(act, partition_queue)[-1]
    Log(accumulator).take_all()
    die_before(line, act, partition_queue)
    rebuilds = accumulator.slab.words[Super.REBUILDS]
    add(accumulator, TP1)
    assert accumulator.slab.words[Super.REBUILDS] == rebuilds
    add(accumulator, TP0)
    assert accumulator.slab.words[Super.REBUILDS] == rebuilds + 1
    assert created_ms(accumulator, TP0) <= created_ms(accumulator, TP1)
