"""Brokers that are not Apache Kafka, and transports to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_broker import FakeBroker
from wires import MakeWire, Wire


@pytest.fixture
def wire() -> Iterator[MakeWire]:
    """Return a function that makes transports, which are closed at the end."""
    made: list[Wire] = []

    def make(servers: str, **settings: object) -> Wire:
        made.append(Wire(servers, settings))
        return made[-1]

    yield make
    for each in made:
        each.transport.close()


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """Return a broker that says what the test tells it to."""
    with FakeBroker() as broker:
        yield broker
