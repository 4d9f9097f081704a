"""The lock file: locks of processes, which the kernel releases at their death."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from faults import is_stopped
from processes import Start, in_threads, wait_until
from slab_helpers import holder_of

from shmaccum.errors import SlabError, SlabPermissionError
from shmaccum.shm import lockfile, names
from shmaccum.shm.lockfile import LIFECYCLE, PROCESS, SENDER, START, LockFile

BYTES = [LIFECYCLE, SENDER, START, PROCESS, PROCESS + 1023]


@pytest.fixture
def lock_file(slab_name: str) -> Iterator[LockFile]:
    lock_file = LockFile.open(slab_name, create=True)
    yield lock_file
    lock_file.close()
    os.unlink(names.lock_path(slab_name))


def hold(link: Connection, name: str, byte: int) -> None:
    lock_file = LockFile.open(name, create=False)
    link.send(lock_file.try_lock(byte))
    while link.recv() == "unlock":
        lock_file.unlock(byte)
        link.send("unlocked")


@pytest.mark.parametrize("byte", BYTES)
def test_a_byte_excludes_other_processes_and_names_its_holder(lock_file: LockFile, start: Start, byte: int) -> None:
    """Until its holder unlocks it, or dies."""
    child = start(hold, lock_file.name, byte).ready(True)
    assert lock_file.holder(byte) == child.pid
    assert lock_file.try_lock(byte) is False
    assert [lock_file.holder(other) for other in BYTES if other != byte] == [0] * (len(BYTES) - 1)
    if byte == PROCESS:
        child.kill()
    else:
        child.tell("unlock")
        child.hear()
    assert lock_file.holder(byte) == 0
    assert lock_file.try_lock(byte) is True
    assert lock_file.try_lock(byte) is True, "it has it already"
    assert lock_file.holder(byte) == 0, "of other processes"
    assert start(holder_of, lock_file.name, byte).result() == os.getpid()


def holds_nothing(link: Connection, lock_file: LockFile, byte: int) -> tuple[int, bool]:
    return lock_file.holder(byte), lock_file.try_lock(byte)


def test_a_forked_child_does_not_inherit_bytes_and_its_exit_keeps_its_parents(
    lock_file: LockFile, start: Start
) -> None:
    lock_file.try_lock(PROCESS)
    assert start(holds_nothing, lock_file, PROCESS, how="fork").result() == (os.getpid(), False)
    assert start(holds_nothing, lock_file, SENDER, how="fork").result() == (0, True)
    assert start(holder_of, lock_file.name, PROCESS).result() == os.getpid()


def test_any_of_a_range_of_bytes_is_found(lock_file: LockFile, start: Start) -> None:
    child = start(hold, lock_file.name, PROCESS + 700).ready()
    assert lock_file.holder(PROCESS, length=700) == 0
    assert lock_file.holder(PROCESS, length=701) == child.pid
    assert lock_file.holder(PROCESS, length=0) == child.pid
    assert lock_file.holder(PROCESS + 701, length=0) == 0


# --- lifecycle and start bytes --------------------------------------------------------------------


def test_one_thread_at_a_time_has_the_lifecycle_byte(lock_file: LockFile) -> None:
    inside: list[int] = []
    most: list[int] = []

    def come_and_go(number: int) -> None:
        for _ in range(50):
            with lock_file.lifecycle():
                inside.append(number)
                time.sleep(0)  # lets another process in, if exclusion fails
                most.append(len(inside))
                inside.remove(number)

    with in_threads(*(partial(come_and_go, number) for number in range(4))):
        pass
    assert len(most) == 200
    assert max(most) == 1


def test_a_stopped_process_keeps_no_other_from_starting_the_sender(lock_file: LockFile, start: Start) -> None:
    """Of the others, one may; and the next one, if that is stopped, too. Those that go on let go of their own bytes."""
    stopped = [start(hold, lock_file.name, START + number).ready(True) for number in range(2)]
    for child in stopped:
        with lock_file.try_start() as mine:
            assert mine is False
        child.signal(signal.SIGSTOP)
        wait_until(partial(is_stopped, child.pid))
    with lock_file.try_start() as mine:
        assert mine is True
        assert start(holder_of, lock_file.name, START + 2).result() == os.getpid()
    assert start(holder_of, lock_file.name, START + 2).result() == 0
    assert lock_file.holder(START) == stopped[0].pid
    stopped[0].signal(signal.SIGCONT)
    wait_until(lambda: not is_stopped(stopped[0].pid))
    with lock_file.try_start() as mine:
        assert mine is False


# --- the file -------------------------------------------------------------------------------------


def test_a_removed_file_is_no_longer_current(slab_name: str) -> None:
    first = LockFile.open(slab_name, create=True)
    assert first.is_current()
    os.unlink(names.lock_path(slab_name))
    assert not first.is_current()
    second = LockFile.open(slab_name, create=True)
    assert (first.is_current(), second.is_current()) == (False, True)
    first.close()
    second.close()
    os.unlink(names.lock_path(slab_name))


def test_a_lock_file_that_other_users_can_open_is_refused(slab_name: str) -> None:
    """One that belongs to another user is, too: ``test_squatting.py``."""
    path = Path(names.lock_path(slab_name))
    path.touch(0o600)
    path.chmod(0o644)
    with pytest.raises(SlabPermissionError, match="mode 0600"):
        LockFile.open(slab_name, create=True)
    path.unlink()


def test_a_closed_lock_file_is_reopened_once_a_descriptor_is_free(
    lock_file: LockFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.close(lock_file.make_sure())

    def none_left(path: str, flags: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as context:
        context.setattr(lockfile, "open_own", none_left)
        with pytest.raises(SlabError, match="ulimit -n"):
            lock_file.holder(PROCESS)
    assert lock_file.try_lock(PROCESS)


def test_a_reused_descriptor_number_is_not_touched(lock_file: LockFile, tmp_path: Path) -> None:
    number = lock_file.make_sure()
    with (tmp_path / "file").open("w+b") as file:
        os.dup2(file.fileno(), number)
        assert lock_file.try_lock(PROCESS)
        lock_file.unlock(PROCESS)
        lock_file.close()
        assert os.path.samestat(os.fstat(number), os.fstat(file.fileno()))
        os.close(number)
