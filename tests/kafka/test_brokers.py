"""Real brokers take our batches, and say what they say to any client. Read back by confluent-kafka."""

from __future__ import annotations

import time
from typing import Any

import pytest
from batches import make_batch
from brokers import consume, consume_values, produce
from wires import MakeWire, Wire, now_ms

from shmaccum._core import ProduceBatch
from shmaccum.cluster import TopicPartition
from shmaccum.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from shmaccum.record.compression import CompressionType
from tools.kafka import KafkaCluster


def settings(cluster: KafkaCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


@pytest.fixture
def here(kafka: KafkaCluster, wire: MakeWire) -> Wire:
    return wire(kafka.bootstrap_servers)


# --- librdkafka's mock --------------------------------------------------------------------------------


def test_the_mock_takes_batches_by_many_brokers(mock_servers: str, wire: MakeWire, topic: str) -> None:
    here = wire(mock_servers)
    producer_id, epoch = here.producer_id()
    # The mock chooses leaders at random: now and then one broker leads all four partitions of a topic.
    for number in range(20):
        where = [TopicPartition(f"{topic}-{number}", partition) for partition in range(4)]
        if len({here.leader(to) for to in where}) > 1:
            break
    else:
        pytest.fail("one broker leads everything")
    for to in where:
        (answer,) = here.store(
            make_batch([b"%d" % to.partition], to=to, producer_id=producer_id, sequence=0, epoch=epoch)
        )
        assert (answer.error, answer.base_offset) == (None, 0)
    found = consume_values({"bootstrap.servers": mock_servers}, where[0].topic)
    assert found == {partition: [b"%d" % partition] for partition in range(4)}


# --- Apache Kafka ---------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("compression", list(CompressionType))
def test_every_compression(kafka: KafkaCluster, here: Wire, topic: str, compression: CompressionType) -> None:
    kafka.admin.create_topic(topic)
    values = [b"%d" % number * 20 for number in range(50)]
    (answer,) = here.store(make_batch(values, to=TopicPartition(topic, 0), compression=compression))
    assert answer.error is None
    assert consume_values(settings(kafka), topic) == {0: values}


def test_a_batch_that_comes_twice_is_stored_once(kafka: KafkaCluster, here: Wire, topic: str) -> None:
    kafka.admin.create_topic(topic)
    producer_id, epoch = here.producer_id()
    offsets = []
    for sequence in (0, 1, 0, 2):
        batch = make_batch([b"%d" % sequence], to=TopicPartition(topic, 0), producer_id=producer_id, sequence=sequence)
        (answer,) = here.store(batch)
        assert answer.error is None
        offsets.append(answer.base_offset)
    assert offsets == [0, 1, 0, 2]
    assert consume_values(settings(kafka), topic) == {0: [b"0", b"1", b"2"]}
    assert epoch == 0


def test_the_brokers_time(kafka: KafkaCluster, here: Wire, topic: str) -> None:
    """A topic that stamps records itself says when."""
    kafka.admin.create_topic(topic, settings={"message.timestamp.type": "LogAppendTime"})
    (answer,) = here.store(make_batch([b"value"], to=TopicPartition(topic, 0)))
    (record,) = consume(settings(kafka), topic)[0]
    assert record.timestamp()[1] == answer.log_append_time_ms > 1_600_000_000_000


Refused = tuple[type[Exception], tuple[int, ...]]


@pytest.mark.parametrize(
    ("config", "batch", "expected"),
    [
        ({"max.message.bytes": 1000}, {"values": [bytes(2000)]}, (RecordTooLargeError, ())),
        ({"cleanup.policy": "compact"}, {"values": [b"x", b"y"]}, (InvalidRecordError, (0, 1))),
        (
            {"message.timestamp.before.max.ms": 60_000},
            {"values": [b"x", b"y"], "first_timestamp": 1000},
            (InvalidTimestampError, (0, 1)),
        ),
        ({}, {"values": [b"x"], "producer_id": 1, "sequence": 5}, (OutOfOrderSequenceError, ())),
    ],
    ids=lambda value: next(iter(value), "sequence") if isinstance(value, dict) else "",
)
def test_what_a_broker_refuses(
    kafka: KafkaCluster, here: Wire, topic: str, config: dict[str, object], batch: dict[str, Any], expected: Refused
) -> None:
    kafka.admin.create_topic(topic, settings=config)
    to = TopicPartition(topic, 0)
    if batch.get("producer_id"):
        producer_id, _ = here.producer_id()
        batch = batch | {"producer_id": producer_id}
        here.store(make_batch([b"first"], to=to, producer_id=producer_id, sequence=0))
    (answer,) = here.store(make_batch(**batch, to=to))
    assert (answer.error, tuple(answer.invalid_records)) == expected
    assert f"for {topic}-0" in answer.message


def test_an_old_epoch(kafka: KafkaCluster, here: Wire, topic: str) -> None:
    kafka.admin.create_topic(topic)
    producer_id, _ = here.producer_id()

    def batch(epoch: int) -> ProduceBatch:
        return make_batch([b"x"], to=TopicPartition(topic, 0), producer_id=producer_id, sequence=0, epoch=epoch)

    assert here.store(batch(1))[0].error is None
    assert here.store(batch(0))[0].error is InvalidProducerEpochError


def test_producer_ids_differ(here: Wire) -> None:
    assert here.producer_id() != here.producer_id()


def test_a_topic_that_is_made_later(kafka: KafkaCluster, here: Wire, topic: str) -> None:
    """The test's broker creates no topics, so producers wait up to ``max.block.ms``."""
    here.transport.request_update([topic])
    errors = here.until(lambda: here.transport.cluster().topic_errors)
    assert errors == {topic: UnknownTopicOrPartitionError}
    kafka.admin.create_topic(topic, partitions=2)
    assert here.until(lambda: here.transport.cluster().partition_counts) == {topic: 2}


def test_a_topic_that_is_deleted(kafka: KafkaCluster, here: Wire, topic: str) -> None:
    kafka.admin.create_topic(topic)
    to = TopicPartition(topic, 0)
    node = here.connect(to)
    kafka.admin.delete_topic(topic)
    here.transport.send(node, [make_batch([b"x"], to=to)], now_ms())
    assert here.take(1)[0].error is UnknownTopicOrPartitionError
    here.transport.request_update([topic])
    here.until(lambda: here.transport.cluster().leader_for(to) is None)
    assert here.transport.cluster().partition_counts == {}


def test_a_topic_that_is_made_again(kafka: KafkaCluster, here: Wire, topic: str) -> None:
    """Its leader epoch starts over, below the known one (KIP-320)."""
    kafka.admin.create_topic(topic)
    to = TopicPartition(topic, 0)
    here.leader(to)
    here.transport._metadata._epochs[to] = 1000
    kafka.admin.delete_topic(topic)
    kafka.admin.create_topic(topic)
    here.transport.request_update([topic])
    here.until(lambda: here.transport._metadata._epochs.get(to) == 0)
    assert here.store(make_batch([b"x"], to=to))[0].error is None


def test_a_name_that_no_topic_can_have(here: Wire) -> None:
    here.transport.request_update(["no/topic"])
    assert here.until(lambda: here.transport.cluster().topic_errors) == {"no/topic": InvalidTopicError}


def test_a_quota_is_obeyed(kafka: KafkaCluster, here: Wire, topic: str) -> None:
    kafka.admin.create_topic(topic)
    to = TopicPartition(topic, 0)
    kafka.admin.throttle(10_000)
    try:
        node = here.connect(to)
        while here.transport._brokers.delay_ms(node, now_ms()) in (0, float("inf")):
            here.store(make_batch([bytes(50_000)], to=to))
        assert not here.transport.ready(node, now_ms())
    finally:
        kafka.admin.throttle(None)
