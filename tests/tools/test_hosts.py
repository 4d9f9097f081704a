"""The model of a host: what it must say where the answer is known."""

from __future__ import annotations

import math

import pytest

from tools.hosts import Costs, Lock, predict, producers_rate

COSTS = Costs(producer=1e-9, loop=1e-9, threads=0.0, broker=0.0, wire=1.0)
COUNTS = {"cores": 64, "shards": 1, "producers": 64}
LOCK = Lock(total=400e-9, held=100e-9)


def test_one_producer_never_waits() -> None:
    assert producers_rate(1, 8, LOCK, own=600e-9) == pytest.approx(1e6)


def test_two_producers_of_one_partition() -> None:
    """By hand: one arrives while the other is at the lock with probability held ÷ total, and waits for all of it."""
    waited = 100e-9 * (1 + 100 / 400)
    assert producers_rate(2, 1, LOCK, own=0.0) == pytest.approx(2 / (300e-9 + waited))


@pytest.mark.parametrize("partitions", [1, 8])
def test_a_lock_bounds_many_producers(partitions: int) -> None:
    rates = [producers_rate(count, partitions, LOCK, own=0.0) for count in (1, 2, 4, 16, 256, 4096)]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(partitions / LOCK.held, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "bound", "rate"),
    [
        ({}, "senders", 1e9),
        ({"shards": 8, "share": 0.1, "cores": 128}, "producers", None),
        ({"shards": 64, "cores": 4}, "cores", 2e9),
        ({"link": 1.0}, "network", 117.5e6),
        ({"producers": 1, "share": 0.1}, "producers", 1e8),
    ],
)
def test_bounds(changes: dict[str, float], bound: str, rate: float | None) -> None:
    cores, shards, producers = (int(changes.get(name, count)) for name, count in COUNTS.items())
    link, share = changes.get("link", math.inf), changes.get("share", 1.0)
    found = predict(cores, shards, link, COSTS, LOCK, share=share, producers=producers)
    assert found.bound == bound
    assert rate is None or found.rate == pytest.approx(rate)
