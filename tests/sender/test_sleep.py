"""When the sender sleeps, listens to its doorbell and naps, pass by pass, on the log."""

from __future__ import annotations

import os
import time

import pytest
from senders import HandRun, counter
from splitting import T0, StartRun

from shmaccum._core import Super
from shmaccum.errors import DeliveryTimeoutError
from shmaccum.sender import sender as sender_module
from shmaccum.sender.sleep import LONGEST_SLEEP_MS
from shmaccum.shm.incidents import incidents


@pytest.mark.usefixtures("clock")
def test_sleeps_until_something_happens(run: HandRun) -> None:
    """Two looks, then a sleep that only a wakeup or the clock of housekeeping ends; awake, it needs no wakeup."""
    while counter(run, Super.SENDER_ASLEEP):
        run.run(1)
    run.transport.asked.clear()
    run.run(1)
    assert (run.transport.asked, counter(run, Super.SENDER_ASLEEP) > 0) == ([0], True)
    run.run(1)
    assert counter(run, Super.SENDER_ASLEEP) == 0
    assert run.transport.asked[1] > sender_module.HOUSEKEEPING_MS / 2


def test_answers_do_not_make_a_sender_listen_again(run: HandRun) -> None:
    """A look at what came meanwhile is all that is between it and its next sleep."""
    run.transport.held = True
    future = run.send(T0)
    run.run(1)
    asleep = counter(run, Super.SENDER_ASLEEP)
    run.transport.held = False
    run.run(1)
    assert future.get(0).offset == 0
    assert counter(run, Super.SENDER_ASLEEP) == asleep > 0


def test_a_sleep_says_when_it_ends_until_the_next_look(run: HandRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not due before then need not be rung for; but what comes behind a look may be too late for it."""
    run.transport.held = True
    run.send(T0)
    run.run(1)
    assert counter(run, Super.SENDER_WAKES) == 0
    run.transport.held = False
    began_ms = time.monotonic_ns() // 1_000_000
    run.run(1, after_ms=0)
    assert counter(run, Super.SENDER_WAKES) >= began_ms + run.transport.asked[-1] > began_ms

    looks: list[int] = []
    cluster = run.transport.cluster

    def look() -> object:
        looks.append(counter(run, Super.SENDER_WAKES))
        return cluster()

    monkeypatch.setattr(run.transport, "cluster", look)
    assert counter(run, Super.SENDER_ASLEEP)
    run.run(1, after_ms=0)
    assert set(looks) == {0}
    assert counter(run, Super.SENDER_WAKES) >= began_ms + run.transport.asked[-1] > began_ms


def test_records_that_expire_while_it_is_stopped_name_that(run: HandRun) -> None:
    run.run(2)
    late = run.send(T0)
    assert run.slab.incidents.current() is None, "neither a pass that follows, nor a sleep"
    run.run(1, after_ms=75_300)
    with pytest.raises(
        DeliveryTimeoutError, match=r"last error: KafkaTimeoutError: the sender did not run for 60 s or more"
    ):
        late.get(0)
    run.run(1, after_ms=75_300)
    assert [each.count for each in incidents(run.slab.words, run.slab.geometry)] == [1]


def test_doorbell_pressed_between_the_two_checks(run: HandRun) -> None:
    while not counter(run, Super.SENDER_ASLEEP):
        run.run(1)
    future = run.send(T0)
    run.slab.button.press()
    run.run(2)
    assert future.get(0).offset == 0


@pytest.mark.usefixtures("clock")
def test_busy_sender_sleeps_without_listening(run: HandRun) -> None:
    """It could not send what producers append meanwhile."""
    run.send(T0)
    run.transport.held = run.transport.busy = True
    run.run(1)
    assert counter(run, Super.SENDER_ASLEEP) == 0
    assert run.transport.asked[-1] > sender_module.HOUSEKEEPING_MS / 2

    run.transport.held = run.transport.busy = False
    while not counter(run, Super.SENDER_ASLEEP):
        run.run(1)
    assert run.transport.asked[-1] == 0


def test_late_press_does_not_keep_a_busy_sender_awake(run: HandRun) -> None:
    run.transport.busy = True
    run.doorbell.ring()
    run.run(1)
    with pytest.raises(BlockingIOError):
        os.read(run.doorbell.descriptor, 1)


@pytest.mark.parametrize("idle_ms", [-1, 0, 3_600_000])
def test_never_sleeps_for_ever(start_run: StartRun, idle_ms: int) -> None:
    """A producer may have been killed between its append and the ring."""
    run = start_run(sender_idle_ms=idle_ms)
    run.run(4)
    assert max(run.transport.asked) <= LONGEST_SLEEP_MS
