"""The sections of topics, partitions and lanes: what they refuse, and what a reader sees after a death at any step."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import core_slabs
import pytest
from core_slabs import DYING, LIVING, Damaged, deaths

from shmaccum import _core
from shmaccum._core import LOCK_BUSY, LOCK_REJOIN, LOCK_TABLES, LOCK_TAKEN, TABLES_FULL, TABLES_STALE
from shmaccum.shm.layout import holder_word

REQUESTED, KNOWN, FAILED = 1, 2, 3
NO_ROOM = 99
"""The code that stands for partitions without room."""
LEASE = 1 << 40


class Topic(NamedTuple):
    """What is known of a topic."""

    state: int
    partitions: int
    error: int
    topic_id: int
    answers: int


class Slab(core_slabs.Slab):
    """A slab with two topics, eight partitions and two lanes, all unused."""

    def __init__(self, core: Any = _core) -> None:
        super().__init__(1, core, max_topics=2, max_partitions=8)
        self.lock = core.SlabLock(self.segment, LOCK_TABLES)
        self.tables = core.Tables(self.segment, Damaged)

    def topics(self) -> dict[str, Topic]:
        """Return all topics by name."""
        found = {}
        for each in self.segment.view("topics")[: self.get("superblock", "topic_count")]:
            name = each["name"].tobytes()[: int(each["name_length"])].decode()
            topic_id = int(each["id_high"]) << 64 | int(each["id_low"])
            words = (int(each[word]) for word in ("state", "partitions", "error"))
            found[name] = Topic(*words, topic_id, int(each["answers"]))
        return found

    def partitions(self) -> list[tuple[int, int, int]]:
        """Return the partition entries, each as (lane + 1, topic entry, number)."""
        keys = self.segment.view("partitions")["key"][: self.get("superblock", "partition_count")].tolist()
        return [(key >> 52, (key >> 32 & 0xFFFFF) - 1, key & 0xFFFFFFFF) for key in keys]

    def lane(self, entry: int) -> dict[str, int]:
        """Return the words of a lane, without its id."""
        lane = self.segment.view("lanes")[entry]
        return {name: int(lane[name]) for name in lane.dtype.names if lane[name].ndim == 0}

    def take_over(self) -> None:
        """Act as the living process; if the lock names the dead one, free it."""
        self.be(LIVING)
        self.lock.unblock(self.lock.owner)


@pytest.fixture
def slab() -> Iterator[Slab]:
    slab = Slab()
    yield slab
    slab.close()


def update(slab: Slab, entry: int, partitions: int, error: int = 0, **news: Any) -> bool:
    """Store an answer, of a caller that has seen no partition unless it says so."""
    news = {"topic_id": 0, "answers": True, "known": 0, "begin": 0} | news
    status, has_room = slab.tables.update(entry, partitions, error, **news, no_room=NO_ROOM)
    assert status == LOCK_TAKEN
    return bool(has_room)


# --- topics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [9, (1 << 32) - 1])
def test_partitions_without_room_are_not_begun(slab: Slab, count: int) -> None:
    slab.tables.request(b"topic", 0)
    slab.tables.request(b"other", 1)
    assert update(slab, 1, 1)
    assert update(slab, 0, 2)
    assert not update(slab, 0, count)
    assert slab.topics()["topic"] == Topic(FAILED, 2, count << 16 | NO_ROOM, 0, 2)
    assert len(slab.partitions()) == 3
    assert update(slab, 0, 7)
    assert len(slab.partitions()) == 8


# --- lanes ------------------------------------------------------------------------------------------


def test_an_unused_lane_is_leased_if_nobody_was_faster(slab: Slab) -> None:
    slab.tables.lease(b"one")
    slab.tables.close_lane(0, LEASE, True)
    seen = slab.lane(0)["generation"]
    assert slab.tables.lease(b"faster", 0, seen) == (LOCK_TAKEN, 0, 2 * LEASE)
    assert slab.tables.lease(b"slower", 0, seen) == (LOCK_TAKEN, TABLES_STALE, 0)
    assert slab.tables.lease(b"faster") == (LOCK_TAKEN, 0, 3 * LEASE)
    slab.set("lanes", "generation", (1 << 64) - 1)
    assert slab.tables.lease(b"faster") == (LOCK_TAKEN, 0, 0), "the last lease is followed by the first"


def test_a_lane_is_taken_from_the_dead_holder_only(slab: Slab) -> None:
    _, lane, lease = slab.tables.lease(b"one")
    slab.tables.open_lane(lane, lease, array("Q"), 8, 0, 2, 0)
    assert slab.tables.take_lane(lane, holder_word(LIVING, 2)) == (LOCK_TAKEN,)
    assert slab.lane(lane)["producer_id"] == 9
    assert slab.tables.take_lane(lane, holder_word(LIVING, 1)) == (LOCK_TAKEN,)
    assert (slab.lane(lane)["producer_id"], slab.lane(lane)["holder"]) == (0, 0)


def test_each_transaction_of_a_lane_has_its_number(slab: Slab) -> None:
    _, lane, lease = slab.tables.lease(b"one")
    slab.tables.open_lane(lane, lease, array("Q"), 8, 0, 1, 0)
    assert slab.tables.renew_lane(lane, lease) == (LOCK_TAKEN, True)
    slab.tables.open_lane(lane, lease, array("Q"), 8, 1, 1, 0)
    assert slab.get("lanes", "transaction", lane) == 3


# --- what is refused --------------------------------------------------------------------------------


def test_a_lane_that_was_leased_again_is_another_s(slab: Slab) -> None:
    _, lane, lease = slab.tables.lease(b"one")
    slab.be(DYING)
    _, _, newer = slab.tables.lease(b"one")
    slab.tables.open_lane(lane, newer, array("Q", [1]), 8, 0, 2, 0)
    before = slab.lane(lane)
    assert slab.tables.open_lane(lane, lease, array("Q", [1]), 9, 1, 1, 1) == (LOCK_TAKEN, False)
    assert slab.tables.end_transaction(lane, lease) == (LOCK_TAKEN, False)
    assert slab.tables.renew_lane(lane, lease) == (LOCK_TAKEN, False)
    assert slab.tables.close_lane(lane, lease, True) == (LOCK_TAKEN,)
    assert slab.lane(lane) == before


def test_a_lane_has_its_own_partitions(slab: Slab) -> None:
    slab.tables.request(b"topic", 0)
    update(slab, 0, 2)
    slab.tables.lease(b"one")
    assert slab.tables.add_to_lane(0, 1, 2) == (LOCK_TAKEN, 2)
    assert slab.tables.add_to_lane(0, 1, 2) == (LOCK_TAKEN, 2)
    assert slab.partitions()[2] == (1, 0, 1)
    slab.set("lanes", "producer_epoch", 4)
    assert slab.tables.add_to_lane(0, 0, 3) == (LOCK_TAKEN, 3)
    assert slab.get("partitions", "next_sequence", 3) == slab.get("partitions", "acked_sequence", 3) == 4 << 32
    slab.set("superblock", "partition_count", 8)
    assert slab.tables.add_to_lane(1, 0, 4) == (LOCK_TAKEN, TABLES_FULL)


def test_an_error_with_a_count_leaves_the_partitions(slab: Slab) -> None:
    slab.tables.request(b"topic", 0)
    update(slab, 0, 3, topic_id=7, answers=False)
    assert slab.topics()["topic"] == Topic(REQUESTED, 3, 0, 7, 0), "only an answer ends a request"
    update(slab, 0, 3, topic_id=7)
    update(slab, 0, 4, topic_id=7, answers=False)
    assert slab.topics()["topic"] == Topic(KNOWN, 4, 0, 7, 1)
    update(slab, 0, 4, error=29, topic_id=8)
    assert slab.topics()["topic"] == Topic(FAILED, 4, 29, 7, 2)


def every_section(slab: Slab) -> list[Callable[[], tuple[Any, ...]]]:
    tables = slab.tables
    return [
        lambda: tables.request(b"topic", 0),
        lambda: tables.update(0, 1, 0, 0, True, 0, 0, NO_ROOM),
        lambda: tables.refuse(0, 0, 1, 0, 0),
        lambda: tables.lease(b"one"),
        lambda: tables.add_to_lane(0, 0, 0),
        lambda: tables.open_lane(0, 0, array("Q", [0]), 0, 0, 2, 0),
        lambda: tables.end_transaction(0, 0),
        lambda: tables.renew_lane(0, 0),
        lambda: tables.close_lane(0, 0, True),
        lambda: tables.take_lane(0, 0),
        lambda: tables.rebuild(),
    ]


def test_nothing_changes_without_the_lock(slab: Slab) -> None:
    slab.be(2)
    assert slab.lock.acquire_now() == LOCK_TAKEN
    slab.be(LIVING)
    before = bytes(slab.segment)
    assert {section()[0] for section in every_section(slab)} == {LOCK_BUSY}
    slab.segment.leave()
    assert {section()[0] for section in every_section(slab)} == {LOCK_REJOIN}
    assert bytes(slab.segment) == before


@pytest.mark.parametrize(
    ("count", "said"),
    [
        ("topic_count", "it has 9000 topic entries and 0 partition entries"),
        ("partition_count", "it has 0 topic entries and 9000 partition entries"),
        ("lane_count", "it has 9000 lanes"),
    ],
)
def test_a_count_larger_than_its_table_is_damage(slab: Slab, count: str, said: str) -> None:
    slab.set("superblock", count, 9000)
    before = bytes(slab.segment)
    for section in every_section(slab):
        with pytest.raises(Damaged, match=said):
            section()
    assert bytes(slab.segment) == before, "and the lock is free"


def test_arguments_that_lead_out_of_a_table_are_refused(slab: Slab) -> None:
    tables, none = slab.tables, array("Q")
    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: tables.request(b"", 0), ValueError, "1 to 256 bytes, not 0"),
        (lambda: tables.request(b"x" * 257, 0), ValueError, "1 to 256 bytes, not 257"),
        (lambda: tables.lease(b"x" * 257), ValueError, "1 to 256 bytes, not 257"),
        (lambda: tables.update(2, 1, 0, 0, True, 0, 0, 0), IndexError, "topic entry 2 of 2"),
        (lambda: tables.refuse(2, 0, 1, 0, 0), IndexError, "topic entry 2 of 2"),
        (lambda: tables.refuse(0, 6, 1, 0, 0), IndexError, "reason entry 6 of 6"),
        (lambda: tables.lease(b"x", 2, 0), IndexError, "lane entry 2 of 2"),
        (lambda: tables.add_to_lane(2, 0, 0), IndexError, "lane entry 2 of 2"),
        (lambda: tables.add_to_lane(0, 8, 0), IndexError, "partition entry 8 of 8"),
        (lambda: tables.open_lane(2, 0, none, 0, 0, 2, 0), IndexError, "lane entry 2 of 2"),
        (lambda: tables.open_lane(0, 0, array("Q", [1, 8]), 0, 0, 2, 0), IndexError, "partition entry 8 of 8"),
        (lambda: tables.end_transaction(2, 0), IndexError, "lane entry 2 of 2"),
        (lambda: tables.renew_lane(2, 0), IndexError, "lane entry 2 of 2"),
        (lambda: tables.close_lane(2, 0, False), IndexError, "lane entry 2 of 2"),
        (lambda: tables.take_lane(2, 0), IndexError, "lane entry 2 of 2"),
    ]
    for call, error, said in calls:
        with pytest.raises(error, match=said):
            call()
    for begin in (3, (1 << 64) - 1):
        assert tables.request(b"topic", begin)[0] == LOCK_TAKEN, "nothing is behind the count"


# --- death ------------------------------------------------------------------------------------------


def filled(core: ModuleType) -> Slab:
    """Return a slab with a topic of two partitions, and a closed lane."""
    slab = Slab(core)
    slab.tables.request(b"topic", 0)
    update(slab, 0, 2, topic_id=5)
    slab.tables.lease(b"one")
    slab.tables.add_to_lane(0, 0, 2)
    return slab


CHANGES: dict[str, Callable[[Slab], object]] = {
    "request a known topic": lambda slab: slab.tables.request(b"topic", 0),
    "request a new one": lambda slab: slab.tables.request(b"second", 1),
    "grow": lambda slab: update(slab, 0, 4, topic_id=6, known=2, begin=3),
    "shrink": lambda slab: update(slab, 0, 1, topic_id=1 << 64, known=2, begin=3),
    "fail": lambda slab: update(slab, 0, 0, error=3),
    "add to a lane": lambda slab: slab.tables.add_to_lane(0, 1, 3),
}


@pytest.mark.parametrize("change", CHANGES)
def test_death_at_every_step_of_a_change(stepping: ModuleType, change: str) -> None:
    """The tables are whole, a reader looks at all that has changed, and the next try ends as if it were the first."""
    whole, operation = filled(stepping), CHANGES[change]
    operation(whole)
    before = filled(stepping)
    topics, partitions = before.topics(), before.partitions()
    generation = before.get("superblock", "generation")
    for slab, _ in deaths(lambda: filled(stepping), operation):
        slab.take_over()
        slab.tables.refuse(-1, 0, 0, 0, 0)  # a section that changes nothing else repairs

        assert slab.lock.owner == 0
        assert slab.partitions()[:3] == partitions
        assert len(set(slab.partitions())) == len(slab.partitions())
        for entry, (name, topic) in enumerate(slab.topics().items()):
            assert name in ("topic", "second")
            numbers = {number for lane, of, number in slab.partitions() if not lane and of == entry}
            assert numbers >= set(range(topic.partitions)), "the count is stored after the entries"
            if (topic.partitions, topic.error, topic.topic_id) != topics.get(name, (0, 0, 0, 0))[1:4]:
                assert slab.get("topics", "changed", entry) > generation
                assert slab.get("superblock", "generation") > generation
        if len(slab.partitions()) > len(partitions):
            assert slab.get("superblock", "generation") > generation

        operation(slab)
        assert slab.partitions() == whole.partitions()
        for topic, expected in zip(slab.topics().values(), whole.topics().values(), strict=True):
            assert topic[:4] == expected[:4]


LEASES: dict[str, Callable[[Slab], object]] = {
    "lease again": lambda slab: slab.tables.lease(b"one"),
    "lease for another id": lambda slab: slab.tables.lease(b"two"),
    "lease one of another id": lambda slab: slab.tables.lease(b"another", 0, slab.lane(0)["generation"]),
    "open": lambda slab: slab.tables.open_lane(0, slab.lane(0)["generation"], array("Q", [2]), 8, 3, 2, 1),
    "end a transaction": lambda slab: slab.tables.end_transaction(0, LEASE),
    "go on to the next": lambda slab: slab.tables.renew_lane(0, LEASE),
    "release": lambda slab: slab.tables.close_lane(0, LEASE, True),
}


@pytest.mark.parametrize("operation", LEASES)
@pytest.mark.parametrize("is_open", [False, True])
def test_death_at_every_step_of_a_lane(stepping: ModuleType, operation: str, is_open: bool) -> None:
    """A lane is open with all that depends on it, or closed; the next lease begins again."""
    was_open = set()

    def make() -> Slab:
        slab = filled(stepping)
        if is_open:
            slab.tables.open_lane(0, LEASE, array("Q", [2]), 7, 2, 1, 0)
        return slab

    before, changes = make().lane(0), make().get("superblock", "lanes_changed")
    for slab, _ in deaths(make, LEASES[operation]):
        slab.take_over()
        after = slab.lane(0)
        was_open.add(after["producer_id"])
        sequence = slab.get("partitions", "next_sequence", 2)
        if after["producer_id"] == 9:
            assert (after["producer_epoch"], after["version"], after["error"], sequence) == (3, 2, 0, 3 << 32)
        elif after["producer_id"] == 8 and operation != "open":
            assert (after["producer_epoch"], after["version"], sequence) == (2, 1, 2 << 32)
        if after["holder"] != before["holder"]:
            assert after["producer_id"] == 0
            assert not after["holder"] or after["generation"] > before["generation"], "the last holder is fenced first"
        slab.tables.refuse(-1, 0, 0, 0, 0)  # a section that changes nothing else repairs
        if before["producer_id"] and not after["producer_id"]:
            assert slab.get("superblock", "lanes_changed") > changes, "else the sender keeps what is queued"

        _, lane, lease = slab.tables.lease(b"one", 0 if slab.lane(0)["id_length"] == 0 else -1, after["generation"])
        if lane >= 0:
            assert slab.tables.open_lane(lane, lease, array("Q", [2]), 4, 1, 2, 0) == (LOCK_TAKEN, True)
            assert slab.lane(lane)["producer_id"] == 5
    stay = "lease for another id", "end a transaction", "go on to the next"
    if (is_open or operation == "open") and operation not in stay:
        assert len(was_open) > 1
