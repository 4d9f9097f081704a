"""The tests' own check of a slab at rest finds nothing in a sound slab, and every damaged index."""

from __future__ import annotations

import pytest
from accumulators import BATCH_SIZE, TP0, TP1, TP2, add, drain
from core_slabs import core_segment
from fixture_types import OpenAccumulator
from oracle import violations

from shmaccum._core import LOCK_POOL, WORD, Partition, Process, Slot, Super
from tools.support.accumulators import Accumulators


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
    *_, last = slab.memory.chain(batch.slot, 3)
    slab.words[slab.geometry.header(last) + Slot.CHAIN] = batch.slot + 1
    assert found(accumulator) == [], "a link behind the last slot means nothing"
    slab.words[slab.geometry.header(last) + Slot.CHAIN] = 0


def test_a_position_that_was_given_already_is_found(accumulator: Accumulators) -> None:
    at = accumulator.slab.geometry.partition(accumulator.map.queues[TP0].entry) + Partition.NEXT_POSITION
    accumulator.slab.words[at] -= 1
    assert found(accumulator) != []
    accumulator.slab.words[at] += 1


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("super", [Super.FREE_SLOTS, Super.WAITER_HEAD, Super.TOUCHED_SLOTS]),
        ("lock", [0]),
        ("process", [Process.RING_HEAD]),
        ("partition", [Partition.HEAD, Partition.TAIL, Partition.OPEN, Partition.QUEUED]),
        ("bitmap", [0]),
        ("slot", [Slot.STATE, Slot.SLOTS, Slot.PARTITION, Slot.POSITION, Slot.NEXT, Slot.PREVIOUS, Slot.COMMIT]),
        ("chain", [Slot.STATE, Slot.SLOTS, Slot.CHAIN]),
    ],
)
def test_damage_is_found(accumulator: Accumulators, entry: str, words: list[int]) -> None:
    slab, geometry = accumulator.slab, accumulator.slab.geometry
    queues = accumulator.map.queues
    one, chain = queues[TP0].first(), queues[TP1].first()
    assert one is not None
    assert chain is not None
    begin = {
        "super": 0,
        "lock": geometry.lock(LOCK_POOL),
        "process": geometry.process(slab.processes.me),
        "partition": geometry.partition(queues[TP0].entry),
        "bitmap": geometry.bitmap // WORD,
        "slot": geometry.header(one.slot),
        "chain": geometry.header(chain.slot),
    }[entry]
    for word in words:
        before = slab.words[begin + word]
        for value in ((1 << 64) - 1, 0):
            slab.words[begin + word] = value
            violated = found(accumulator)
            slab.words[begin + word] = before
            assert (violated != []) == (value != before), word
