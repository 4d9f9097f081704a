"""Counts a topic's records by its end offsets, with confluent-kafka's consumer."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, TopicPartition

TIMEOUT_S: Final = 30.0


def end_offsets(servers: str, topic: str) -> int:
    """Return the sum of a topic's end offsets; its partitions begin at 0."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "benchmark", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        ends = (
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=TIMEOUT_S) for number in partitions
        )
        return sum(end for _, end in ends)
    finally:
        consumer.close()
