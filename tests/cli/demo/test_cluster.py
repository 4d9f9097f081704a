"""The demo's way back out of a cluster, tried on what another client has put in."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest
from brokers import produce
from fixture_types import MakeCluster

from shmaccum.cli.demo.cluster import ClusterTarget, librdkafka_settings
from shmaccum.config import ProducerConfig
from shmaccum.errors import NetworkError
from tools.kafka import Certificates, KafkaCluster, segments
from tools.kafka.settings import USERS

VALUES = [b"one", b"two", b"three"]


def round_trip(given: Mapping[str, object], topic: str) -> None:
    """Write by confluent-kafka between `ClusterTarget.prepare` and `ClusterTarget.read_back`, and look."""
    target = ClusterTarget(given, topic, 2)
    target.prepare()
    for partition in (0, 1):
        produce(librdkafka_settings(ProducerConfig.parse(given)), topic, VALUES, partition)
    contents = target.read_back()
    assert (contents.records, contents.problems) == (6, [])
    assert contents.values.keys() == {None}
    assert sorted(contents.values[None], key=str) == sorted([*VALUES, *VALUES])


def test_what_was_there_before_is_left_out(kafka: KafkaCluster, topic: str) -> None:
    kafka.admin.create_topic(topic, partitions=2)
    produce({"bootstrap.servers": kafka.bootstrap_servers}, topic, [b"old"] * 5, 1)
    round_trip({"bootstrap.servers": kafka.bootstrap_servers}, topic)


def test_a_batch_that_was_damaged(kafka: KafkaCluster, topic: str) -> None:
    given = {"bootstrap.servers": kafka.bootstrap_servers}
    target = ClusterTarget(given, topic, 1)
    target.prepare()
    produce(given, topic, [b"a value to be damaged"])
    (segment,) = segments(kafka.nodes[1].data, topic)
    with open(segment, "r+b") as file:
        file.seek(-3, os.SEEK_END)
        file.write(b"X")
    with pytest.raises(NetworkError, match="CRC"):
        target.read_back()


def test_a_list_of_brokers_is_one_option(topic: str) -> None:
    """Spark's options are text."""
    target = ClusterTarget({"bootstrap.servers": ["a:1", "b:2"], "linger.ms": 7}, topic, 1)
    assert target.settings == {"bootstrap.servers": "a:1,b:2", "linger.ms": 7}
    assert target.name == f"topic {topic} of a:1,b:2"


def test_a_secured_cluster(kafka_cluster: MakeCluster, certificates: Certificates, topic: str) -> None:
    cluster = kafka_cluster(sasl=True, certificates=certificates)
    cluster.start()
    given: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.username": "admin",
        "sasl.password": USERS["admin"],
        "ssl.keystore.location": certificates.client.pem,
    }
    for mechanism, trusted in (
        ("PLAIN", {"ssl.truststore.location": certificates.ca}),
        ("SCRAM-SHA-512", {"ssl.truststore.certificates": certificates.ca.read_text()}),
    ):
        round_trip(given | trusted | {"sasl.mechanism": mechanism}, f"{topic}-{mechanism}")


def test_brokers_that_are_not_there(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmaccum.cli.demo.cluster._TIMEOUT_S", 1.0)
    with pytest.raises(NetworkError, match=f"^topic {topic} of 127.0.0.1:1: no broker responded; "):
        ClusterTarget({"bootstrap.servers": "127.0.0.1:1"}, topic, 1).prepare()
