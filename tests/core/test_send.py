"""The core's path of a record: where it goes, what it leaves to Python code, and what deaths and errors leave."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from core_producers import PARTITION, SLOT_SIZE, STARTS, Producer, body_of, queued, records_at, records_of, recovered
from core_slabs import DYING, LIVING, Damaged, Slab, deaths
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from record_batches import examples

from shmaccum import _core
from shmaccum.accumulator.append.futures import sizes_word
from shmaccum.record import legacy, v2
from tools.support.oracle import violations

GENERATION = 7
COUNT = 5
FIRST = PARTITION - 2
"""Partition n has the entry FIRST + n."""
NOW = 1_700_000_000_000


class Ring:
    """Reads a process's completions."""

    def __init__(self, slab: Slab, entry: int) -> None:
        self.tail, self.head = (slab.word("processes", name, entry) for name in ("ring_tail", "ring_head"))
        self.words = slab.words
        self.reads = 0

    def poll(self) -> None:
        self.read()

    def read(self) -> None:
        self.reads += 1
        self.words[self.head] = self.words[self.tail]


def path_of(slab: Slab, entry: int = LIVING, **options: Any) -> Any:
    """Return a path of a producer over the core alone, with a topic "t" of COUNT partitions.

    Args:
        slab: of the test.
        entry: of its process.
        options: of the `Producer`, and ``max_body_size``, ``ignores_keys``, ``is_direct``.
    """
    core = slab.core
    limits = options.pop("max_body_size", 1000), options.pop("ignores_keys", False), options.pop("is_direct", True)
    producer = Producer(slab, core, entry, **options)

    class Sticky(core.StickyPartition):  # type: ignore[misc]
        def switch(self) -> None:
            self.partition, self.produced = (self.partition + 1) % COUNT, 0

    class Deque:
        lane = 0

        def __init__(self, number: int) -> None:
            self.number = number

        @property
        def topic_partition(self) -> str:
            made[0].expecting()
            return f"p-{self.number}"

    made: list[Any] = []

    class Path(core.RecordPath):  # type: ignore[misc]
        def __init__(self) -> None:
            made.append(self)
            self.slab, self.entry = slab, entry
            self.guard = core.CallGuard()
            self.guard.closed = False
            self.ring = Ring(slab, entry)
            self.wakes: list[bool] = []
            self.errors: list[BaseException] = []
            self.unused = producer.core.unused
            self.appender, self.callbacks = producer.core, producer.contributions.callbacks
            self.contributions = producer.contributions
            self.sticky = Sticky(SLOT_SIZE)
            size, ignores_keys, is_direct = limits
            super().__init__(
                self.appender,
                self.guard,
                self.ring,
                size,
                ignores_keys,
                is_direct,
                False,
                SimpleNamespace(key=self, value=self),
                None,
                SimpleNamespace(by_entry=list(map(Deque, range(20)))),
            )
            self.lead("t", core.Destination(GENERATION, COUNT, self.sticky))
            for number in range(COUNT):
                self.known("t").lead(number, FIRST + number)

        def has_sender(self) -> bool:
            self.meanwhile()
            return True

        def meanwhile(self) -> None:
            """Run what happens before a batch begins."""

        def expecting(self) -> None:
            """Run what happens when the batch has its slot."""

        def free_unused(self) -> None:
            for (buffer,) in self.unused.values():
                self.contributions.withdraw(buffer.batch)
                slab.pool.free(buffer)
            self.unused.clear()

        def appended(self, sticky: Any, batch_is_full: bool | None) -> None:
            if sticky is not None:
                sticky.switch()
            if batch_is_full is not None:
                self.wakes.append(batch_is_full)

        def serialize(self, topic: str, data: Any) -> bytes | None:
            """Be a serializer."""
            return None if data is None else bytes(data)

        def refuse(self, error: BaseException, *what: object) -> None:
            self.errors.append(error)
            self.free_unused()

        def encode_body(self, key: bytes | None, value: bytes | None, headers: Any) -> bytes:
            return v2.encode_body(key, value, headers)

    slab.set("superblock", "generation", GENERATION)
    return Path()


@pytest.fixture
def path(slab: Slab) -> Any:
    return path_of(slab)


def send(path: Any, value: bytes | None = None, key: bytes | None = None, topic: Any = "t", **options: Any) -> Any:
    names = "headers", "partition", "timestamp_ms", "on_delivery"
    return path.try_send(topic, value, key, *(options.get(name) for name in names))


# --- what is appended -----------------------------------------------------------------------------

fields = st.none() | st.binary(max_size=60)


@examples
@given(st.sampled_from([1, 2]), st.lists(st.tuples(fields, fields, st.integers(0, 2**63 - 1)), max_size=12))
def test_records_go_where_kafka_sends_them_as_the_formats_encode_them(
    magic: int, records: list[tuple[bytes | None, bytes | None, int]]
) -> None:
    slab = Slab(40, slot_size=SLOT_SIZE, keeps_checksums=magic == 2)
    path = path_of(slab, magic=magic, ignores_keys=False)
    expected: dict[int, list[bytes]] = {}
    for key, value, timestamp in records:
        sticky = path.sticky.partition
        future = send(path, value, key, timestamp_ms=timestamp)
        if key is None:
            number = next(n for n in range(COUNT) if future.topic_partition == f"p-{FIRST + n}")
            assert number in (sticky, (sticky + 1) % COUNT), "the next one if it needs a new batch there"
        else:
            number = (murmur2(key) & 0x7FFFFFFF) % COUNT
        expected.setdefault(FIRST + number, []).append(
            v2.encode_body(key, value, ()) if magic == 2 else legacy.encode_body(key, value)
        )
        assert future.timestamp == timestamp
        assert future.sizes == sizes_word(None if key is None else len(key), None if value is None else len(value))
    headers, memory = slab.segment.view("headers"), bytes(slab.segment)
    found: dict[int, list[bytes]] = {}
    for slot, _ in queued(slab):
        begin = len(memory) - (slab.slot_count - slot) * SLOT_SIZE
        data = memory[begin : begin + (int(headers["commit"][slot]) >> 25)]
        found.setdefault(int(headers["partition"][slot]), []).append(data)
    assert sorted(found) == sorted(expected)
    for entry, bodies in expected.items():
        data = b"".join(found[entry])
        for body in bodies:
            assert body in data
            data = data[data.index(body) + len(body) :]
    assert violations(slab.segment) == []
    assert slab.get("processes", "records", LIVING) == len(records)


def test_text_is_sent_in_utf_8_and_headers_are_encoded_once(slab: Slab, path: Any) -> None:
    headers = {"größe": "5 €"}
    assert send(path, "wert €", "schlüssel", headers=headers).sizes == sizes_word(10, 8)
    assert v2.encode_body("schlüssel".encode(), "wert €".encode(), headers) in bytes(slab.segment)
    pairs = [("name", b"value")]
    assert send(path, b"v", b"k", partition=2, headers=pairs).index == 0
    assert send(path, b"v", b"k", partition=2, headers=[]).index == 1
    assert v2.encode_body(b"k", b"v", pairs) in bytes(slab.segment)
    assert send(path, b"v", b"k", partition=2, headers=iter(pairs)) is None, "an iterator can be read only once"


def test_completions_are_read_first(slab: Slab, path: Any) -> None:
    slab.add("processes", "ring_tail", 3, LIVING)
    future = send(path, b"v", on_delivery=print)
    assert path.ring.reads == 1
    path.callbacks.make_due(future.batch)
    assert send(path, b"v") is not None
    assert path.ring.reads == 2, "a callback is due"


@pytest.mark.parametrize("has_open", [True, False])
def test_a_sleeping_sender_is_woken_for_a_new_batch_and_a_full_one(has_open: bool) -> None:
    """The record that finds a batch full goes to the next sticky partition: perhaps none comes behind that batch."""
    slab = Slab(8, slot_size=SLOT_SIZE)
    path = path_of(slab)
    if has_open:
        send(path, b"open", partition=1)
    for _ in range(4):
        send(path, bytes(80), timestamp_ms=NOW)
    assert path.wakes == [], "it does not sleep"
    slab.set("superblock", "sender_asleep", 1)
    send(path, bytes(80), timestamp_ms=NOW)
    assert (path.sticky.partition, path.wakes) == (1, [True] if has_open else [True, False])
    send(path, b"into the open batch", partition=1)
    assert len(path.wakes) == 1 + (not has_open)
    send(path, bytes(100), partition=2)
    assert path.wakes[-1] is False, "a new batch"


# --- what is left to Python code ------------------------------------------------------------------


def nothing_appended(slab: Slab) -> None:
    assert slab.get("processes", "records", LIVING) == 0
    assert violations(slab.segment) == []


@pytest.mark.parametrize(
    "given",
    [
        {"topic": "unknown"},
        {"topic": b"t"},
        {"topic": ["t"]},
        {"value": "\ud800"},
        {"value": bytearray(b"v")},
        {"key": "\ud800"},
        {"partition": COUNT},
        {"partition": -1},
        {"partition": True},
        {"partition": 1 << 70},
        {"partition": "1"},
        {"timestamp_ms": -1},
        {"timestamp_ms": 1 << 63},
        {"timestamp_ms": True},
        {"timestamp_ms": 1.0},
        {"on_delivery": "not a function"},
        {"value": bytes(1000)},
    ],
    ids=lambda given: f"{given!r:.40}",
)
def test_a_record_that_has_to_be_looked_at(slab: Slab, path: Any, given: dict[str, Any]) -> None:
    assert send(path, **{"value": b"v", **given}) is None
    assert path.errors == []
    nothing_appended(slab)


def test_a_producer_that_has_to_be_asked(slab: Slab, path: Any) -> None:
    path.guard.closed = True
    assert send(path, b"v") is None
    path.guard.closed, path.appender.asks_first = False, True
    assert send(path, b"v") is None
    path.appender.asks_first, path.burst = False, 0
    assert send(path, b"v") is None
    assert path.append("t", b"v", None) is None
    path.burst = 1
    path.lead("t", _core.Destination(GENERATION, COUNT))
    assert send(path, b"v") is None, "there is no sticky partition yet"
    path.lead("t", _core.Destination(GENERATION - 1, COUNT, path.sticky))
    assert send(path, b"v", partition=1) is None, "the tables have changed"
    path.lead("t", _core.Destination(GENERATION, COUNT, path.sticky))
    assert send(path, b"v", partition=1) is None, "the transaction does not have the partition yet"
    path.lead("t", _core.Destination(GENERATION, 0))
    assert send(path, b"v", b"key") is None, "a topic without partitions"
    assert send(path_of(slab, is_direct=False), b"v") is None
    with pytest.raises(AttributeError, match="__init__ was not called"):
        _core.Producer().send("t")
    slab.segment.leave()
    assert send(path_of(slab), b"v") is None
    nothing_appended(slab)


def test_a_burst_ends(path: Any) -> None:
    path.burst = 2
    assert [send(path, b"v") is None for _ in range(3)] == [False, False, True]


def test_a_forked_child_appends_nothing(slab: Slab, path: Any) -> None:
    child = os.fork()
    if not child:
        os._exit(send(path, b"v") is not None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    nothing_appended(slab)


def test_without_memory_no_batch_begins() -> None:
    slab = Slab(1, slot_size=SLOT_SIZE)
    path = path_of(slab)
    assert send(path, bytes(150), partition=0) is not None
    assert send(path, b"v", partition=1) is None
    slab.be(LIVING)
    assert violations(slab.segment) == []


# --- what can go wrong with a new batch -----------------------------------------------------------


@pytest.mark.parametrize("moment", ["meanwhile", "expecting"])
def test_an_error_on_the_way_gives_the_slot_back(slab: Slab, path: Any, moment: str) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    setattr(path, moment, fail)
    with pytest.raises(KeyboardInterrupt):
        send(path, b"v")
    assert [type(error) for error in path.errors] == [KeyboardInterrupt]
    assert (slab.pool.free_slots, path.unused) == (4, {})
    nothing_appended(slab)


ON_THE_WAY: dict[str, Callable[[Any], object]] = {
    "the guard is closed": lambda path: setattr(path.guard, "closed", True),
    "the accumulator is closed": lambda path: setattr(path.appender, "asks_first", True),
    "the appender is closed": lambda path: path.appender.close(),
    "the sender is gone": lambda path: setattr(path, "has_sender", lambda: False),
}


@pytest.mark.parametrize("event", ON_THE_WAY)
@pytest.mark.parametrize("moment", ["meanwhile", "expecting"])
def test_a_producer_that_is_closed_or_has_no_sender_appends_nothing(
    slab: Slab, path: Any, moment: str, event: str
) -> None:
    """Its close has looked already for what to wait for, or is about to."""
    if event == "the sender is gone":
        ON_THE_WAY[event](path)
    else:
        setattr(path, moment, lambda: ON_THE_WAY[event](path))
    assert send(path, b"v") is None
    assert slab.pool.free_slots == 4
    nothing_appended(slab)


def test_a_producer_closed_while_it_chooses_a_partition_appends_nothing(slab: Slab, path: Any) -> None:
    send(path, bytes(150))
    path.lead("u", slab.core.Destination(GENERATION, COUNT, path.sticky))
    for number in range(COUNT):
        send(path, b"open", partition=number)
    path.sticky.produced = SLOT_SIZE
    records = slab.get("processes", "records", LIVING)

    def switch() -> None:
        path.sticky.partition, path.guard.closed = 1, True

    path.sticky.switch = switch
    assert send(path, bytes(150)) is None
    assert slab.get("processes", "records", LIVING) == records


def test_a_process_that_leaves_on_the_way_appends_nothing(slab: Slab, path: Any) -> None:
    path.meanwhile = slab.segment.leave
    assert send(path, b"v") is None
    nothing_appended(slab)


def test_another_process_opens_a_batch_on_the_way(slab: Slab) -> None:
    path, other = path_of(slab), Producer(slab, entry=2)

    def open_one() -> None:
        other.append(body_of(b"theirs"), NOW)
        slab.be(LIVING)

    path.meanwhile = open_one
    assert send(path, b"mine", partition=PARTITION - FIRST) is None, "its result has to be made first"
    assert slab.pool.free_slots == 3
    slot, _ = queued(slab)[0]
    path.contributions.expect(1 << 24 | slot, "theirs")
    path.meanwhile = lambda: None
    assert send(path, b"mine", partition=PARTITION - FIRST).topic_partition == "theirs"
    assert violations(slab.segment) == []


def test_a_record_has_its_result_whatever_is_read_after_the_append(slab: Slab) -> None:
    path, other = path_of(slab), Producer(slab, entry=2)
    theirs = 1 << 24
    free = path.free_unused

    def open_one() -> None:
        other.append(body_of(b"theirs"), NOW)
        slab.be(LIVING)
        path.contributions.expect(theirs, "theirs")

    def complete() -> None:
        path.contributions.forget(theirs)
        free()

    path.meanwhile, path.free_unused = open_one, complete
    assert send(path, b"mine", partition=PARTITION - FIRST).topic_partition == "theirs"
    assert slab.pool.free_slots == 3


def test_completions_that_come_on_the_way_are_read_first(slab: Slab, path: Any) -> None:
    path.meanwhile = lambda: slab.add("processes", "ring_tail", 1, LIVING)
    assert send(path, b"v") is None
    assert slab.pool.free_slots == 4
    path.meanwhile = lambda: None
    assert send(path, b"v") is not None
    assert path.ring.reads == 1


def test_damage_is_an_error_and_the_slot_is_given_back(slab: Slab, path: Any) -> None:
    slab.set("partitions", "tail", 99, FIRST)
    with pytest.raises(Damaged, match="leads to slot 98"):
        send(path, b"v", partition=0)
    assert [type(error) for error in path.errors] == [Damaged]
    assert slab.pool.free_slots == 4
    slab.set("partitions", "open", 99, FIRST + 1)
    with pytest.raises(Damaged, match="is in slot 98"):
        send(path, b"v", partition=1)


# --- deaths ---------------------------------------------------------------------------------------


def check_headers(slab: Slab, found: list[tuple[bytes, int]], before: int) -> None:
    """Check that a batch with a record of the dead says so, and has its limits."""
    first = 0
    headers = slab.segment.view("headers")
    for slot, count in queued(slab):
        commit = int(headers["commit"][slot])
        assert headers["max_timestamp"][slot][commit & 1] == found[first + count - 1][1]
        if first + count > before:
            words = {name: headers[name][slot] for name in ("contributors", "linger", "limits")}
            assert words["contributors"][0] & 1 << DYING, "the sender would not tell it of its record"
            assert (words["linger"] >> 8, words["limits"] >> 32) == (5, 9)
        first += count


def send_all(path: Any, records: list[tuple[bytes, int]]) -> None:
    path.slab.be(path.entry)
    for slot, _ in queued(path.slab):
        path.contributions.expect(path.slab.get("headers", "generation", slot) << 24 | slot, "t-3")
    for value, timestamp in records:
        assert send(path, value, partition=PARTITION - FIRST, timestamp_ms=timestamp) is not None


@pytest.mark.parametrize("start", STARTS)
def test_a_death_at_any_step_keeps_each_record_whole_or_leaves_none(stepping: ModuleType, start: str) -> None:
    """Of three: the first begins a batch or has room, as the second, the third has none. Another process goes on."""
    whole = records_at(*STARTS[start], b"x" * 30, b"y" * 120, b"z" * 100)
    most = before = len(STARTS[start])

    def begin() -> SimpleNamespace:
        slab = Slab(6, stepping, SLOT_SIZE)
        survivor = path_of(slab, linger_ms=50)
        send_all(survivor, whole[:before])
        return SimpleNamespace(slab=slab, survivor=survivor, victim=path_of(slab, DYING, retries=9))

    for scene, _ in deaths(begin, lambda scene: send_all(scene.victim, whole[before:])):
        found = recovered(scene.slab, whole, most)
        most = len(found)
        check_headers(scene.slab, found, before)
        send_all(scene.survivor, [(b"after", 5)])
        assert records_of(scene.slab) == [*found, (b"after", 5)]
    assert most == len(whole)
