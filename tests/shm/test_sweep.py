"""Sweeps remove empty slabs whose users are all dead, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import Start
from producers import wait_until
from slab_helpers import holder_of, stay, whats_there, words_of_a_batch

from shmaccum._core import Geometry, Super
from shmaccum.abi import ABI_VERSION
from shmaccum.errors import SlabNotFoundError
from shmaccum.shm import names, validation
from shmaccum.shm.lifecycle import attach, destroy, detach, look
from shmaccum.shm.lockfile import PROCESS, LockFile
from shmaccum.shm.reclaim import sweep
from shmaccum.shm.segment import Segment
from tools.support.locks import held

Leave = Callable[..., None]


def sweep_away(name: str) -> None:
    """Sweep until the slab is removed. A sweep of another test can hold the lifecycle byte just now."""
    wait_until(lambda: sweep() is not None and not whats_there(name), "it is removed")


def attach_and_die(link: Connection, name: str, geometry: Geometry, words: dict[int, int]) -> None:
    slab = attach(name, geometry)
    for word, value in words.items():
        slab.words[word] = value
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def left(slab_name: str, geometry: Geometry, start: Start) -> Leave:
    """Return a function that lets a process create the slab, set words in it, and die."""

    def leave(words: dict[int, int] | None = None) -> None:
        assert start(attach_and_die, slab_name, geometry, words or {}).join() == -signal.SIGKILL

    return leave


def test_an_empty_slab_of_the_dead_is_removed(slab_name: str, left: Leave) -> None:
    left()
    assert slab_name not in sweep(spare=slab_name), "the caller's own"
    sweep_away(slab_name)


@pytest.mark.parametrize("removed", [1, 9, 20])
def test_a_dead_removers_remains_are_removed(slab_name: str, left: Leave, removed: int) -> None:
    left()
    for path in names.leftovers(slab_name)[:removed]:
        Path(path).unlink(missing_ok=True)  # another test's sweep can be faster
    sweep_away(slab_name)


def test_a_lock_file_alone_is_removed_unless_it_is_new(slab_name: str) -> None:
    path = Path(names.lock_path(slab_name))
    path.touch(mode=0o600)
    assert slab_name not in sweep()
    assert path.exists()
    hour_ago = time.time() - 3600
    os.utime(path, (hour_ago, hour_ago))
    sweep_away(slab_name)
    assert not path.exists()


def test_a_slab_with_records_is_kept(slab_name: str, left: Leave, geometry: Geometry) -> None:
    left(words_of_a_batch(geometry))
    assert slab_name not in sweep()
    with look(slab_name) as view:
        validation.check(slab_name, view.words, geometry)
        assert view.undelivered() == (1, 3)
    program = "import sys; from shmaccum.shm.reclaim import sweep; print(*sweep(), 'numpy' in sys.modules)"
    *swept, imported = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert slab_name not in swept
    assert imported == "False"  # a sender sweeps as it starts, and needs no numpy
    destroy(slab_name, force=True)


def stay_without_byte(link: Connection, name: str, geometry: Geometry) -> None:
    """Close the lock file, as a daemon does that closes all its descriptors: it lives without its record lock."""
    os.close(attach(name, geometry).lock_file.make_sure())
    link.send("there")
    link.recv()


@pytest.mark.parametrize("user", [stay, stay_without_byte])
def test_a_slab_in_use_is_kept(slab_name: str, geometry: Geometry, start: Start, user: Callable[..., None]) -> None:
    child = start(user, slab_name, geometry).ready()
    assert slab_name not in sweep()
    assert whats_there(slab_name)
    child.kill()
    slab = attach(slab_name, geometry)
    assert slab_name not in sweep(), "this process uses it"
    assert slab.lock_file.is_current()
    assert start(holder_of, slab_name, PROCESS + slab.me).result() == os.getpid(), "it has kept its record lock"
    detach(slab)


@pytest.mark.parametrize(("word", "value"), [(Super.ABI, ABI_VERSION + 1), (Super.CREATED_MS, 1 << 60)])
def test_a_slab_of_another_version_or_a_damaged_one_is_kept(slab_name: str, left: Leave, word: int, value: int) -> None:
    """No process can see whether it is empty."""
    left({word: value})
    assert slab_name not in sweep()
    assert whats_there(slab_name)
    destroy(slab_name, force=True)


def make_half_and_die(link: Connection, name: str, geometry: Geometry) -> None:
    with LockFile.open(name, create=True).lifecycle():  # as creators do; else another test's sweep can come between
        Segment.create(name, geometry, 0)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_dead_creators_remains_are_removed(slab_name: str, geometry: Geometry, start: Start) -> None:
    assert start(make_half_and_die, slab_name, geometry).join() == -signal.SIGKILL
    sweep_away(slab_name)


def come_and_wait(link: Connection, name: str) -> None:
    try:
        lock_file = LockFile.open(name, create=False)
    except SlabNotFoundError:
        link.send("gone")
        return
    with lock_file.lifecycle():
        link.send("coming" if lock_file.is_current() else "gone")
        link.recv()


def test_a_slab_being_attached_is_kept_without_waiting(slab_name: str, left: Leave, start: Start) -> None:
    while True:
        left()
        child = start(come_and_wait, slab_name)
        if child.hear() == "coming":
            break
        child.kill()  # a producer of another test has removed it
    assert slab_name not in sweep()
    assert whats_there(slab_name)
    child.kill()
    sweep_away(slab_name)


def attach_again_and_again(link: Connection, name: str, geometry: Geometry) -> int:
    """Create the slab, use it, and leave it, while other processes sweep."""
    count = 0
    while count == 0 or not link.poll():  # at least once, if the machine has no time for this process before
        slab = attach(name, geometry)
        assert slab.lock_file.is_current()
        with held(slab.pool_lock):
            assert slab.lock_file.is_current()
        detach(slab)
        count += 1
    return count


def sweep_again_and_again(link: Connection) -> int:
    count = 0
    while count == 0 or not link.poll():
        sweep()
        count += 1
    return count


def test_sweeps_do_not_remove_a_slab_under_its_users(slab_name: str, geometry: Geometry, start: Start) -> None:
    users = [start(attach_again_and_again, slab_name, geometry) for _ in range(2)]
    sweepers = [start(sweep_again_and_again) for _ in range(2)]
    dying = start(attach_and_die, slab_name, geometry, {})
    assert dying.join() == -signal.SIGKILL
    time.sleep(0.5)
    for child in (*users, *sweepers):
        child.tell()
    assert all(child.result() > 0 for child in (*users, *sweepers))
    sweep_away(slab_name)
