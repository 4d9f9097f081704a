"""A slab with as many producers as there is room for: its sender can die all the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixture_types import Link, Start
from producers import PATIENCE_S, sender_pid, settings_of, wait_until, wait_until_gone

from shmaccum import Producer
from shmaccum._core import LOCK_TABLES, TICKET_SHIFT, Lock, Process, Super
from shmaccum.config import ProducerConfig
from shmaccum.errors import SlabFullError
from shmaccum.sender.handover import has_successor
from shmaccum.sender.process import serve


def produce(link: Link, settings: dict[str, object]) -> None:
    """Be a producer, or say why not."""
    try:
        with Producer(settings) as producer:
            link.send("there")
            link.recv()
            link.send(producer.send("t", b"theirs", partition=0).get(PATIENCE_S).partition)
            link.recv()
    except SlabFullError as error:
        link.send(str(error))


def supervise(link: Link, settings: dict[str, object]) -> None:
    serve(ProducerConfig.parse(settings), lambda slab: None, supervised=True)


@pytest.fixture
def settings(slab_name: str, tmp_path: Path) -> Iterator[dict[str, object]]:
    """Return the settings of a slab for two producers and the sender."""
    yield settings_of(slab_name, tmp_path / "log", shmaccum_max_processes=3)
    wait_until_gone(slab_name)


@pytest.mark.parametrize("holds_a_lock", [False, True])
def test_next_send_finds_a_sender_in_a_full_process_table(
    settings: dict[str, object], start: Start, holds_a_lock: bool
) -> None:
    """The table entry of one that died with a lock is kept for that: it is freed before the next sender comes."""
    with Producer(settings) as producer:
        producer.send("t", b"first", partition=0).get(PATIENCE_S)
        other = start(produce, settings)
        assert other.hear() == "there"
        slab = producer._slab
        entry: int = slab.words[Super.SENDER_ENTRY] - 1
        os.kill(sender_pid(producer), signal.SIGKILL)
        wait_until(lambda: not slab.processes.is_alive(entry), "the sender is dead")
        if holds_a_lock:
            incarnation = slab.words[slab.geometry.process(entry) + Process.INCARNATION]
            slab.words[slab.geometry.lock(LOCK_TABLES) + Lock.OWNER] = entry + 1 | incarnation << TICKET_SHIFT
        else:
            assert "shmaccum.max.processes" in start(produce, settings).hear()

        assert producer.send("t", b"second", partition=0).get(PATIENCE_S).offset == 1
        other.tell()
        assert other.hear() == 0
        other.tell()
        other.result()


def test_stopped_waiting_sender_does_not_keep_its_entry(settings: dict[str, object], start: Start) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"first", partition=0).get(PATIENCE_S)
        waiting = start(supervise, settings | {"sender.idle.ms": -1})
        slab = producer._slab
        # The one that a producer started gives way to it, and comes back when it is dead.
        wait_until(lambda: sender_pid(producer) == waiting.pid, "the supervised one serves")
        second = start(supervise, settings | {"sender.idle.ms": -1})
        wait_until(lambda: has_successor(slab), "another one waits, and is no longer coming")
        second.signal(signal.SIGSTOP)
        waiting.kill()

        assert "shmaccum.max.processes" in start(produce, settings).hear()
        assert producer.send("t", b"second", partition=0).get(PATIENCE_S).offset == 1
        second.kill()
