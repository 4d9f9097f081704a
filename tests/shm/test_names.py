"""Names: legal ones, and a slab's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shmaccum.errors import SlabError
from shmaccum.shm import names
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
