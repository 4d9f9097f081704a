"""Another user puts files under a slab's names: no process dies, and unaffected work continues."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import PATIENCE_S, Child, Start, finish
from slab_helpers import become

from shmaccum._core import Geometry, Process
from shmaccum.errors import SlabError
from shmaccum.shm import names
from shmaccum.shm.lifecycle import attach, destroy, detach, look
from shmaccum.shm.reclaim import sweep
from shmaccum.shm.slab import Slab

Squat = Callable[..., Child]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users")

OWNER, OTHER = 65532, 65531  # no slabs but this module's, which sweeps as OWNER
KINDS = ("file", "fifo", "link", "dangling link", "directory")


def make(path: str, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        os.mkdir(path)
    elif kind.endswith("link"):
        os.symlink("/dev/shm/nothing" if kind == "dangling link" else "/dev/null", path)
    else:
        with open(path, "xb") as file:
            file.write(bytes(32))  # as large as a semaphore, writable by all users
    if not kind.endswith("link"):
        os.chmod(path, 0o777)


def squat(link: Connection, paths: list[str], kind: str) -> None:
    """Put a file under each path; on a message, truncate them."""
    become(OTHER)
    made = []
    for path in paths:
        with contextlib.suppress(FileExistsError):
            make(path, kind)
            made.append(path)
    link.send(made)
    link.recv()
    for path in made:
        os.truncate(path, 0)
    link.send("cut")
    link.recv()


@pytest.fixture
def squatter(slab_name: str, start: Start) -> Iterator[Squat]:
    """Return a function that lets another user put files under paths; removed at the end."""

    def begin(paths: list[str], kind: str = "file") -> Child:
        return start(squat, paths, kind)

    yield begin
    for entry in os.listdir(names.SHM_DIRECTORY):
        path = f"{names.SHM_DIRECTORY}/{entry}"
        if slab_name in entry and os.lstat(path).st_uid == OTHER:
            (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)


def of_owner(name: str) -> list[str]:
    """Return the paths with a slab's name that belong to its owner."""
    paths = [f"{names.SHM_DIRECTORY}/{entry}" for entry in os.listdir(names.SHM_DIRECTORY) if name in entry]
    return [path for path in paths if os.lstat(path).st_uid == OWNER]


def obvious_names(name: str) -> list[str]:
    """Return the paths that a user who lists the directory can guess: of all entries, and like existing ones."""
    own = names.PREFIX + name
    bases = [f"{own}.wakeup", *(f"sem.{own}.{part}" for part in ("pool", *(f"p{entry}" for entry in range(8))))]
    seen = [entry.rpartition(".")[2] for entry in os.listdir(names.SHM_DIRECTORY) if entry.startswith(f"sem.{own}.")]
    return [f"{names.SHM_DIRECTORY}/{base}{end}" for base in bases for end in ("", *(f".{digest}" for digest in seen))]


# --- semaphores and the doorbell ------------------------------------------------------------------


def use(link: Connection, name: str, geometry: Geometry) -> None:
    """Attach; wake another process, or wait for a wake-up, as each message says."""
    become(OWNER)
    slab = attach(name, geometry)
    link.send(slab.me)
    while (order := link.recv()) is not None:
        what, entry = order
        if what == "ring":
            slab.wakeups.wake(entry)
            link.send("rang")
        else:
            with slab.wakeup.listening() as listener:
                link.send("listening")
                link.send(listener.wait(PATIENCE_S))
    detach(slab)


def ring(ringer: Child, listener: Child, entry: int) -> None:
    listener.tell(("listen", 0))
    assert listener.hear() == "listening"
    ringer.tell(("ring", entry))
    assert ringer.hear() == "rang"
    assert listener.hear() is True


def test_truncating_a_squatted_wakeup_kills_no_process(
    slab_name: str, geometry: Geometry, start: Start, squatter: Squat
) -> None:
    ringer = start(use, slab_name, geometry).ready()
    other = squatter(obvious_names(slab_name))
    assert other.hear()
    listener = start(use, slab_name, geometry)
    entry = listener.hear()
    ring(ringer, listener, entry)  # opens the wake-up semaphore
    other.tell()
    assert other.hear() == "cut"
    ring(ringer, listener, entry)
    finish(listener, ringer)
    assert of_owner(slab_name) == []


def be_everything(link: Connection, name: str, geometry: Geometry) -> None:
    become(OWNER)
    slab = attach(name, geometry)
    for lock in slab.locks:
        lock.run(partial(slab.rebuild, lock.number))
    doorbell = slab.become_sender()
    doorbell.listen()
    slab.button.press()
    assert os.read(doorbell.descriptor, 1)
    slab.resign_as_sender(doorbell)
    detach(slab)


@pytest.mark.parametrize("kind", KINDS)
def test_squatted_names_deny_nothing(
    slab_name: str, geometry: Geometry, start: Start, squatter: Squat, kind: str
) -> None:
    assert squatter(obvious_names(slab_name), kind).hear()
    start(be_everything, slab_name, geometry).result()
    assert of_owner(slab_name) == []


def attach_and_leave(link: Connection, name: str) -> tuple[int, int]:
    slab = attach(name)
    number = slab.words[slab.geometry.process(slab.me) + Process.WAKEUP]
    with slab.wakeup.listening() as listener:
        slab.wakeups.wake(slab.me)
        assert listener.wait(PATIENCE_S)
    detach(slab)
    return slab.processes.me, number


def test_a_squatted_wakeup_is_not_opened_and_its_process_uses_another_name(slab: Slab, start: Start) -> None:
    """Though that user has guessed its name."""
    paths = [names.semaphore_path(slab.private.wakeup_semaphore(entry, 0)) for entry in (1, 5)]
    for path in paths:
        make(path, "file")
        os.chown(path, OTHER, OTHER)
    slab.words[slab.geometry.process(5) + Process.ASLEEP] = 1
    slab.wakeups.wake(5)
    assert paths[1] not in Path("/proc/self/maps").read_text()
    for _ in range(2):
        assert start(attach_and_leave, slab.name).result()[1] == 1
    for path in paths:
        os.unlink(path)


# --- the segment and the lock file ----------------------------------------------------------------


def try_everything(link: Connection, name: str, geometry: Geometry) -> list[str]:
    become(OWNER)
    said = []
    for do in (lambda: attach(name, geometry), lambda: look(name).__enter__(), lambda: destroy(name)):
        try:
            do()
        except SlabError as error:
            said.append(f"{type(error).__name__}: {error}")
    sweep()
    return said


@pytest.mark.parametrize("path_of", [names.segment_path, names.lock_path])
@pytest.mark.parametrize("kind", KINDS)
def test_a_squatted_segment_or_lock_file_is_an_error_with_its_owner(
    slab_name: str, geometry: Geometry, start: Start, squatter: Squat, path_of: Callable[[str], str], kind: str
) -> None:
    path = path_of(slab_name)
    assert squatter([path], kind).hear() == [path]
    said = start(try_everything, slab_name, geometry).result()
    assert len(said) == 3
    for each in said:
        assert re.match(rf"SlabPermissionError: {re.escape(path)} .*user id {OTHER} .*remove it", each), each
    assert of_owner(slab_name) == []


def leave_without_segment(link: Connection, name: str, geometry: Geometry) -> None:
    """Die after the removal of the slab has begun."""
    become(OWNER)
    slab = attach(name, geometry)
    with slab.lock_file.lifecycle():
        os.unlink(names.segment_path(name))
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("by", ["sweep", "destroy"])
def test_our_files_are_removed_though_the_segment_is_squatted(
    slab_name: str, geometry: Geometry, start: Start, squatter: Squat, by: str
) -> None:
    assert start(leave_without_segment, slab_name, geometry).join() == -signal.SIGKILL
    assert len(of_owner(slab_name)) == 4  # or by a sweep of another test, of another user
    path = names.segment_path(slab_name)
    assert squatter([path]).hear() == [path]
    start(sweep_as_owner if by == "sweep" else destroy_as_owner, slab_name).result()
    assert of_owner(slab_name) == []
    assert stat.S_ISREG(os.lstat(path).st_mode)


def sweep_as_owner(link: Connection, name: str) -> None:
    become(OWNER)
    assert name in sweep()


def destroy_as_owner(link: Connection, name: str) -> None:
    become(OWNER)
    with pytest.raises(SlabError, match=f"user id {OTHER}"):
        destroy(name)
