"""A sender by hand, for tests of batches that are sent in pieces, and brokers that take no time to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from producers import settings_of, wait_until_gone
from senders import HandRun
from splitting import StartRun, config_of
from wires import PATIENCE_S


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def settings(slab_name: str, log_dir: Path) -> Iterator[Callable[..., dict[str, object]]]:
    """Return a function that gives the settings of the test's slab; at the end, its processes must remove the slab."""
    yield lambda **changes: settings_of(slab_name, log_dir, **changes)
    wait_until_gone(slab_name)


@pytest.fixture
def start_run(log_dir: Path, slab_name: str) -> Iterator[StartRun]:
    """Return a function that starts a sender by hand, which knows topic "t", with the settings given.

    The broker of a second one is as that of the first.
    """
    runs: list[HandRun] = []

    def start(**settings: object) -> HandRun:
        runs.append(HandRun(config_of(slab_name, log_dir, **settings)))
        runs[-1].transport.is_invalid = runs[0].transport.is_invalid
        runs[-1].transport.strict = True
        runs[-1].begin()
        runs[-1].topic("t")
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@pytest.fixture
def run(start_run: StartRun) -> HandRun:
    return start_run()


@pytest.fixture(scope="session")
def mock_servers() -> Iterator[str]:
    """Return ``bootstrap.servers`` of librdkafka's mock cluster of three brokers."""
    keeper = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "mock", "log_level": 0})
    brokers = keeper.list_topics(timeout=PATIENCE_S).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    keeper.flush()  # the cluster lives as long as this producer
