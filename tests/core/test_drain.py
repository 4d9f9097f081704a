"""The sections that take batches out of deques: what they look at again under the lock, and deaths in them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from core_producers import PARTITION, SLOT_SIZE, Producer, body_of, deques, queued, recover
from core_slabs import LIVING, Damaged, Slab, deaths

from shmaccum import _core
from shmaccum._core import LOCK_BUSY, LOCK_REJOIN, LOCK_STRIPES, LOCK_TAKEN
from shmaccum.shm.layout import SlotState
from tools.support.oracle import violations

LANE = 1


def filled(core: Any = _core) -> Slab:
    """Return a slab with two closed batches and an open one, in slots 0 to 2."""
    slab = Slab(5, core, slot_size=SLOT_SIZE)
    producer = Producer(slab, core)
    for body in (b"a", b"b", b"c"):
        producer.append(body_of(body * 150))
    return slab


@pytest.fixture
def slab() -> Slab:
    return filled()


def drain(slab: Slab) -> None:
    """Take the first batch out, as the sender does."""
    check = slab.core.ReadyCheck(slab.segment, slab.pool, Damaged, 1)
    check.set_leader(PARTITION, 1, 0)
    assert check.choose(1, 0, SLOT_SIZE, 1, 0)[0] == []


def state(slab: Slab, slot: int) -> int:
    return slab.get("headers", "state", slot) & 0xFF


def slots(slab: Slab) -> list[int]:
    return [slot for slot, _ in queued(slab)]


# --- drain ----------------------------------------------------------------------------------------


def test_the_first_batch_is_closed_if_it_is_open() -> None:
    slab = Slab(5, slot_size=SLOT_SIZE)
    producer = Producer(slab)
    producer.append(body_of(b"a"))
    assert deques(slab).close_first(PARTITION, 1) == (LOCK_TAKEN,)
    assert state(slab, 0) == SlotState.OPEN
    for _ in range(2):
        assert deques(slab).close_first(PARTITION, 0) == (LOCK_TAKEN,)
        assert (state(slab, 0), slab.get("partitions", "open", PARTITION)) == (SlotState.CLOSED, 0)
    producer.append(body_of(b"b"))
    assert deques(slab).close_first(PARTITION, 1) == (LOCK_TAKEN,)
    assert [state(slab, slot) for slot in slots(slab)] == [SlotState.CLOSED, SlotState.OPEN]
    assert violations(slab.segment) == []


def test_arguments_that_make_no_sense_are_refused(slab: Slab) -> None:
    for call, error, said in (
        (lambda: deques(slab).take_first(20, 0, 0), IndexError, "partition entry 20 of 20"),
        (lambda: deques(slab).take_first(3, 0, 0, 3), IndexError, "lane entry 2 of 2"),
        (lambda: deques(slab).close_first(20, 0), IndexError, "partition entry 20 of 20"),
        (lambda: deques(slab).put_back(20, 0), IndexError, "partition entry 20 of 20"),
        (lambda: deques(slab).put_back(3, 5), IndexError, "slot 5 of 5"),
    ):
        with pytest.raises(error, match=said):
            call()


def test_nothing_is_taken_without_the_lock(slab: Slab) -> None:
    stripe = slab.core.SlabLock(slab.segment, LOCK_STRIPES + PARTITION)
    slab.be(2)
    assert stripe.acquire_now() == LOCK_TAKEN
    slab.be(LIVING)
    limits = slab.get("headers", "limits", 0)
    for section in (
        lambda: deques(slab).take_first(PARTITION, 0, limits),
        lambda: deques(slab).close_first(PARTITION, 0),
        lambda: deques(slab).put_back(PARTITION, 0),
    ):
        assert section()[0] == LOCK_BUSY
    slab.segment.leave()
    assert deques(slab).close_first(PARTITION, 0) == (LOCK_REJOIN,)
    assert slots(slab) == [0, 1, 2]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (("partitions", "head", 6, PARTITION), "a link in the deque of partition entry 3 leads to slot 5"),
        (("partitions", "head", 1 << 63, PARTITION), "a link in the deque of partition entry 3 leads to slot"),
        (("headers", "partition", 4), "a link in the deque of partition entry 3 leads to slot 0"),
        (("headers", "state", 0), "a link in the deque of partition entry 3 leads to slot 0"),
        (("headers", "next", 7), "slot 0 links to slot 6 in the deque of partition entry 3"),
    ],
)
def test_a_damaged_deque_is_an_error_and_mended(slab: Slab, word: Any, said: str) -> None:
    slab.set(*word)
    with pytest.raises(Damaged, match=said):
        drain(slab)
    left = [slot for slot in slots(slab) if slab.get("headers", "partition", slot) == PARTITION]
    assert slab.get("partitions", "head", PARTITION) == left[0] + 1
    drain(slab)
    assert state(slab, left[0]) == SlotState.IN_FLIGHT


# --- expire ---------------------------------------------------------------------------------------


def test_a_first_batch_is_taken_if_it_is_as_it_was(slab: Slab) -> None:
    limits = slab.get("headers", "limits", 0)
    take = deques(slab).take_first
    assert take(PARTITION, 0, limits + 1) == (LOCK_TAKEN, False), "another producer's record is in it"
    assert take(PARTITION, 1, limits) == (LOCK_TAKEN, False), "not first"
    assert take(PARTITION, 0, limits) == (LOCK_TAKEN, True)
    assert state(slab, 0) == SlotState.IN_FLIGHT
    assert slots(slab) == [1, 2]
    slab.set("lanes", "producer_id", 9, LANE)
    assert take(PARTITION, 1, limits, LANE + 1) == (LOCK_TAKEN, False), "nothing is taken of an open lane"
    slab.set("lanes", "error", 7, LANE)
    assert take(PARTITION, 1, limits, LANE + 1) == (LOCK_TAKEN, True)
    slab.set("lanes", "producer_id", 0, LANE)
    slab.set("lanes", "error", 0, LANE)
    assert take(PARTITION, 2, limits, LANE + 1) == (LOCK_TAKEN, True)
    slab.set("partitions", "head", 99, PARTITION)
    with pytest.raises(Damaged, match="leads to slot 98"):
        take(PARTITION, 98, limits)


def test_a_circle_of_links_is_no_endless_loop(slab: Slab) -> None:
    drain(slab)
    for slot in (1, 2):
        slab.set("headers", "position", 0, slot)
        slab.set("headers", "next", 2, slot)
    slab.set("headers", "position", 9, 0)
    assert deques(slab).put_back(PARTITION, 0) == (LOCK_TAKEN,)


# --- death ----------------------------------------------------------------------------------------


def check_deaths(make: Callable[[], Slab], operate: Callable[[Slab], object], slot: int) -> None:
    """Let a batch be queued or in flight behind each death, and never lost; the next sender puts it back."""
    found = set()
    for slab, _ in deaths(make, operate):
        recover(slab)
        assert violations(slab.segment) == []
        found.add(state(slab, slot))
        if state(slab, slot) == SlotState.IN_FLIGHT:
            assert slots(slab) == [each for each in range(3) if each != slot]
            deques(slab).put_back(PARTITION, slot)
        assert slots(slab) == [0, 1, 2]
        assert violations(slab.segment) == []
    assert found == {SlotState.CLOSED, SlotState.IN_FLIGHT}


def expire(slab: Slab) -> None:
    deques(slab).take_first(PARTITION, 0, slab.get("headers", "limits", 0))


@pytest.mark.parametrize("operation", [drain, expire])
def test_death_at_every_step_while_a_batch_is_taken(stepping: ModuleType, operation: Callable[[Slab], object]) -> None:
    check_deaths(lambda: filled(stepping), operation, 0)


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_death_at_every_step_while_a_batch_is_put_back(stepping: ModuleType, slot: int) -> None:
    def make() -> Slab:
        slab = filled(stepping)
        for _ in range(slot + 1):
            drain(slab)
        for each in range(slot):
            deques(slab).put_back(PARTITION, each)
        return slab

    check_deaths(make, lambda slab: deques(slab).put_back(PARTITION, slot), slot)
