"""Inspecting a slab: what a view shows, and that it disturbs no process."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import Start
from slab_helpers import holder_of, overwrite

from shmaccum._core import (
    COMMIT_SIZE_SHIFT,
    KEY_LANE_SHIFT,
    KEY_TOPIC_SHIFT,
    SLEEP_BITS,
    WORD,
    Geometry,
    Lane,
    Partition,
    Process,
    Slot,
    Super,
    Topic,
)
from shmaccum.abi import ABI_VERSION
from shmaccum.errors import SlabAbiError, SlabError, SlabNotFoundError, SlabPermissionError
from shmaccum.observe.report import report
from shmaccum.shm import names
from shmaccum.shm.inspection import SILENCE_MS
from shmaccum.shm.layout import Role, SlotState, TopicState, holder_word
from shmaccum.shm.lifecycle import attach, destroy, detach, look, unlink
from shmaccum.shm.lockfile import PROCESS
from shmaccum.shm.slab import Slab

SMALL = Geometry(slot_size=1024, slot_count=8, max_processes=4, max_topics=4, max_partitions=8)


@pytest.fixture
def geometry() -> Geometry:
    return SMALL


def use_slab(link: Connection, name: str) -> None:
    """Stay attached, as a producer, until a message."""
    slab = attach(name, SMALL)
    slab.add_role(Role.PRODUCER)
    link.send(os.getpid())
    link.recv()
    detach(slab)


def be_sender(link: Connection, name: str) -> None:
    slab = attach(name, SMALL)
    doorbell = slab.become_sender()
    doorbell.listen()
    link.send(os.getpid())
    link.recv()
    slab.resign_as_sender(doorbell)
    detach(slab)


def test_a_view_shows_the_users_and_is_none(slab_name: str, start: Start) -> None:
    child = start(use_slab, slab_name)
    pid = child.hear()
    with look(slab_name) as view:
        (process,) = view.processes()
        assert (process.pid, process.alive, process.roles) == (pid, True, Role.PRODUCER)
        assert view.geometry == SMALL
        dead = start(use_slab, slab_name).ready()
        dead.kill()
        assert {each.pid: each.alive for each in view.processes()} == {pid: True, dead.pid: False}
        child.tell()
        child.join()
        assert [each.alive for each in view.processes()] == [False], "the dead one is left"
        assert not Path(names.segment_path(slab_name)).exists(), "an onlooker keeps no slab alive"
    with pytest.raises(SlabNotFoundError, match="there is no slab"), look(slab_name):
        pass


def test_a_user_that_looks_keeps_its_record_lock(slab: Slab, start: Start) -> None:
    with look(slab.name) as view:
        assert [process.pid for process in view.processes()] == [os.getpid()]
        with pytest.raises(TypeError, match="read-only"):
            view.words[Super.GENERATION] = 1
    # A second descriptor of the lock file, closed, would have dropped it.
    assert start(holder_of, slab.name, PROCESS + slab.me).result() == os.getpid()


def test_a_sleeping_sender_is_not_shown_as_stopped(slab: Slab, start: Start) -> None:
    sender = start(be_sender, slab.name)
    pid = sender.hear()
    for sleep_ms in (0, 10_000):
        for silent_ms in (0, SILENCE_MS - 500, SILENCE_MS + 500, 10_000 + SILENCE_MS - 500, 10_000 + SILENCE_MS + 500):
            stopped = silent_ms > SILENCE_MS + sleep_ms
            ran_ms = time.monotonic_ns() // 1_000_000 - silent_ms
            slab.words[Super.SENDER_RAN] = ran_ms << SLEEP_BITS | sleep_ms
            with look(slab.name) as view:
                seen = view.sender()
            assert seen.stopped is bool(slab.trouble()) is stopped
            assert seen.silent_ms is not None
            assert seen.silent_ms >= silent_ms
            said = f"process {pid} is stopped: it has not run for {silent_ms // 1000}" if stopped else ""
            assert seen.halt().startswith(said)
    sender.finish()
    with look(slab.name) as view:
        assert (view.sender().stopped, view.sender().silent_ms) == (False, None)


def test_the_senders_role_is_shown_over_its_life(slab: Slab, start: Start) -> None:
    def seen() -> tuple[int | None, bool, bool, int]:
        with look(slab.name) as view:
            sender = view.sender()
            return sender.pid, sender.alive, sender.asleep, sender.starts

    assert seen() == (None, False, False, 0)
    first = start(be_sender, slab.name)
    pid = first.hear()
    assert seen() == (pid, True, True, 1)
    first.tell()
    first.join()
    assert seen() == (None, False, False, 1)
    second = start(be_sender, slab.name)
    pid = second.hear()
    second.kill()
    assert seen() == (pid, False, False, 2)
    doorbell = slab.become_sender()
    assert seen() == (os.getpid(), True, True, 3), "F_GETLK alone would not show it"
    doorbell.answer()
    assert seen() == (os.getpid(), True, False, 3)
    slab.resign_as_sender(doorbell)


def add_topic(slab: Slab, name: str, partitions: int, lane: int = 0) -> None:
    words, geometry = slab.words, slab.geometry
    entry = words[Super.TOPIC_COUNT]
    at = geometry.topic(entry)
    slab.buffer[(at + Topic.NAME) * WORD :][: len(name)] = name.encode()
    words[at + Topic.NAME_LENGTH] = len(name)
    words[at + Topic.PARTITIONS] = partitions
    words[at + Topic.STATE] = TopicState.KNOWN if partitions else TopicState.REQUESTED
    words[Super.TOPIC_COUNT] += 1
    for number in range(partitions):
        words[geometry.partition(words[Super.PARTITION_COUNT]) + Partition.KEY] = (
            lane << KEY_LANE_SHIFT | entry + 1 << KEY_TOPIC_SHIFT | number
        )
        words[Super.PARTITION_COUNT] += 1


def fill_slot(slab: Slab, slot: int, state: SlotState, partition: int, records: int, size: int) -> None:
    at = slab.geometry.header(slot)
    slab.words[at + Slot.PARTITION] = partition
    slab.words[at + Slot.COMMIT] = size << COMMIT_SIZE_SHIFT | records << 1 | 1
    slab.words[at + Slot.SLOTS] = 1
    slab.words[at + Slot.STATE] = state | 0xABCD << 48 | 3 << 8


def test_queues_are_read_from_the_slots(slab: Slab) -> None:
    add_topic(slab, "orders", 2)
    add_topic(slab, "asked.for", 0)
    add_topic(slab, "a" * 249, 1)
    at = slab.geometry.partition(1)
    for word, value in {
        Partition.LEADER: 4,
        Partition.MUTED: 1,
        Partition.BATCHES_SENT: 2,
        Partition.RECORDS_SENT: 30,
        Partition.RECORDS_FAILED: 5,
        Partition.LAST_OFFSET: 30,
    }.items():
        slab.words[at + word] = value
    fill_slot(slab, 0, SlotState.CLOSED, 1, 10, 900)
    fill_slot(slab, 1, SlotState.ALLOCATED, 1, 77, 777)
    fill_slot(slab, 2, SlotState.OPEN, 1, 3, 200)
    fill_slot(slab, 3, SlotState.FREE, 1, 77, 777)
    fill_slot(slab, 4, SlotState.IN_FLIGHT, 1, 20, 1000)
    fill_slot(slab, 5, SlotState.COMPLETING, 1, 20, 1000)
    fill_slot(slab, 7, SlotState.OPEN, 0, 1, 80)
    with look(slab.name) as view:
        assert [(topic.name, topic.state, topic.partitions) for topic in view.topics()] == [
            ("orders", TopicState.KNOWN, 2),
            ("asked.for", TopicState.REQUESTED, 0),
            ("a" * 249, TopicState.KNOWN, 1),
        ]
        long, first, second = view.all_partitions()[0]
        assert (long.topic, long.partition, long.leader, long.last_offset) == ("a" * 249, 0, None, None)
        assert (first.topic, first.partition) == ("orders", 0)
        assert (first.queued_batches, first.queued_records, first.queued_bytes) == (1, 1, 80)
        assert (second.queued_batches, second.queued_records, second.queued_bytes) == (2, 13, 1100)
        assert (second.in_flight_batches, second.leader, second.muted) == (2, 3, True)
        assert not first.muted
        slab.words[slab.geometry.partition(0) + Partition.HELD] = 1
        assert [each.muted for each in view.all_partitions()[0]] == [False, True, True]
        assert (second.batches_sent, second.records_sent, second.records_failed, second.last_offset) == (2, 30, 5, 29)
        assert view.undelivered() == slab.undelivered() == (5, 54)
    for slot in range(8):
        fill_slot(slab, slot, SlotState.FREE, 0, 0, 0)


def test_a_damaged_lane_is_refused_or_shown(slab: Slab) -> None:
    slab.add_role(Role.PRODUCER)
    lane = slab.geometry.lane(0)
    mine = holder_word(slab.me, slab.words[slab.geometry.process(slab.me) + Process.INCARNATION])
    name = int.from_bytes(b"orders-1", "little")
    sound = {Lane.HOLDER: mine, Lane.PRODUCER_ID: 8, Lane.OPENED_MS: 5, Lane.ID_LENGTH: 8, Lane.ID: name}
    slab.words[Super.LANE_COUNT] = 1
    add_topic(slab, "t", 1, lane=1)

    def restore() -> None:
        for word in range(Lane.length):
            slab.words[lane + word] = sound.get(word, 0)

    restore()
    bounds = (1 << 63) - 1, 1 << 63, (1 << 64) - 1
    values = [0, 1, 0xFFFF, 0x10000 | 0xFFFF, 1 << 31, mine + 1, mine + (1 << 16), *bounds]
    with look(slab.name) as view:
        assert [(each.transactional_id, each.pid, each.alive) for each in view.lanes()] == [
            ("orders-1", os.getpid(), True)
        ]
        assert [each.transactional_id for each in view.all_partitions()[0]] == ["orders-1"]
        for word in (*range(Lane.ID + 1), Lane.length - 1):
            for value in values:
                slab.words[lane + word] = value
                shown = int((word, value) != (Lane.HOLDER, 0))
                assert len(view.lanes()) == len(view.all_partitions()[0]) == shown
                if word == Lane.HOLDER and value:
                    assert [(each.pid, each.alive) for each in view.lanes()] == [(None, False)]
                restore()
        slab.words[Super.LANE_COUNT] = (1 << 64) - 1
        assert len(view.lanes()) == 1, "no more than there is room for, and those that are held"
        slab.words[Super.LANE_COUNT] = 1
    assert report(slab.name).lanes[0].alive
    slab.words[Super.TOPIC_COUNT] = slab.words[Super.PARTITION_COUNT] = slab.words[Super.LANE_COUNT] = 0


def test_an_incomplete_slab_is_not_a_missing_one(slab_name: str) -> None:
    Path(names.lock_path(slab_name)).touch(mode=0o600)
    with pytest.raises(SlabAbiError, match=f"incomplete.*shmaccum destroy {slab_name}"), look(slab_name):
        pass
    assert destroy(slab_name) == 0
    with pytest.raises(SlabNotFoundError), look(slab_name):
        pass


@pytest.mark.parametrize(
    ("mode", "size", "error", "words"),
    [
        (0o644, 1 << 20, SlabPermissionError, "mode"),
        (0o600, 100, SlabAbiError, "too short"),
        (0o600, 1 << 20, SlabAbiError, "not a slab of shmaccum"),
    ],
)
def test_foreign_files_are_refused(slab_name: str, mode: int, size: int, error: type[SlabError], words: str) -> None:
    segment = Path(names.segment_path(slab_name))
    segment.write_bytes(b"x" * size)
    segment.chmod(mode)
    Path(names.lock_path(slab_name)).touch(mode=0o600)
    with pytest.raises(error, match=words), look(slab_name):
        pass
    unlink(slab_name)


def test_a_slab_of_another_version_is_refused(slab_name: str, start: Start) -> None:
    child = start(use_slab, slab_name).ready()
    overwrite(slab_name, Super.ABI, ABI_VERSION + 1)
    with pytest.raises(SlabAbiError, match=f"ABI version {ABI_VERSION + 1}"), look(slab_name):
        pass
    child.kill()
    assert destroy(slab_name, force=True) == 0
