"""librdkafka's mock: brokers in the memory of a producer, with little more behind them than the protocol."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Final

from confluent_kafka import Producer

from tools.benchmark.brokers.offsets import TIMEOUT_S, end_offsets

PARTITIONS: Final = 4
"""Of every topic: the mock's own default."""


class MockService:
    """A mock cluster of one broker; see `Service`."""

    def __init__(self) -> None:
        self._keeper = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
        brokers = self._keeper.list_topics(timeout=TIMEOUT_S).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def create_topic(self, topic: str, partitions: int) -> None:
        """Have the mock make it: it does when it is asked about one."""
        if partitions != PARTITIONS:
            raise ValueError(f"a topic of the mock has {PARTITIONS} partitions, not {partitions}")
        self._keeper.list_topics(topic, timeout=TIMEOUT_S)

    def delete_topic(self, topic: str) -> None:
        """Do nothing: it goes with the mock."""

    def records(self, topic: str) -> int:
        """Return the sum of the topic's end offsets."""
        return end_offsets(self.servers, topic)

    def counts(self) -> dict[str, int]:
        """Return nothing: it does not count."""
        return {}

    def wait(self, link: Connection) -> None:
        """Wait for what the tool says."""
        link.poll(None)
