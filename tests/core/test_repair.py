"""Repair of deques: by a reference of its own, after any death in a replacement or in the repair itself."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from core_producers import PARTITION, SLOT_SIZE, Producer, batches, body_of, deques, queued, records_of, recover
from core_slabs import DYING, LIVING, UNFINISHED, Damaged, Slab, die_at
from oracle import violations

from shmaccum._core import LOCK_BUSY, LOCK_REJOIN, LOCK_STRIPES, LOCK_TAKEN, Buffer, Geometry
from shmaccum.shm.layout import SlotState

STRIPES, PARTITIONS = 16, 20
SINCE_MS = 77
START = 61
"""Where records begin in a slot: behind the batch's header."""
GZIP = 1


def word(slab: Slab, region: str, name: str, entry: int = 0) -> int:
    return int(slab.words[slab.word(region, name, entry)])


def store(slab: Slab, region: str, name: str, entry: int, value: int) -> None:
    slab.words[slab.word(region, name, entry)] = value


def stripe(slab: Slab) -> Any:
    return slab.core.SlabLock(slab.segment, LOCK_STRIPES + PARTITION)


# --- deques ---------------------------------------------------------------------------------------


def scattered(seed: int) -> Slab:
    """Return a slab whose headers hold batches at random, and whose indexes lie."""
    draw = random.Random(seed)
    slab = Slab(40, slot_size=SLOT_SIZE)
    store(slab, "superblock", "partition_count", 0, PARTITIONS)
    for slot in range(40):
        state = draw.choice([SlotState.FREE, SlotState.OPEN, *[SlotState.CLOSED] * 3, SlotState.IN_FLIGHT])
        store(slab, "headers", "state", slot, state | 5 << 8)
        store(slab, "headers", "partition", slot, draw.choice([PARTITION, PARTITION + STRIPES, 5]))
        store(slab, "headers", "position", slot, draw.choice([slot, 1000 - slot]))
        for name in ("next", "previous"):
            store(slab, "headers", name, slot, draw.randrange(50))
    for partition in range(PARTITIONS):
        for name in ("head", "tail", "open", "queued"):
            store(slab, "partitions", name, partition, draw.randrange(50))
    return slab


def expected(slab: Slab, partition: int) -> tuple[list[int], int]:
    """Return what the headers say of a deque: its slots in order, and the largest position that was ever in it."""
    headers = slab.segment.view("headers")
    states = headers["state"] & 0xFF
    mine = (headers["partition"] == partition) & (states >= SlotState.OPEN)
    slots = np.flatnonzero(mine & (states <= SlotState.CLOSED)).tolist()
    return sorted(slots, key=lambda slot: int(headers["position"][slot])), int(headers["position"][mine].max(initial=0))


@pytest.mark.parametrize("seed", range(30))
def test_deques_are_rebuilt_from_the_headers(seed: int) -> None:
    slab = scattered(seed)
    others = [word(slab, "partitions", "head", partition) for partition in range(PARTITIONS) if partition % 16 != 3]
    was_open = [word(slab, "headers", "state", slot) & 0xFF == SlotState.OPEN for slot in range(40)]
    for _ in range(2):  # it can be repeated
        assert deques(slab).rebuild(PARTITION) == (LOCK_TAKEN,)
        for partition in (PARTITION, PARTITION + STRIPES):
            slots, last = expected(slab, partition)
            links = [(0, *slots)[: len(slots)], (*slots[1:], -1)[: len(slots)]]
            assert [word(slab, "headers", "next", slot) - 1 for slot in slots] == list(links[1])
            assert [word(slab, "headers", "previous", slot) - 1 for slot in slots] == [-1, *slots][: len(slots)]
            states = [word(slab, "headers", "state", slot) for slot in slots]
            ends_open = bool(slots) and was_open[slots[-1]]
            assert [state & 0xFF for state in states] == [SlotState.CLOSED] * (len(slots) - ends_open) + [
                SlotState.OPEN
            ] * ends_open
            assert all(state >> 8 == 5 for state in states)
            names = ("head", "tail", "open", "queued")
            assert [word(slab, "partitions", name, partition) for name in names] == [
                slots[0] + 1 if slots else 0,
                slots[-1] + 1 if slots else 0,
                slots[-1] + 1 if ends_open else 0,
                len(slots),
            ]
            assert word(slab, "partitions", "next_position", partition) > last
    assert others == [word(slab, "partitions", "head", entry) for entry in range(PARTITIONS) if entry % 16 != 3]


def test_death_at_every_step_of_a_rebuild(stepping: ModuleType) -> None:
    """The next holder of the lock begins again, and comes to the same deques."""
    whole = scattered(1)
    deques(whole).rebuild(PARTITION)
    for step in range(1, 3000, 3):
        slab = scattered(1)
        slab.core = stepping
        slab.segment = stepping.Segment(slab.descriptor, stepping.Geometry(SLOT_SIZE, 40, 8, 1, 20, 0, 2, 1))
        was_killed = die_at(stepping, step, lambda slab=slab: (slab.be(DYING), deques(slab).rebuild(PARTITION)))
        recover(slab)
        assert deques(slab).rebuild(PARTITION) == (LOCK_TAKEN,)
        names = ("head", "tail", "open", "queued")
        for entry in (PARTITION, PARTITION + STRIPES):
            for name in names:
                assert word(slab, "partitions", name, entry) == word(whole, "partitions", name, entry)
        for slot in range(40):
            assert word(slab, "headers", "state", slot) == word(whole, "headers", "state", slot)
        slab.close()
        if not was_killed:
            return
    raise AssertionError("it has no end")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({("headers", "partition", 0): PARTITION + 2 * STRIPES}, "slot 0 holds a batch of partition entry 35"),
        ({("headers", "redo", 0): (SLOT_SIZE + 1) << 8}, "slot 0 has a redo word of 257 bytes"),
        ({("headers", "redo", 0): 1 << 63}, "slot 0 has a redo word of"),
        ({("superblock", "partition_count", 0): 21}, "it has 21 partition entries"),
        ({("superblock", "partition_count", 0): 1 << 63}, "it has 9223372036854775808 partition entries"),
    ],
)
def test_headers_that_contradict_themselves_are_an_error(words: dict[tuple[str, str, int], int], said: str) -> None:
    slab = Slab(4, slot_size=SLOT_SIZE, redo_size=SLOT_SIZE)
    producer = Producer(slab)
    producer.append(body_of(b"a" * 150))
    before = {place: word(slab, *place) for place in words}
    for place, value in words.items():
        store(slab, *place, value)
    with pytest.raises(Damaged, match=said):
        deques(slab).rebuild(PARTITION)
    assert stripe(slab).owner == UNFINISHED
    with pytest.raises(Damaged, match=said):
        producer.append(body_of(b"b" * 150))
    for place, value in before.items():
        store(slab, *place, value)
    producer.append(body_of(b"b" * 150))
    assert len(records_of(slab)) == 2
    assert stripe(slab).owner == 0


def test_a_rebuild_needs_the_lock_and_a_ticket() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    slab.be(2)
    assert stripe(slab).acquire_now() == LOCK_TAKEN
    slab.be(LIVING)
    assert deques(slab).rebuild(PARTITION) == (LOCK_BUSY,)
    slab.segment.leave()
    assert deques(slab).rebuild(PARTITION) == (LOCK_REJOIN,)
    with pytest.raises(IndexError, match="stripe 16 of 16"):
        deques(slab).rebuild(STRIPES)


# --- replaced records -----------------------------------------------------------------------------


def claimed(slab: Slab) -> tuple[Producer, Buffer]:
    """Return the producer of a closed batch of two records, which it has claimed."""
    producer = Producer(slab, slab.core)
    producer.append(body_of(b"a" * 50))
    producer.append(body_of(b"b" * 50))
    producer.append(body_of(b"c" * 150))
    store(slab, "headers", "sealing", 0, SINCE_MS)
    return producer, slab.core.Buffer(0, 1, word(slab, "headers", "generation", 0))


def replace(slab: Slab, batch: Buffer, records: bytes | None = b"smaller") -> tuple[int, bool]:
    size = START + len(records) if records is not None else 0
    outcome: tuple[int, bool] = deques(slab).replace(PARTITION, batch, SINCE_MS, records, START, size << 8 | GZIP)
    return outcome


def stored(slab: Slab) -> tuple[int, bytes]:
    """Return the first batch's `compressed` word, and its records as it is stored."""
    compressed, memory = word(slab, "headers", "compressed", 0), bytes(slab.segment)
    begin = len(memory) - slab.slot_count * SLOT_SIZE
    size = compressed >> 8 or word(slab, "headers", "commit", 0) >> 25
    return compressed, memory[begin + START : begin + size]


def test_records_are_replaced() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE, redo_size=SLOT_SIZE)
    _, batch = claimed(slab)
    assert replace(slab, batch) == (LOCK_TAKEN, True)
    assert stored(slab) == ((START + 7) << 8 | GZIP, b"smaller")
    assert [word(slab, "headers", name, 0) for name in ("redo", "sealing")] == [0, 0]
    assert word(slab, "processes", "compressed", LIVING) == 1
    assert replace(slab, batch) == (LOCK_TAKEN, False), "the claim is over"


def test_records_that_do_not_get_smaller_stay() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE, redo_size=SLOT_SIZE)
    _, batch = claimed(slab)
    before = stored(slab)
    outcome = deques(slab).replace(PARTITION, batch, SINCE_MS, None, START, 191 << 8)
    assert outcome == (LOCK_TAKEN, True)
    assert stored(slab)[0] == 191 << 8
    assert stored(slab)[1][:100] == before[1][:100]


@pytest.mark.parametrize(("name", "value"), [("sealing", SINCE_MS + 1), ("sealing", 0), ("generation", 99)])
def test_a_claim_that_is_over_replaces_nothing(name: str, value: int) -> None:
    slab = Slab(4, slot_size=SLOT_SIZE, redo_size=SLOT_SIZE)
    _, batch = claimed(slab)
    store(slab, "headers", name, 0, value)
    before = bytes(slab.segment)
    assert replace(slab, batch) == (LOCK_TAKEN, False)
    assert bytes(slab.segment) == before


def test_records_that_cannot_fit_are_refused() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE, redo_size=SLOT_SIZE)
    _, batch = claimed(slab)
    with pytest.raises(ValueError, match="196 bytes of records do not fit into a redo area of 256"):
        replace(slab, batch, bytes(SLOT_SIZE - START + 1))
    with pytest.raises(IndexError, match="slot 4 of 4"):
        replace(slab, Buffer(4, 1, 1))
    with pytest.raises(IndexError, match="partition entry 20 of 20"):
        deques(slab).replace(20, batch, SINCE_MS, b"", 0, 0)


def test_death_at_every_step_of_a_replacement(stepping: ModuleType) -> None:
    """The batch has its own records or the compressed ones, whole, and is not lost; other stripes' are not touched."""
    found = set()
    for step in range(1, 200):
        slab = Slab(4, stepping, slot_size=SLOT_SIZE, redo_size=SLOT_SIZE)
        producer, batch = claimed(slab)
        before = stored(slab)
        was_killed = die_at(stepping, step, lambda slab=slab, batch=batch: (slab.be(DYING), replace(slab, batch)))
        recover(slab)
        assert violations(slab.segment) == []
        assert stored(slab) in (before, ((START + 7) << 8 | GZIP, b"smaller"))
        assert word(slab, "headers", "redo", 0) == 0
        assert [count for _, count in queued(slab)] == [2, 1]
        found.add(stored(slab)[0])
        producer.append(body_of(b"after"))
        assert len(batches(slab)) == 2
        slab.close()
        if not was_killed:
            break
    assert found == {0, (START + 7) << 8 | GZIP}


def test_a_torn_copy_is_finished_by_whoever_comes_next() -> None:
    """As a dead process left it: the redo area counts, not the slot, from which a part was copied."""
    slab = Slab(4, slot_size=SLOT_SIZE, redo_size=SLOT_SIZE)
    producer, _ = claimed(slab)
    memory = slab.segment.writable()
    geometry = Geometry(SLOT_SIZE, 4, 8, 1, PARTITIONS, SLOT_SIZE, 2)
    memory[geometry.redo : geometry.slots] = b"\xff" * (geometry.slots - geometry.redo)
    area, begin = geometry.redo_area(PARTITION), geometry.slot(0)
    memory[area + START : area + START + 7] = b"smaller"
    memory[begin + START : begin + START + 3] = b"sma"
    store(slab, "headers", "redo", 0, (START + 7) << 8 | GZIP)
    slab.be(2)
    stripe(slab).acquire_now()
    stripe(slab).release(unfinished=True)
    memory.release()
    slab.be(LIVING)
    producer.append(body_of(b"after"))
    assert stored(slab) == ((START + 7) << 8 | GZIP, b"smaller")
