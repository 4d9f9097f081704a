"""A producer that requests a topic's metadata gets the next answer, despite other requests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from accumulators import config_of, open_accumulator
from processes import wait_until
from runs import threads

from shmaccum.config import ProducerConfig
from shmaccum.errors import TopicAuthorizationError
from shmaccum.producer.destinations import Destinations
from shmaccum.shm.layout import TopicState
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators


@pytest.fixture
def config(slab_name: str) -> ProducerConfig:
    return config_of(slab_name, max_block_ms=30_000)


@pytest.fixture
def accumulator(config: ProducerConfig) -> Iterator[Accumulators]:
    accumulator = open_accumulator(config)
    yield accumulator
    detach(accumulator.slab)


def test_answer_counts_despite_a_later_request(accumulator: Accumulators, config: ProducerConfig) -> None:
    """One whose turn to run comes late would else wait for the next answer, and miss that as well."""
    metadata = Destinations(accumulator.producer, config)

    def ask(_: int) -> None:
        with pytest.raises(TopicAuthorizationError):
            accumulator.producer.block(metadata.topic("forbidden", time.monotonic()))

    with threads(1, ask):
        wait_until(lambda: accumulator.map.requested() == ["forbidden"])
        accumulator.map.update("forbidden", 0, TopicAuthorizationError)
        entry = accumulator.map.request("forbidden")
        assert entry.state is TopicState.REQUESTED
        accumulator.slab.wakeups.wake(accumulator.slab.me)
