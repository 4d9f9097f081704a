"""The sink that only acknowledges (`tools.sink`), as one of the brokers."""

from __future__ import annotations

from multiprocessing.connection import Connection

from tools.sink import Sink


class SinkService:
    """A sink, with its counts at the creation of the topic; see `Service`."""

    def __init__(self) -> None:
        self._sink = Sink()
        self.servers = self._sink.servers
        self._records_before: dict[str, int] = {}

    def create_topic(self, topic: str, partitions: int) -> None:
        """Register a topic, for new connections."""
        self._sink.partitions[topic] = partitions
        self._records_before[topic] = self.counts()["records"]

    def delete_topic(self, topic: str) -> None:
        """Forget a topic."""
        del self._sink.partitions[topic], self._records_before[topic]

    def records(self, topic: str) -> int:
        """Return how many records have arrived since the topic was created; there is one topic at a time."""
        return self.counts()["records"] - self._records_before[topic]

    def committed(self, topic: str, expected: int) -> int:
        """Return `records`: the sink knows no transactions."""
        return self.records(topic)

    def counts(self) -> dict[str, int]:
        """Return the sums over all connections."""
        return self._sink.counters.totals()

    def wait(self, link: Connection) -> None:
        """Serve connections until the tool sends a message."""
        self._sink.serve_until(link)
