"""The slab's metrics: each is the counter that its name says, and none divides by zero."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from shmaccum._core import Geometry, Super
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


def test_every_counter_has_its_name(slab: Slab) -> None:
    counters = {
        "record-send-total": Super.RECORDS_SENT,
        "record-error-total": Super.RECORDS_FAILED,
        "batch-send-total": Super.BATCHES_SENT,
        "batch-error-total": Super.BATCHES_FAILED,
        "batch-retry-total": Super.BATCHES_RETRIED,
        "byte-total": Super.BYTES_SENT,
        "request-total": Super.REQUESTS_SENT,
        "sender-start-total": Super.SENDER_STARTS,
        "reclaimed-slots-total": Super.RECLAIMED_SLOTS,
        "rebuild-total": Super.REBUILDS,
        "batch-expired-total": Super.BATCHES_EXPIRED,
        "producer-epoch-bump-total": Super.EPOCH_BUMPS,
        "record-lost-total": Super.RECORDS_LOST,
    }
    for number, word in enumerate(counters.values()):
        slab.words[word] = 100 + number
    slab.words[Super.PEAK_SLOTS] = 5
    slab.words[Super.FILL_BYTES] = 400
    slab.words[Super.CAPACITY_BYTES] = 800
    metrics = slab_metrics(slab.words, slab.geometry)
    assert {name: metrics[name] for name in counters} == {name: 100 + n for n, name in enumerate(counters)}
    assert metrics["buffer-peak-bytes"] == 5 * 1024
    assert metrics["records-per-batch-avg"] == 100 / 102
    assert metrics["records-per-request-avg"] == 100 / 106
    assert metrics["batch-size-avg"] == 400 / 102
    assert metrics["batch-fill-ratio"] == 0.5
    assert metrics["compression-rate-avg"] == 105 / 400


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
