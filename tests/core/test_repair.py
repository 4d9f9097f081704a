"""Repair of deques: by a reference of its own, after any death in the repair itself."""

from __future__ import annotations

import random
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from core_producers import PARTITION, SLOT_SIZE, Producer, body_of, deques, records_of, recover
from core_slabs import DYING, LIVING, UNFINISHED, Damaged, Slab, deaths, stop_at

from shmaccum import _core
from shmaccum._core import LOCK_BUSY, LOCK_REJOIN, LOCK_STRIPES, LOCK_TAKEN
from shmaccum.shm.layout import SlotState

STRIPES, PARTITIONS = 16, 20


def stripe(slab: Slab) -> Any:
    return slab.core.SlabLock(slab.segment, LOCK_STRIPES + PARTITION)


# --- deques ---------------------------------------------------------------------------------------


def scattered(seed: int, core: ModuleType = _core) -> Slab:
    """Return a slab whose headers hold batches at random, and whose indexes lie."""
    draw = random.Random(seed)
    slab = Slab(40, core, SLOT_SIZE)
    slab.set("superblock", "partition_count", PARTITIONS, 0)
    for slot in range(40):
        state = draw.choice([SlotState.FREE, SlotState.OPEN, *[SlotState.CLOSED] * 3, SlotState.IN_FLIGHT])
        slab.set("headers", "state", state | 5 << 8, slot)
        slab.set("headers", "partition", draw.choice([PARTITION, PARTITION + STRIPES, 5]), slot)
        slab.set("headers", "position", draw.choice([slot, 1000 - slot]), slot)
        for name in ("next", "previous"):
            slab.set("headers", name, draw.randrange(50), slot)
    for partition in range(PARTITIONS):
        for name in ("head", "tail", "open", "queued"):
            slab.set("partitions", name, draw.randrange(50), partition)
    return slab


def expected(slab: Slab, partition: int) -> tuple[list[int], int]:
    """Return what the headers say of a deque: its slots in order, and the largest position that was ever in it."""
    headers = slab.segment.view("headers")
    states = headers["state"] & 0xFF
    mine = (headers["partition"] == partition) & (states >= SlotState.OPEN)
    slots = np.flatnonzero(mine & (states <= SlotState.CLOSED)).tolist()
    return sorted(slots, key=lambda slot: int(headers["position"][slot])), int(headers["position"][mine].max(initial=0))


@pytest.mark.parametrize("seed", range(12))
def test_deques_are_rebuilt_from_the_headers(seed: int) -> None:
    slab = scattered(seed)
    others = [slab.get("partitions", "head", partition) for partition in range(PARTITIONS) if partition % 16 != 3]
    was_open = [slab.get("headers", "state", slot) & 0xFF == SlotState.OPEN for slot in range(40)]
    for _ in range(2):  # it can be repeated
        assert deques(slab).rebuild(PARTITION) == (LOCK_TAKEN,)
        for partition in (PARTITION, PARTITION + STRIPES):
            slots, last = expected(slab, partition)
            links = [(0, *slots)[: len(slots)], (*slots[1:], -1)[: len(slots)]]
            assert [slab.get("headers", "next", slot) - 1 for slot in slots] == list(links[1])
            assert [slab.get("headers", "previous", slot) - 1 for slot in slots] == [-1, *slots][: len(slots)]
            states = [slab.get("headers", "state", slot) for slot in slots]
            ends_open = bool(slots) and was_open[slots[-1]]
            expected_states = [SlotState.CLOSED] * (len(slots) - ends_open) + [SlotState.OPEN] * ends_open
            assert [state & 0xFF for state in states] == expected_states
            assert all(state >> 8 == 5 for state in states)
            names = ("head", "tail", "open", "queued")
            assert [slab.get("partitions", name, partition) for name in names] == [
                slots[0] + 1 if slots else 0,
                slots[-1] + 1 if slots else 0,
                slots[-1] + 1 if ends_open else 0,
                len(slots),
            ]
            assert slab.get("partitions", "next_position", partition) > last
    assert others == [slab.get("partitions", "head", entry) for entry in range(PARTITIONS) if entry % 16 != 3]


def indexes(slab: Slab) -> list[list[int]]:
    """Return the states of all slots, and the ends and lengths of all deques."""
    partitions = slab.segment.view("partitions")
    words = (partitions[name] for name in ("head", "tail", "open", "queued"))
    return [each.tolist() for each in (slab.segment.view("headers")["state"], *words)]


def test_death_at_every_step_of_a_rebuild(stepping: ModuleType) -> None:
    """The next holder of the lock begins again, and comes to the same deques."""
    whole = scattered(1)
    deques(whole).rebuild(PARTITION)
    for slab, _ in deaths(lambda: scattered(1, stepping), lambda slab: deques(slab).rebuild(PARTITION)):
        recover(slab)
        assert deques(slab).rebuild(PARTITION) == (LOCK_TAKEN,)
        assert indexes(slab) == indexes(whole)


def test_a_rebuild_that_is_stopped_leaves_the_deques_of_other_locks_alone(stepping: ModuleType) -> None:
    """Slots that had batches of this lock's partitions can have others' by the time that it goes on."""
    other = PARTITION + 2
    for step in range(1, 500):
        slab = Slab(3, stepping, SLOT_SIZE)
        sent = []
        for _ in range(2):
            slab.be(LIVING)
            producer = Producer(slab, stepping)
            producer.append(body_of(b"sent"))
            slot = slab.get("partitions", "head", PARTITION) - 1
            assert deques(slab).take_first(PARTITION, slot, slab.get("headers", "limits", slot)) == (LOCK_TAKEN, True)
            sent.append(_core.Buffer(slot, 1, slab.get("headers", "generation", slot)))

        def reuse(slab: Slab = slab, sent: list[_core.Buffer] = sent) -> None:
            """Complete both batches; append two of the other partition, in the same slots."""
            slab.be(2)
            assert slab.pool.free(*[stepping.Buffer(each.slot, 1, each.generation) for each in sent])[2] == 2
            producer = Producer(slab, stepping, 2)
            for _ in range(2):
                buffer = producer.begin(body := body_of(bytes(100)))  # two have no room in one batch
                producer.contributions.expect(buffer.generation << 24 | buffer.slot, "t-5")
                assert producer.core.append_batch(other, 0, 0, 0, body, 0, buffer.slot)[0] == LOCK_TAKEN

        operation = partial(deques(slab).rebuild, PARTITION)
        stopped = stop_at(stepping, step, lambda slab=slab, run=operation: (slab.be(DYING), run()), reuse)  # type: ignore[misc]
        assert indexes_of(slab, other) == [1, 2, 2, 2, 2], f"stopped before step {step}"
        assert [slab.get("headers", "next", slot) for slot in (0, 1)] == [2, 0], f"stopped before step {step}"
        assert indexes_of(slab, PARTITION)[:4] == [0, 0, 0, 0]
        slab.close()
        if not stopped:
            return
    raise AssertionError("it has no end")


def indexes_of(slab: Slab, partition: int) -> list[int]:
    """Return ends, open batch and length of a deque, and its next position."""
    return [slab.get("partitions", name, partition) for name in ("head", "tail", "open", "queued", "next_position")]


@pytest.mark.parametrize(
    ("region", "name", "value", "said"),
    [
        ("headers", "partition", PARTITION + 2 * STRIPES, "slot 0 holds a batch of partition entry 35"),
        ("superblock", "partition_count", 21, "it has 21 partition entries"),
        ("superblock", "partition_count", 1 << 63, "it has 9223372036854775808 partition entries"),
    ],
)
def test_headers_that_contradict_themselves_are_an_error(
    slab: Slab, producer: Producer, region: str, name: str, value: int, said: str
) -> None:
    producer.append(body_of(b"a" * 150))
    before = slab.get(region, name)
    slab.set(region, name, value)
    with pytest.raises(Damaged, match=said):
        deques(slab).rebuild(PARTITION)
    assert stripe(slab).owner == UNFINISHED
    with pytest.raises(Damaged, match=said):
        producer.append(body_of(b"b" * 150))
    slab.set(region, name, before)
    producer.append(body_of(b"b" * 150))
    assert len(records_of(slab)) == 2
    assert stripe(slab).owner == 0


def test_a_rebuild_needs_the_lock_and_a_ticket(slab: Slab) -> None:
    slab.be(2)
    assert stripe(slab).acquire_now() == LOCK_TAKEN
    slab.be(LIVING)
    assert deques(slab).rebuild(PARTITION) == (LOCK_BUSY,)
    slab.segment.leave()
    assert deques(slab).rebuild(PARTITION) == (LOCK_REJOIN,)
    with pytest.raises(IndexError, match="stripe 16 of 16"):
        deques(slab).rebuild(STRIPES)
