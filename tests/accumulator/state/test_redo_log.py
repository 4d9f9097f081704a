"""Replacing records with compressed ones: a death at any point leaves one or the other."""

from __future__ import annotations

import time

import pytest
from accumulators import BATCH_SIZE, TP0, TP1, Log, add, as_sent, assert_empty, drain, first
from fixture_types import OpenAccumulator
from killpoints import die, die_in
from record_batches import decoders
from runs import interrupts
from slab_helpers import close_open

from shmaccum.accumulator.state.redo_log import SEALING_TIMEOUT_MS
from shmaccum.record.compression import CompressionType
from shmaccum.shm.layout import Slot, Super
from tools.support.accumulators import Accumulators

THIRD = b"all work and no play " * (BATCH_SIZE // 72)
"""Three records of this make a batch, with little room left."""
BEFORE = [b"%d: " % number + THIRD for number in range(3)]
VICTIM = b"victim: " + THIRD


@pytest.fixture
def accumulator(accumulate: OpenAccumulator) -> Accumulators:
    return accumulate(compression_type="zstd")


def late_ms() -> int:
    """Return a time at which no sender waits for a producer any more."""
    return time.monotonic_ns() // 1_000_000 + SEALING_TIMEOUT_MS


def add_before(accumulator: Accumulators) -> None:
    """Append what nearly fills a batch; what others have left in the redo areas is of no use for it."""
    geometry = accumulator.slab.geometry
    accumulator.slab.buffer[geometry.redo : geometry.slots] = b"\xff" * (geometry.slots - geometry.redo)
    for value in BEFORE:
        add(accumulator, TP0, value)


def finish(accumulator: Accumulators) -> tuple[list[bytes | None], list[CompressionType | None]]:
    """Deliver what is there, as others read it, and leave nothing behind; return the values, and each batch's codec."""
    add(accumulator, TP0, b"after")
    values: list[bytes | None] = []
    compressions = []
    while batches := drain(accumulator, late_ms()):
        for batch in batches:
            compressions.append(batch.compression)
            sent = as_sent(accumulator, batch)
            found = [[record.value for record in decode(sent)] for decode in decoders(2, CompressionType.ZSTD)]
            assert all(each == found[0] for each in found)
            values += found[0]
        Log(accumulator).take(batches)
    accumulator.slab.reap_dead()
    accumulator.pool.reclaim()
    assert not accumulator.slab.headers[:, Slot.REDO].any()
    assert_empty(accumulator)
    accumulator.producer.pending.poll()
    assert not accumulator.producer.pending.incomplete()
    return values, compressions


def in_the_middle(accumulator: Accumulators, copied: float) -> None:
    """Have a process die that has copied a part of the compressed records over the first batch."""

    def die_there() -> None:
        slab = accumulator.slab
        batch = first(accumulator, TP0)
        start = accumulator.format.header_size
        stored, word = accumulator.producer.compressor.compress(b"".join(batch.views())[start:])
        area, body = slab.geometry.redo_area(batch.partition), slab.geometry.slot(batch.slot)
        with accumulator.map.queues[TP0].lock:
            close_open(slab, accumulator.map.queues[TP0])
            slab.buffer[area + start : area + start + len(stored)] = stored
            slab.words[slab.geometry.header(batch.slot) + Slot.REDO] = word
            end = start + int(copied * len(stored))
            slab.buffer[body : end + body] = slab.buffer[area : area + end]
            die()

    die_in(die_there)


@pytest.mark.parametrize("copied", [0, 0.3, 0.9, 1])
def test_death_during_the_copy_keeps_the_records(accumulator: Accumulators, copied: float) -> None:
    """The records in the slot are torn; those in the redo area are what counts."""
    add_before(accumulator)
    in_the_middle(accumulator, copied)
    rebuilds = accumulator.slab.words[Super.REBUILDS]
    values, compressions = finish(accumulator)
    assert values == [*BEFORE, b"after"]
    assert compressions == [CompressionType.ZSTD, None]
    assert accumulator.slab.words[Super.REBUILDS] > rebuilds


def test_next_sender_finishes_the_copy(accumulator: Accumulators) -> None:
    """Nobody else has taken the lock since, and the dead one's place in the process table has been given away."""
    add_before(accumulator)
    in_the_middle(accumulator, 0.5)
    accumulator.slab.reap_dead()
    accumulator.pool.reclaim()
    accumulator.sender.recover()
    (batch,) = drain(accumulator, late_ms())
    assert batch.compression is CompressionType.ZSTD
    log = Log(accumulator)
    log.take([batch])
    assert log.values(TP0) == BEFORE


def test_stripes_have_separate_redo_areas(accumulator: Accumulators) -> None:
    """What a dead process left in its stripe's is not touched by those who work in other stripes."""
    add_before(accumulator)
    in_the_middle(accumulator, 0.5)
    for number in range(4):  # in another partition, by the living
        add(accumulator, TP1, b"%d" % number + THIRD)
    log = Log(accumulator)
    log.take_all(late_ms())
    assert log.values(TP0) == BEFORE
    assert len(log.values(TP1)) == 4


def test_interrupted_copy_is_finished(accumulator: Accumulators) -> None:
    """The process and its locks live on; the lock's next holder finishes the copy."""
    seen = set()
    for moment, interrupt in enumerate(interrupts()):
        add_before(accumulator)
        with interrupt:
            accumulator.append(TP0, 0, None, VICTIM)
        values, compressions = finish(accumulator)
        assert values in ([*BEFORE, b"after"], [*BEFORE, VICTIM, b"after"]), moment
        seen.add(compressions[0])
    assert seen == {None, CompressionType.ZSTD}
