"""The core's append: the bytes of each format, the statuses, and no record lost, torn or doubled by a death."""

from __future__ import annotations

import itertools
import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from core_builds import build_core
from core_slabs import DYING, LIVING, UNFINISHED, Damaged, Slab, die_at
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import violations

from shmaccum import _core
from shmaccum._core import LOCK_BUSY, LOCK_REJOIN, LOCK_TAKEN, LOCK_UNFINISHED, Buffer, RecordFuture
from shmaccum.accumulator.state.partition_queue import rebuild_stripe
from shmaccum.record.legacy import records as legacy
from shmaccum.record.v2 import records as v2
from shmaccum.shm.layout import LOCK_STRIPES, Geometry, SlotState

NO_ROOM, NOT_CONTRIBUTOR = _core.APPEND_NO_ROOM, _core.APPEND_NOT_CONTRIBUTOR
RING_UNREAD, LEASE_OVER = _core.APPEND_RING_UNREAD, _core.APPEND_LEASE_OVER
PARTITION = 3
SLOT_SIZE = 256
HEADER_SIZES = 0, 0, v2.HEADER_SIZE
"""By magic."""
GZIP = 1


class Producer:
    """Appends to a partition, as an accumulator does.

    Args:
        slab: of the test.
        core: the module to use.
        entry: of its process.
        magic: of its records.
        compression: of its batches, which it compresses if there is one.
        linger_ms: likewise.
    """

    def __init__(
        self,
        slab: Slab,
        core: Any = _core,
        entry: int = LIVING,
        magic: int = 2,
        compression: int = 0,
        linger_ms: int = 5,
        retries: int = 7,
    ) -> None:
        class Future(core.RecordFuture):  # type: ignore[misc]
            __slots__ = ()

        self.slab, self.entry, self.header_size = slab, entry, HEADER_SIZES[magic]
        self.contributions = core.Contributions(slab.slot_count, entry)
        self.core = core.Appender(
            slab.segment,
            self.contributions,
            Future,
            Damaged,
            magic,
            linger_ms,
            compression,
            900,
            retries,
            compression > 0,
        )
        slab.words[slab.word("superblock", "partition_count")] = 20
        self.claims: list[tuple[int, int, int]] = []

    def try_append(self, body: bytes, timestamp: int = 0, lane: int = 0, lane_generation: int = 0) -> tuple[Any, ...]:
        self.slab.be(self.entry)
        outcome: tuple[Any, ...] = self.core.append(PARTITION, lane, lane_generation, timestamp, body, 0)
        return self._noted(outcome)

    def _noted(self, outcome: tuple[Any, ...]) -> tuple[Any, ...]:
        if outcome[5] is not None:
            self.claims.append(outcome[5])
        return outcome

    def begin(self, body: bytes, timestamp: int = 0) -> Buffer:
        """Make a batch of one record in a new slot."""
        (buffer,) = self.slab.take(1)
        added = self.core.write_first(buffer.slot, self.header_size, timestamp, body)
        self.core.begin(buffer.slot, 1_000_000, self.header_size + added, 1, timestamp, timestamp, added)
        return buffer

    def append(self, body: bytes, timestamp: int = 0) -> tuple[Any, ...]:
        """Append to the open batch, or to a new one; return the outcome."""
        outcome = self.try_append(body, timestamp)
        if outcome[0] == NO_ROOM:
            buffer = self.begin(body, timestamp)
            self.contributions.expect(buffer.generation << 24 | buffer.slot, object())
            outcome = self._noted(self.core.append_batch(PARTITION, 0, 0, timestamp, body, 0, buffer.slot, True))
        while outcome[0] == NOT_CONTRIBUTOR:
            self.contributions.expect(outcome[1], object())
            outcome = self.try_append(body, timestamp)
        assert outcome[0] == LOCK_TAKEN
        return outcome


def batches(slab: Slab) -> list[tuple[int, int, bytes]]:
    """Return the deque's batches: state, number of records, all committed bytes."""
    headers, memory = slab.segment.view("headers"), bytes(slab.segment)
    found = []
    for slot, count in queued(slab):
        begin = len(memory) - (slab.slot_count - slot) * SLOT_SIZE
        size = int(headers["commit"][slot]) >> 25
        found.append((int(headers["state"][slot]) & 0xFF, count, memory[begin : begin + size]))
    return found


def body_of(value: bytes, magic: int = 2) -> bytes:
    return v2.encode_body(None, value, ()) if magic == 2 else legacy.encode_body(None, value)


def encode(magic: int, index: int, timestamp: int, base_timestamp: int, body: bytes) -> bytes:
    if magic == 2:
        return v2.encode_record(index, timestamp, base_timestamp, body)
    return legacy.encode_record(magic, index, timestamp, body)


@pytest.fixture(scope="module")
def stepping(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Return the core with a step at each access to shared memory."""
    return build_core(tmp_path_factory.mktemp("core"), "-DSHMACCUM_STEPS")


# --- records --------------------------------------------------------------------------------------

timestamps = st.one_of(st.integers(0, 2**63 - 1), st.integers(10**12, 10**12 + 200))


@settings(deadline=None)
@given(
    magic=st.sampled_from([0, 1, 2]),
    records=st.lists(st.tuples(timestamps, st.binary(max_size=200)), min_size=1, max_size=20),
)
def test_batches_hold_what_the_formats_encode(magic: int, records: list[tuple[int, bytes]]) -> None:
    slab = Slab(40, slot_size=SLOT_SIZE)
    producer = Producer(slab, magic=magic)
    expected: list[tuple[list[bytes], list[int]]] = []
    for timestamp, value in records:
        body = body_of(value, magic)
        if len(encode(magic, 0, timestamp, timestamp, body)) > SLOT_SIZE - producer.header_size:
            continue
        _, future, is_full, is_new, added, _ = producer.append(body, timestamp)
        if expected:
            encoded, times = expected[-1]
            record = encode(magic, len(encoded), timestamp, times[0], body)
            fits = producer.header_size + sum(map(len, encoded)) + len(record) <= SLOT_SIZE
        if not expected or not fits:
            expected.append(([], []))
            encoded, times = expected[-1]
            record = encode(magic, 0, timestamp, timestamp, body)
        assert is_new == (not encoded)
        assert added == len(record) + (producer.header_size if is_new else 0)
        assert (future.index, future.timestamp) == (len(encoded), timestamp)
        encoded.append(record)
        times.append(timestamp)
        end = producer.header_size + sum(map(len, encoded))
        assert is_full == ((end == SLOT_SIZE and not is_new) or len(expected) > 1)
    found = batches(slab)
    assert [(count, data[producer.header_size :]) for _, count, data in found] == [
        (len(encoded), b"".join(encoded)) for encoded, _ in expected
    ]
    assert [state for state, _, _ in found] == [SlotState.CLOSED] * (len(found) - 1) + [SlotState.OPEN] * bool(found)
    headers = slab.segment.view("headers")
    for number, (_, times) in enumerate(expected):
        commit = int(headers["commit"][number])
        assert headers["max_timestamp"][number][commit & 1] == max(times)
        assert headers["base_timestamp"][number] == times[0]
    assert violations(slab.segment) == []
    assert slab.words[slab.word("processes", "records", LIVING)] == sum(len(encoded) for encoded, _ in expected)


def test_the_header_says_the_least_linger_and_the_longest_limits_of_all_producers() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    Producer(slab, linger_ms=50, retries=9).append(body_of(b"a"))
    header = {name: slab.word("headers", name) for name in ("linger", "limits")}
    assert (slab.words[header["linger"]] >> 8, slab.words[header["limits"]]) == (50, 9 << 32 | 900)
    assert Producer(slab, entry=2, linger_ms=100, retries=3).append(body_of(b"b"))[2] is False
    assert Producer(slab, entry=3, linger_ms=20, retries=11).append(body_of(b"c"))[2] is True, "it is due earlier"
    assert (slab.words[header["linger"]] >> 8, slab.words[header["limits"]]) == (20, 11 << 32 | 900)
    contributors = slab.segment.view("headers")["contributors"][0].tolist()
    assert contributors == [1 << LIVING | 1 << 2 | 1 << 3]


# --- statuses -------------------------------------------------------------------------------------


def test_without_room_the_open_batch_is_closed() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    producer = Producer(slab)
    assert producer.try_append(body_of(b"a"))[:2] == (NO_ROOM, 0)
    producer.append(body_of(b"a" * 100))
    assert producer.try_append(body_of(b"b" * 100))[0] == NO_ROOM
    assert [state for state, _, _ in batches(slab)] == [SlotState.CLOSED]
    assert producer.claims == []


def test_a_closed_batch_that_is_to_be_compressed_is_claimed_by_who_closed_it() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    producer, plain = Producer(slab, compression=GZIP), Producer(slab, entry=2)
    producer.append(body_of(b"a" * 100))
    producer.append(body_of(b"b" * 100))
    ((slot, generation, since_ms),) = producer.claims
    assert (slot, generation) == (0, 1)
    assert slab.words[slab.word("headers", "sealing", 0)] == since_ms > 0
    plain.append(body_of(b"c" * 100))  # it compresses nothing: the sender does
    assert slab.words[slab.word("headers", "sealing", 1)] == 0
    assert plain.claims == []


def test_a_record_goes_into_the_batch_that_another_process_opened_meanwhile() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    producer, other = Producer(slab), Producer(slab, entry=2)
    assert producer.try_append(body_of(b"mine"))[0] == NO_ROOM
    slab.be(LIVING)
    buffer = producer.begin(body_of(b"mine"))
    producer.contributions.expect(buffer.generation << 24 | buffer.slot, object())
    other.append(body_of(b"theirs"))
    slab.be(LIVING)
    status, batch, *_ = producer.core.append_batch(PARTITION, 0, 0, 0, body_of(b"mine"), 0, buffer.slot, True)
    assert (status, batch) == (NOT_CONTRIBUTOR, 1 << 24 | 1)
    result = object()
    producer.contributions.expect(batch, result)
    outcome = producer.core.append_batch(PARTITION, 0, 0, 0, body_of(b"mine"), 0, buffer.slot, True)
    assert (outcome[0], outcome[1].batch_result is result, outcome[1].index, outcome[3]) == (LOCK_TAKEN, True, 1, False)
    assert slab.pool.is_taken(buffer)
    assert len(batches(slab)) == 1
    assert producer.contributions.withdraw(buffer.generation << 24 | buffer.slot)
    assert not producer.contributions.withdraw(batch), "this process contributed"


def test_a_batch_that_left_its_slot_was_expected_in_vain() -> None:
    contributions = _core.Contributions(4, LIVING)
    old, new = 1 << 24 | 2, 2 << 24 | 2
    assert contributions.expect(old, object()) == 0
    assert contributions.expect(old, object()) == 0
    assert contributions.expect(new, object()) == old
    assert not contributions.withdraw(old)
    assert contributions.is_expected(new)
    contributions.contribute(new)
    assert not contributions.withdraw(new)
    assert contributions.expect(3 << 24 | 2, object()) == 0, "this process contributed to the one before"


def test_a_process_with_unread_completions_contributes_to_no_further_batch() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    Producer(slab, entry=2).append(body_of(b"theirs"))
    producer = Producer(slab)
    tail = slab.word("processes", "ring_tail", LIVING)
    slab.words[tail] += 1
    assert producer.try_append(body_of(b"a"))[0] == RING_UNREAD
    buffer = producer.begin(body_of(b"a" * 175))
    producer.contributions.expect(buffer.generation << 24 | buffer.slot, object())
    append = producer.core.append_batch
    assert append(PARTITION, 0, 0, 0, body_of(b"a" * 175), 0, buffer.slot, True)[0] == RING_UNREAD
    slab.words[slab.word("processes", "ring_head", LIVING)] += 1
    assert append(PARTITION, 0, 0, 0, body_of(b"a" * 175), 0, buffer.slot, True)[0] == LOCK_TAKEN
    slab.words[tail] += 1
    assert producer.try_append(body_of(b"b"))[0] == LOCK_TAKEN, "it is a contributor"


@pytest.mark.parametrize(
    ("word", "value"),
    [("generation", 1 << 40 | 5), ("generation", 6), ("producer_id", 0), ("error", 1 << 16)],
)
def test_a_lease_that_is_over_takes_no_record(word: str, value: int) -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    lane = 1
    slab.words[slab.word("lanes", "generation", lane)] = 5
    slab.words[slab.word("lanes", "producer_id", lane)] = 9
    producer = Producer(slab)
    assert producer.try_append(body_of(b"a"), 0, lane + 1, 5)[0] == NO_ROOM
    slab.words[slab.word("lanes", word, lane)] = value
    assert producer.try_append(body_of(b"a"), 0, lane + 1, 5)[0] == LEASE_OVER
    buffer = producer.begin(body_of(b"a"))
    outcome = producer.core.append_batch(PARTITION, lane + 1, 5, 0, body_of(b"a"), 0, buffer.slot, True)
    assert outcome[0] == LEASE_OVER
    assert batches(slab) == []


def test_nothing_is_appended_without_the_lock() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    producer = Producer(slab)
    producer.append(body_of(b"a"))
    stripe = slab.core.SlabLock(slab.segment, LOCK_STRIPES + PARTITION)
    slab.be(2)
    assert stripe.acquire_now() == LOCK_TAKEN
    assert producer.try_append(body_of(b"b"))[0] == LOCK_BUSY
    slab.be(2)
    stripe.release(unfinished=True)
    assert producer.try_append(body_of(b"b"))[0] == LOCK_UNFINISHED
    assert stripe.owner == UNFINISHED, "whoever rebuilds finds it so"
    slab.be(2)
    stripe.acquire_now()
    stripe.release()
    slab.segment.leave()
    assert producer.core.append(PARTITION, 0, 0, 0, body_of(b"b"), 0)[0] == LOCK_REJOIN
    assert [count for _, count, _ in batches(slab)] == [1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({("partitions", "open", PARTITION): 5}, "the open batch of partition entry 3 is in slot 4"),
        ({("partitions", "open", PARTITION): 1 << 63}, "the open batch of partition entry 3 is in slot"),
        ({("headers", "generation", 0): 0}, "the open batch of partition entry 3 is in slot 0"),
        ({("headers", "generation", 0): 1 << 40}, "the open batch of partition entry 3 is in slot 0"),
        ({("headers", "partition", 0): 4}, "a link in the deque of partition entry 3 leads to slot 0"),
        ({("headers", "state", 0): 0}, "a link in the deque of partition entry 3 leads to slot 0"),
        (
            {("partitions", "open", PARTITION): 0, ("partitions", "tail", PARTITION): 1 << 63},
            "a link in the deque of partition entry 3 leads to slot",
        ),
    ],
)
def test_a_damaged_deque_is_an_error(words: dict[tuple[str, str, int], int], said: str) -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    producer = Producer(slab)
    producer.append(body_of(b"a" * 150))
    for place, value in words.items():
        slab.words[slab.word(*place)] = value
    with pytest.raises(Damaged, match=said):
        producer.append(body_of(b"b" * 150))
    assert slab.core.SlabLock(slab.segment, LOCK_STRIPES + PARTITION).owner == UNFINISHED


def test_a_damaged_commit_word_gives_no_room() -> None:
    for commit in (1 << 63, (SLOT_SIZE + 1) << 25 | 2, 100 << 25 | 0xFFFFFF << 1):
        slab = Slab(4, slot_size=SLOT_SIZE)
        producer = Producer(slab)
        producer.append(body_of(b"a"))
        slab.words[slab.word("headers", "commit", 0)] = commit
        assert producer.try_append(body_of(b"b"))[0] == NO_ROOM


def test_places_that_do_not_exist_are_refused() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    producer = Producer(slab)
    for call in (
        lambda: producer.core.append(20, 0, 0, 0, b"", 0),
        lambda: producer.core.append(0, 3, 0, 0, b"", 0),
        lambda: producer.core.append_batch(0, 0, 0, 0, b"", 0, 4, True),
        lambda: producer.core.begin(4, 0, 0, 0, 0, 0, 0),
        lambda: producer.core.commit(4, 0, 0, 0, 0),
        lambda: producer.core.write_first(4, 0, 0, b""),
        lambda: producer.contributions.expect(4, object()),
    ):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(ValueError, match="does not fit"):
        producer.core.write_first(0, 61, 0, bytes(SLOT_SIZE))
    assert not producer.contributions.withdraw(4)
    with pytest.raises(TypeError, match="no subclass"):
        _core.Appender(slab.segment, producer.contributions, object, Damaged, 2, 0, 0, 0, 0, False)  # type: ignore[arg-type]


def test_a_closed_appender_appends_nothing_and_keeps_no_memory() -> None:
    slab = Slab(4, slot_size=SLOT_SIZE)
    core = Producer(slab).core
    before = sys.getrefcount(slab.segment)
    core.close()
    after = sys.getrefcount(slab.segment)
    assert after == before - 1
    for call in (
        lambda: core.append(0, 0, 0, 0, b"", 0),
        lambda: core.append_batch(0, 0, 0, 0, b"", 0, 0, True),
        lambda: core.write_first(0, 61, 0, b""),
        lambda: core.begin(0, 0, 0, 0, 0, 0, 0),
        lambda: core.commit(0, 0, 0, 0, 0),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_neither_futures_nor_appenders_can_be_pickled() -> None:
    for thing in (RecordFuture(object(), 0, 0), Producer(Slab(1)).core):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


# --- deaths ---------------------------------------------------------------------------------------


def rebuild(slab: Slab) -> None:
    """Rebuild the partition's deque, as the next holder of its lock does."""
    view = slab.segment.view
    rows = {name: view(name).dtype.itemsize // 8 for name in ("headers", "partitions")}
    array = np.frombuffer(slab.segment.writable(), np.uint64)
    geometry = Geometry(SLOT_SIZE, slab.slot_count, max_processes=8, max_topics=1, max_partitions=20, max_lanes=2)

    def table(name: str, begin: int, count: int) -> np.ndarray:
        return array[begin : begin + count * rows[name]].reshape(count, rows[name])

    rebuild_stripe(
        SimpleNamespace(  # type: ignore[arg-type]
            words=slab.words,
            geometry=geometry,
            headers=table("headers", geometry.header(0), slab.slot_count),
            partitions=table("partitions", geometry.partition(0), 20),
            damaged=Damaged,
        ),
        PARTITION,
    )


STARTS = {"empty": [], "open": [b"first"], "nearly full": [b"f" * 150], "two": [b"f" * 150, b"g" * 100]}
"""Values that another process has appended."""
APPENDED = {"small": [b"x"], "large": [b"x" * 120], "two": [b"x" * 30, b"y" * 120]}


@pytest.mark.parametrize("compression", [0, GZIP], ids=["plain", "compressed"])
@pytest.mark.parametrize("appended", APPENDED)
@pytest.mark.parametrize("start", STARTS)
def test_a_death_at_any_step_keeps_each_record_whole_or_leaves_none(
    stepping: ModuleType, start: str, appended: str, compression: int
) -> None:
    most = 0
    for step in itertools.count(1):
        slab = Slab(6, stepping, SLOT_SIZE)
        survivor = Producer(slab, stepping, LIVING, linger_ms=50)
        whole = list(zip(STARTS[start] + APPENDED[appended], itertools.count(10, 10), strict=False))
        before = whole[: len(STARTS[start])]
        for value, timestamp in before:
            survivor.append(body_of(value), timestamp)
        victim = Producer(slab, stepping, DYING, compression=compression, retries=9)

        appending = whole[len(before) :]

        def append(victim: Producer = victim, records: list[tuple[bytes, int]] = appending) -> None:
            for value, timestamp in records:
                victim.append(body_of(value), timestamp)

        was_killed = die_at(stepping, step, append)
        slab.be(LIVING)
        for number in (0, LOCK_STRIPES + PARTITION):
            lock = stepping.SlabLock(slab.segment, number)
            if lock.owner:
                lock.unblock(lock.owner if lock.owner != UNFINISHED else 0)
            if lock.acquire_now() == LOCK_UNFINISHED:
                slab.pool.rebuild() if number == 0 else rebuild(slab)
            lock.release()
        slab.pool.reclaim([DYING << 8 | 1 << 48], 0.0, 1.0)
        assert violations(slab.segment) == []
        found = records_of(slab)
        assert found == whole[: len(found)]
        assert len(found) >= max(most, len(before)), "a later death loses no record of an earlier one"
        most = len(found)
        first = 0
        headers = slab.segment.view("headers")
        for slot, count in queued(slab):
            commit = int(headers["commit"][slot])
            assert headers["max_timestamp"][slot][commit & 1] == found[first + count - 1][1]
            if first + count > len(before):
                words = {name: headers[name][slot] for name in ("contributors", "linger", "limits")}
                assert words["contributors"][0] & 1 << DYING, "the sender would not tell it of its record"
                assert (words["linger"] >> 8, words["limits"] >> 32) == (5, 9)
            first += count
        survivor.append(body_of(b"after"), 5)
        assert records_of(slab) == [*found, (b"after", 5)]
        slab.close()
        if not was_killed:
            break
    assert most == len(whole)


def queued(slab: Slab) -> list[tuple[int, int]]:
    """Return the slots of the deque's batches, and their numbers of records."""
    headers = slab.segment.view("headers")
    states = headers["state"] & 0xFF
    slots = np.flatnonzero((states == SlotState.OPEN) | (states == SlotState.CLOSED)).tolist()
    slots.sort(key=lambda slot: int(headers["position"][slot]))
    return [(slot, int(headers["commit"][slot]) >> 1 & 0xFFFFFF) for slot in slots]


def records_of(slab: Slab) -> list[tuple[bytes, int]]:
    """Return value and timestamp of all records, read by their lengths."""
    found = []
    bases = slab.segment.view("headers")["base_timestamp"]
    for (slot, count), (_, _, data) in zip(queued(slab), batches(slab), strict=True):
        at = v2.HEADER_SIZE
        for index in range(count):
            size, at = varint(data, at)
            record, at = data[at : at + size], at + size
            assert len(record) == size
            delta, offset = varint(record, 1)
            place, offset = varint(record, offset)
            assert (record[0], place) == (0, index)
            key, offset = varint(record, offset)
            length, offset = varint(record, offset)
            assert (key, record[offset + length :]) == (-1, b"\0")
            found.append((record[offset : offset + length], int(bases[slot]) + delta))
        assert at == len(data)
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a varint by its definition; return it and the place behind it."""
    rest = shift = 0
    while True:
        rest |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return rest >> 1 ^ -(rest & 1), at


def test_batches_of_all_appends_are_the_same_after_a_rebuild() -> None:
    slab = Slab(6, slot_size=SLOT_SIZE)
    producer = Producer(slab)
    for size in (10, 150, 150, 20):
        producer.append(body_of(bytes(size)))
    before = bytes(slab.segment)
    rebuild(slab)
    assert bytes(slab.segment) == before
