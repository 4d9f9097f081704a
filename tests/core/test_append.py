"""The core's append: the statuses, and no record lost, torn or doubled by a death."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

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
    outcome = producer.core.append_batch(PARTITION, lane + 1, 5, 0, body_of(b"a"), 0, buffer.slot, True)
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
            producer.core.append_rows(*rows_for(producer, 0, [b"a"], 0))
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
        core.write_first(0, 0, bytes(SLOT_SIZE))
    with pytest.raises(ValueError, match="65 batches, of 64"):
        core.append_batches(0, 0, 0, [Buffer()] * 65, True)
    calls = (
        lambda: core.append(20, 0, 0, 0, b"", 0),
        lambda: core.append_batch(0, 0, 0, 0, b"", 0, 4, True),
        lambda: core.begin(0, 4, 0, 0, 0, 0, 0, 0),
        lambda: core.append_rows(0, 0, 0, Buffer(4, 1, 1), 0, b"", 0, 0, 0),
        lambda: core.append_batches(0, 0, 0, [Buffer(4, 1, 1)], True),
        lambda: core.write_first(4, 0, b""),
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


def encoded(values: list[bytes], first: int = 0, base_timestamp: int = 0, timestamp: int = 0) -> bytes:
    """Return records as columns encode them."""
    return b"".join(
        v2.encode_record(index, timestamp, base_timestamp, body_of(value)) for index, value in enumerate(values, first)
    )


def rows_for(producer: Producer, slot: int, values: list[bytes], timestamp: int) -> tuple[Any, ...]:
    """Return the arguments of `Appender.append_rows` for the batch in a slot as it is now."""
    headers = producer.slab.segment.view("headers")
    commit, base, generation = (int(headers[name][slot]) for name in ("commit", "base_timestamp", "generation"))
    rows = encoded(values, commit >> 1 & 0xFFFFFF, base, timestamp)
    batch = producer.slab.core.Buffer(slot, 1, generation)
    return PARTITION, 0, 0, batch, commit, rows, len(values), timestamp, 99


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


def begin_all(producer: Producer, batches_of: list[list[bytes]], timestamp: int) -> list[Buffer]:
    """Write whole batches into new slots."""
    slab, buffers = producer.slab, producer.slab.take(1, len(batches_of))
    data = slab.segment.writable()
    for buffer, values in zip(buffers, batches_of, strict=True):
        records = encoded(values, 0, timestamp, timestamp)
        begin = len(data) - (slab.slot_count - buffer.slot) * SLOT_SIZE + v2.HEADER_SIZE
        data[begin : begin + len(records)] = records
        size = v2.HEADER_SIZE + len(records)
        producer.core.begin(PARTITION, buffer.slot, 1_000_000, size, len(values), timestamp, timestamp, 99)
    return buffers


def test_rows_go_into_an_open_batch_that_is_as_it_was(slab: Slab) -> None:
    producer, other = Producer(slab, linger_ms=2), Producer(slab, entry=2, linger_ms=50)
    other.append(body_of(b"first"), 10)
    slab.be(LIVING)
    rows = rows_for(producer, 0, [b"a", b"b"], 1)
    assert producer.core.append_rows(*rows)[:2] == (NOT_CONTRIBUTOR, 1 << 24)
    producer.contributions.expect(1 << 24, "of a thread that has withdrawn it")
    producer.contributions.withdraw(1 << 24)
    producer.contributions.expect(1 << 24, "t-3")
    status, result, is_full, is_new, _ = producer.core.append_rows(*rows)
    assert (status, result.batch, is_full, is_new) == (LOCK_TAKEN, 1 << 24, True, False), "it is due earlier"
    assert records_of(slab) == [(b"first", 10), (b"a", 1), (b"b", 1)]
    words = {name: int(slab.segment.view("headers")[name][0]) for name in ("max_record", "linger")}
    assert words == {"max_record": 99, "linger": 2 << 8}
    assert slab.segment.view("headers")["contributors"][0].tolist() == [1 << LIVING | 1 << 2]
    assert slab.get("processes", "records", LIVING) == 2
    assert producer.core.append_rows(*rows)[0] == NO_ROOM, "the batch has grown since"
    other.append(body_of(bytes(150)))
    other.append(body_of(bytes(150)))
    slab.be(LIVING)
    assert producer.core.append_rows(*rows_for(producer, 0, [b"late"], 1))[0] == NO_ROOM, "it is closed"
    slot = queued(slab)[-1][0]
    rows = rows_for(producer, slot, [b"late"], 1)
    slab.add("headers", "generation", 1, slot)
    producer.contributions.expect(rows[4], "t-3")
    assert producer.core.append_rows(*rows)[0] == NO_ROOM, "another batch is in its slot"
    assert violations(slab.segment) == []


def test_damage_keeps_all_batches_out(slab: Slab, producer: Producer) -> None:
    producer.append(body_of(b"open"))
    buffers = begin_all(producer, [[b"a"], [b"b"]], 0)
    for buffer in buffers:
        producer.contributions.expect(buffer.batch, "t-3")
    slab.set("partitions", "open", 0, PARTITION)
    slab.set("partitions", "tail", 99, PARTITION)
    with pytest.raises(Damaged, match="leads to slot 98"):
        producer.core.append_batches(PARTITION, 0, 0, buffers, True)
    assert all(map(slab.pool.is_taken, buffers))
    assert slab.core.SlabLock(slab.segment, LOCK_STRIPES + PARTITION).owner == 0
    assert slab.get("partitions", "tail", PARTITION) == 1


def test_rows_that_fill_a_batch_make_it_full_and_more_find_no_room(slab: Slab, producer: Producer) -> None:
    producer.append(body_of(b"first"))
    rest = SLOT_SIZE - (slab.get("headers", "commit") >> 25)
    assert producer.core.append_rows(*rows_for(producer, 0, [bytes(rest)], 0))[0] == NO_ROOM
    assert producer.core.append_rows(*rows_for(producer, 0, [bytes(rest - 9)], 0))[::2] == (LOCK_TAKEN, True, 0)


def test_batches_are_appended_at_once_and_the_open_one_is_closed() -> None:
    slab = Slab(6, slot_size=SLOT_SIZE)
    producer = Producer(slab)
    producer.append(body_of(b"open"), 1)
    buffers = begin_all(producer, [[b"a", b"b"], [b"c"], [b"d"]], 7)
    assert producer.core.append_batches(PARTITION, 0, 0, buffers, True)[:2] == (NOT_CONTRIBUTOR, buffers[0].batch)
    for buffer in buffers:
        producer.contributions.expect(buffer.batch, "t-3")
    tail = slab.word("processes", "ring_tail", LIVING)
    slab.words[tail] += 1
    assert producer.core.append_batches(PARTITION, 0, 0, buffers, True)[0] == RING_UNREAD
    slab.words[tail] -= 1
    outcome = producer.core.append_batches(PARTITION, 0, 0, buffers, True)
    assert (outcome[0], outcome[3]) == (LOCK_TAKEN, True)
    states = [SlotState.CLOSED] * 3 + [SlotState.OPEN]
    assert [(state, count) for state, count, _ in batches(slab)] == list(zip(states, (1, 2, 1, 1), strict=True))
    assert records_of(slab) == [(b"open", 1), (b"a", 7), (b"b", 7), (b"c", 7), (b"d", 7)]
    size = sum(len(data) - v2.HEADER_SIZE for _, _, data in batches(slab))
    assert [slab.get("processes", name, LIVING) for name in ("records", "batches", "bytes")] == [5, 4, size]
    assert violations(slab.segment) == []
    buffers = begin_all(producer, [[b"e"]], 8)
    producer.contributions.expect(buffers[0].batch, "t-3")
    assert producer.core.append_batches(PARTITION, 0, 0, buffers, False)[0] == LOCK_TAKEN
    assert [state for state, _, _ in batches(slab)] == [SlotState.CLOSED] * 5


def test_rows_and_batches_of_a_transaction_that_has_ended(slab: Slab, producer: Producer) -> None:
    producer.append(body_of(b"open"))
    rows = rows_for(producer, 0, [b"a"], 0)
    assert producer.core.append_rows(PARTITION, 1, 7, *rows[3:])[0] == LEASE_OVER
    assert producer.core.append_batches(PARTITION, 1, 7, begin_all(producer, [[b"a"]], 0), True)[0] == LEASE_OVER
    assert records_of(slab) == [(b"open", 0)]


# --- deaths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", STARTS)
def test_a_death_at_any_step_keeps_rows_together_and_batches_whole(stepping: ModuleType, start: str) -> None:
    """Rows of one section are there all or none; of several batches, the first ones."""
    before = records_at(*STARTS[start])
    whole = [*before, *[(b"x", 50), (b"y", 50)] * bool(before), *((value, 60) for value in (b"1", b"2", b"3", b"4"))]
    most = len(before)

    def begin() -> Producer:
        survivor = Producer(Slab(6, stepping, SLOT_SIZE), stepping)
        for value, timestamp in before:
            survivor.append(body_of(value), timestamp)
        return survivor

    def append(survivor: Producer) -> None:
        slab = survivor.slab
        victim = Producer(slab, stepping, DYING)
        if opened := slab.get("partitions", "open", PARTITION):
            rows = rows_for(victim, opened - 1, [b"x", b"y"], 50)
            victim.contributions.expect(rows[3].batch, "t-3")
            assert victim.core.append_rows(*rows)[0] == LOCK_TAKEN
        buffers = begin_all(victim, [[b"1", b"2"], [b"3"], [b"4"]], 60)
        for buffer in buffers:
            victim.contributions.expect(buffer.batch, "t-3")
        assert victim.core.append_batches(PARTITION, 0, 0, buffers, True)[0] == LOCK_TAKEN

    for survivor, _ in deaths(begin, append):
        found = recovered(survivor.slab, whole, most)
        most = len(found)
        assert [value for value, _ in found][-1:] not in ([b"x"], [b"1"]), "the other row is there, too"
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
    assert append(PARTITION, 0, 0, 0, body_of(b"a" * 175), 0, buffer.slot, True)[0] == RING_UNREAD
    slab.add("processes", "ring_head", 1, LIVING)
    assert append(PARTITION, 0, 0, 0, body_of(b"a" * 175), 0, buffer.slot, True)[0] == LOCK_TAKEN
    slab.words[tail] += 1
    assert producer.try_append(body_of(b"b"))[0] == LOCK_TAKEN, "it is a contributor"
