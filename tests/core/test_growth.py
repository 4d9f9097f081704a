"""Batches that grow while they have to wait: what they hold, when they do not grow, and deaths in between."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from core_producers import PARTITION, SLOT_SIZE, Producer, batches, body_of, queued, records_of, recovered
from core_slabs import DYING, LIVING, Slab, deaths
from hypothesis import given, settings
from hypothesis import strategies as st

from shmaccum import _core
from shmaccum._core import LOCK_POOL, LOCK_TAKEN
from shmaccum.record import v2
from shmaccum.shm.layout import SlotState
from tools.support.oracle import violations

GROW, NO_ROOM = _core.APPEND_GROW, _core.APPEND_NO_ROOM
MAX_BYTES = 4 * SLOT_SIZE
SMALL, LARGE = body_of(b"a" * 50), body_of(b"b" * 150)


def growing(core: Any = _core, slots: int = 8, batch_slots: int = 1) -> tuple[Slab, Producer]:
    """Return a slab with an open batch of one record, which has to wait or is not full, and the producer."""
    slab = Slab(slots, core, slot_size=SLOT_SIZE)
    producer = Producer(slab, core, batch_size=batch_slots * SLOT_SIZE, max_bytes=MAX_BYTES)
    producer.append(SMALL)
    slab.set("partitions", "in_flight", batch_slots == 1, PARTITION)
    return slab, producer


def header(slab: Slab, name: str, slot: int = 0) -> int:
    return slab.get("headers", name, slot)


@settings(max_examples=40)
@given(
    st.sampled_from([1, MAX_BYTES // SLOT_SIZE]),
    st.lists(st.tuples(st.integers(0, 160) | st.integers(160, 900), st.integers(0, 1 << 40)), min_size=1, max_size=20),
)
def test_records_lie_across_slots_as_they_lie_in_one(batch_slots: int, records: list[tuple[int, int]]) -> None:
    slab, producer = growing(slots=100, batch_slots=batch_slots)
    expected = [[v2.encode_record(0, 0, 0, SMALL)]]
    bases = [0]
    for number, (size, timestamp) in enumerate(records):
        key, value = bytes([number]) * (size // 4), bytes([number]) * (size - size // 4)
        body = v2.encode_body(key, value, ())
        _, future, _, is_new, added = producer.append(body, timestamp)
        if is_new:
            expected.append([])
            bases.append(timestamp)
        assert future.index == len(expected[-1])
        expected[-1].append(v2.encode_record(len(expected[-1]), timestamp, bases[-1], body))
        assert added == len(expected[-1][-1]) + (v2.HEADER_SIZE if is_new else 0)
    assert [data[v2.HEADER_SIZE :] for _, _, data in batches(slab)] == [b"".join(batch) for batch in expected]
    assert all(len(data) <= MAX_BYTES for _, _, data in batches(slab))
    assert violations(slab.segment) == []


def test_a_batch_is_news_once_it_is_full() -> None:
    slab, producer = growing()
    assert [producer.append(SMALL)[2] for _ in range(8)] == [False, False, *[True] * 6]
    assert [len(data) > 2 * SLOT_SIZE for _, _, data in batches(slab)] == [True]

    slab, producer = growing(batch_slots=3)  # it grows though nothing is in flight
    found = [producer.append(body) for body in (LARGE, LARGE, LARGE, body_of(b"c" * 164), SMALL)]
    assert [outcome[2:4] for outcome in found] == [(False, False)] * 3 + [(True, False), (True, True)]
    assert [len(data) for _, _, data in batches(slab)] == [3 * SLOT_SIZE, found[-1][4]]
    assert violations(slab.segment) == []


# --- what does not grow ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "name", "value"),
    [
        ("partitions", "in_flight", 0),
        ("partitions", "max_bytes", SLOT_SIZE + 50),
        ("headers", "created_ms", 0),  # long ago
    ],
)
def test_a_batch_that_may_not_grow_is_closed(region: str, name: str, value: int) -> None:
    slab, producer = growing()
    slab.set(region, name, value, PARTITION if region == "partitions" else 0)
    producer.append(SMALL)
    assert producer.core.growing(PARTITION, len(LARGE)) == (None, 0)
    assert producer.try_append(LARGE)[0] == NO_ROOM
    assert (header(slab, "slots"), header(slab, "state") & 0xFF) == (1, SlotState.CLOSED)


@pytest.mark.parametrize("size", [MAX_BYTES - 100, MAX_BYTES])
def test_a_batch_gets_no_slots_for_a_record_that_even_the_largest_has_no_room_for(size: int) -> None:
    slab, producer = growing()
    assert producer.core.growing(PARTITION, size) == (None, 0)
    assert producer.try_append(body_of(b"x" * size))[0] == NO_ROOM
    assert (header(slab, "slots"), slab.pool.free_slots) == (1, 7)


def test_a_batch_behind_another_grows_but_not_one_of_format_1() -> None:
    slab, producer = growing()
    slab.set("partitions", "in_flight", 0, PARTITION)
    for _ in range(3):
        producer.append(LARGE)
    assert sorted(len(data) > SLOT_SIZE for _, _, data in batches(slab)) == [False, True]

    slab = Slab(8, slot_size=SLOT_SIZE, keeps_checksums=False)
    producer = Producer(slab, max_bytes=MAX_BYTES, magic=1)
    slab.set("partitions", "in_flight", 1, PARTITION)
    for _ in range(6):
        producer.append(body_of(b"a" * 50, 1))
    assert len(batches(slab)) > 1
    assert all(header(slab, "slots", slot) == 1 for slot, _ in queued(slab))


def test_a_batch_gets_several_slots_at_once() -> None:
    slab, producer = growing()
    producer.append(SMALL)
    own, split, other = [], [], []
    slab.pool.allocate(split, 1)
    slab.pool.allocate(other, 1)
    slab.pool.free(*split)
    slab.pool.allocate(own, 3)
    assert len(slab.chain(own[0])) == 3
    batch, most = producer.core.growing(PARTITION, len(LARGE))
    assert (most, slab.pool.extend(batch, own[0])) == (3, (LOCK_TAKEN, True))
    assert slab.chain(batch) == [0, *slab.chain(own[0])]
    assert violations(slab.segment) == []
    for _ in range(4):
        producer.append(LARGE)
    assert [value for value, _ in records_of(slab)] == [b"a" * 50] * 2 + [b"b" * 150] * 4
    assert {slot for slot, _ in queued(slab)} == {0}
    assert violations(slab.segment) == []


@pytest.mark.parametrize("limit", [0, 3 * SLOT_SIZE, 4 * SLOT_SIZE - 1])
def test_no_batch_has_more_slots_than_it_may_have_bytes(limit: int) -> None:
    """However little is in them: who has none of the bytes that make it full would go on."""
    slab, producer = growing(slots=20)
    slab.set("partitions", "max_bytes", limit, PARTITION)
    for _ in range(30):
        while (batch := producer.core.growing(PARTITION, len(LARGE))[0]) is not None:
            slab.pool.grow(batch)
        producer.append(SMALL)
    most = MAX_BYTES if limit == 0 else limit
    slots = [header(slab, "slots", slot) for slot, _ in queued(slab)]
    assert max(slots) == most // SLOT_SIZE
    assert all(len(data) <= most for _, _, data in batches(slab))


def test_nothing_is_added_to_a_batch_that_has_changed() -> None:
    slab, producer = growing()
    (own,) = slab.take(1)
    batch, _ = producer.core.growing(PARTITION, MAX_BYTES // 2)
    assert batch is not None
    assert slab.pool.grow(batch)[1]
    stale = _core.Buffer(batch.slot, 1, batch.generation)
    assert slab.pool.extend(stale, own) == (LOCK_TAKEN, False)
    assert slab.pool.extend(batch, _core.Buffer(own.slot, 1, own.generation + 1)) == (LOCK_TAKEN, False)
    slab.be(2)
    assert _core.SlabLock(slab.segment, LOCK_POOL).acquire_now() == LOCK_TAKEN
    slab.be(LIVING)
    assert slab.pool.extend(batch, own)[0] != LOCK_TAKEN


@pytest.mark.parametrize("records", [2, 4])
@pytest.mark.parametrize("link", [0, 1, 3, 1 << 40])
def test_no_record_goes_where_a_damaged_link_leads(link: int, records: int) -> None:
    """To no slot, the batch itself, another batch, or out of the slab. A part of it lies before the link, or none."""
    slab, producer = growing()
    assert slab.pool.grow(producer.core.growing(PARTITION, SLOT_SIZE)[0])[1]
    for _ in range(records):
        producer.append(SMALL)
    other = Producer(slab, entry=2, max_bytes=MAX_BYTES)
    (taken,) = slab.take(1)
    assert taken.slot == 2
    before = bytes(slab.segment.writable()[-6 * SLOT_SIZE : -5 * SLOT_SIZE])
    slab.set("headers", "chain", link, 0)
    slab.be(2)
    batch = header(slab, "generation") << 24
    other.contributions.expect(batch, "t-3")
    assert other.try_append(SMALL)[0] == NO_ROOM, "it is closed; another one begins"
    assert bytes(slab.segment.writable()[-6 * SLOT_SIZE : -5 * SLOT_SIZE]) == before


# --- deaths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "batch_slots"), [(50, 1), (150, 1), (600, 4)])
def test_a_death_at_any_step_of_an_append_that_grows(stepping: ModuleType, first: int, batch_slots: int) -> None:
    whole = [(b"a" * 50, 0), (b"f" * first, 5), (b"x" * 150, 10), (b"y" * 200, 20)]
    before = 2 if batch_slots == 1 else 1
    most = before

    def make() -> Producer:
        _, survivor = growing(stepping, batch_slots=batch_slots)
        for value, timestamp in whole[1:before]:
            survivor.append(body_of(value), timestamp)
        return survivor

    def append(survivor: Producer) -> None:
        limits = {"batch_size": batch_slots * SLOT_SIZE, "max_bytes": MAX_BYTES}
        victim = Producer(survivor.slab, stepping, DYING, **limits)
        for value, timestamp in whole[before:]:
            victim.append(body_of(value), timestamp)

    for survivor, _ in deaths(make, append):
        found = recovered(survivor.slab, whole, most)
        most = len(found)
        survivor.append(body_of(b"after" * 30), 30)
        assert records_of(survivor.slab) == [*found, (b"after" * 30, 30)]
        assert violations(survivor.slab.segment) == []
    assert most == 4


@pytest.mark.parametrize("slots", [1, 3])
def test_a_death_at_any_step_of_an_extension(stepping: ModuleType, slots: int) -> None:
    def extend(survivor: Producer) -> None:
        (own,) = survivor.slab.take(slots)
        assert survivor.slab.pool.extend(survivor.core.growing(PARTITION, len(LARGE))[0], own)[1]

    for survivor, _ in deaths(lambda: growing(stepping)[1], extend):
        slab = survivor.slab
        slab.take_over()
        assert slab.pool.rebuild()[0] == LOCK_TAKEN
        assert violations(slab.segment) == []
        for _ in range(8):
            survivor.append(SMALL)
        assert [value for value, _ in records_of(slab)] == [b"a" * 50] * 9
        assert violations(slab.segment) == []
