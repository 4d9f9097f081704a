"""A process's slab: the sender's role, and owners."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection

import pytest
from faults import is_stopped, stop
from processes import Start, wait_until
from runs import in_threads

from shmaccum._core import Super
from shmaccum.errors import SenderExistsError
from shmaccum.shm.layout import Role, SlotState
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab

# --- the sender's role ----------------------------------------------------------------------------


def send(link: Connection, name: str) -> None:
    slab = attach(name)
    try:
        doorbell = slab.become_sender()
    except SenderExistsError as error:
        link.send(str(error))
    else:
        link.send("sender")
        link.recv()
        slab.resign_as_sender(doorbell)
    detach(slab)


@pytest.mark.parametrize("end", ["resigns", "dies"])
def test_there_is_one_sender_until_it_resigns_or_dies(slab: Slab, start: Start, end: str) -> None:
    assert not slab.has_sender()
    first = start(send, slab.name).ready("sender")
    assert slab.has_sender()
    assert f"process {first.pid}" in start(send, slab.name).hear()
    with pytest.raises(SenderExistsError, match=f"process {first.pid}"):
        slab.become_sender()
    if end == "dies":
        first.kill()
    else:
        first.finish()
        assert slab.words[Super.SENDER_ENTRY] == 0
    assert not slab.has_sender()
    doorbell = slab.become_sender()
    assert slab.words[Super.SENDER_STARTS] == 2
    assert slab.has_sender()
    with pytest.raises(SenderExistsError, match="this process itself"):
        slab.become_sender()
    slab.resign_as_sender(doorbell)


def role_of(link: Connection, slab: Slab) -> tuple[bool, Role]:
    return slab.has_sender(), slab.processes.info(slab.me).roles


def test_a_forked_child_is_no_sender_but_keeps_the_producers_role(slab: Slab, start: Start) -> None:
    slab.add_role(Role.PRODUCER)
    doorbell = slab.become_sender()
    assert start(role_of, slab, how="fork").result() == (True, Role.PRODUCER)
    assert slab.processes.info(slab.me).roles == Role.PRODUCER | Role.SENDER
    slab.resign_as_sender(doorbell)


# --- owners ---------------------------------------------------------------------------------------


def tell_tag(link: Connection, name: str) -> None:
    link.send(attach(name).owner_tag)
    link.recv()


def test_an_owner_is_alive_until_it_dies_and_its_successor_is_another(slab: Slab, start: Start) -> None:
    first = start(tell_tag, slab.name)
    tag = first.hear()
    assert slab.owner_is_alive(tag | SlotState.ALLOCATED)
    assert slab.owner_is_alive(slab.owner_tag)
    first.kill()
    assert not any(map(slab.owner_is_alive, (tag, 0xFFFF << 8, 0)))
    successor = start(tell_tag, slab.name)
    next_tag = successor.hear()
    assert next_tag >> 8 & 0xFFFF == tag >> 8 & 0xFFFF  # the same entry
    assert slab.owner_is_alive(next_tag)
    assert not slab.owner_is_alive(tag)


def stop_attaching(link: Connection, name: str) -> None:
    slab = attach(name)
    with slab.lock_file.lifecycle():
        link.send(slab.me)
        stop()
    link.send("over")
    link.recv()


def test_reaping_the_dead_does_not_wait_for_a_stopped_process(slab: Slab, start: Start) -> None:
    """The sender reaps; a process that is stopped over the process table must not block it."""
    dead = [start(tell_tag, slab.name) for _ in range(3)]
    entries = [each.hear() >> 8 & 0xFFFF for each in dead]
    stopped = start(stop_attaching, slab.name).ready()
    wait_until(lambda: is_stopped(stopped.pid))
    for each in dead:
        each.kill()
    slab.reap_dead()
    assert set(entries) <= set(slab.processes.in_use())
    stopped.signal(signal.SIGCONT)
    assert stopped.hear() == "over"
    slab.reap_dead()
    assert not set(entries) & set(slab.processes.in_use())


# --- companions and forks -------------------------------------------------------------------------


class Companion:
    def __init__(self, slab: Slab) -> None:
        self.forks = 0
        slab.on_fork(self)

    def forked(self) -> None:
        self.forks += 1


def fork_count(link: Connection, slab: Slab) -> tuple[int, int]:
    return slab.companion(Companion).forks, slab.me


def test_fork_callbacks_of_the_one_companion_of_a_kind_run_in_the_child(slab: Slab, start: Start) -> None:
    parents = slab.companion(Companion)
    forks, me = start(fork_count, slab, how="fork").result()
    assert forks == 1
    assert me not in (-1, slab.me)
    assert slab.companion(Companion) is parents
    assert parents.forks == 0
    assert os.getpid() == slab.processes.info(slab.me).pid


def forks_of(link: Connection, companions: list[Companion]) -> set[int]:
    return {each.forks for each in companions}


def test_a_fork_forgets_none_that_threads_have_made_at_once(slab: Slab, start: Start) -> None:
    made: list[Companion] = []

    def make(_: int) -> None:
        for _ in range(1000):
            Companion(slab)  # it has gone by the time of the fork
            made.append(Companion(slab))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        in_threads(2, make)
    finally:
        sys.setswitchinterval(interval)
    assert start(forks_of, made, how="fork").result() == {1}
