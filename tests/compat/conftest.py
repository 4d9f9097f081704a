"""Producers by other clients' names, over slabs of their own, which must be removed at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from fixture_types import Make
from producers import wait_until_gone

from shmaccum.compat.confluent import Producer
from shmaccum.compat.kafka_python import KafkaProducer
from tools.kafka import KafkaCluster


@pytest.fixture
def confluent(slab_name: str) -> Iterator[Make]:
    """Return ``confluent(settings, kind=Producer)``: a producer of a small slab of the test."""
    made: list[Producer] = []

    def make(settings: dict[str, Any], kind: type[Producer] = Producer) -> Producer:
        own: dict[str, Any] = {"shmaccum.name": slab_name, "sender.idle.ms": 100}
        if "queue.buffering.max.kbytes" not in settings:
            own["buffer.memory"] = 1 << 20
        made.append(kind(own | settings))
        return made[-1]

    yield make
    for producer in made:
        with contextlib.suppress(Exception):
            producer.purge()
            if producer._producer is not None:
                producer._producer.close(0)
    wait_until_gone(slab_name)


@pytest.fixture
def kafka_python(slab_name: str) -> Iterator[Make]:
    """Return ``kafka_python(**configs)``: a producer of a small slab of the test."""
    made: list[KafkaProducer] = []

    def make(**configs: Any) -> KafkaProducer:
        own: dict[str, Any] = {"shmaccum_name": slab_name, "sender_idle_ms": 100, "buffer_memory": 1 << 20}
        made.append(KafkaProducer(**(own | configs)))
        return made[-1]

    yield make
    for producer in made:
        with contextlib.suppress(Exception):
            producer.close(0)
    wait_until_gone(slab_name)


@pytest.fixture
def existing(kafka: KafkaCluster, topic: str) -> str:
    """Return a topic of three partitions."""
    kafka.admin.create_topic(topic, 3)
    return topic


@pytest.fixture
def settings(kafka: KafkaCluster) -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap_servers}
