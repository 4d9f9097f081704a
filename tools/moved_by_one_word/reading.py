"""What is in a topic, read by confluent-kafka, which shares no code with the two that write."""

from __future__ import annotations

from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

PATIENCE_S: Final = 60.0


class Record(NamedTuple):
    """A record as it was found, but for its time."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Found = dict[int, list[Record]]
"""Partition -> its records in their order."""


def read(servers: str, topic: str) -> Found:
    """Return what is in a topic, from its beginning to its end; nothing if there is no such topic.

    Raises:
        KafkaException: what the cluster answers instead, or that it answers nothing.
    """
    settings = {"group.id": "moved-by-one-word", "enable.partition.eof": True, "fetch.wait.max.ms": 10, "log_level": 0}
    consumer = Consumer(settings | {"bootstrap.servers": servers})
    try:
        metadata = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        if metadata.error is not None:
            if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return {}
            raise KafkaException(metadata.error)
        found: Found = {partition: [] for partition in sorted(metadata.partitions)}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
        unfinished = set(found)
        while unfinished:
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise KafkaException(f"nothing comes from partitions {unfinished} of {topic}")
            error = message.error()
            if error is None:
                headers = tuple(message.headers() or ())
                found[message.partition()].append(Record(message.key(), message.value(), headers))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found
