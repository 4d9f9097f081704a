"""Producers of a real cluster: where records go, what is learnt of topics, and by which names things go wrong."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from brokers import consume_values
from fixture_types import Produce, Settings
from producers import wait_until

from shmaccum.errors import InvalidRecordError
from shmaccum.producer.partitioner import partition_for_key
from tools.kafka import KafkaCluster


@pytest.fixture
def connect(kafka: KafkaCluster, make_producer: Produce, kafka_settings: Settings) -> Produce:
    """Return a function that makes a producer of the cluster; keywords change its settings."""
    defaults = {"bootstrap_servers": kafka.bootstrap_servers, "metadata_max_age_ms": 300}
    return lambda **changes: make_producer(kafka_settings(**defaults | changes))


def test_a_topic_that_grows_is_noticed(kafka: KafkaCluster, topic: str, connect: Produce) -> None:
    kafka.admin.create_topic(topic, partitions=2)
    producer = connect()
    keys = [b"key %d" % number for number in range(50)]
    before = [producer.send(topic, key, key) for key in keys]
    producer.flush(20)
    kafka.admin.grow_topic(topic, 4)
    wait_until(lambda: producer.partitions_for(topic) == {0, 1, 2, 3}, "the new partitions are known")
    after = [producer.send(topic, key, key) for key in keys]
    columns = producer.send_batch(topic, pa.record_batch({"key": keys}))
    unkeyed = Counter(producer.send(topic, b"x" * 10_000).topic_partition.partition for _ in range(200))
    producer.flush(20)
    assert [future.get(0).partition for future in before] == [partition_for_key(key, 2) for key in keys]
    assert [future.get(0).partition for future in after] == [partition_for_key(key, 4) for key in keys]
    assert columns.get(0).partitions.tolist() == [partition_for_key(key, 4) for key in keys]
    assert sorted(unkeyed) == [0, 1, 2, 3]
    found = consume_values({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    assert sum(map(len, found.values())) == 350


def test_the_words_of_the_broker_reach_the_error(kafka: KafkaCluster, topic: str, connect: Produce) -> None:
    """KIP-467: what the broker says of the record is what its future says."""
    kafka.admin.create_topic(topic, settings={"cleanup.policy": "compact"})
    producer = connect()
    words = rf"broker \d says: Compacted topic cannot accept message without key in topic partition {topic}-0"
    with pytest.raises(InvalidRecordError, match=rf"^{topic}-0: .*: {words}"):
        producer.send(topic, b"value").get(20)
    assert producer.send(topic, b"value", key=b"key").get(20).offset == 0
