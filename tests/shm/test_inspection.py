"""Inspecting a slab: what a view shows, and that it disturbs no process."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import Start
from slab_helpers import holder_of

from shmaccum._core import (
    KEY_LANE_SHIFT,
    KEY_TOPIC_SHIFT,
    SLEEP_BITS,
    Geometry,
    Lane,
    Partition,
    Process,
    Super,
    Topic,
)
from shmaccum.errors import SlabAbiError, SlabNotFoundError
from shmaccum.observe.report import report
from shmaccum.shm import names
from shmaccum.shm.inspection import SILENCE_MS
from shmaccum.shm.layout import Role, TopicState, holder_word
from shmaccum.shm.lifecycle import attach, destroy, detach, look
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


def add_topic_of_a_lane(slab: Slab) -> None:
    """Add topic "t" with one partition, which is that of the first lane's transaction."""
    words, at = slab.words, slab.geometry.topic(0)
    words[at + Topic.NAME] = ord("t")
    words[at + Topic.NAME_LENGTH] = words[at + Topic.PARTITIONS] = 1
    words[at + Topic.STATE] = TopicState.KNOWN
    words[slab.geometry.partition(0) + Partition.KEY] = 1 << KEY_LANE_SHIFT | 1 << KEY_TOPIC_SHIFT
    words[Super.TOPIC_COUNT] = words[Super.PARTITION_COUNT] = 1


def test_a_damaged_lane_is_refused_or_shown(slab: Slab) -> None:
    slab.add_role(Role.PRODUCER)
    lane = slab.geometry.lane(0)
    mine = holder_word(slab.me, slab.words[slab.geometry.process(slab.me) + Process.INCARNATION])
    name = int.from_bytes(b"orders-1", "little")
    sound = {Lane.HOLDER: mine, Lane.PRODUCER_ID: 8, Lane.OPENED_MS: 5, Lane.ID_LENGTH: 8, Lane.ID: name}
    slab.words[Super.LANE_COUNT] = 1
    add_topic_of_a_lane(slab)

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
