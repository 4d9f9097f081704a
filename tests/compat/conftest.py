"""Producers by other clients' names, over slabs of their own, which must be removed at the end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from brokers import consume
from confluent_kafka import Message
from fixture_types import Make
from producers import wait_until_gone

from shmaccum.compat.confluent import Producer
from shmaccum.compat.kafka_python import KafkaProducer
from tools.kafka import KafkaCluster
from tools.support.slabcheck import sender_pid

IDLE_MS = 600_000


@pytest.fixture
def servers(kafka: KafkaCluster) -> str:
    return kafka.bootstrap_servers


@pytest.fixture
def settings(servers: str) -> dict[str, Any]:
    return {"bootstrap.servers": servers}


@pytest.fixture
def existing(kafka: KafkaCluster, topic: str) -> str:
    """Return a topic of three partitions."""
    kafka.admin.create_topic(topic, 3)
    return topic


@pytest.fixture
def stored(settings: dict[str, Any]) -> Make:
    """Return ``stored(topic)``: the records of each partition, as confluent-kafka's consumer reads them."""

    def read(topic: str, **own: str) -> dict[int, list[Message]]:
        return consume(settings | {name.replace("_", "."): value for name, value in own.items()}, topic)

    return read


@pytest.fixture
def values(stored: Make) -> Make:
    """Return ``values(topic)``: those of all its records."""
    return lambda topic, **own: [record.value() for records in stored(topic, **own).values() for record in records]


@pytest.fixture(scope="module")
def kept() -> Iterator[set[str]]:
    """Return the names of the slabs of the module, whose senders stay: starting one takes longer than most tests.

    They are named by their settings, so each test gets the one that agrees with its own.
    """
    names: set[str] = set()
    yield names
    for name in names:
        with contextlib.suppress(ProcessLookupError):  # it has just left
            if pid := sender_pid(name):
                os.kill(pid, signal.SIGTERM)
        wait_until_gone(name)


@pytest.fixture
def confluent(kept: set[str], request: pytest.FixtureRequest) -> Iterator[Make]:
    """Return ``confluent(settings={}, kind=Producer)``: a producer of a small slab.

    It writes to Apache Kafka unless the settings name other brokers.
    """
    made: list[Producer] = []

    def make(settings: dict[str, Any] | None = None, kind: type[Producer] = Producer) -> Producer:
        given = settings or {}
        servers = given.get("bootstrap.servers") or request.getfixturevalue("servers")
        own: dict[str, Any] = {"bootstrap.servers": servers, "sender.idle.ms": IDLE_MS}
        if "queue.buffering.max.kbytes" not in given:
            own["buffer.memory"] = 1 << 20
        made.append(kind(own | given))
        kept.add(made[-1]._shm.producer.config.slab_name(os.geteuid()))
        return made[-1]

    yield make
    for producer in made:
        with contextlib.suppress(Exception):
            producer.purge()
            if producer._shm.producer is not None:
                producer._shm.producer.close(0)


@pytest.fixture
def kafka_python(slab_name: str, kept: set[str], request: pytest.FixtureRequest) -> Iterator[Make]:
    """Return ``kafka_python(**configs)``: a producer of a small slab; one that a test names must be gone at the end.

    It writes to Apache Kafka unless the configs name other brokers.
    """
    made: list[KafkaProducer] = []

    def make(**configs: Any) -> KafkaProducer:
        servers = configs.get("bootstrap_servers") or request.getfixturevalue("servers")
        own: dict[str, Any] = {"bootstrap_servers": servers, "sender_idle_ms": IDLE_MS, "buffer_memory": 1 << 20}
        made.append(KafkaProducer(**(own | configs)))
        kept.add(made[-1]._producer.config.slab_name(os.geteuid()))
        return made[-1]

    yield make
    for producer in made:
        with contextlib.suppress(Exception):
            producer.close(0)
    wait_until_gone(slab_name)
