"""kafka-python: pure Python, with a thread of its own."""

from __future__ import annotations

from kafka import KafkaProducer

from tools.benchmark.load import Load
from tools.benchmark.settings import Settings, for_kafka_python


class KafkaPythonClient:
    """Calls `send` for every record."""

    def __init__(self, servers: str, settings: Settings, name: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=servers, **for_kafka_python(settings))

    def send(self, load: Load) -> int | None:
        """Send records, and wait for them (`Client`)."""
        send, topic = self._producer.send, load.topic
        if load.keep:
            futures = [send(topic, value, key, None, partition) for value, key, partition in load.calls()]
            self._producer.flush()
            return sum(1 for future in futures if future.succeeded())
        for value, key, partition in load.calls():
            send(topic, value, key, None, partition)
        self._producer.flush()
        return None

    def close(self) -> None:
        """Close it."""
        self._producer.close()
