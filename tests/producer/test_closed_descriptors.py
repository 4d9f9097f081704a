"""A program that closes all its descriptors after it has made a producer, as one that becomes a daemon does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

import pytest
from fixture_types import Link, Produce, Settings, Start
from producers import sender_pid, wait_until_gone
from senders import read_values

from shmaccum import Producer
from shmaccum.errors import DeadOwnerError, ShmaccumError
from shmaccum.shm.lockfile import PROCESS

FILES = 40
"""More than a producer has descriptors."""

afterwards = pytest.mark.parametrize("reuse", [False, True], ids=["closed", "reused"])


def close_descriptors(directory: Path, reuse: bool) -> list[int]:
    """Close all descriptors but the pipes that lead to the test; with ``reuse``, open files under their numbers."""
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        path = Path(f"/proc/self/fd/{number}")
        if number > 2 and path.is_symlink() and str(path.readlink()).startswith("/"):
            os.close(number)
    directory.mkdir()
    return [os.open(directory / str(number), os.O_RDWR | os.O_CREAT) for number in range(FILES * reuse)]


def check_files(descriptors: list[int], directory: Path) -> None:
    """Assert that our files are open and unchanged."""
    for number, descriptor in enumerate(descriptors):
        assert os.path.samestat(os.fstat(descriptor), os.stat(directory / str(number)))
        assert os.fstat(descriptor).st_size == 0


def is_locked(path: Path) -> bool:
    """Return whether another process has a record lock on a file."""
    with path.open("r+b") as file, contextlib.suppress(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    return True


def use_after_closing(link: Link, settings: dict[str, object], directory: Path, reuse: bool) -> None:
    producer = Producer(settings)
    producer.send("t", b"before", partition=0).get(20)
    time.sleep(0.05)  # the sender sleeps again
    files = close_descriptors(directory, reuse)
    began = time.monotonic()
    for number in range(3):
        producer.send("t", b"after %d" % number, partition=0).get(20)
    producer.flush(20)
    assert time.monotonic() - began < 5, "the sender is woken"
    link.send(("entry", producer._slab.me))
    link.recv()

    os.kill(sender_pid(producer), signal.SIGKILL)
    producer.send("t", b"by the next sender", partition=0).get(20)
    second = Producer(settings)
    second.send("t", b"second", partition=0).get(20)
    second.close()
    check_files(files, directory)
    producer.close()
    third = Producer(settings)
    third.send("t", b"third", partition=0).get(20)
    third.close()
    link.send("closed")
    link.recv()
    check_files(files, directory)


@afterwards
def test_producer_reopens_descriptors_that_its_program_closed(
    start: Start, produce: Produce, settings: Settings, log_dir: Path, tmp_path: Path, reuse: bool
) -> None:
    """It opens what it needs again, and leaves files alone that have its old numbers."""
    watcher = produce()
    child = start(use_after_closing, settings(), tmp_path / "files", reuse)

    _, entry = child.hear()
    assert watcher._slab.lock_file.holder(PROCESS + entry) == child.pid, "it shows that it lives, as before"
    assert not any(map(is_locked, (tmp_path / "files").iterdir()))
    child.tell()
    assert child.hear() == "closed"
    assert watcher._slab.lock_file.holder(PROCESS + entry) == 0
    child.tell()
    child.result()
    expected = [b"before", b"after 0", b"after 1", b"after 2", b"by the next sender", b"second", b"third"]
    assert read_values(log_dir, "t") == expected


@afterwards
def test_forked_child_that_closed_all_descriptors_joins_the_slab(
    start: Start, produce: Produce, settings: Settings, log_dir: Path, tmp_path: Path, reuse: bool
) -> None:
    """As with a double fork: the child takes its own place in the slab all the same."""
    producer, directory = produce(), tmp_path / "files"
    producer.send("t", b"parent", partition=0).get(20)

    def use_inherited(link: Link) -> None:
        files = close_descriptors(directory, reuse)
        producer.send("t", b"inherited", partition=0).get(20)
        second = Producer(settings())
        second.send("t", b"second", partition=0).get(20)
        check_files(files, directory)
        second.close()
        producer.close()
        check_files(files, directory)

    start(use_inherited, how="fork").result()

    assert producer.send("t", b"parent again", partition=0).get(20).offset == 3
    assert read_values(log_dir, "t") == [b"parent", b"inherited", b"second", b"parent again"]


@afterwards
def test_daemon_whose_slab_was_removed_gets_an_error(
    start: Start, settings: Settings, slab_name: str, log_dir: Path, tmp_path: Path, reuse: bool
) -> None:
    """The daemon's own producer says what happened, and another one works."""
    producer, directory = Producer(settings()), tmp_path / "files"
    producer.send("t", b"parent", partition=0).get(20)

    def use_what_is_removed(link: Link) -> None:
        files = close_descriptors(directory, reuse)
        link.send("forked")
        link.recv()
        with pytest.raises(DeadOwnerError, match="make a new Producer"):
            producer.send("t", b"value", partition=0)
        with Producer(settings()) as second:
            second.send("t", b"second", partition=0).get(20)
            with pytest.raises(ShmaccumError):
                producer.close()
            second.send("t", b"third", partition=0).get(20)
        check_files(files, directory)

    child = start(use_what_is_removed, how="fork").ready()
    producer.close()
    wait_until_gone(slab_name)
    child.finish()
    wait_until_gone(slab_name)
    assert read_values(log_dir, "t") == [b"parent", b"second", b"third"]
