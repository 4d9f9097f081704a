"""`send` accepts a record and returns its future, or raises and has not accepted it, even without a sender."""

from __future__ import annotations

import resource
from pathlib import Path

import pyarrow as pa
import pytest
from faults import interrupted_by_alarm
from fixture_types import Link, MonkeyPatch, Produce, Settings, Start
from producers import kill_sender, sender_pid, wait_until, wait_until_stored
from senders import read_values

from shmaccum import Producer
from shmaccum.errors import SenderError
from shmaccum.sender import isolation, process
from tools.leftovers import pids, read


@pytest.fixture
def alone(produce: Produce, monkeypatch: MonkeyPatch) -> Producer:
    """Return a producer whose sender is dead, and which cannot start another until the test undoes that."""
    producer = produce(linger_ms=60_000, delivery_timeout_ms=90_000)
    producer.partitions_for("t")
    monkeypatch.setattr(isolation, "EXECUTABLE", "/nowhere/python")
    return producer


def test_no_record_is_accepted_without_a_sender(alone: Producer, monkeypatch: MonkeyPatch, log_dir: Path) -> None:
    """A retry after the error sends the record once."""
    kill_sender(alone)
    pool = alone._accumulator.state.pool
    free = pool.available_memory()
    for _ in range(3):
        with pytest.raises(SenderError, match="/nowhere/python"):
            alone.send("t", b"value", partition=0)
        with pytest.raises(SenderError, match="/nowhere/python"):
            alone.send_batch("t", pa.record_batch({"value": ["value"], "partition": [0]}))
    assert alone._slab.undelivered() == (0, 0)
    assert pool.available_memory() == free
    monkeypatch.undo()
    alone.send("t", b"value", partition=0)
    alone.flush(20)
    assert read_values(log_dir, "t") == [b"value"]


def test_accepted_record_without_a_sender_fails_the_wait(
    alone: Producer, monkeypatch: MonkeyPatch, log_dir: Path
) -> None:
    """A batch is open, so no sender is needed: the record is accepted, and the wait fails."""
    alone.send("t", b"first", partition=0)
    kill_sender(alone)
    future = alone.send("t", b"second", partition=0)
    for wait in (future.get, alone.flush, alone.poll):
        with pytest.raises(SenderError, match="/nowhere/python"):
            wait()
    assert alone._slab.undelivered() == (1, 2)
    monkeypatch.undo()
    alone.flush(20)
    assert future.get(0).offset == 1
    assert read_values(log_dir, "t") == [b"first", b"second"]


def test_attached_producer_needs_no_descriptors(
    produce: Produce, start: Start, settings: Settings, log_dir: Path
) -> None:
    """A producer that is attached needs none to send; to start a sender takes some, and says so."""
    watcher = produce()
    watcher.partitions_for("t")

    def send_without_descriptors(link: Link) -> None:
        with Producer(settings()) as producer:
            producer.partitions_for("t")
            usual = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, usual[1]))
            producer.send("t", b"one", partition=0).get(20)
            link.send("kill the sender")
            link.recv()
            for partition in (0, 1):
                with pytest.raises(SenderError, match=r"Too many open files.*ulimit -n"):
                    producer.send("t", b"refused", partition=partition)
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)
            producer.send("t", b"two", partition=0).get(20)

    child = start(send_without_descriptors, how="fork").ready()
    kill_sender(watcher)
    child.finish()
    wait_until_stored(log_dir, 2)
    assert read_values(log_dir, "t") == [b"one", b"two"]


def senders(producer: Producer) -> list[int]:
    """Return the processes that are, or become, the sender of a producer."""
    return [pid for pid in pids() if producer._slab.name.encode() in read(pid, "cmdline").split(b"\0")]


def test_a_start_interrupted_at_once_leaves_no_process_that_waits(produce: Produce, monkeypatch: MonkeyPatch) -> None:
    """Its request would never come."""
    producer = produce()
    producer.send("t", b"0").get(20)
    kill_sender(producer)

    def interrupt(_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(process, "_answer_of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.send("t", b"interrupted")
    producer.send("t", b"1").get(20)
    wait_until(lambda: senders(producer) == [sender_pid(producer)], "one is the sender, the other has left")


def test_interrupted_sender_start_refuses_the_record(produce: Produce, log_dir: Path) -> None:
    """The record is not taken, and the next call starts another, if that one does not serve yet."""
    producer = produce(sender_idle_ms=2000)
    producer.send("t", b"0", partition=0).get(20)
    slab = producer._slab

    with interrupted_by_alarm() as set_alarm:
        for number, delay in enumerate((0.002, 0.01, 0.03, 0.05), start=1):  # a new interpreter takes longer
            # Of two that were started, the slower one leaves; before, it would be there for the one that is killed.
            wait_until(lambda: senders(producer) == [sender_pid(producer)], "there is one sender, and none comes")
            wait_until(lambda: slab.undelivered() == (0, 0), "the sender is done with the record that it has told of")
            kill_sender(producer)
            set_alarm(delay)
            with pytest.raises(KeyboardInterrupt):
                producer.send("t", b"interrupted", partition=0)
            assert slab.undelivered() == (0, 0)
            assert producer.send("t", b"%d" % number, partition=0).get(20).offset == number
    assert read_values(log_dir, "t") == [b"0", b"1", b"2", b"3", b"4"]
