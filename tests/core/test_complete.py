"""Completions over a slab of the test's own: each contributor gets one, whenever a sender dies."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from core_producers import PARTITION, SLOT_SIZE, Producer, body_of, call_back, fail, nobody
from core_slabs import LIVING, Damaged, Slab, deaths

from shmaccum import _core
from shmaccum.shm.layout import SlotState

HEADER = 61
OTHER = 3
"""A process entry that has contributed, too."""
OFFSET = 40
APPEND_TIME_MS = 9


class Run:
    """A sender with a batch of ten records in flight, in slot 0, of processes 0 and `OTHER`."""

    def __init__(self, core: Any = _core) -> None:
        self.core = core
        self.slab = Slab(3, core, slot_size=SLOT_SIZE)
        self.producer = Producer(self.slab, core)
        self.future = self.producer.append(body_of(b"x" * 150))[1]
        self.set("headers", "commit", 200 << 25 | 10 << 1, 0)
        self.set("headers", "contributors", 1 | 1 << OTHER, 0)
        self.sequences = core.Sequences(self.slab.segment, True)
        self.sequences.use_producer_id(7, 0)
        self.completer = core.Completer(self.slab.segment, self.sequences, HEADER)
        self.batch = core.RecordBatch(self.slab.segment, 0)
        self.batch.state = SlotState.IN_FLIGHT
        self.set("partitions", "in_flight", 1)
        self.sequences.drained(self.batch)

    def set(self, region: str, name: str, value: int, entry: int = PARTITION) -> None:
        self.slab.set(region, name, value, entry)

    def word(self, region: str, name: str, entry: int = PARTITION) -> int:
        return self.slab.get(region, name, entry)

    def unread(self, entry: int) -> list[tuple[int, ...]]:
        """Return the unread completions of a process, word by word."""
        head, tail = self.word("processes", "ring_head", entry), self.word("processes", "ring_tail", entry)
        ring = self.slab.segment.view("rings")[entry]
        return [tuple(int(ring[index % len(ring)][word]) for word in ring.dtype.names) for index in range(head, tail)]

    def complete(self) -> set[int]:
        """Complete the batch as stored."""
        contributors: set[int] = set()
        self.completer.conclude(self.batch, OFFSET, APPEND_TIME_MS)
        self.completer.land(self.batch)
        self.completer.count()
        self.completer.push(self.batch, contributors)
        return contributors


@pytest.fixture
def run() -> Run:
    return Run()


def completion(run: Run) -> tuple[int, ...]:
    return 1 << 24 | run.batch.slot, OFFSET + 1, APPEND_TIME_MS + 1 << 16, 0


def test_death_at_every_step_of_a_completion(stepping: ModuleType) -> None:
    """In flight, or completing with its result: the next sender pushes what is missing, and each gets it once."""
    states = set()
    for run, _ in deaths(lambda: Run(stepping), Run.complete):
        states.add(run.batch.state)
        told = [len(run.unread(entry)) for entry in (0, OTHER)]
        assert max(told) <= 1
        if run.batch.state == SlotState.COMPLETING:
            assert run.word("partitions", "acked_sequence") == 10, "known before any process is told"
            run.core.Completer(run.slab.segment, run.sequences, HEADER).push(run.batch, set(), True)
            assert [run.unread(entry) for entry in (0, OTHER)] == [[completion(run)]] * 2
        else:
            assert told == [0, 0]
    assert states == {SlotState.IN_FLIGHT, SlotState.COMPLETING}


def test_the_ring_ends_where_the_promise_ends(run: Run) -> None:
    length = run.slab.segment.view("rings").shape[1]
    assert run.completer.has_room(OTHER, length - 1)
    assert not run.completer.has_room(OTHER, length)
    run.complete()
    assert not run.completer.has_room(OTHER, length - 1)
    run.set("processes", "ring_tail", 1 << 63, OTHER)
    assert not run.completer.has_room(OTHER, 0), "damage is no room"
    with pytest.raises(IndexError, match="process entry 8 of 8"):
        run.completer.has_room(8, 0)


def test_a_contributor_that_is_none_gets_nothing(run: Run) -> None:
    """A flipped bit must not lead outside of the rings."""
    run.set("headers", "contributors", 1 | 1 << 8 | 1 << 63, 0)
    before = run.slab.segment.view("headers")["slots"].tolist()
    assert run.complete() == {0}
    assert run.slab.segment.view("headers")["slots"].tolist() == before


# --- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("append_time_ms", [-1, 0, 2**47 - 2])
@pytest.mark.parametrize("base_offset", [-1, 0, 2**62])
def test_a_stored_batch_is_read_as_it_was_told(run: Run, append_time_ms: int, base_offset: int) -> None:
    run.completer.conclude(run.batch, base_offset, append_time_ms)
    run.completer.push(run.batch, set())
    contributions = run.producer.contributions
    assert (run.future.is_done, contributions.has_news) == (False, True)
    contributions.read()
    assert (run.future.succeeded(), contributions.has_news, contributions.results) == (True, False, {})
    part = run.future.batch_result.last
    assert (part.first, part.base_offset, part.append_time_ms, part.failure) == (0, base_offset, append_time_ms, None)


@pytest.mark.parametrize(("head", "tail"), [(1, 0), (0, 1 << 63), (0, 100), (3, 1)])
def test_a_damaged_ring_is_refused(run: Run, head: int, tail: int) -> None:
    run.set("processes", "ring_head", head, 0)
    contributions = _core.Contributions(run.slab.segment, 0, nobody, call_back, fail, Damaged)
    run.set("processes", "ring_tail", tail, 0)
    with pytest.raises(Damaged, match=f"head {head}, tail {tail}"):
        contributions.read()


def test_who_has_left_the_slab_reads_no_ring(run: Run) -> None:
    """Its entry can be another process's."""
    run.slab.segment.leave()
    assert run.producer.contributions.has_news
    for read in (run.producer.contributions.read, lambda: run.producer.contributions.tail):
        with pytest.raises(ValueError, match="has left"):
            read()


def test_deaths_while_a_ring_is_read(stepping: ModuleType) -> None:
    """No process reads what was not popped: the entry is freed. Each step leaves a ring that the sender can use."""

    def make() -> Run:
        run = Run(stepping)
        run.complete()
        return run

    def read(run: Run) -> None:
        run.slab.be(LIVING)
        run.producer.contributions.read()

    for run, died in deaths(make, read):
        assert len(run.unread(0)) in ((0, 1) if died else (0,))
        assert run.completer.has_room(0, 1)


def test_a_damaged_number_of_slots_counts_for_nothing(run: Run) -> None:
    """Its product could wrap around to 0, which is divided by."""
    totals = run.slab.segment.view("histograms")["total"][:5]
    run.set("headers", "opened_us", 1000, 0)
    run.completer.count_delivered(run.batch, 150, 10, 1005)
    before = totals.tolist()
    run.set("headers", "slots", 1 << 62, 0)
    run.completer.count_delivered(run.batch, 150, 10, 1005)
    assert totals.tolist() == [before[0], before[1] + 5, *before[2:]]
