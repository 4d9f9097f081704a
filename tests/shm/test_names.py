"""The files of a slab: their names, and its semaphores, which are made exclusively and opened by this user alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import PATIENCE_S, Start

from shmaccum._core import Process
from shmaccum.errors import SlabError, SlabPermissionError
from shmaccum.shm import names
from shmaccum.shm.files import make_semaphore, open_semaphore, read_presses
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab


def test_a_legal_name_is_returned_and_an_illegal_one_refused_with_the_rule() -> None:
    for name in ("a", "7", "my-slab_2", "x" * 64):
        assert names.check_name(name) == name
    for name in ("", "-a", "_a", "a.b", "a/b", "../a", "a b", "ä", "x" * 65, "a\n"):
        with pytest.raises(SlabError, match="64"):
            names.check_name(name)


def test_all_files_of_a_slab_and_no_others_are_found_and_are_for_its_owner_alone(slab: Slab) -> None:
    there = {entry for entry in os.listdir(names.SHM_DIRECTORY) if slab.name in entry}
    found = names.leftovers(slab.name)
    assert {Path(path).name for path in found} == there
    assert len(there) == 5  # segment, lock file, doorbell, the pool's semaphore, this process's wake-up semaphore
    assert {os.stat(path).st_mode & 0o777 for path in found} == {0o600}
    assert names.slab_names().count(slab.name) == 1
    shorter = slab.name[:-1]
    assert names.leftovers(shorter) == [names.segment_path(shorter), names.lock_path(shorter)]


def test_names_of_semaphores_and_doorbell_cannot_be_guessed(slab: Slab) -> None:
    other = names.PrivateNames(slab.name, names.new_token().tobytes())
    ours, theirs = (
        [
            private.doorbell_path(),
            private.pool_semaphore(),
            *(private.wakeup_semaphore(entry, number) for entry in range(8) for number in range(2)),
        ]
        for private in (slab.private, other)
    )
    digests = {name.rpartition(".")[2] for name in ours + theirs}
    assert len(digests) == len(ours) + len(theirs)
    assert {len(bytes.fromhex(digest)) * 8 for digest in digests} == {64}


def test_processes_of_glibc_and_of_musl_do_not_share_semaphores(slab: Slab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their words differ. In both, a slab's semaphores have the files by which they are checked and removed."""
    monkeypatch.setattr(names, "_IS_MUSL", False)
    of_glibc = slab.private.pool_semaphore()
    assert names.semaphore_path(of_glibc) == f"/dev/shm/sem.{of_glibc[1:]}"  # as glibc names it
    monkeypatch.setattr(names, "_IS_MUSL", True)
    of_musl = slab.private.pool_semaphore()
    assert names.semaphore_path(of_musl) == f"/dev/shm{of_musl}"  # as musl names it
    start = f"/dev/shm/sem.{names.PREFIX}{slab.name}.pool."
    assert names.semaphore_path(of_musl).startswith(start)
    assert of_musl.rpartition(".")[2] != of_glibc.rpartition(".")[2]


# --- semaphores -----------------------------------------------------------------------------------


def test_a_semaphore_is_made_exclusively_and_opened_only_if_no_other_user_can(slab_name: str) -> None:
    name = f"{names.before_semaphores()}shmaccum-{slab_name}.semaphore"
    path = names.semaphore_path(name)
    with pytest.raises(FileNotFoundError, match=slab_name):
        open_semaphore(name)
    make_semaphore(name, 3).close()
    with pytest.raises(FileExistsError, match=name[1:]):
        make_semaphore(name, 0)
    semaphore = open_semaphore(name)
    assert semaphore.value == 3
    semaphore.close()
    os.link(path, path + "2")
    with pytest.raises(SlabPermissionError, match="and 2 links"):
        open_semaphore(name)
    os.unlink(path + "2")
    os.chmod(path, 0o660)
    with pytest.raises(SlabPermissionError, match="rw-rw----"):
        open_semaphore(name)
    os.unlink(path)


@pytest.mark.parametrize("path_of", [names.segment_path, names.lock_path])
def test_a_segment_or_lock_file_with_a_second_link_is_refused(
    slab: Slab, start: Start, path_of: Callable[[str], str]
) -> None:
    path = path_of(slab.name)
    os.link(path, path + "-2")
    try:
        assert "and 2 links" in start(be_refused, slab.name).result()
    finally:
        os.unlink(path + "-2")


def be_refused(link: Connection, name: str) -> str:
    with pytest.raises(SlabPermissionError) as refusal:
        attach(name)
    return str(refusal.value)


def attach_and_be_rung(link: Connection, name: str) -> tuple[int, int]:
    slab = attach(name)
    entry = slab.me
    with slab.wakeup.listening() as listener:
        slab.wakeups.wake(entry)
        assert listener.wait(PATIENCE_S)
    number = slab.words[slab.geometry.process(entry) + Process.WAKEUP]
    detach(slab)
    return entry, number


def test_a_wakeup_whose_maker_died_in_the_c_library_is_replaced(slab: Slab, start: Start) -> None:
    """It makes a file of a random name, links it to the semaphore's, and then removes the first name."""
    assert start(attach_and_be_rung, slab.name).result() == (1, 0)
    path = names.semaphore_path(slab.private.wakeup_semaphore(1, 0))
    os.link(path, path + "~")
    assert start(attach_and_be_rung, slab.name).result() == (1, 1)
    assert start(attach_and_be_rung, slab.name).result() == (1, 1)


@pytest.mark.parametrize("presses", [0, 1, 4095, 4096, 4097, 8192])
def test_presses_of_any_number_are_noticed_and_read(presses: int) -> None:
    """4096 exactly, too: one read returns them all, and the next one finds none."""
    reader, writer = os.pipe2(os.O_NONBLOCK)
    try:
        os.write(writer, bytes(presses))
        assert read_presses(reader) is (presses > 0)
        assert read_presses(reader) is False
    finally:
        os.close(reader)
        os.close(writer)
