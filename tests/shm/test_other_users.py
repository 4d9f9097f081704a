"""The slabs of other users: root can inspect and remove them, and no other user can use them."""

from __future__ import annotations

import os
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import Start
from slab_helpers import become, whats_there

from shmaccum._core import Geometry
from shmaccum.cli.doctor import slab_findings
from shmaccum.errors import SlabError, SlabInUseError, SlabPermissionError
from shmaccum.observe.report import UnreadableSlab, all_reports, report
from shmaccum.shm import names
from shmaccum.shm.files import open_own
from shmaccum.shm.lifecycle import attach, destroy, look

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a while")

OWNER, OTHER = 65534, 65533


def own_slab(link: Connection, name: str, geometry: Geometry) -> None:
    become(OWNER)
    slab = attach(name, geometry)
    link.send(slab.me)
    link.recv()


def be_refused(link: Connection, name: str, geometry: Geometry) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return the errors of all uses of a slab, and what ``doctor`` says of it."""
    become(OTHER)
    refusals = []
    for use in (lambda: look(name).__enter__(), lambda: destroy(name, force=True), lambda: attach(name, geometry)):
        try:
            use()
        except SlabError as error:
            refusals.append(f"{type(error).__name__}: {error}")
    return refusals, [(each.level, each.text, each.advice) for each in slab_findings() if each.text.startswith(name)]


def test_root_looks_at_and_removes_the_slab_of_another_user_but_does_not_use_it(
    slab_name: str, geometry: Geometry, start: Start
) -> None:
    child = start(own_slab, slab_name, geometry).ready()
    seen = report(slab_name)
    assert seen.owner_uid == OWNER
    assert [(process.pid, process.alive) for process in seen.processes] == [(child.pid, True)]
    assert slab_name in {slab.name for slab in all_reports() if not isinstance(slab, UnreadableSlab)}
    for known in (geometry, None):
        with pytest.raises(SlabPermissionError, match=f"user id {OWNER}"):
            attach(slab_name, known)
    assert os.stat(names.lock_path(slab_name)).st_uid == OWNER
    with pytest.raises(SlabInUseError, match=str(child.pid)):
        destroy(slab_name)
    assert whats_there(slab_name)
    child.kill()
    destroy(slab_name)
    assert not whats_there(slab_name)


def test_root_removes_remains_that_have_no_lock_file(slab_name: str, geometry: Geometry, start: Start) -> None:
    start(own_slab, slab_name, geometry).ready().kill()
    Path(names.lock_path(slab_name)).unlink()
    destroy(slab_name)
    assert not whats_there(slab_name)


def test_other_users_are_refused_and_doctor_finds_nothing_wrong_with_it(
    slab_name: str, geometry: Geometry, start: Start
) -> None:
    owner = start(own_slab, slab_name, geometry).ready()
    refusals, ((level, text, advice),) = start(be_refused, slab_name, geometry).result()
    assert len(refusals) == 3
    assert all(refusal.startswith("SlabPermissionError: ") for refusal in refusals)
    assert level == "ok"
    for said in (*refusals, text):
        assert f"belongs to user nobody (user id {OWNER})" in said
        assert "remove" not in said + advice
    owner.kill()
    destroy(slab_name)


def open_new(link: Connection, path: str) -> str:
    become(OTHER)
    try:
        os.close(open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    except SlabPermissionError as error:
        return str(error)
    return "made"


def test_a_directory_that_the_user_cannot_write_to_is_named_with_the_cure(start: Start) -> None:
    """Without a file in the way: /dev/shm of a container can belong to root, with mode 0755."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        said = start(open_new, f"{directory}/file").result()
    assert said == (
        f"user id {OTHER} cannot make {directory}/file: Permission denied; {directory} has mode drwxr-xr-x: run "
        f"chmod 1777 {directory} as root"
    )
