"""Sequence numbers over a slab of the test's own: what a death at any step leaves, and what damage cannot do.

The rules are tested with brokers in tests/sender/test_idempotence.py and tests/sender/test_exactly_once.py.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from core_producers import PARTITION, SLOT_SIZE, Producer, body_of
from core_slabs import Slab, deaths

from shmaccum import _core
from shmaccum.shm.layout import SlotState

ID, EPOCH = 70, 5
LANE = 0


class Run:
    """A sender with batches of one record, in slots 0 to 3, all in flight and not numbered."""

    def __init__(self, core: Any = _core, count: int = 4) -> None:
        self.core = core
        self.slab = Slab(count + 1, core, slot_size=SLOT_SIZE)
        producer = Producer(self.slab, core)
        for _ in range(count):
            producer.append(body_of(b"x" * 150))
        self.batches = [core.RecordBatch(self.slab.segment, slot) for slot in range(count)]
        for batch in self.batches:
            batch.state = SlotState.IN_FLIGHT
        self.sequences = core.Sequences(self.slab.segment, True)
        self.sequences.use_producer_id(ID, EPOCH)

    def word(self, name: str, region: str = "partitions", entry: int = PARTITION) -> int:
        return self.slab.get(region, name, entry)

    def set(self, name: str, value: int, region: str = "partitions", entry: int = PARTITION) -> None:
        self.slab.set(region, name, value, entry)

    def succeed(self) -> None:
        """Be the next sender: what was in flight is back in the deque."""
        for batch in self.batches:
            if batch.state == SlotState.IN_FLIGHT:
                batch.state = SlotState.CLOSED
        self.set("in_flight", 0)
        self.sequences = self.core.Sequences(self.slab.segment, True)
        held = [batch for batch in self.batches if batch.state != SlotState.FREE]
        self.sequences.recover(sorted(held, key=lambda batch: batch.position), 20)


@pytest.fixture
def run() -> Run:
    return Run()


def numbers(run: Run) -> list[int]:
    return [batch.base_sequence for batch in run.batches]


# --- death ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 1, 2])
def test_death_at_every_step_of_a_numbering(stepping: ModuleType, before: int) -> None:
    """A number is given once: the next sender gives the batch the same one, and the next batch the next."""
    given = set()

    def make() -> Run:
        run = Run(stepping)
        for batch in run.batches[:before]:
            run.sequences.drained(batch)
            run.sequences.stored(batch, 1)
            run.sequences.finished(batch)
        return run

    for run, _ in deaths(make, lambda run: run.sequences.drained(run.batches[before])):
        dying = run.batches[before]
        given.add(is_numbered := dying.identity() != (-1, -1, -1))
        assert dying.identity() in ((-1, -1, -1), (ID, EPOCH, before))
        run.succeed()
        assert run.word("next_sequence") == EPOCH << 32 | before + is_numbered
        for batch in run.batches[before:]:
            run.sequences.drained(batch)
        assert numbers(run)[before:] == list(range(before, 4))
        assert run.word("next_sequence") == EPOCH << 32 | 4
    assert given == {False, True}


def test_death_at_every_step_of_a_producer_id(stepping: ModuleType) -> None:
    """Without an id nothing is sent; with one, every partition counts from 0 of its epoch."""

    def make() -> Run:
        run = Run(stepping)
        run.sequences.drained(run.batches[0])
        return run

    for run, died in deaths(make, lambda run: run.sequences.use_producer_id(9, 1)):
        run.succeed()
        if run.sequences.need_producer_id:
            run.sequences.use_producer_id(9, 1)
        if run.word("producer_id", "superblock", 0) == 10:
            assert run.word("next_sequence") == run.word("acked_sequence") == 1 << 32
            again = (9, 1, 0)
        else:
            assert died
            again = (ID, EPOCH, 0)
        run.sequences.drained(run.batches[0])
        assert run.batches[0].identity() == again


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1, 1 << 30, (1 << 31) - 6])
def test_a_log_without_batches_has_none_whatever_their_numbers(run: Run, first: int) -> None:
    for name in ("next_sequence", "acked_sequence"):
        run.set(name, EPOCH << 32 | first)
    for batch in run.batches:
        run.sequences.drained(batch)
    run.set("in_flight", len(run.batches))
    run.sequences.log_replaced(PARTITION)
    assert numbers(run) == [first, first + 1, first + 2, first + 3]
    assert not any(map(run.sequences.is_stored, run.batches))


# --- damage ---------------------------------------------------------------------------------------


def test_a_batch_is_in_one_list_whatever_its_words_say(run: Run) -> None:
    """A number that damage has voided is given again, and the lists stay lists."""
    for _ in range(3):
        for batch in run.batches:
            run.sequences.drained(batch)
            run.set("sequence", 0, "headers", batch.slot)
    assert run.sequences.has_more_to_try(PARTITION)
    for batch in reversed(run.batches):
        run.sequences.finished(batch)
        run.sequences.finished(batch)
    assert not run.sequences.has_more_to_try(PARTITION)


def test_an_error_of_a_lane_stays_the_first_and_of_no_lane_leads_nowhere(run: Run) -> None:
    for lane in (0, 3, 4095, LANE + 1):
        run.set("key", lane << 52)
        sequences = _core.Sequences(run.slab.segment, True)
        sequences.drained(run.batches[0])
        sequences.fail_lane(PARTITION, -1)
        sequences.fail_lane(PARTITION, 7)
        assert sequences.lanes_failed == (lane == LANE + 1)
    assert run.word("error", "lanes", LANE) == 1 << 16 | 0xFFFF


def test_arguments_that_lead_out_of_the_table_are_refused() -> None:
    sequences = Run().sequences
    for call in (sequences.review, sequences.log_replaced, sequences.has_more_to_try):
        with pytest.raises(IndexError, match="partition entry 20 of 20"):
            call(20)
    with pytest.raises(IndexError, match="partition entry 20 of 20"):
        sequences.fail_lane(20, 7)
    with pytest.raises(TypeError):
        sequences.drained(None)
