"""Whole producers, in processes of their own, and a sender that speaks to brokers."""

from __future__ import annotations

from multiprocessing.connection import Connection

import pytest
from brokers import consume_values
from processes import Start
from producers import wait_until, wait_until_gone

from shmaccum import Producer
from shmaccum.errors import (
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from tools.kafka import KafkaCluster

PARTITIONS = 3


def settings(servers: str, name: str, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": servers,
        "shmaccum.name": name,
        "buffer.memory": 1 << 20,
        "sender.idle.ms": 100,
        "max.block.ms": 20_000,
    } | {key.replace("_", "."): value for key, value in more.items()}


def write(link: Connection, config: dict[str, object], topic: str, worker: int, count: int) -> None:
    with Producer(config) as producer:
        for number in range(count):
            producer.send(topic, b"%d-%d" % (worker, number), partition=number % PARTITIONS)
        producer.flush()


def test_many_processes_through_one_sender(kafka: KafkaCluster, start: Start, slab_name: str, topic: str) -> None:
    kafka.admin.create_topic(topic, partitions=PARTITIONS)
    config = settings(kafka.bootstrap_servers, slab_name, compression_type="lz4")
    workers, count = 3, 3000
    for child in [start(write, config, topic, worker, count) for worker in range(workers)]:
        child.result()
    wait_until_gone(slab_name)
    found = consume_values({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    for partition, values in found.items():
        for worker in range(workers):
            of_worker = [value for value in values if value is not None and value.startswith(b"%d-" % worker)]
            assert of_worker == [b"%d-%d" % (worker, number) for number in range(partition, count, PARTITIONS)]
    assert sum(map(len, found.values())) == workers * count


def test_a_topic_that_is_deleted(kafka: KafkaCluster, slab_name: str, topic: str) -> None:
    """The next send waits for its metadata, as for a new one, and says why there are none."""
    kafka.admin.create_topic(topic)
    config = settings(kafka.bootstrap_servers, slab_name, metadata_max_age_ms=200, max_block_ms=1500)
    with Producer(config) as producer:
        producer.send(topic, b"before").get(30)
        kafka.admin.delete_topic(topic)
        entry = producer._accumulator.state.map.topics[topic]
        wait_until(lambda: entry.partition_count == 0, "the sender knows that the topic is gone")
        with pytest.raises(KafkaTimeoutError, match="not present in metadata") as caught:
            producer.send(topic, b"nowhere")
        assert type(caught.value.__cause__) is UnknownTopicOrPartitionError
        kafka.admin.create_topic(topic)
        assert producer.send(topic, b"after").get(30).offset == 0
    wait_until_gone(slab_name)
