"""Attach, detach and destroy: which process creates or removes a slab, and what is refused."""

from __future__ import annotations

import errno
import os
import re
import resource
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import pytest
from faults import InterruptAt, before
from processes import Start, finish, in_threads
from slab_helpers import leave_records, overwrite, stay, whats_there

from shmaccum._core import Geometry, Slot, Super
from shmaccum.errors import (
    DeadOwnerError,
    SlabAbiError,
    SlabDamagedError,
    SlabInUseError,
    SlabNotFoundError,
    SlabPermissionError,
)
from shmaccum.shm import names
from shmaccum.shm.layout import SlotState
from shmaccum.shm.lifecycle import attach, destroy, detach, unlink
from shmaccum.shm.segment import Segment
from shmaccum.shm.slab import Slab
from tools.support.locks import held

# --- attach ---------------------------------------------------------------------------------------


def test_concurrent_attaches_get_the_same_slab(slab_name: str, geometry: Geometry, start: Start) -> None:
    children = [start(stay, slab_name, geometry) for _ in range(6)]
    assert len({child.hear() for child in children}) == 1
    finish(*children)
    assert whats_there(slab_name) == []


def test_a_missing_slab_is_created_only_with_a_geometry(slab_name: str) -> None:
    with pytest.raises(SlabNotFoundError, match=slab_name):
        attach(slab_name)
    assert whats_there(slab_name) == []


@pytest.mark.parametrize("creator", ["this process", "another"])
def test_a_slab_of_other_settings_is_refused(slab_name: str, geometry: Geometry, start: Start, creator: str) -> None:
    slab = attach(slab_name, geometry) if creator == "this process" else None
    child = start(stay, slab_name, geometry).ready()
    before = whats_there(slab_name)
    with pytest.raises(SlabAbiError, match="8 slots of 64 bytes"):
        attach(slab_name, Geometry(64, 16))
    with pytest.raises(SlabAbiError, match="other settings"):
        attach(slab_name, geometry, digest=1 << 32)
    with pytest.raises(SlabAbiError, match=r"other passwords or keys; if they were changed, .* shmaccum\.name"):
        attach(slab_name, geometry, digest=1)
    assert whats_there(slab_name) == before
    child.finish()
    if slab is not None:
        assert slab.users == 1
        detach(slab)
    assert whats_there(slab_name) == []


def test_threads_share_one_slab_until_each_has_detached(slab_name: str, geometry: Geometry) -> None:
    slabs: list[Slab] = []
    with in_threads(*[lambda: slabs.append(attach(slab_name, geometry))] * 8):
        pass
    assert len(slabs) == 8
    assert len(set(map(id, slabs))) == 1
    assert list(slabs[0].processes.in_use()) == [slabs[0].me]
    for slab in slabs:
        assert slab.words[Super.READY] == 1
        detach(slab)
    assert whats_there(slab_name) == []


def test_a_failed_creator_leaves_nothing(slab_name: str, geometry: Geometry, monkeypatch: pytest.MonkeyPatch) -> None:
    token = names.new_token()
    monkeypatch.setattr(names, "new_token", lambda: token)
    private = names.PrivateNames(slab_name, token.tobytes())
    in_the_way = Path(names.semaphore_path(private.pool_semaphore()))
    in_the_way.mkdir()
    try:
        with pytest.raises(SlabPermissionError, match=re.escape(in_the_way.name)):
            attach(slab_name, geometry)
        assert whats_there(slab_name) == []
        assert in_the_way.exists()
    finally:
        in_the_way.rmdir()
    detach(attach(slab_name, geometry))
    assert whats_there(slab_name) == []


def test_an_attach_that_fails_leaves_the_lock_file_of_one_who_was_faster(
    slab_name: str, geometry: Geometry, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = start(stay, slab_name, geometry).ready()
    there = whats_there(slab_name)
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # it came between the look and the open
    with pytest.raises(SlabAbiError, match="other settings"):
        attach(slab_name, Geometry(64, 16))
    monkeypatch.undo()
    assert whats_there(slab_name) == there
    other.finish()
    assert whats_there(slab_name) == []


def test_a_slab_in_use_that_says_it_is_unfinished_is_not_made_again(
    slab_name: str, geometry: Geometry, start: Start
) -> None:
    other = start(stay, slab_name, geometry).ready()
    there = whats_there(slab_name)
    overwrite(slab_name, Super.READY, 0)
    with pytest.raises(SlabDamagedError, match=rf"process {other.pid} uses it, but .* unfinished"):
        attach(slab_name, geometry)
    with pytest.raises(SlabInUseError, match=f"in use by process {other.pid}"):
        destroy(slab_name, force=True)
    assert whats_there(slab_name) == there
    overwrite(slab_name, Super.READY, 1)
    other.finish()
    assert whats_there(slab_name) == []


# --- detach ---------------------------------------------------------------------------------------


def test_the_last_process_to_leave_removes_everything(slab_name: str, geometry: Geometry, start: Start) -> None:
    slab = attach(slab_name, geometry)
    first, last = (start(stay, slab_name).ready(slab.words[Super.CREATED_MS]) for _ in range(2))
    first.finish()
    detach(slab)
    assert len(whats_there(slab_name)) == 7
    last.finish()
    assert whats_there(slab_name) == []


def test_one_whose_files_were_removed_leaves_the_next_slab_of_that_name_alone(
    slab_name: str, geometry: Geometry, start: Start
) -> None:
    first = attach(slab_name, geometry)
    first.become_sender()
    unlink(slab_name)
    second = start(stay, slab_name, geometry).ready()
    there = whats_there(slab_name)
    detach(first)
    assert whats_there(slab_name) == there
    second.finish()
    assert whats_there(slab_name) == []


def test_undelivered_records_keep_a_slab(slab_name: str, geometry: Geometry, start: Start) -> None:
    start(leave_records, slab_name, geometry).result()
    assert whats_there(slab_name)
    slab = attach(slab_name, geometry)
    assert slab.undelivered() == (1, 3)
    slab.words[geometry.header(0) + Slot.STATE] = SlotState.FREE
    detach(slab)
    assert whats_there(slab_name) == []


# --- fork -----------------------------------------------------------------------------------------


def use_inherited(link: Connection, slab: Slab) -> int:
    with held(slab.pool_lock):
        return slab.me


def leave_inherited(link: Connection, slab: Slab) -> None:
    detach(slab)


@pytest.mark.parametrize("function", [use_inherited, leave_inherited])
def test_a_forked_childs_exit_does_not_harm_the_parent(
    slab: Slab, start: Start, function: Callable[..., int | None]
) -> None:
    """The child takes an entry of its own at its first lock."""
    assert start(function, slab, how="fork").result() not in (-1, slab.me)
    assert len(whats_there(slab.name)) >= 5
    with held(slab.pool_lock):
        assert slab.locks[0].owner() == slab.me
    newcomer = start(stay, slab.name)
    assert newcomer.hear() == slab.words[Super.CREATED_MS]
    assert slab.processes.others_alive()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("line", ["self.processes.me", "self.wakeup.forked()", "for reference"])
def test_an_interrupted_fork_hook_leaves_a_child_that_can_join(slab: Slab, line: str) -> None:
    """Control-C reaches a child at once, in its fork hooks, too; Python then reports the error and goes on."""
    parents = slab.me
    before(Slab.forked, line, interrupt)
    try:
        pid = os.fork()
        if not pid:
            try:
                with held(slab.pool_lock):
                    os._exit(slab.processes.me in (-1, parents))
            finally:
                os._exit(2)
    finally:
        sys.settrace(None)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def wait_and_use(link: Connection, slab: Slab) -> str:
    link.send("forked")
    link.recv()
    try:
        with held(slab.pool_lock):
            return "used"
    except DeadOwnerError as error:
        return str(error)


def wait_and_leave(link: Connection, slab: Slab) -> None:
    link.send("forked")
    link.recv()
    detach(slab)


@pytest.mark.parametrize(("function", "said"), [(wait_and_use, "was removed"), (wait_and_leave, "None")])
def test_a_forked_child_leaves_the_next_slab_of_that_name_alone(
    slab_name: str, geometry: Geometry, start: Start, function: Callable[..., str | None], said: str
) -> None:
    first = attach(slab_name, geometry)
    child = start(function, first, how="fork").ready()
    detach(first)
    assert whats_there(slab_name) == []
    second = attach(slab_name, geometry)
    there = whats_there(slab_name)
    assert said in str(child.finish())
    assert whats_there(slab_name) == there
    detach(second)


# --- interrupts -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an interrupt in a finalizer is lost
def test_interrupts_during_attach_and_detach_leave_nothing(slab_name: str) -> None:
    """At any moment: the next attach and detach find a consistent slab, and the last detach removes it."""
    geometry = Geometry(64, 4, 4, 2, 2)
    for moment in range(0, 5000, 3):  # of some 900
        ticket: list[None] = []
        with InterruptAt(moment) as interrupt:
            slab = attach(slab_name, geometry)
            ticket = [None]
            detach(slab, ticket)
        if ticket:
            detach(slab, ticket)
        slab = attach(slab_name, geometry)
        assert slab.users == 1, f"after an interrupt at moment {moment}"
        assert [entry for entry in slab.processes.in_use() if entry != slab.me and slab.processes.is_alive(entry)] == []
        detach(slab)
        assert not [path for path in names.leftovers(slab_name) if os.path.exists(path)], f"moment {moment}"
        if not interrupt.came:
            break
    else:
        pytest.fail("there is no end to the moments")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.ENOSYS])
def test_a_sandbox_that_forbids_what_an_attach_needs_is_named(
    slab_name: str, geometry: Geometry, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mkfifo", refuse)
    with pytest.raises(SlabPermissionError, match=r"seccomp .* allow mknodat"):
        attach(slab_name, geometry)
    assert whats_there(slab_name) == []


def attach_with_few_descriptors(link: Connection, name: str) -> tuple[list[str], list[int]]:
    """Try with one more descriptor each time; return the errors, and the number of open descriptors after each."""
    geometry = Geometry(64, 4, 4, 2, 2)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    errors: list[str] = []
    open_after: list[int] = []
    detach(attach(name + "-warm", geometry))
    first = max(map(int, os.listdir("/proc/self/fd")))
    for limit in range(3, first + 12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, usual[1]))
        try:
            detach(attach(name, geometry))
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        open_after.append(len(os.listdir("/proc/self/fd")))
        if whats_there(name):
            errors.append(f"left behind: {whats_there(name)}")
    return errors, open_after


def test_too_few_descriptors_are_an_error_that_leaves_nothing(slab_name: str, start: Start) -> None:
    errors, open_after = start(attach_with_few_descriptors, slab_name).result()
    assert errors
    assert {each.partition(":")[0] for each in errors} == {"SlabMemoryError"}
    assert [each for each in errors if "ulimit" not in each] == []
    assert len(set(open_after)) == 1


# --- destroy; `tests/cli/test_destroy.py` has those of this version -------------------------------------


def test_a_slab_of_another_version_in_use_is_not_destroyed(slab_name: str, geometry: Geometry, start: Start) -> None:
    """By force neither."""
    child = start(stay, slab_name, geometry).ready()
    overwrite(slab_name, Super.ABI, 99)
    with pytest.raises(SlabInUseError, match=f"in use by process {child.pid}"):
        destroy(slab_name, force=True)
    child.kill()
    assert destroy(slab_name, force=True) == 0
    assert whats_there(slab_name) == []
    with pytest.raises(SlabNotFoundError, match=slab_name):
        destroy(slab_name)


def test_a_slab_of_another_version_is_destroyed_by_force_only(slab_name: str, geometry: Geometry, start: Start) -> None:
    """Its records cannot be counted: after an upgrade, the old version must still be able to deliver them."""
    start(leave_records, slab_name, geometry).result()
    overwrite(slab_name, Super.ABI, 99)
    with pytest.raises(
        SlabInUseError, match=r"can hold undelivered records, .* ABI version 99, .* use --force to lose"
    ):
        destroy(slab_name)
    assert whats_there(slab_name)
    assert destroy(slab_name, force=True) == 0
    assert whats_there(slab_name) == []


def test_the_remains_of_an_unfinished_creator_are_destroyed(slab_name: str, geometry: Geometry) -> None:
    Segment.create(slab_name, geometry, 0).close()
    assert destroy(slab_name) == 0
    assert whats_there(slab_name) == []
