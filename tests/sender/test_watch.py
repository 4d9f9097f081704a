"""A sender that died is missed: by a thread of every process with producers, whatever they do or do not call."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import Start
from producers import Settings, kill_sender, sender_pid, sender_starts, wait_until, wait_until_stored
from runs import run_python
from senders import read_values

from shmaccum import Producer
from shmaccum.procfs import start_time
from shmaccum.sender import isolation, watch
from shmaccum.shm import lifecycle

PROMISE_S = 2.0
BUSY_S = 8.0
"""What a machine that has other things to do may add to it."""


def lingering(settings: Settings) -> dict[str, object]:
    """Return settings by which an open batch stays open until a flush."""
    return settings(linger_ms=60_000, delivery_timeout_ms=100_000)


def wait_for_the_next(producer: Producer, killed: int) -> None:
    began_s = time.monotonic()
    wait_until(lambda: sender_pid(producer) not in (0, killed), "there is another sender")
    assert time.monotonic() - began_s < PROMISE_S + BUSY_S


def watch_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("shmaccum-watch-")]


def send_and_stay(link: Connection, settings: dict[str, object]) -> None:
    """Send a record, and do nothing else."""
    producer = Producer(settings)
    producer.send("t", b"value", partition=0)
    link.send(sender_pid(producer))
    link.recv()


def test_records_of_a_dead_producer(settings: Settings, start: Start, log_dir: Path) -> None:
    """Other producers of the slab, with nothing to wait for, start a sender."""
    given = settings(linger_ms=1000)
    with Producer(given) as bystander:
        victim = start(send_and_stay, given)
        killed = victim.hear()
        victim.kill()
        os.kill(killed, signal.SIGKILL)
        wait_for_the_next(bystander, killed)
        wait_until_stored(log_dir, 1)


def test_nothing_to_deliver_needs_no_sender(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_S", 0.01)
    with Producer(settings()) as producer:
        producer.send("t", b"value").get(20)
        kill_sender(producer)
        time.sleep(0.3)
        assert sender_starts(producer) == 1
        producer.send("t", b"value").get(20)  # and there is one again that removes the slab


def send_in_a_forked_child(link: Connection, settings: dict[str, object]) -> list[object]:
    """Fork; the child appends to the parent's open batch, and reports its threads before and after."""
    producer = Producer(settings)
    producer.send("t", b"parent's", partition=0)
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        before = len(watch_threads())
        producer.send("t", b"child's", partition=0)
        os.write(writable, b"%d%d" % (before, len(watch_threads())))
        time.sleep(60)
        os._exit(0)
    threads = os.read(readable, 2)
    link.send((child, sender_pid(producer), threads, len(watch_threads())))
    link.recv()
    return []


def test_a_forked_child_watches_once_it_appends(settings: Settings, start: Start, log_dir: Path) -> None:
    """And goes on when its parent is dead."""
    parent = start(send_in_a_forked_child, settings(linger_ms=1000))
    child, killed, childs_threads, parents_threads = parent.hear()
    try:
        assert childs_threads == b"01"
        assert parents_threads == 1
        parent.kill()
        os.kill(killed, signal.SIGKILL)
        wait_until_stored(log_dir, 2)
    finally:
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: start_time(child) == 0, "the child is dead, and not the last one out")
    Producer(settings(linger_ms=1000)).close()


FORKS = """
import json, os, sys, threading
from shmaccum import Producer
producer = Producer(json.loads(sys.argv[1]))
for _ in range(20):
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
print([thread.name for thread in threading.enumerate()][1:])
"""


def test_a_fork_is_none_among_threads(settings: Settings, slab_name: str) -> None:
    """Python 3.12 and later warn of those: the child may meet a lock that no thread will ever release."""
    arguments = ["-W", "always:This process:DeprecationWarning", "-c", FORKS, json.dumps(settings())]
    program = run_python(*arguments, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    assert (program.stdout, program.stderr) == (f"['shmaccum-watch-{slab_name}']\n", "")


def without_threads(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("runs", [False, True], ids=["before it runs", "once it runs"])
def test_an_interrupted_start_leaves_no_thread(
    settings: Settings, log_dir: Path, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    """The constructor raises the interrupt, and leaves the slab to the next producer."""
    start = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        if runs:
            start(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Producer(settings())
    assert not watch_threads()
    assert not lifecycle._slabs
    with Producer(settings()) as producer:
        assert watch_threads()
        producer.send("t", b"value", partition=0)
    assert read_values(log_dir, "t") == [b"value"]


def test_without_threads_the_next_send_looks(
    settings: Settings, log_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threading.Thread, "start", without_threads)
    monkeypatch.setattr(watch, "LOOK_S", 0.1)
    with caplog.at_level(logging.WARNING), Producer(lingering(settings)) as producer:
        assert caplog.text.count("can't start new thread") == 1
        producer.send("t", b"0", partition=0)
        killed = sender_pid(producer)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not producer._slab.has_sender(), "the sender is dead")
        time.sleep(watch.LOOK_S)
        producer.send("t", b"1", partition=0)
        assert sender_pid(producer) not in (0, killed)
        # Once there can be threads, there is one.
        assert not watch_threads()
        monkeypatch.undo()
        time.sleep(0.1)
        producer.send("t", b"2", partition=0)
        assert watch_threads()
        producer.flush(20)
    assert caplog.text.count("can't start new thread") == 1
    assert read_values(log_dir, "t") == [b"0", b"1", b"2"]


def test_a_failure_is_logged_and_tried_again(
    settings: Settings, log_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "LOOK_S", 0.01)
    with caplog.at_level(logging.WARNING), Producer(lingering(settings)) as producer:
        producer.send("t", b"value", partition=0)
        with monkeypatch.context() as broken:
            broken.setattr(isolation, "EXECUTABLE", "/nowhere/python")
            os.kill(sender_pid(producer), signal.SIGKILL)
            wait_until(lambda: caplog.text.count("/nowhere/python") >= 3, "it tries again and again")
        assert "next attempt in 0.02 s" in caplog.text
        assert "next attempt in 0.04 s" in caplog.text
        assert "Traceback" not in caplog.text
        wait_until(lambda: sender_pid(producer), "there is a sender again")


def test_the_thread_ends_with_the_last_producer_of_the_process(settings: Settings) -> None:
    one, two = Producer(settings()), Producer(settings())
    assert len(watch_threads()) == 1
    one.close()
    assert len(watch_threads()) == 1
    began_s = time.monotonic()
    two.close()
    assert time.monotonic() - began_s < watch.LOOK_S / 2, "it does not wait for the next look"
    assert not watch_threads()


ENDS_WITHOUT_A_SENDER = """
import json, os, signal, sys, time
from shmaccum import Producer
from shmaccum.shm.lifecycle import look
settings = json.loads(sys.argv[1])
producer = Producer(settings)
producer.send("t", b"value", partition=0)
with look(settings["shmaccum.name"]) as view:
    os.kill(view.sender().pid, signal.SIGKILL)
sys.executable = "/nowhere/python"
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    pass
"""


@pytest.mark.parametrize("seconds", [0, 1.05])
def test_the_end_of_the_interpreter_does_not_wait(settings: Settings, slab_name: str, seconds: float) -> None:
    """Not for a thread that sleeps, nor for one that is about to start a sender and cannot."""
    given = settings(linger_ms=1000)
    program = run_python("-c", ENDS_WITHOUT_A_SENDER.format(seconds=seconds), json.dumps(given), timeout_s=seconds + 20)
    assert program.returncode == 0
    assert all("has undelivered records and no sender" in line for line in program.stderr.splitlines())
    with Producer(given) as producer:
        wait_until(lambda: producer._slab.undelivered() == (0, 0), "what was left is delivered")
