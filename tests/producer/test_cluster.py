"""Producers of a real cluster: where records go, what is learnt of topics, and by which names things go wrong."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest
from brokers import consume_values
from fixture_types import MakeCluster, Produce
from producers import wait_until

from shmaccum import Producer
from shmaccum.errors import (
    InvalidRecordError,
    TopicAuthorizationError,
)
from shmaccum.producer.partitioner import partition_for_key
from tools.kafka import KafkaCluster
from tools.kafka.settings import USERS

Connect = Callable[..., Producer]


@pytest.fixture
def connect(slab_name: str, make_producer: Produce) -> Connect:
    """Return a function that makes a producer of a cluster."""

    def make(cluster: KafkaCluster, **settings: object) -> Producer:
        defaults: dict[str, object] = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "shmaccum.name": slab_name,
            "sender.idle.ms": 100,
            "max.block.ms": 20_000,
            "metadata.max.age.ms": 300,
        }
        return make_producer(defaults | {name.replace("_", "."): value for name, value in settings.items()})

    return make


@pytest.fixture(scope="module")
def secured(kafka_cluster: MakeCluster) -> KafkaCluster:
    """Return a cluster that wants to know who writes, and minds its rules."""
    cluster = kafka_cluster(sasl=True)
    cluster.start()
    return cluster


def login(password: str) -> dict[str, object]:
    """Return the settings of user alice."""
    line = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_jaas_config": f'{line} required username="alice" password="{password}";',
    }


def test_a_topic_that_grows_is_noticed(kafka: KafkaCluster, topic: str, connect: Connect) -> None:
    kafka.admin.create_topic(topic, partitions=2)
    producer = connect(kafka)
    keys = [b"key %d" % number for number in range(50)]
    before = [producer.send(topic, key, key) for key in keys]
    producer.flush(20)
    kafka.admin.grow_topic(topic, 4)
    wait_until(lambda: producer.partitions_for(topic) == {0, 1, 2, 3}, "the new partitions are known")
    after = [producer.send(topic, key, key) for key in keys]
    unkeyed = Counter(producer.send(topic, b"x" * 10_000).topic_partition.partition for _ in range(200))
    producer.flush(20)
    assert [future.get(0).partition for future in before] == [partition_for_key(key, 2) for key in keys]
    assert [future.get(0).partition for future in after] == [partition_for_key(key, 4) for key in keys]
    assert sorted(unkeyed) == [0, 1, 2, 3]
    found = consume_values({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    assert sum(map(len, found.values())) == 300


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_large_records_from_slots_that_are_not_adjacent(
    kafka: KafkaCluster, topic: str, connect: Connect, codec: str
) -> None:
    kafka.admin.create_topic(topic)
    producer = connect(kafka, buffer_memory=128 * 16_384, compression_type=codec)
    pool = producer._accumulator.state.pool
    held = [pool.allocate(1, 0) for _ in range(128)]
    pool.deallocate(*held[::2])
    values = [
        os.urandom(20_000),
        b"small",
        os.urandom(900_000),
        b"even" * 50_000,
        os.urandom(16_400),
        os.urandom(32_800),
    ]
    for value in values:
        producer.send(topic, value)
    producer.flush(20)
    found = consume_values({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    assert found == {0: values}


def test_the_words_of_the_broker_reach_the_error(kafka: KafkaCluster, topic: str, connect: Connect) -> None:
    """KIP-467: what the broker says of the record is what its future says."""
    kafka.admin.create_topic(topic, settings={"cleanup.policy": "compact"})
    producer = connect(kafka)
    words = rf"broker \d says: Compacted topic cannot accept message without key in topic partition {topic}-0"
    with pytest.raises(InvalidRecordError, match=rf"^{topic}-0: .*: {words}"):
        producer.send(topic, b"value").get(20)
    assert producer.send(topic, b"value", key=b"key").get(20).offset == 0


def test_a_topic_that_we_may_not_write_to(secured: KafkaCluster, topic: str, connect: Connect) -> None:
    """Only those hear of it whose records it hits: the other topic goes on."""
    for name in (topic, f"{topic}-allowed"):
        secured.admin.create_topic(name)
    secured.admin.allow("alice", f"{topic}-allowed")
    secured.admin.deny("alice", topic)
    producer = connect(secured, **login(USERS["alice"]))
    allowed = producer.send(f"{topic}-allowed", b"value")
    with pytest.raises(TopicAuthorizationError):  # at once, or where metadata may be read, with the record
        producer.send(topic, b"value").get(20)
    assert allowed.get(20).offset == 0
