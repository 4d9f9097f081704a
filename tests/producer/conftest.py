"""Producers with a real sender process and a real log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_broker import FakeBroker
from fixture_types import Produce, Settings
from producers import kept_slab, settings_of, wait_until_gone
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


@pytest.fixture(scope="module")
def kept_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the records of the module's slab go."""
    return tmp_path_factory.mktemp("kept") / "log"


@pytest.fixture(scope="module")
def kept(kept_log: Path) -> Iterator[Settings]:
    """Return a function that gives the settings of the module's slab; keywords change them."""
    with kept_slab(f"kept-{os.getpid()}", kept_log, shmaccum_max_topics=200) as settings:
        yield settings


@pytest.fixture
def join(kept: Settings) -> Iterator[Produce]:
    """Return a function that makes a producer of the module's slab; keywords change its settings."""
    with contextlib.ExitStack() as made:
        yield lambda **changes: made.enter_context(Producer(kept(**changes)))


@pytest.fixture
def produce(make_producer: Produce, settings: Settings) -> Produce:
    """Return a function that makes a producer of the test's slab; keywords change its settings."""
    return lambda **changes: make_producer(settings(**changes))


@pytest.fixture
def connect(make_producer: Produce, kafka_settings: Settings, fake: FakeBroker) -> Produce:
    """Return a function that makes a producer of the fake broker, which does not linger, and soon tries again."""
    soon = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 20}
    return lambda **changes: make_producer(kafka_settings(bootstrap_servers=fake.servers, **soon | changes))


@pytest.fixture
def run(config: ProducerConfig) -> Iterator[HandRun]:
    """Return a sender with the module's ``config``, that is run by hand and knows topic ``t``."""
    run = HandRun(config)
    run.begin()
    run.topic("t")
    yield run
    run.close()


@pytest.fixture
def producer(join: Produce) -> Producer:
    """Return a producer of the module's slab, whose topics have three partitions."""
    return join()
