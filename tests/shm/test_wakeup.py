"""Wake-ups: none is lost, awake processes get none, and every thread sees its own event."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection

import pytest
from processes import PATIENCE_S, Start, in_threads, wait_until
from slab_helpers import stay

from shmaccum._core import Process, Super
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab
from shmaccum.shm.wakeup import Doorbell, DoorbellButton

FOREVER_S = 600.0
"""A wait far longer than the test: it ends only by a wake-up."""


# --- which process is woken -----------------------------------------------------------------------


def test_only_a_listener_is_woken(slab: Slab) -> None:
    slab.wakeups.wake(slab.me)
    assert slab.wakeup.semaphore.value == 0
    slab.words[slab.geometry.process(5) + Process.ASLEEP] = 1
    slab.wakeups.wake(5)  # it has no semaphore yet
    with slab.wakeup.listening() as listener:
        assert not listener.wait(0.01)
        slab.wakeups.wake(slab.me)
        assert listener.wait(FOREVER_S)
        assert not listener.wait(0)
    assert slab.words[slab.geometry.process(slab.me) + Process.ASLEEP] == 0


def test_a_listener_for_many_completions_is_woken_once_and_for_other_events(slab: Slab) -> None:
    tail = slab.geometry.process(slab.me) + Process.RING_TAIL
    slab.words[tail] = 5
    with slab.wakeup.listening() as listener:
        listener.expect(7)
        slab.words[tail] = 6
        slab.wakeups.wake_for_completions(slab.me)
        assert not listener.wait(0)
        slab.words[tail] = 7
        slab.wakeups.wake_for_completions(slab.me)
        assert listener.wait(FOREVER_S)
    with slab.wakeup.listening() as listener:
        listener.expect(1000)
        slab.wakeups.wake(slab.me)
        assert listener.wait(FOREVER_S)


def test_a_process_listens_for_the_thread_that_expects_least(slab: Slab) -> None:
    asleep = slab.geometry.process(slab.me) + Process.ASLEEP
    with slab.wakeup.listening() as patient:
        assert slab.words[asleep] == 1
        patient.expect(1000)
        with slab.wakeup.listening():
            assert slab.words[asleep] == 1
        assert slab.words[asleep] == 1000
    assert slab.words[asleep] == 0


# --- no wake-up is lost ---------------------------------------------------------------------------


def await_ball(slab: Slab, ball: int, value: int) -> None:
    """Wait, by wake-ups alone, until the word is ``value``."""
    if slab.words[ball] == value:
        return
    with slab.wakeup.listening() as listener:
        while slab.words[ball] != value:
            assert listener.wait(FOREVER_S)


def play(slab: Slab, ball: int, partner: int, serves: range) -> None:
    for value in serves:
        await_ball(slab, ball, value)
        slab.words[ball] = value + 1
        slab.wakeups.wake(partner)


def return_balls(link: Connection, name: str, ball: int, partner: int, turns: int) -> None:
    slab = attach(name)
    link.send(slab.me)
    play(slab, ball, partner, range(1, 2 * turns, 2))
    detach(slab)


def test_no_wakeup_is_lost_between_two_processes(slab: Slab, start: Start) -> None:
    ball, turns = slab.geometry.waiters // 8, 1500
    child = start(return_balls, slab.name, ball, slab.me, turns)
    play(slab, ball, child.hear(), range(0, 2 * turns, 2))
    child.result()
    assert slab.words[ball] == 2 * turns


def ring_for(link: Connection, name: str, entry: int, first_word: int, words: int, rounds: int) -> None:
    """Raise one word after the other and wake; wait until its thread has answered by raising it again."""
    slab = attach(name)
    for turn in range(rounds):
        for word in range(first_word, first_word + words):
            slab.words[word] = 2 * turn + 1
            slab.wakeups.wake(entry)
        deadline = time.monotonic() + PATIENCE_S
        while any(slab.words[word] != 2 * turn + 2 for word in range(first_word, first_word + words)):
            assert time.monotonic() < deadline, "a thread did not hear of its ring"
            time.sleep(0)
    detach(slab)


def test_every_thread_is_woken_for_its_own_event(slab: Slab, start: Start) -> None:
    first_word, words, rounds = slab.geometry.waiters // 8, 4, 200

    def answer(word: int) -> None:
        for turn in range(rounds):
            await_ball(slab, word, 2 * turn + 1)
            slab.words[word] = 2 * turn + 2

    with in_threads(*(partial(answer, first_word + n) for n in range(words))):
        start(ring_for, slab.name, slab.me, first_word, words, rounds).result()


def test_a_late_notification_does_not_end_a_wait(slab: Slab) -> None:
    """The thread that waited for the semaphore can notify late, when the next one already waits."""
    wakeup, heard = slab.wakeup, []

    def listen() -> None:
        with wakeup.listening() as listener:
            heard.append(listener.wait(FOREVER_S))

    wakeup.waiting = True
    with in_threads(listen):
        for rings in (0, 1):
            wait_until(lambda: bool(heard or wakeup.changed._waiters))
            with wakeup.changed:
                wakeup.count += rings
                wakeup.changed.notify_all()
    wakeup.waiting = False
    assert heard == [True]


# --- signals --------------------------------------------------------------------------------------


def test_a_signal_does_not_end_a_wait_unless_its_handler_raises(slab: Slab) -> None:
    handled: list[int] = []

    def handle(number: int, frame: object) -> None:
        handled.append(number)
        if len(handled) > 1:
            raise SystemExit("enough")

    def listen() -> None:
        with slab.wakeup.listening() as listener:
            while not handled:
                assert not listener.wait(0.05)
            listener.wait(FOREVER_S)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.2)
    try:
        with pytest.raises(SystemExit, match="enough"):
            listen()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert slab.words[slab.geometry.process(slab.me) + Process.ASLEEP] == 0
    assert not slab.wakeup.waiting
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


# --- the doorbell ---------------------------------------------------------------------------------


@pytest.fixture
def doorbell(slab: Slab) -> Iterator[Doorbell]:
    """The doorbell of the sender, which this process is."""
    doorbell = slab.become_sender()
    yield doorbell
    slab.resign_as_sender(doorbell)


def rings(descriptor: int, timeout_s: float = 0) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def test_a_listening_sender_is_woken_until_it_answers(slab: Slab, doorbell: Doorbell) -> None:
    slab.button.press()
    assert not rings(doorbell.descriptor), "it does not listen"
    for _ in range(2):
        doorbell.listen()
        slab.button.press()
        slab.button.press()
        assert slab.words[Super.SENDER_ASLEEP], "only the sender itself clears it"
        assert os.read(doorbell.descriptor, 100) == b"!", "one press ends a sleep"
        os.write(doorbell.descriptor, b"!")
        doorbell.answer()
        assert not rings(doorbell.descriptor)
        slab.button.press()
        assert not rings(doorbell.descriptor)


def test_a_process_that_leaves_wakes_the_sender(slab: Slab, doorbell: Doorbell, start: Start) -> None:
    """If it was the last producer, the sender's idle time starts."""
    child = start(stay, slab.name).ready(slab.words[Super.CREATED_MS])
    doorbell.listen()
    assert not rings(doorbell.descriptor)
    child.finish()
    assert rings(doorbell.descriptor)


def test_a_process_presses_though_another_has(slab: Slab, doorbell: Doorbell) -> None:
    """That one can have died between its look and its press."""
    doorbell.listen()
    other = DoorbellButton(slab.private, slab.words)
    slab.button.press()
    other.press()
    other.close()
    assert os.read(doorbell.descriptor, 100) == b"!!"


def test_a_sender_that_wakes_in_time_need_not_be_woken(slab: Slab, doorbell: Doorbell) -> None:
    button = slab.button
    doorbell.sleep_until(2000)  # without effect: it does not listen
    doorbell.listen()
    doorbell.sleep_until(time.monotonic() * 1000 + 60_000)
    button.press(due_ms=120_000)
    assert not rings(doorbell.descriptor)
    button.press(due_ms=30_000)
    assert rings(doorbell.descriptor)
    doorbell.answer()
    doorbell.listen()
    assert button.is_needed_by(1060, 1000)
    doorbell.sleep_until(1049.5)
    assert not button.is_needed_by(1060, 1000)
    assert not button.is_needed_by(1050, 1049)
    assert button.is_needed_by(1049, 1000)  # it sleeps for longer
    assert button.is_needed_by(1060, 1050)  # it should have woken
    doorbell.look()
    assert button.is_needed_by(1060, 1000)  # this check can have been too early
    doorbell.sleep_until(1050)
    doorbell.answer()
    doorbell.listen()
    assert button.is_needed_by(1060, 1000)


def test_an_unanswered_doorbell_does_not_block_press(slab: Slab, doorbell: Doorbell) -> None:
    doorbell.listen()
    fcntl.fcntl(doorbell.descriptor, fcntl.F_SETPIPE_SZ, 4096)
    for _ in range(5000):  # more than the FIFO holds now
        doorbell.ring()
    slab.button.press()
    doorbell.answer()
    assert not rings(doorbell.descriptor)


def sleep_as_sender(link: Connection, name: str) -> None:
    doorbell = attach(name).become_sender()
    doorbell.listen()
    link.send("asleep")
    while True:
        assert rings(doorbell.descriptor, FOREVER_S)
        doorbell.answer()
        doorbell.listen()
        link.send("awake")


def test_a_sender_in_another_process_is_woken_every_time(slab: Slab, start: Start) -> None:
    child = start(sleep_as_sender, slab.name).ready()
    for _ in range(200):
        slab.button.press()
        assert child.hear() == "awake"


def pull_where_a_broken_pipe_kills(link: Connection, name: str) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    slab = attach(name)
    for _ in range(2):
        slab.button.press()
        link.send("pulled")
        link.recv()


def test_press_survives_a_sender_that_died_asleep(slab: Slab, start: Start) -> None:
    sender = start(sleep_as_sender, slab.name).ready()
    ringer = start(pull_where_a_broken_pipe_kills, slab.name).ready()
    sender.kill()
    ringer.tell()
    assert ringer.hear() == "pulled"
    ringer.finish()
