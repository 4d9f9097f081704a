"""Senders by hand, their settings and their clock; and brokers that take no time to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import broker_model
import pytest
import senders
from broker_model import BrokerRun, Clock, ClusterModel, StartBrokerRun, stop_the_clock
from producers import Settings, settings_of, wait_until_gone
from senders import HandRun
from splitting import StartRun, config_of


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def settings(slab_name: str, log_dir: Path) -> Iterator[Settings]:
    """Return a function that gives the settings of the test's slab; at the end, its processes must remove the slab."""
    yield lambda **changes: settings_of(slab_name, log_dir, **changes)
    wait_until_gone(slab_name)


@pytest.fixture
def start_sender(log_dir: Path, slab_name: str) -> Iterator[StartRun]:
    """Return a function that starts a sender by hand, with the settings given; ``_`` stands for Kafka's ``.``.

    The broker of a second one is as that of the first. With ``begin=False``, it does not recover yet.
    """
    runs: list[HandRun] = []

    def start(*, begin: bool = True, **settings: object) -> HandRun:
        runs.append(HandRun(config_of(slab_name, log_dir, **settings)))
        runs[-1].transport.is_invalid = runs[0].transport.is_invalid
        if begin:
            runs[-1].begin()
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@pytest.fixture
def start_run(start_sender: StartRun) -> StartRun:
    """Return a function that starts a sender by hand, which knows topic "t", with the settings given."""

    def start(**settings: object) -> HandRun:
        run = start_sender(**settings)
        run.topic("t")
        return run

    return start


@pytest.fixture
def run(start_run: StartRun) -> HandRun:
    """A sender by hand that knows topic "t", of two partitions."""
    return start_run()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stop the clock, for tests of what is not due yet: else it might be, on a machine that is busy."""
    clock = stop_the_clock(monkeypatch)
    monkeypatch.setattr(senders, "time", clock)
    return clock


@pytest.fixture
def cluster() -> ClusterModel:
    return ClusterModel("t", 2)


@pytest.fixture
def start_broker_run(slab_name: str, clock: Clock, cluster: ClusterModel) -> Iterator[StartBrokerRun]:
    """Return a function that starts a sender of the model's brokers, which knows topic "t"; the one before resigns."""
    runs: list[BrokerRun] = []

    def start(**settings: object) -> BrokerRun:
        if runs:
            runs[-1].resign()
        runs.append(BrokerRun(broker_model.config_of(slab_name, **settings), cluster, clock))
        runs[-1].begin()
        if len(runs) == 1:
            runs[-1].topic("t")
        return runs[-1]

    yield start
    for run in runs:
        run.close()
