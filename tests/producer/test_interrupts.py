"""KeyboardInterrupt within the producer's methods blocks no other process and loses no record."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from fixture_types import MonkeyPatch, Produce, Settings
from runs import interrupts

from shmaccum import Producer, ProducerConfig
from shmaccum._core import Process, Slot
from shmaccum.errors import IllegalStateError
from shmaccum.shm import names
from shmaccum.shm.layout import SlotState, state_of

BATCH = pa.record_batch({"value": [b"%d" % number + bytes(100) for number in range(30)], "partition": [0] * 30})

CALLS: dict[str, Callable[[Producer], Any]] = {
    "send": lambda producer: producer.send("t", b"value", partition=0),
    "send to a new batch": lambda producer: producer.send("t", bytes(700), partition=0),
    "send_batch": lambda producer: producer.send_batch("t", BATCH),
    "flush": lambda producer: producer.flush(),
    "poll": lambda producer: producer.poll(),
    "get": lambda producer: producer.send("t", b"value", partition=0).get(10),
    "partitions_for": lambda producer: producer.partitions_for("t"),
}


def allocated(producer: Producer) -> int:
    """Return how many slots are taken and in no deque."""
    states = state_of(producer._slab.headers[:, Slot.STATE])
    return int((states == int(SlotState.ALLOCATED)).sum())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_interrupts_leak_no_lock_slot_or_flush(join: Produce, call: Callable[[Producer], Any]) -> None:
    """No lock, no memory, no flush, however often and wherever an interrupt comes."""
    producer = join(batch_size=1024, max_request_size=1 << 20)
    producer.send("t", b"first").get(10)
    call(producer)  # or most moments would be in imports
    slab = producer._slab
    process = slab.geometry.process(slab.me)
    for moment, interrupt in enumerate(interrupts()):
        with interrupt:
            call(producer)
        assert not slab.processes.held_by(slab.me), f"after an interrupt at moment {moment}"
        assert not slab.words[process + Process.FLUSHING], f"after an interrupt at moment {moment}"
        assert not allocated(producer), f"after an interrupt at moment {moment}"
    assert producer.send("t", b"last").get(10).offset > 0


def test_error_of_a_signal_handler_is_not_reported_as_damage(join: Produce) -> None:
    producer = join(batch_size=1024, max_request_size=1 << 20)
    producer.send("t", b"first").get(10)
    for name in ("send", "send to a new batch", "send_batch", "poll"):
        for interrupt in interrupts(error=ValueError):  # which a damaged word also leads to
            with interrupt:
                CALLS[name](producer)
    assert producer.send("t", b"last").get(10).offset > 0


def test_interrupted_close_can_be_called_again(join: Produce, kept: Settings) -> None:
    """Wherever an interrupt cut it short, the next call ends what it began."""
    watcher = join()
    watcher.partitions_for("t")
    for moment, interrupt in enumerate(interrupts()):
        producer = Producer(kept())
        producer.send("t", b"value", partition=0)
        with interrupt:
            producer.close()
        producer.close()
        assert watcher._slab.users == 1, f"after an interrupt at moment {moment}"
    assert watcher.send("t", b"last", partition=0).get(10)


def test_signal_handler_closes_while_its_thread_waits(kept: Settings) -> None:
    """The wait that it interrupts ends behind it, and keeps it from nothing."""
    producer = Producer(kept(linger_ms=60_000))
    future = producer.send("t", b"value", partition=0)
    usual = signal.signal(signal.SIGUSR1, lambda number, frame: producer.close(20))
    try:
        threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
        with suppress(IllegalStateError):  # the slab is gone
            future.get(20)
    finally:
        signal.signal(signal.SIGUSR1, usual)
    assert future.done()


def test_interrupted_constructor_leaves_no_user(join: Produce, kept: Settings, monkeypatch: MonkeyPatch) -> None:
    watcher = join()
    # A look at every other slab of this user is some hundred moments, and they come and go.
    monkeypatch.setattr(names, "slab_names", list)
    config = ProducerConfig.parse(kept())  # another thousand, before there is anything to leave behind
    for moment, interrupt in enumerate(interrupts()):
        producer = None
        with interrupt:
            producer = Producer(config)
        if producer is not None:
            producer.close()
        assert watcher._slab.users == 1, f"after an interrupt at moment {moment}"
