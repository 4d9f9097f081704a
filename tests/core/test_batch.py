"""A batch by the words of its header: the numbers of a split one, and which damage is seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from core_producers import SLOT_SIZE, Producer, body_of
from core_slabs import Slab

from shmaccum import _core
from shmaccum.shm.layout import SlotState

HEADER = 61
RECORD = 150 + 9
"""Bytes of a record of 150 bytes."""


@pytest.fixture
def slab() -> Iterator[Slab]:
    """A slab with an open batch of one record in slot 0, which process 0 has written."""
    slab = Slab(6, slot_size=SLOT_SIZE)
    Producer(slab).append(body_of(b"x" * 150), timestamp=7)
    yield slab
    slab.close()


def store(slab: Slab, **words: int) -> None:
    """Store words of the batch's header."""
    for name, value in words.items():
        slab.set("headers", name, value)


def first(slab: Slab) -> _core.RecordBatch:
    return _core.RecordBatch(slab.segment, 0)


def test_a_split_batch_keeps_its_numbers(slab: Slab) -> None:
    batch = first(slab)
    store(slab, commit=500 << 25 | 10 << 1)
    store(slab, producer_id=5, sequence=3 << 32 | (1 << 31) - 3)
    assert batch.identity() == (4, 2, (1 << 31) - 3)
    assert not batch.is_split
    batch.cut(4)
    store(slab, part=4 << 24 | 4)
    assert (batch.is_split, batch.part_end, batch.result_end) == (True, 4, 4)
    batch.complete_part(never_stored=True)
    assert (batch.completed, batch.skipped, batch.identity()[2]) == (4, 4, (1 << 31) - 3)
    store(slab, part=8 << 24 | 8)
    batch.complete_part(never_stored=False)
    assert (batch.completed, batch.skipped, batch.identity()[2]) == (8, 4, 1), "they wrap around"
    batch.write_off()
    assert (batch.is_split, batch.completed) == (False, 0)


def test_a_batch_that_has_been_tried_stays_so(slab: Slab) -> None:
    """However often, as without back-off: 0 attempts say that the broker cannot have it."""
    batch = first(slab)
    for before, after in ((0, 1), (1, 2), (65_534, 65_535), (65_535, 65_535)):
        store(slab, attempts=before << 48 | 5)
        batch.note_attempt(7)
        assert (batch.attempts, batch.last_attempt_ms) == (after, 7)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        # No record, no byte, too many bytes.
        ("commit", [(HEADER + RECORD) << 25, HEADER << 25 | 2, (SLOT_SIZE + 1) << 25 | 2]),
        ("completed", [2]),
        ("slots", [0, 7, 1 << 62]),
        ("base_timestamp", [1 << 63]),
        ("max_timestamp", [1 << 63]),
        ("sequence", [1 << 32 | 1 << 31, (1 << 15) + 1 << 32]),
        ("producer_id", [1 << 63]),
    ],
)
def test_a_damaged_word_is_seen_before_it_is_used(slab: Slab, name: str, values: list[int]) -> None:
    assert first(slab).is_sound(HEADER)
    for value in values:
        store(slab, **{name: value})
        assert not first(slab).is_sound(HEADER)


def test_a_batch_of_no_slot_or_no_partition_is_none(slab: Slab) -> None:
    with pytest.raises(IndexError, match="slot 6 of 6"):
        _core.RecordBatch(slab.segment, 6)
    store(slab, partition=20)
    with pytest.raises(IndexError, match="slot 0 holds a batch of partition entry 20, of 20"):
        first(slab)


def test_what_is_undelivered_is_counted_in_the_words_of_any_mapping(slab: Slab) -> None:
    assert _core.undelivered(slab.words, slab.segment.geometry) == (1, 1)
    copy = memoryview(bytes(slab.words)).cast("Q")
    assert _core.undelivered(copy, slab.segment.geometry) == (1, 1)
    store(slab, completed=5)  # more than was committed: read in the middle of a change, or damaged
    assert _core.undelivered(slab.words, slab.segment.geometry) == (1, 0)
    store(slab, state=SlotState.ALLOCATED)
    assert _core.undelivered(slab.words, slab.segment.geometry) == (0, 0)
    with pytest.raises(ValueError, match="10 words"):
        _core.undelivered(slab.words[:10], slab.segment.geometry)


def test_times_and_attempts(slab: Slab) -> None:
    batch = first(slab)
    batch.renew(500)
    batch.renew(600)
    assert (batch.renewals, batch.created_ms) == (2, 600)
    batch.bring_back(550)
    assert (batch.renewals, batch.created_ms) == (2, 550)
    assert batch.attempt_incident == 0
    batch.note_attempt(700, incident=12)
    assert (batch.attempts, batch.last_attempt_ms, batch.attempt_incident) == (1, 700, 12)
    store(slab, result=12 << 16 | 3)
    assert batch.attempt_incident == 0, "a result, not an incident"
