"""The core's append: the statuses, and no record lost, torn or doubled by a death."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from core_producers import (
    NO_ROOM,
    NOT_CONTRIBUTOR,
    PARTITION,
    SLOT_SIZE,
    STARTS,
    Producer,
    batches,
    body_of,
    queued,
    records_at,
    records_of,
    recovered,
)
from core_slabs import DYING, LIVING, Damaged, Slab, deaths

from shmaccum import _core
from shmaccum._core import LOCK_BUSY, LOCK_REJOIN, LOCK_STRIPES, LOCK_TAKEN, Buffer
from shmaccum.record import v2
from shmaccum.shm.layout import SlotState
from tools.support.oracle import violations

RING_UNREAD, LEASE_OVER = _core.APPEND_RING_UNREAD, _core.APPEND_LEASE_OVER


# --- statuses -------------------------------------------------------------------------------------


def test_a_batch_that_left_its_slot_was_expected_in_vain(producer: Producer) -> None:
    contributions, old, new = producer.contributions, 1 << 24 | 2, 2 << 24 | 2
    result = contributions.expect(old, "t-3")
    assert contributions.expect(old, "t-3") is result
    assert contributions.results == {old: result}
    assert contributions.expect(new, "t-3") is not result
    assert list(contributions.results) == [new]
    assert result.done, "who waits for it goes on"
    contributions.withdraw(old)
    assert contributions.is_expected(new)
    contributions.withdraw(new)
    assert not contributions.results

    batch = producer.append(body_of(b"a"))[1].batch
    later = contributions.expect(batch + (1 << 24), "t-3").batch
    contributions.withdraw(batch)
    assert list(contributions.results) == [batch, later], "its slot holds another one before its completion is read"


@pytest.mark.parametrize(
    ("word", "value"),
    [("generation", 1 << 40 | 5), ("generation", 6), ("producer_id", 0), ("error", 1 << 16)],
)
def test_a_lease_that_is_over_takes_no_record(slab: Slab, word: str, value: int) -> None:
    lane = 1
    slab.set("lanes", "generation", 5, lane)
    slab.set("lanes", "producer_id", 9, lane)
    producer = Producer(slab)
    assert producer.try_append(body_of(b"a"), 0, lane + 1, 5)[0] == NO_ROOM
    slab.set("lanes", word, value, lane)
    assert producer.try_append(body_of(b"a"), 0, lane + 1, 5)[0] == LEASE_OVER
    buffer = producer.begin(body_of(b"a"))
    outcome = producer.core.append_batch(PARTITION, lane + 1, 5, 0, body_of(b"a"), 0, buffer.slot)
    assert outcome[0] == LEASE_OVER
    assert batches(slab) == []


def test_nothing_is_appended_without_the_lock(slab: Slab, producer: Producer) -> None:
    producer.append(body_of(b"a"))
    stripe = slab.core.SlabLock(slab.segment, LOCK_STRIPES + PARTITION)
    slab.be(2)
    assert stripe.acquire_now() == LOCK_TAKEN
    assert producer.try_append(body_of(b"b"))[0] == LOCK_BUSY
    slab.be(2)
    stripe.release(unfinished=True)
    slab.set("partitions", "open", 3, PARTITION)
    assert producer.try_append(body_of(b"b"))[0] == LOCK_TAKEN, "rebuilt before that"
    assert slab.get("superblock", "rebuilds") == 1
    assert stripe.owner == 0
    slab.segment.leave()
    assert producer.core.append(PARTITION, 0, 0, 0, body_of(b"b"), 0)[0] == LOCK_REJOIN
    assert [count for _, count, _ in batches(slab)] == [2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([("partitions", "open", 5, PARTITION)], "the open batch of partition entry 3 is in slot 4"),
        ([("partitions", "open", 1 << 63, PARTITION)], "the open batch of partition entry 3 is in slot"),
        ([("headers", "generation", 0, 0)], "the open batch of partition entry 3 is in slot 0"),
        ([("headers", "generation", 1 << 40, 0)], "the open batch of partition entry 3 is in slot 0"),
        ([("headers", "partition", 4, 0)], "a link in the deque of partition entry 3 leads to slot 0"),
        ([("headers", "state", 0, 0)], "a link in the deque of partition entry 3 leads to slot 0"),
        (
            [("partitions", "open", 0, PARTITION), ("partitions", "tail", 1 << 63, PARTITION)],
            "a link in the deque of partition entry 3 leads to slot",
        ),
    ],
)
def test_a_damaged_deque_is_an_error(slab: Slab, producer: Producer, words: list[Any], said: str) -> None:
    producer.append(body_of(b"a" * 150))
    for word in words:
        slab.set(*word)
    with pytest.raises(Damaged, match=said):
        producer.append(body_of(b"b" * 150))
    if words == [("headers", "generation", 0, 0)]:
        with pytest.raises(Damaged, match=said):
            Columns(producer, [b"a"]).append()
    assert slab.core.SlabLock(slab.segment, LOCK_STRIPES + PARTITION).owner == 0
    if words[0][0] == "partitions":
        producer.append(body_of(b"b" * 150))
        assert violations(slab.segment) == []


def test_a_damaged_commit_word_gives_no_room() -> None:
    for commit in (1 << 63, (SLOT_SIZE + 1) << 25 | 2, 100 << 25 | 0xFFFFFF << 1):
        slab = Slab(4, slot_size=SLOT_SIZE)
        producer = Producer(slab)
        producer.append(body_of(b"a"))
        slab.set("headers", "commit", commit, 0)
        assert producer.try_append(body_of(b"b"))[0] == NO_ROOM


def test_places_that_do_not_exist_are_refused_and_so_is_a_closed_appender(slab: Slab) -> None:
    contributions, core = Producer(slab).contributions, Producer(slab).core
    with pytest.raises(IndexError):
        contributions.expect(4, "t-3")
    contributions.withdraw(4)
    with pytest.raises(IndexError):
        core.append(0, 3, 0, 0, b"", 0)
    with pytest.raises(ValueError, match="does not fit"):
        core.begin(0, Buffer(0, 1, 0), 0, 0, bytes(SLOT_SIZE))
    calls = (
        lambda: core.append(20, 0, 0, 0, b"", 0),
        lambda: core.append_batch(0, 0, 0, 0, b"", 0, 4),
        lambda: core.begin(0, Buffer(4, 1, 0), 0, 0, b""),
    )
    for call in calls:
        with pytest.raises(IndexError):
            call()
    before = sys.getrefcount(slab.segment)
    core.close()
    after = sys.getrefcount(slab.segment)
    assert after == before - 1, "it keeps no memory"
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()


# --- rows of columns ------------------------------------------------------------------------------


QUEUE = SimpleNamespace(topic_partition="t-3", lane=0)


class Columns:
    """Values as rows for a producer."""

    def __init__(
        self, producer: Producer, values: list[bytes], timestamp: int = 0, core: Any = _core, queue: Any = QUEUE
    ) -> None:
        self.producer, self.queue, self.freed = producer, queue, list[Buffer]()
        offsets = np.cumsum([0, *map(len, values)])
        cells = core.Cells(len(values), 0, 8, 0, None, offsets, b"".join(values))
        self.sizes = np.empty(len(values), np.int64)
        bodies = core.Bodies(2, None, cells, None, self.sizes, np.array([timestamp]))
        self.rows = core.Rows(bodies, None, 0, len(values))

    def append(self, lane: int = 0, lane_generation: int = 0) -> tuple[Any, ...]:
        self.producer.slab.be(self.producer.entry)
        outcome: tuple[Any, ...] = self.rows.append(
            PARTITION, lane, lane_generation, self.producer.core, self.queue, self.free_unused
        )
        return outcome

    def free_unused(self) -> None:
        for (buffer,) in self.producer.core.unused.values():
            self.producer.contributions.withdraw(buffer.batch)
            self.producer.slab.pool.free(buffer)
            self.freed.append(buffer)
        self.producer.core.unused.clear()

    def append_all(self) -> None:
        while self.rows.left:
            status, batch, *_ = self.append()
            if status == NOT_CONTRIBUTOR:
                self.producer.contributions.expect(batch, "t-3")
            else:
                assert status == LOCK_TAKEN


def test_a_batch_that_is_not_begun_is_not_the_open_one(slab: Slab) -> None:
    """The open batch is sent, and its slot allocated again, while a producer looks: the other words are old."""
    producer = Producer(slab)
    assert producer.core.open_batch(PARTITION) is None
    producer.append(body_of(b"first"), 10)
    seen = producer.core.open_batch(PARTITION)
    assert seen is not None
    assert (seen[0], seen[1] >> 1 & 0xFFFFFF, seen[2]) == (Buffer(0, 1, 1), 1, 10)
    at = slab.word("headers", "state", 0)
    state = slab.words[at]
    slab.words[at] = state & ~0xFF | 1
    assert producer.core.open_batch(PARTITION) is None
    slab.words[at] = state
    slab.words[slab.word("headers", "partition", 0)] = PARTITION + 1
    assert producer.core.open_batch(PARTITION) is None


def test_rows_go_into_an_open_batch_and_into_new_ones() -> None:
    slab = Slab(6, slot_size=SLOT_SIZE)
    other = Producer(slab, entry=2, linger_ms=50)
    other.append(body_of(b"first"), 10)
    producer = Producer(slab, linger_ms=2, max_bytes=SLOT_SIZE)
    columns = Columns(producer, [b"a" * 80, b"b", b"c" * 80, b"d" * 80, b"e" * 80], 7)
    assert columns.append()[:2] == (NOT_CONTRIBUTOR, 1 << 24)
    producer.contributions.expect(1 << 24, "t-3")
    columns.append_all()
    values = [b"first", b"a" * 80, b"b", b"c" * 80, b"d" * 80, b"e" * 80]
    assert records_of(slab) == list(zip(values, [10, *[7] * 5], strict=True))
    states = [SlotState.CLOSED] * 2 + [SlotState.OPEN]
    assert [(state, count) for state, count, _ in batches(slab)] == list(zip(states, (3, 2, 1), strict=True))
    assert [result.batch & 0xFFFFFF for result in columns.rows.results] == [slot for slot, _ in queued(slab)]
    assert (columns.rows.cuts, columns.rows.firsts) == ([0, 2, 4, 5], [1, 0, 0])
    assert columns.rows.is_news
    assert columns.rows.take_news(), "a full batch"
    assert not columns.rows.is_news
    words = {name: int(slab.segment.view("headers")[name][0]) for name in ("max_record", "linger")}
    assert words == {"max_record": 89, "linger": 2 << 8}, "it is due earlier"
    size = sum(len(data) - v2.HEADER_SIZE for _, _, data in batches(slab)) - 12
    assert [slab.get("processes", name, LIVING) for name in ("records", "batches", "bytes")] == [5, 2, size]
    assert not columns.freed
    assert violations(slab.segment) == []


def test_rows_make_a_batch_grow_and_lie_in_several_slots() -> None:
    slab = Slab(12, slot_size=SLOT_SIZE)
    producer = Producer(slab, max_bytes=4 * SLOT_SIZE)
    slab.set("partitions", "in_flight", 1, PARTITION)
    values = [bytes([number]) * (number % 50) for number in range(1, 60)]
    columns = Columns(producer, values)
    columns.append_all()
    assert [value for value, _ in records_of(slab)] == values
    assert next(len(slab.chain(Buffer(slot, 1, 0))) for slot, _ in queued(slab)) == 4
    assert violations(slab.segment) == []


def test_rows_wait_for_memory_and_for_completions_to_be_read(slab: Slab) -> None:
    producer = Producer(slab, max_bytes=SLOT_SIZE)
    columns = Columns(producer, [b"a", bytes(2 * SLOT_SIZE), bytes(9 * SLOT_SIZE)])
    tail = slab.word("processes", "ring_tail", LIVING)
    slab.words[tail] += 1
    assert columns.append()[0] == RING_UNREAD
    slab.words[tail] -= 1
    assert columns.append()[0] == NO_ROOM
    assert columns.rows.left == 1, "there are not as many slots"
    assert [len(slab.chain(Buffer(slot, 1, 0))) for slot, _ in queued(slab)] == [1, 3]
    assert columns.rows.next_record() == (0, body_of(bytes(9 * SLOT_SIZE)))
    slab.take(1)
    assert Columns(producer, [b"b"]).append()[0] == NO_ROOM
    assert Columns(Producer(slab), [b"c"]).append()[0] == NO_ROOM, "a producer without a pool"


def test_a_row_goes_into_a_batch_that_another_process_has_begun_meanwhile(slab: Slab) -> None:
    other, producer = Producer(slab, entry=2), Producer(slab, max_bytes=SLOT_SIZE)

    class Meanwhile:
        """A deque to which another process appends before it is asked for its partition."""

        lane = 0

        @property
        def topic_partition(self) -> str:
            other.append(body_of(b"theirs"), 10)
            slab.be(LIVING)
            producer.contributions.expect(1 << 24 | queued(slab)[0][0], "t-3")
            return "t-3"

    columns = Columns(producer, [b"mine", b"too"], 20, queue=Meanwhile())
    assert columns.append()[0] == LOCK_TAKEN
    assert records_of(slab) == [(b"theirs", 10), (b"mine", 20), (b"too", 20)]
    assert (columns.rows.cuts, columns.rows.firsts) == ([0, 2], [1])
    assert len(columns.freed) == 1
    assert slab.pool.free_slots == 3
    assert violations(slab.segment) == []


@pytest.mark.parametrize(("size", "rows"), [(0, 1 << 13), (1 << 12, 1 << 8)], ids=["by rows", "by bytes"])
def test_a_call_ends_after_many_rows_so_that_an_event_loop_goes_on(size: int, rows: int) -> None:
    slab = Slab(256, slot_size=SLOT_SIZE << 8)
    columns = Columns(Producer(slab, batch_size=SLOT_SIZE << 8, max_bytes=SLOT_SIZE << 8), [bytes(size)] * 3 * rows)
    assert columns.append()[0] == LOCK_TAKEN
    assert 2 * rows - 256 <= columns.rows.left <= 2 * rows


def test_a_batch_takes_no_more_rows_than_its_word_counts(slab: Slab) -> None:
    producer = Producer(slab)
    producer.append(body_of(b"first"))
    commit = slab.get("headers", "commit", 0)
    slab.set("headers", "commit", commit & ~(0xFFFFFF << 1) | (0xFFFFFF - 3) << 1, 0)
    columns = Columns(producer, [b""] * 9)
    columns.append_all()
    assert [count for _, count in queued(slab)] == [0xFFFFFF, 6]


def test_rows_of_a_transaction_that_has_ended(slab: Slab, producer: Producer) -> None:
    producer.append(body_of(b"open"))
    assert Columns(producer, [b"a"]).append(1, 7)[0] == LEASE_OVER
    assert records_of(slab) == [(b"open", 0)]


# --- deaths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", STARTS)
def test_a_death_at_any_step_keeps_the_first_rows(stepping: ModuleType, start: str) -> None:
    before = records_at(*STARTS[start])
    values = [b"x", b"y", b"z" * 150, b"1", b"2"]
    whole = [*before, *((value, 60) for value in values)]
    most = len(before)

    def begin() -> Producer:
        survivor = Producer(Slab(6, stepping, SLOT_SIZE), stepping)
        for value, timestamp in before:
            survivor.append(body_of(value), timestamp)
        return survivor

    def append(survivor: Producer) -> None:
        Columns(Producer(survivor.slab, stepping, DYING, max_bytes=SLOT_SIZE), values, 60, stepping).append_all()

    for survivor, _ in deaths(begin, append):
        found = recovered(survivor.slab, whole, most)
        most = len(found)
        survivor.append(body_of(b"after"), 5)
        assert records_of(survivor.slab) == [*found, (b"after", 5)]
    assert most == len(whole)


def test_a_process_with_unread_completions_contributes_to_no_further_batch(slab: Slab) -> None:
    Producer(slab, entry=2).append(body_of(b"theirs"))
    producer = Producer(slab)
    tail = slab.word("processes", "ring_tail", LIVING)
    slab.words[tail] += 1
    assert producer.try_append(body_of(b"a"))[0] == RING_UNREAD
    buffer = producer.begin(body_of(b"a" * 175))
    producer.contributions.expect(buffer.generation << 24 | buffer.slot, "t-3")
    append = producer.core.append_batch
    assert append(PARTITION, 0, 0, 0, body_of(b"a" * 175), 0, buffer.slot)[0] == RING_UNREAD
    slab.add("processes", "ring_head", 1, LIVING)
    assert append(PARTITION, 0, 0, 0, body_of(b"a" * 175), 0, buffer.slot)[0] == LOCK_TAKEN
    slab.words[tail] += 1
    assert producer.try_append(body_of(b"b"))[0] == LOCK_TAKEN, "it is a contributor"
