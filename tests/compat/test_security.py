"""Logins and certificates as librdkafka's and kafka-python's programs set them, with brokers that want them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from brokers import PATIENCE_S, MakeCluster
from fixture_types import Make
from kafka.errors import KafkaTimeoutError

from tools.kafka import Certificates, KafkaCluster
from tools.kafka.settings import USERS


@pytest.fixture(scope="module")
def secure(kafka_cluster: MakeCluster, certificates: Certificates) -> Iterator[KafkaCluster]:
    """A cluster that wants a login over TLS, and a certificate of its clients."""
    overrides = {"listener.name.client.ssl.client.auth": "required"}
    with kafka_cluster(sasl=True, certificates=certificates, overrides=overrides) as cluster:
        yield cluster


@pytest.fixture
def files(certificates: Certificates) -> dict[str, str]:
    """Return the authority's file, and a file each for a client's certificate and its key."""
    client = certificates.client
    return {"ca": str(certificates.ca), "key": str(client.key), "certificate": str(client.certificate)}


def test_settings_of_librdkafka_log_in(
    secure: KafkaCluster, files: dict[str, str], topic: str, confluent: Make
) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": secure.bootstrap_servers,
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "admin",
        "sasl.password": USERS["admin"],
        "ssl.ca.location": files["ca"],
        "ssl.certificate.location": files["certificate"],
        "ssl.key.location": files["key"],
    }
    secure.admin.create_topic(topic)
    theirs = confluent_kafka.Producer(settings)
    ours = confluent(settings)
    for producer in (theirs, ours):
        reports: list[Any] = []
        producer.produce(topic, b"value", callback=lambda error, _, reports=reports: reports.append(error))
        assert (producer.flush(PATIENCE_S), reports) == (0, [None])
    assert topic in ours.list_topics(timeout=PATIENCE_S).topics


def test_settings_of_kafka_python_log_in(
    secure: KafkaCluster, files: dict[str, str], topic: str, kafka_python: Make, slab_name: str
) -> None:
    secure.admin.create_topic(topic)
    settings = {
        "bootstrap_servers": secure.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "admin",
        "sasl_plain_password": USERS["admin"],
        "ssl_cafile": files["ca"],
        "ssl_certfile": files["certificate"],
        "ssl_keyfile": files["key"],
    }
    with kafka_python(**settings, shmaccum_name=slab_name, sender_idle_ms=100) as producer:
        assert producer.send(topic, b"value").get(PATIENCE_S).offset == 0
    wrong = kafka_python(**(settings | {"sasl_plain_password": "wrong", "max_block_ms": 1000}))
    with pytest.raises(Exception, match="login failed") as caught:
        wrong.send(topic, b"value").get(PATIENCE_S)
    assert not isinstance(caught.value, KafkaTimeoutError)
    wrong.close(0)
