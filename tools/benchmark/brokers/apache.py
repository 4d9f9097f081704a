"""Apache Kafka: one broker from `tools.kafka`, with JVM options for load instead of a fast start."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from tools.benchmark.settings import MEBIBYTE
from tools.kafka import KafkaCluster, ensure_kafka

_JVM_OPTIONS: Final = ("-Xmx1g", "-XX:TieredStopAtLevel=4", "-XX:+UseSerialGC", "-Xlog:cds=off")
_OVERRIDES: Final = {
    "message.max.bytes": 4 * MEBIBYTE,
    "socket.request.max.bytes": 100 * MEBIBYTE,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.retention.check.interval.ms": 3_600_000,
}
_DELETE_AT_ONCE: Final = {"file.delete.delay.ms": 100}
_TIMEOUT_S: Final = 30.0


class ApacheService:
    """A cluster of one node; see `Service`."""

    def __init__(self, directory: Path) -> None:
        ensure_kafka()
        self._cluster = KafkaCluster(directory, overrides=_OVERRIDES)
        self._cluster.start(_JVM_OPTIONS)
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

    def counts(self) -> dict[str, int]:
        """Return nothing: Apache Kafka does not count here."""
        return {}

    def wait(self, link: Connection) -> None:
        """Wait for the tool's next message."""
        link.poll(None)
