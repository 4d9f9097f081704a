"""The slab's metrics: each is the counter that its name says, and none divides by zero."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from shmaccum._core import Geometry
from shmaccum.observe.kafka_metrics import TRANSACTION_CALLS, CallTimes, slab_metrics
from shmaccum.shm.lifecycle import attach, detach
from shmaccum.shm.slab import Slab

GEOMETRY = Geometry(1024, 8, 4, 4, 4)


@pytest.fixture
def slab(slab_name: str) -> Iterator[Slab]:
    slab = attach(slab_name, GEOMETRY)
    yield slab
    detach(slab)


def test_of_a_new_slab(slab: Slab) -> None:
    metrics = slab_metrics(slab.words, slab.geometry)
    assert metrics.pop("buffer-total-bytes") == metrics.pop("buffer-available-bytes") == 8 * 1024
    assert set(metrics.values()) == {0}


def test_only_calls_that_succeed_take_time() -> None:
    times = CallTimes(TRANSACTION_CALLS)
    with pytest.raises(ValueError, match="no"), times.call("txn-commit"):
        raise ValueError("no")
    assert set(times.metrics().values()) == {0}
    with times.call("txn-commit"):
        time.sleep(0.001)
    once = times.metrics()["txn-commit-time-ns-total"]
    assert once >= 1_000_000
    with times.call("txn-commit"):
        time.sleep(0.001)
    assert times.metrics()["txn-commit-time-ns-total"] >= once + 1_000_000
