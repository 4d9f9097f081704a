"""Producers with a real sender process and a real log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fixture_types import Produce, Settings
from producers import settings_of, wait_until_gone

from shmaccum import Producer
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
def produce(slab_name: str, settings: Settings) -> Iterator[Produce]:
    """Return a function that makes a producer of the test's slab, which must be removed at the end."""
    made: list[Producer] = []

    def make(**changes: object) -> Producer:
        made.append(Producer(settings(**changes)))
        return made[-1]

    yield make
    for producer in made:
        with contextlib.suppress(ShmaccumError):
            producer.close(10)
    wait_until_gone(slab_name)


@pytest.fixture
def producer(produce: Produce) -> Producer:
    """Return a producer of a topic's three partitions."""
    return produce()
