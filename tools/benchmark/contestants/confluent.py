"""confluent-kafka: librdkafka behind a C extension."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tools.benchmark.contestants.base import Told
from tools.benchmark.load import Load
from tools.benchmark.settings import Settings, for_confluent

_ANY_PARTITION = -1
_POLL_EVERY = 1000
"""Records between polls; without polling, delivered records continue to count against the queue's limit."""
_FULL_QUEUE_WAIT_S = 0.01


class ConfluentClient:
    """Calls `produce` for every record, and polls for delivery reports periodically."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers} | self.configuration(settings))
        self._acknowledged = 0

    def configuration(self, settings: Settings) -> dict[str, Any]:
        """Return the settings by librdkafka's names."""
        return for_confluent(settings)

    def send(self, load: Load) -> int | None:
        """Send records, and wait for them (`Client`)."""
        self._acknowledged = 0
        produce, poll, topic = self._producer.produce, self._producer.poll, load.topic
        on_delivery = self._count if load.keep else None
        until_poll = _POLL_EVERY
        for value, key, partition in load.calls(_ANY_PARTITION):
            while True:
                try:
                    produce(topic, value, key, partition, on_delivery)
                    break
                except BufferError:
                    poll(_FULL_QUEUE_WAIT_S)
            until_poll -= 1
            if not until_poll:
                poll(0)
                until_poll = _POLL_EVERY
        self._producer.flush()
        return self._acknowledged if load.keep else None

    def _count(self, error: KafkaError | None, message: Message) -> None:
        self._acknowledged += error is None

    def send_one(self, topic: str, value: bytes, told: Told) -> None:
        """Send a record (`PacedClient`)."""
        self._producer.produce(topic, value, on_delivery=lambda error, _: told(error is None))

    def poll(self, timeout_s: float) -> None:
        """Wait for a record's result."""
        self._producer.poll(timeout_s)

    def flush(self) -> None:
        """Wait for the results of all records."""
        self._producer.flush()

    def close(self) -> None:
        """Close it."""
        self._producer.flush()


class DefaultsClient(ConfluentClient):
    """The same with librdkafka's own defaults, such as batches of up to 1 MB and no idempotence."""

    def configuration(self, settings: Settings) -> dict[str, Any]:
        """Return no settings, but for silence."""
        return {"log_level": 0}
