"""Real brokers take our batches, and say what they say to any client. Read back by confluent-kafka."""

from __future__ import annotations

import time
from typing import Any

import pytest
from batches import make_batch
from brokers import consume, consume_values, produce
from wires import MakeWire, Wire

from shmaccum.cluster import TopicPartition
from shmaccum.errors import InvalidTimestampError
from tools.kafka import KafkaCluster


def settings(cluster: KafkaCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


@pytest.fixture
def here(kafka: KafkaCluster, wire: MakeWire) -> Wire:
    return wire(kafka.bootstrap_servers)


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_stores_what_is_sent(kafka: KafkaCluster, wire: MakeWire, topic: str, acks: str) -> None:
    kafka.admin.create_topic(topic, partitions=3)
    here = wire(kafka.bootstrap_servers, acks=acks, enable_idempotence=acks == "all")
    where = [TopicPartition(topic, partition) for partition in range(3)]
    for to in where:
        produce(settings(kafka), topic, [b"first"], to.partition)  # the broker knows by then that it leads it
    for number in range(2):
        answers = here.ask(*(make_batch([b"a%d" % number, b"b"], to=to) for to in where))
        assert [answer.error for answer in answers] == [None] * 3
        if acks != "0":
            assert [answer.base_offset for answer in answers] == [1 + 2 * number] * 3
    expected = {to.partition: [b"first", b"a0", b"b", b"a1", b"b"] for to in where}
    deadline = time.monotonic() + 30
    while (found := consume_values(settings(kafka), topic)) != expected:
        assert acks == "0", found
        assert time.monotonic() < deadline, found


def test_the_brokers_time(kafka: KafkaCluster, here: Wire, topic: str) -> None:
    """A topic that stamps records itself says when."""
    kafka.admin.create_topic(topic, settings={"message.timestamp.type": "LogAppendTime"})
    (answer,) = here.store(make_batch([b"value"], to=TopicPartition(topic, 0)))
    (record,) = consume(settings(kafka), topic)[0]
    assert record.timestamp()[1] == answer.log_append_time_ms > 1_600_000_000_000


def test_records_with_a_time_that_the_topic_does_not_take(kafka: KafkaCluster, here: Wire, topic: str) -> None:
    """The answer names each of them; what else a broker refuses is in ``tests/kafka_faults``."""
    kafka.admin.create_topic(topic, settings={"message.timestamp.before.max.ms": 60_000})
    (answer,) = here.store(make_batch([b"x", b"y"], to=TopicPartition(topic, 0)))
    assert (answer.error, tuple(answer.invalid_records)) == (InvalidTimestampError, (0, 1))
    assert f"for {topic}-0" in answer.message
