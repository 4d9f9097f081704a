"""KeyboardInterrupt within the producer's methods blocks no other process and loses no record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from fixture_types import MonkeyPatch, Produce, Settings
from runs import interrupts

from shmaccum import Producer
from shmaccum._core import Process, Slot
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
def test_interrupts_leak_no_lock_slot_or_flush(produce: Produce, call: Callable[[Producer], Any]) -> None:
    """No lock, no memory, no flush, however often and wherever an interrupt comes."""
    producer = produce(batch_size=1024, max_request_size=1 << 20)
    producer.send("t", b"first").get(10)
    slab = producer._slab
    process = slab.geometry.process(slab.me)
    for moment, interrupt in enumerate(interrupts()):
        with interrupt:
            call(producer)
        assert not slab.processes.held_by(slab.me), f"after an interrupt at moment {moment}"
        assert not slab.words[process + Process.FLUSHING], f"after an interrupt at moment {moment}"
        assert not allocated(producer), f"after an interrupt at moment {moment}"
    assert producer.send("t", b"last").get(10).offset > 0


@pytest.mark.parametrize("name", ["send", "send to a new batch", "send_batch", "poll"])
def test_error_of_a_signal_handler_is_not_reported_as_damage(produce: Produce, name: str) -> None:
    producer = produce(batch_size=1024, max_request_size=1 << 20)
    producer.send("t", b"first").get(10)
    for interrupt in interrupts(error=ValueError):  # which a damaged word also leads to
        with interrupt:
            CALLS[name](producer)
    assert producer.send("t", b"last").get(10).offset > 0


def test_interrupted_close_can_be_called_again(produce: Produce, settings: Settings) -> None:
    """Wherever an interrupt cut it short, the next call ends what it began."""
    watcher = produce()
    watcher.partitions_for("t")
    for moment, interrupt in enumerate(interrupts()):
        producer = Producer(settings())
        producer.send("t", b"value", partition=0)
        with interrupt:
            producer.close()
        producer.close()
        assert watcher._slab.users == 1, f"after an interrupt at moment {moment}"
    assert watcher.send("t", b"last", partition=0).get(10)


def test_interrupted_constructor_leaves_no_user(produce: Produce, settings: Settings, monkeypatch: MonkeyPatch) -> None:
    watcher = produce()
    # A look at every other slab of this user is some hundred moments, and they come and go.
    monkeypatch.setattr(names, "slab_names", list)
    for moment, interrupt in enumerate(interrupts()):
        producer = None
        with interrupt:
            producer = Producer(settings())
        if producer is not None:
            producer.close()
        assert watcher._slab.users == 1, f"after an interrupt at moment {moment}"
