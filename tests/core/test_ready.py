"""The ready check and the drain over a slab of the test's own: what they choose, and what they take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import pytest
from core_producers import PARTITION, SLOT_SIZE, Producer, body_of
from core_slabs import LIVING, Damaged, Slab

from shmaccum import _core
from shmaccum._core import ATTEMPTS_SHIFT, LOCK_BUSY, LOCK_STRIPES, LOCK_TAKEN
from shmaccum.shm.layout import SlotState
from tools.support.oracle import violations

NODE = 7
LEADER = NODE + 1
FURTHER = 1 << 32
"""Makes a leader one by a further connection."""
OTHER = PARTITION + 16
"""A partition of the same stripe."""
BODY = 150
BATCH = 61 + BODY + 8
"""Bytes of a batch of one record."""
LINGER_MS = 5
CREATED_MS = 1000
NEVER = float("inf")


class Ready:
    """A ready check of a slab with a producer; what it appends was created at `CREATED_MS`."""

    def __init__(self) -> None:
        self.slab = Slab(8, slot_size=SLOT_SIZE)
        self.producer = Producer(self.slab, linger_ms=LINGER_MS)
        self.check = _core.ReadyCheck(self.slab.segment, self.slab.pool, Damaged, 1)
        self.check.set_leader(PARTITION, LEADER, 0)
        self.check.set_backoff(100, 100)

    def append(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.producer.append(body_of(b"x" * BODY))
        self.set("headers", "attempts", CREATED_MS, *range(8))

    def set(self, region: str, name: str, value: int, *entries: int) -> None:
        for entry in entries or (PARTITION,):
            self.slab.set(region, name, value, entry)

    def word(self, region: str, name: str, entry: int = PARTITION) -> int:
        return self.slab.get(region, name, entry)

    def at(self, now_ms: int) -> tuple[set[int], set[int], list[int], float]:
        return self.check.ready(now_ms, True)

    def choose(self, now_ms: int = CREATED_MS, **how: int) -> tuple[list[int], int, int, int, list[int]]:
        how = {"leader": LEADER, "begin": 0, "max_size": 1 << 20, "may_leave": 9} | how
        return self.check.choose(now_ms=now_ms, **how)

    def drain(self, now_ms: int = CREATED_MS, **how: int) -> list[int]:
        busy, *_ = self.choose(now_ms, **how)
        assert busy == []
        return self.check.taken()


def append_other(ready: Ready, entry: int = OTHER) -> int:
    """Append a closed batch to another partition; return its slot."""
    ready.check.set_leader(entry, LEADER, 0)
    (other,) = ready.slab.take(1)
    ready.producer.core.begin(entry, other, 1000 * CREATED_MS, 0, body_of(b"x" * BODY))
    ready.producer.contributions.expect(other.batch, f"t-{entry}")
    outcome = ready.producer.core.append_batch(entry, 0, 0, 0, body_of(b"x" * BODY), 0, other.slot)
    assert outcome[0] == LOCK_TAKEN
    ready.set("headers", "state", SlotState.CLOSED, other.slot)
    ready.set("partitions", "open", 0, entry)
    return other.slot


@contextmanager
def locked(ready: Ready) -> Iterator[None]:
    """Let another process hold the partitions' lock, in the block."""
    stripe = _core.SlabLock(ready.slab.segment, LOCK_STRIPES + PARTITION)
    ready.slab.be(2)
    assert stripe.acquire_now() == LOCK_TAKEN
    ready.slab.be(LIVING)
    yield
    ready.slab.be(2)
    stripe.release()
    ready.slab.be(LIVING)


@pytest.fixture
def ready() -> Ready:
    return Ready()


# --- ready ------------------------------------------------------------------------------------------


def test_an_open_batch_that_has_grown_full_is_due(ready: Ready) -> None:
    ready.append()
    ready.set("headers", "commit", SLOT_SIZE << 25 | 2, 0)
    assert ready.at(CREATED_MS) == ({LEADER}, set(), [], NEVER)
    assert ready.choose()[2:4] == (0, -1), "it is not one that may rest"


@pytest.mark.parametrize(("name", "value"), [("muted", 1), ("held", 1), ("in_flight", 1), ("in_flight", 1 << 63)])
def test_a_held_partition_waits_for_an_event(ready: Ready, name: str, value: int) -> None:
    ready.append(2)
    ready.set("partitions", name, value)
    assert ready.at(CREATED_MS + LINGER_MS) == (set(), set(), [], NEVER)
    assert ready.drain() == []


@pytest.mark.parametrize("between", [LEADER + FURTHER, 0])
def test_on_another_connection_nothing_overtakes_what_is_in_flight(ready: Ready, between: int) -> None:
    """Also if the partition has no leader for a while."""
    ready.check = _core.ReadyCheck(ready.slab.segment, ready.slab.pool, Damaged, 5)
    ready.append(4)
    for here, there in ((LEADER, LEADER + FURTHER), (LEADER + FURTHER, LEADER)):
        ready.check.set_leader(PARTITION, here, 0)
        assert ready.drain(leader=here)
        assert ready.at(CREATED_MS)[0] == {here}, "five may be on one connection"
        ready.check.set_leader(PARTITION, between, 0)
        ready.check.set_leader(PARTITION, there, 0)
        assert ready.at(CREATED_MS) == (set(), set(), [], NEVER)
        assert ready.drain(leader=there) == []
        ready.set("partitions", "in_flight", 0)
        assert ready.at(CREATED_MS)[0] == {there}


def test_another_leader_need_not_wait_for_the_one_before_it(ready: Ready) -> None:
    """That can be silent."""
    ready.check = _core.ReadyCheck(ready.slab.segment, ready.slab.pool, Damaged, 5)
    ready.append(3)
    ready.check.set_leader(PARTITION, LEADER, 0)
    assert ready.drain()
    ready.check.set_leader(PARTITION, LEADER + 1 + FURTHER, 0)
    assert ready.at(CREATED_MS)[0] == {LEADER + 1 + FURTHER}


def test_what_a_stopped_process_blocks_is_held_back(ready: Ready) -> None:
    ready.append(2)
    for stripes, partitions in ((1 << PARTITION, []), (0, [PARTITION])):
        ready.check.hold_back(stripes, partitions)
        assert ready.at(CREATED_MS) == (set(), set(), [], NEVER)
        assert ready.drain() == []
    ready.check.hold_back(~(1 << PARTITION) & 0xFFFF, [OTHER])
    assert ready.at(CREATED_MS)[0] == {LEADER}


@pytest.mark.parametrize(
    ("lane", "producer_id", "error", "is_due"),
    [(1, 5, 0, True), (1, 0, 0, False), (1, 5, 9, False), (2, 5, 0, False), (3, 5, 0, False), (4095, 5, 0, False)],
)
def test_only_an_open_lane_sends(ready: Ready, lane: int, producer_id: int, error: int, is_due: bool) -> None:
    ready.append(2)
    ready.set("partitions", "key", lane << 52)
    ready.set("lanes", "producer_id", producer_id, 0)
    ready.set("lanes", "error", error, 0)
    assert bool(ready.at(CREATED_MS)[0]) == is_due


# --- compression ahead ------------------------------------------------------------------------------


def compressing(ready: Ready) -> None:
    """Give a ready check a closed batch that is to be compressed, and one behind it."""
    ready.check.ahead_size = BATCH
    ready.append(2)
    ready.set("headers", "linger", LINGER_MS << 8 | 4, 0, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger", LINGER_MS << 8),  # no compression is wanted
        ("part", 1),
        ("commit", BATCH - 1 << 25 | 2),
    ],
)
def test_other_batches_are_chosen_at_once(ready: Ready, name: str, value: int) -> None:
    compressing(ready)
    ready.set("headers", name, value, 0)
    busy, *_, to_compress = ready.choose()
    assert (busy, to_compress) == ([], [])


def test_requests_count_compressed_bytes(ready: Ready) -> None:
    compressing(ready)
    other = append_other(ready)
    ready.set("headers", "linger", LINGER_MS << 8 | 4, other)
    for slot in (0, other):
        ready.check.set_ahead(slot, 1, 70)
    assert ready.drain(max_size=BATCH) == [0, other]


# --- backoff ----------------------------------------------------------------------------------------


def tried(attempts: int) -> int:
    """Return the word of a batch that came back at `CREATED_MS`."""
    return attempts << ATTEMPTS_SHIFT | CREATED_MS


def test_a_last_attempt_by_another_clock_was_now(ready: Ready) -> None:
    """Else the batch would wait for that clock's time."""
    ready.append(2)
    ready.set("headers", "attempts", 3 << ATTEMPTS_SHIFT | (1 << ATTEMPTS_SHIFT) - 1, 0)
    assert ready.at(CREATED_MS)[3] == 100
    assert ready.word("headers", "attempts", 0) == tried(3)


def backoffs(attempts: int, initial_ms: float = 100, max_ms: float = 1000) -> list[float]:
    """Return the waits of batches of one partition that have all come back at once; 0: it is due."""
    ready = Ready()
    ready.append(2)
    ready.check.set_backoff(initial_ms, max_ms)
    ready.set("headers", "attempts", tried(attempts), 0)
    waits = []
    for position in range(1000):
        ready.set("headers", "position", position, 0)
        due, _, _, left_ms = ready.at(CREATED_MS)
        waits.append(0 if due else left_ms)
    return waits


@pytest.mark.parametrize(("attempts", "middle"), [(1, 100), (2, 200), (3, 400), (4, 800)])
def test_backoff_doubles_with_jitter(attempts: int, middle: int) -> None:
    waits = backoffs(attempts)
    assert waits == backoffs(attempts), "the same until the next attempt"
    assert 0.8 * middle - 1 <= min(waits) < 0.82 * middle
    assert 1.18 * middle < max(waits) <= min(1.2 * middle, 1000)
    assert fmean(waits) == pytest.approx(middle, rel=0.03)


def test_backoff_begins_with_the_first_attempt_and_has_a_maximum() -> None:
    assert set(backoffs(0)) == {0}
    assert len({after - 2 * before for after, before in zip(backoffs(3), backoffs(2), strict=True)}) > 100
    for attempts in (5, 6, 40, 65_535):
        waits = backoffs(attempts)
        assert max(waits) == 1000
        assert min(waits) >= 800
        assert max(backoffs(attempts, 1e300, 1e308)) == NEVER
    for maximum in (50, 100):  # without jitter, as of Kafka's ``ExponentialBackoff``
        assert set(backoffs(4, 100, maximum)) == {maximum}
    assert set(backoffs(4, 0, 0)) == {0}


# --- drain ------------------------------------------------------------------------------------------


def test_the_time_in_the_queue_is_counted_at_the_first_drain_only(ready: Ready) -> None:
    ready.append(2)
    assert ready.drain() == [0]
    assert violations(ready.slab.segment) == []
    ready.set("partitions", "in_flight", 0)
    ready.set("headers", "attempts", tried(1), 1)
    assert ready.drain(CREATED_MS + 200) == [1]
    assert ready.slab.segment.view("histograms")["buckets"][0].sum() == 1


def test_every_partition_has_its_turn_wherever_it_begins() -> None:
    for begin in (0, PARTITION, PARTITION + 1, 99, (1 << 64) - 1):
        ready = Ready()
        ready.append(2)
        assert ready.drain(begin=begin, max_size=0) == [0], "the first one, whatever its size"


def test_all_have_their_turn_among_partitions_that_fill_every_request(ready: Ready) -> None:
    """Those of a transaction, and all that come behind one whose open batch may not leave."""
    ready.check = _core.ReadyCheck(ready.slab.segment, ready.slab.pool, Damaged, 5)
    ready.check.set_leader(PARTITION, LEADER, 0)
    ready.append()
    for entry in 3 * [PARTITION + 1, PARTITION + 2]:
        append_other(ready, entry)
    append_other(ready)
    ready.set("partitions", "key", 1 << 52, OTHER)
    ready.set("lanes", "producer_id", 5, 0)
    begin, taken = 0, []
    for _ in range(7):
        _, begin, *_ = ready.choose(begin=begin, max_size=BATCH, may_leave=0)
        taken += [ready.word("headers", "partition", slot) for slot in ready.check.taken()]
        begin = max(begin, 0)
    one, two = PARTITION + 1, PARTITION + 2
    assert taken == [one, two, OTHER, one, two, one, two]


def test_the_first_batch_is_taken_however_it_grows_while_its_lock_is_held(ready: Ready) -> None:
    ready.append()
    with locked(ready):
        assert ready.choose(CREATED_MS + LINGER_MS)[0] == [PARTITION]
        assert ready.check.take(PARTITION) == (LOCK_BUSY,)
        assert ready.check.taken() == []
    ready.set("headers", "commit", (2 * SLOT_SIZE) << 25 | 2, 0)
    assert ready.check.take(PARTITION) == (LOCK_TAKEN,)
    assert ready.check.taken() == [0]
    assert ready.check.take(PARTITION) == (LOCK_TAKEN,), "nothing is left to try"


@pytest.mark.parametrize(("room", "left"), [(0, 0), (1, 1)])
def test_a_batch_that_no_longer_fits_is_left(ready: Ready, room: int, left: int) -> None:
    """It has grown by a byte until its lock was free."""
    ready.append(2)
    other = append_other(ready)
    size = ready.word("headers", "commit", other) >> 25
    with locked(ready):
        ready.choose(max_size=2 * (size + room))
    ready.set("headers", "commit", (size + 1) << 25 | 2, other)
    ready.check.take(PARTITION)
    assert ready.check.taken() == [0, other][: 1 + left]


# --- what is refused --------------------------------------------------------------------------------


def test_damaged_words_are_errors(ready: Ready) -> None:
    ready.append(2)
    ready.set("superblock", "partition_count", 21, 0)
    for section in (lambda: ready.at(0), ready.drain):
        with pytest.raises(Damaged, match="21 partition entries"):
            section()
    ready.set("superblock", "partition_count", 20, 0)
    ready.set("partitions", "head", 99)
    assert ready.at(CREATED_MS)[0] == {LEADER}, "to take it out is to find the damage"
    with pytest.raises(Damaged, match="leads to slot 98"):
        ready.drain()
    assert ready.drain() == [0]


def test_arguments_that_make_no_sense_are_refused() -> None:
    check: Any = Ready().check
    for call, error in (
        (lambda: check.set_leader(20, 1, 0), IndexError),
        (lambda: check.hold_back(0, [20]), IndexError),
        (lambda: check.set_ahead(8, 1, 0), IndexError),
        (lambda: check.hold_back(0, None), TypeError),
        (lambda: _core.ReadyCheck(None, None, Damaged, 1), TypeError),
    ):
        with pytest.raises(error):
            call()
