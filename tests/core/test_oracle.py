"""The tests' own check of a slab at rest finds nothing in a sound slab, and every damaged index."""

from __future__ import annotations

import pytest
from accumulators import BATCH_SIZE, TP0, TP1, TP2, add, drain
from core_slabs import core_segment
from fixture_types import OpenAccumulator
from pools import slots_of

from shmaccum._core import LOCK_POOL, WORD, Partition, Process, Slot, Super
from tools.support.accumulators import Accumulators
from tools.support.oracle import violations


@pytest.fixture
def accumulator(accumulate: OpenAccumulator) -> Accumulators:
    """Two batches wait for partition 0, a chain of three slots for partition 1; one of partition 2 is in flight."""
    opened = accumulate()
    add(opened, TP2)
    drain(opened)
    for _ in range(2):
        add(opened, TP0, bytes(BATCH_SIZE // 2))
    add(opened, TP1, bytes(2 * BATCH_SIZE + 100))
    return opened


def found(accumulator: Accumulators) -> list[str]:
    return violations(core_segment(accumulator.slab.name, accumulator.slab.geometry))


def test_a_sound_slab_has_no_violation(accumulator: Accumulators) -> None:
    assert found(accumulator) == []
    accumulator.sender.recover()
    assert found(accumulator) == []
    slab, batch = accumulator.slab, accumulator.map.queues[TP1].first()
    assert batch is not None
    *_, last = slots_of(slab, batch.slot)
    slab.words[slab.geometry.header(last) + Slot.CHAIN] = batch.slot + 1
    assert found(accumulator) == [], "a link behind the last slot means nothing"
    slab.words[slab.geometry.header(last) + Slot.CHAIN] = 0


def test_every_damaged_index_is_found(accumulator: Accumulators) -> None:
    slab, geometry, queues = accumulator.slab, accumulator.slab.geometry, accumulator.map.queues
    one, chain = queues[TP0].first(), queues[TP1].first()
    assert one is not None
    assert chain is not None
    partition = geometry.partition(queues[TP0].entry)
    of_slots = (Slot.STATE, Slot.SLOTS, Slot.PARTITION, Slot.POSITION, Slot.NEXT, Slot.PREVIOUS, Slot.COMMIT)
    places = [
        *(Super.FREE_SLOTS, Super.WAITER_HEAD, Super.TOUCHED_SLOTS),
        *(geometry.lock(LOCK_POOL), geometry.bitmap // WORD, geometry.process(slab.processes.me) + Process.RING_HEAD),
        *(partition + word for word in (Partition.HEAD, Partition.TAIL, Partition.OPEN, Partition.QUEUED)),
        *(geometry.header(one.slot) + word for word in of_slots),
        *(geometry.header(chain.slot) + word for word in (Slot.STATE, Slot.SLOTS, Slot.CHAIN)),
    ]
    given_already = partition + Partition.NEXT_POSITION, slab.words[partition + Partition.NEXT_POSITION] - 1
    for at, value in [*((at, value) for at in places for value in ((1 << 64) - 1, 0)), given_already]:
        before, slab.words[at] = slab.words[at], value
        violated = found(accumulator)
        slab.words[at] = before
        assert (violated != []) == (value != before), (at, value)
