"""KeyboardInterrupt in the middle of the producer's methods: nobody else has to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from faults import InterruptAt

from shmaccum import Producer
from shmaccum.shm.layout import Process

MOST_MOMENTS = 2000

CALLS: dict[str, Callable[[Producer], Any]] = {
    "send": lambda producer: producer.send("t", b"value", partition=0),
    "flush": lambda producer: producer.flush(),
    "poll": lambda producer: producer.poll(),
    "partitions_for": lambda producer: producer.partitions_for("t"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_lock_is_left_behind(producer: Producer, call: Callable[[Producer], Any]) -> None:
    producer.send("t", b"first").get(10)
    slab = producer._slab
    wants = slab.geometry.process(slab.me) + Process.WANTS
    for moment in range(MOST_MOMENTS):
        with InterruptAt(moment) as interrupt:
            call(producer)
        assert not slab.words[wants], f"after an interrupt at moment {moment}"
        if not interrupt.came:
            break
    else:
        pytest.fail("there is no end to the moments")

    assert producer.send("t", b"last").get(10).offset > 0
