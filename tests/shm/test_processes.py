"""The process table: entries, and which of their processes live."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from processes import ChildFailedError, Start, finish

from shmaccum._core import Geometry, Process
from shmaccum.procfs import start_time
from shmaccum.shm.layout import Role
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab


def stay(link: Connection, name: str) -> None:
    slab = attach(name)
    link.send(slab.me)
    link.recv()
    detach(slab)


def entry_words(slab: Slab, entry: int) -> memoryview:
    base = slab.geometry.process(entry)
    return slab.words[base : base + 32]


# --- entries --------------------------------------------------------------------------------------


def test_every_living_process_has_an_entry_of_its_own(slab: Slab, start: Start) -> None:
    """A stopped one, too. The entries of the dead are freed as the others reap them."""
    children = [start(stay, slab.name) for _ in range(3)]
    entries = [child.hear() for child in children]
    assert len({slab.me, *entries}) == 4
    assert set(slab.processes.in_use()) == {slab.me, *entries}
    assert slab.processes.others_alive()
    children[0].kill()
    children[1].signal(signal.SIGSTOP)
    assert [slab.processes.is_alive(entry) for entry in entries] == [False, True, True]
    assert not slab.processes.info(entries[0]).alive
    slab.reap_dead()
    assert set(slab.processes.in_use()) == {slab.me, *entries[1:]}
    assert entry_words(slab, entries[0])[Process.STATE] == 0
    children[1].signal(signal.SIGCONT)
    finish(*children[1:])
    assert list(slab.processes.in_use()) == [slab.me]
    assert not slab.processes.others_alive()


@pytest.mark.parametrize("end", ["leaves", "dies"])
def test_an_entry_is_taken_again_by_another_incarnation_and_is_clean(slab: Slab, start: Start, end: str) -> None:
    child = start(stay, slab.name)
    entry = child.hear()
    words = entry_words(slab, entry)
    incarnation = words[Process.INCARNATION]
    words[Process.ROLES] = Role.PRODUCER
    words[Process.ASLEEP] = 1
    words[Process.FLUSHING] = 2
    words[Process.RING_TAIL] = 5
    words[Process.RECORDS] = 11
    if end == "dies":
        child.kill()
    else:
        child.finish()
    assert start(stay, slab.name).hear() == entry
    assert words[Process.INCARNATION] == incarnation + 1
    assert words[Process.ROLES] == words[Process.ASLEEP] == words[Process.FLUSHING] == 0
    assert words[Process.RING_HEAD] == words[Process.RING_TAIL] == 5
    assert words[Process.RECORDS] == 11  # a counter of the entry


def test_a_full_table_is_an_error_until_a_process_leaves(slab_name: str, start: Start) -> None:
    slab = attach(slab_name, Geometry(64, 8, max_processes=3))
    other = start(stay, slab_name).ready()
    third = start(stay, slab_name)
    with pytest.raises(
        ChildFailedError, match=r"SlabFullError.*has 2 of at most 3 processes.*shmaccum\.max\.processes"
    ):
        third.hear()
    other.kill()
    fourth = start(stay, slab_name)
    assert fourth.hear() in (1, 2)
    fourth.finish()
    detach(slab)


def come_as_sender(link: Connection, name: str, become: bool) -> None:
    slab = attach(name, sender=True)
    if become:
        slab.become_sender()
    link.send(slab.me)
    link.recv()


def test_the_last_entry_is_reserved_while_there_is_no_sender(slab_name: str, start: Start) -> None:
    slab = attach(slab_name, Geometry(64, 8, max_processes=3))
    producer = start(stay, slab_name).ready()
    for _ in range(2):
        sender = start(come_as_sender, slab_name, True).ready()
        with pytest.raises(
            ChildFailedError, match=r"SlabFullError.*has 3 processes, its limit.*shmaccum\.max\.processes"
        ):
            start(stay, slab_name).hear()
        sender.kill()
        with pytest.raises(ChildFailedError, match=r"SlabFullError.*the last entry is reserved for the sender"):
            start(stay, slab_name).hear()
    producer.kill()
    detach(slab)


def test_with_a_sender_all_other_entries_can_be_taken(slab_name: str, start: Start) -> None:
    """Only the sender's own entry is reserved: a sender that waits for the role uses another."""
    slab = attach(slab_name, Geometry(64, 8, max_processes=4))
    sender = start(come_as_sender, slab_name, True)
    entries = {slab.me, sender.hear()}
    waiting, producer = start(come_as_sender, slab_name, False), start(stay, slab_name)
    assert entries | {waiting.hear(), producer.hear()} == set(range(4))
    waiting.signal(signal.SIGSTOP)
    sender.kill()
    with pytest.raises(ChildFailedError, match="SlabFullError"):
        start(stay, slab_name).hear()
    successor = start(come_as_sender, slab_name, True)
    assert successor.hear() not in (slab.me, -1)
    for child in (waiting, producer, successor):
        child.kill()
    detach(slab)


# --- liveness -------------------------------------------------------------------------------------


def test_a_zombie_is_dead(slab: Slab) -> None:
    pid = os.fork()
    if not pid:
        os._exit(slab.me)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    (entry,) = set(slab.processes.in_use()) - {slab.me}
    assert slab.processes.info(entry).pid == pid
    assert start_time(pid) == start_time(2**22 + 1) == 0, "as of no process"
    assert not slab.processes.is_alive(entry)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == entry


def test_a_reused_pid_is_not_its_former_process_nor_one_of_another_namespace(slab: Slab, start: Start) -> None:
    """There only the record lock counts."""
    child = start(stay, slab.name)
    entry = child.hear()
    words = entry_words(slab, entry)
    words[Process.PID_NAMESPACE] += 1
    assert slab.processes.is_alive(entry)
    child.kill()
    words[Process.PID] = os.getpid()
    words[Process.START_TIME] = start_time("self")
    assert not slab.processes.is_alive(entry)
    words[Process.PID_NAMESPACE] -= 1
    assert slab.processes.is_alive(entry)
    words[Process.START_TIME] -= 1
    assert not slab.processes.is_alive(entry)


def test_any_process_name_allows_to_read_its_start_time() -> None:
    before, comm = start_time("self"), Path("/proc/self/comm")
    own = comm.read_text().strip()
    for name in ("plain", "with space", "paren) S 1 (", "((", "))", own):
        comm.write_text(name)
        assert start_time("self") == start_time(os.getpid()) == before
