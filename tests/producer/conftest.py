"""Producers with a real sender process and a real log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fixture_types import Produce, Settings
from producers import settings_of, wait_until_gone
from senders import HandRun

from shmaccum import Producer, ProducerConfig
from shmaccum.errors import ShmaccumError


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Where the test's records go."""
    return tmp_path / "log"


@pytest.fixture
def settings(slab_name: str, log_dir: Path) -> Callable[..., dict[str, object]]:
    """Return a function that gives the settings of the test's slab; keywords change them."""
    return lambda **changes: settings_of(slab_name, log_dir, **changes)


@pytest.fixture
def kafka_settings(slab_name: str) -> Settings:
    """Return a function that gives the settings of the test's slab for transport kafka; keywords change them."""
    return lambda **changes: settings_of(slab_name, "", transport="kafka", **changes)


@pytest.fixture
def make_producer(slab_name: str) -> Iterator[Produce]:
    """Return a function that makes a producer with settings of the test's slab, which must be removed at the end."""
    made: list[Producer] = []

    def make(settings: dict[str, object]) -> Producer:
        made.append(Producer(settings))
        return made[-1]

    yield make
    for producer in made:
        with contextlib.suppress(ShmaccumError):
            producer.close(10)
    wait_until_gone(slab_name)


@pytest.fixture
def produce(make_producer: Produce, settings: Settings) -> Produce:
    """Return a function that makes a producer of the test's slab; keywords change its settings."""
    return lambda **changes: make_producer(settings(**changes))


@pytest.fixture
def run(config: ProducerConfig) -> Iterator[HandRun]:
    """Return a sender with the module's ``config``, that is run by hand and knows topic ``t``."""
    run = HandRun(config)
    run.begin()
    run.topic("t")
    yield run
    run.close()


@pytest.fixture
def producer(produce: Produce) -> Producer:
    """Return a producer of a topic's three partitions."""
    return produce()
