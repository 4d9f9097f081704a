"""The slab's semaphores: made exclusively, and opened only if they belong to this user alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
from processes import PATIENCE_S, Start

from shmaccum._core import Process
from shmaccum.errors import SlabPermissionError
from shmaccum.shm import names
from shmaccum.shm.files import make_semaphore, open_semaphore, read_presses
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab


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
