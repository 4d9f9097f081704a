"""A batch by the words of its header: what they say, where its bytes are, and which damage is seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from core_producers import PARTITION, SLOT_SIZE, Producer, body_of
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


def store(slab: Slab, slot: int = 0, **words: int) -> None:
    """Store words of a header."""
    for name, value in words.items():
        slab.set("headers", name, value, slot)


def first(slab: Slab) -> _core.RecordBatch:
    return _core.RecordBatch(slab.segment, 0)


def test_a_batch_names_its_words(slab: Slab) -> None:
    batch = first(slab)
    assert (batch.slot, batch.partition, batch.state) == (0, PARTITION, SlotState.OPEN)
    assert batch.at == slab.word("headers", "state")
    assert batch.partition_at == slab.word("partitions", "key", PARTITION)
    assert (batch.record_count, batch.size, batch.stored_size) == (1, HEADER + RECORD, HEADER + RECORD)
    assert (batch.base_timestamp, batch.max_timestamp, batch.contents()) == (7, 7, (1, 7, 7))
    assert batch.contributors() == [0]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.identity()) == (-1, -1, -1, (-1,) * 3)
    batch.state = SlotState.CLOSED
    assert slab.get("headers", "state") == 1 << 48 | SlotState.CLOSED, "its owner stays"
    store(slab, compressed=100 << 8 | 4, linger=25 << 8 | 4, limits=3 << 32 | 9)
    assert (batch.stored_size, batch.compressed & 0xFF, batch.linger_ms, batch.wanted) == (100, 4, 25, 4)
    assert batch.limits == 3 << 32 | 9


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


# --- bytes ----------------------------------------------------------------------------------------


def begin_of(slab: Slab, slot: int) -> int:
    return len(bytes(slab.segment)) - (slab.slot_count - slot) * SLOT_SIZE


def chain(slab: Slab, *slots: int, size: int) -> None:
    """Make the first batch one of these slots."""
    for slot, following in zip((0, *slots), (*slots, -1), strict=True):
        store(slab, slot, chain=following + 1)
    store(slab, slots=len(slots) + 1, commit=size << 25 | 2)


def test_adjacent_slots_are_one_place(slab: Slab) -> None:
    places = first(slab).places()
    assert places == [(begin_of(slab, 0), begin_of(slab, 0) + HEADER + RECORD)]
    chain(slab, 1, 4, 5, size=3 * SLOT_SIZE + 10)
    one, other = begin_of(slab, 0), begin_of(slab, 4)
    assert first(slab).places() == [(one, one + 2 * SLOT_SIZE), (other, other + SLOT_SIZE + 10)]
    views = first(slab).views()
    assert views is not None
    views[1][-1:] = b"!"
    assert bytes(slab.segment)[other + SLOT_SIZE + 9] == ord("!")


def test_a_broken_chain_has_no_places(slab: Slab) -> None:
    """It has the wrong length, or leads nowhere, out of the slab, in a circle, or into another batch."""
    for slot, words in (
        *((0, {"slots": slots}) for slots in (0, 7, (1 << 64) - 1)),
        (0, {"commit": (3 * SLOT_SIZE + 1) << 25 | 2}),
        *((0, {"chain": link}) for link in (0, 1, 8, 1 << 63)),
        (2, {"chain": 3}),
        (4, {"state": SlotState.CLOSED}),
    ):
        chain(slab, 2, 4, size=3 * SLOT_SIZE)
        assert first(slab).places() is not None
        store(slab, slot, **words)
        assert first(slab).places() is first(slab).views() is None


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values"),
    [
        # No record, no byte, too many bytes.
        ("commit", [(HEADER + RECORD) << 25, HEADER << 25 | 2, (SLOT_SIZE + 1) << 25 | 2]),
        ("compressed", [HEADER << 8 | 1, (SLOT_SIZE + 1) << 8 | 1]),
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
