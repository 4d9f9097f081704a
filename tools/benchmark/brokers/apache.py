"""Apache Kafka: brokers from `tools.kafka`, with JVM options for load instead of a fast start."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tools.benchmark.settings import MEBIBYTE
from tools.kafka import KafkaCluster, ensure_kafka
from tools.kafka.jvm import FOR_LOAD

_OVERRIDES: Final = {
    "message.max.bytes": 4 * MEBIBYTE,
    "socket.request.max.bytes": 100 * MEBIBYTE,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.retention.check.interval.ms": 3_600_000,
}
_DELETE_AT_ONCE: Final = {"file.delete.delay.ms": 100}
_TIMEOUT_S: Final = 30.0
_MARKERS_S: Final = 10.0


class ApacheService:
    """A cluster; a topic has up to three replicas; see `Service`."""

    def __init__(self, directory: Path, nodes: int) -> None:
        ensure_kafka()
        self._cluster = KafkaCluster(directory, nodes, overrides=_OVERRIDES, jvm_options=FOR_LOAD)
        self._cluster.start()
        self.servers = self._cluster.bootstrap_servers

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        self._cluster.admin.create_topic(topic, partitions, settings=_DELETE_AT_ONCE)

    def delete_topic(self, topic: str) -> None:
        """Remove a topic."""
        self._cluster.admin.delete_topic(topic)

    def records(self, topic: str) -> int:
        """Return the sum of the topic's end offsets; its partitions begin at 0."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "benchmark", "log_level": 0})
        try:
            numbers = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
            spans = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=_TIMEOUT_S) for n in numbers]
            return sum(end for _, end in spans)
        finally:
            consumer.close()

    def committed(self, topic: str, expected: int) -> int:
        """Return how many records of a topic `read_committed` consumers see.

        The answer to a commit comes before its markers are in the partitions, so it waits until the records are
        expected, or until none has come for `_MARKERS_S`.
        """
        settings = {"bootstrap.servers": self.servers, "group.id": "benchmark", "log_level": 0}
        consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.auto.commit": False})
        try:
            numbers = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
            found, deadline = 0, time.monotonic() + _MARKERS_S
            while found < expected and time.monotonic() < deadline:
                messages = [each for each in consumer.consume(10_000, timeout=0.1) if each.error() is None]
                if messages:
                    found, deadline = found + len(messages), time.monotonic() + _MARKERS_S
            return found + sum(each.error() is None for each in consumer.consume(10_000, timeout=0.1))
        finally:
            consumer.close()

    def counts(self) -> dict[str, int]:
        """Return nothing: Apache Kafka does not count here."""
        return {}

    def wait(self, link: Connection) -> None:
        """Wait for the tool's next message."""
        link.poll(None)
