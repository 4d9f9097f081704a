"""The deque: its links match the headers after every operation."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from accumulators import HALF, TP0, Log, add, assert_empty, drain
from fixture_types import OpenAccumulator
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shmaccum._core import Partition, Slot
from shmaccum.cluster import TopicPartition
from shmaccum.shm.layout import SlotState, state_of
from tools.support.accumulators import Accumulators


@pytest.fixture
def accumulator(accumulate: OpenAccumulator) -> Accumulators:
    return accumulate(linger_ms=0, retry_backoff_ms=0, retry_backoff_max_ms=0)


def assert_whole(accumulator: Accumulators, of: TopicPartition) -> None:
    """The links, the ends and the count say what the headers say."""
    words, geometry = accumulator.slab.words, accumulator.slab.geometry
    queue = accumulator.map.queues[of]
    queue.lock.run(partial(accumulator.slab.rebuild, queue.lock.number))  # as whoever takes over does
    at = geometry.partition(queue.entry)
    headers = accumulator.slab.headers
    states = state_of(headers[:, Slot.STATE])
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


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["append", "append", "drain", "drain", 0, 1, 2]), min_size=10, max_size=30))
@example(["append"] * 8 + ["drain"] * 5 + [1, 3, 0, 1, 0])
def test_deque_keeps_order_under_any_operations(accumulator: Accumulators, operations: list[str | int]) -> None:
    """In whatever order batches come and go and come back, they stay in the order of append.

    A number puts that batch of those in flight back.
    """
    in_flight = []
    appended = 0
    assert_whole(accumulator, TP0)
    for operation in operations:
        if operation == "append" and accumulator.pool.available_memory():
            add(accumulator, TP0, b"%d" % appended + HALF)
            appended += 1
        elif operation == "drain":
            in_flight += drain(accumulator)
        elif isinstance(operation, int) and in_flight:
            accumulator.sender.reenqueue(in_flight.pop(operation % len(in_flight)), 0)
        assert_whole(accumulator, TP0)
    for batch in in_flight:
        accumulator.sender.reenqueue(batch, 0)
    log = Log(accumulator)
    log.take_all()
    assert numbers(log.values(TP0)) == list(range(appended))
    assert_empty(accumulator)
