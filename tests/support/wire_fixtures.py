"""Brokers that are not Apache Kafka, and transports to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from fake_broker import FakeBroker
from javastores import Stores, make_stores
from producers import PATIENCE_S
from wires import MakeWire, Wire

from tools.kafka import Certificates


@pytest.fixture
def wire() -> Iterator[MakeWire]:
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


@pytest.fixture
def here(fake: FakeBroker, wire: MakeWire) -> Wire:
    return wire(fake.servers)


@pytest.fixture(scope="session")
def stores(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Return keystores of Java's with the certificates of the tests."""
    return make_stores(certificates, tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="session")
def mock_servers() -> Iterator[str]:
    """Return ``bootstrap.servers`` of librdkafka's mock cluster of three brokers."""
    keeper = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "mock", "log_level": 0})
    brokers = keeper.list_topics(timeout=PATIENCE_S).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    keeper.flush()  # the cluster lives as long as this producer
