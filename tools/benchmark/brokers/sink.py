"""The sink that only acknowledges (`tools.sink`), as one of the brokers."""

from __future__ import annotations

from multiprocessing.connection import Connection

from tools.sink import Sink


class SinkService:
    """A sink, and what its counts were when a topic was made; see `Service`."""

    def __init__(self) -> None:
        self._sink = Sink()
        self.servers = self._sink.servers
        self._records_before: dict[str, int] = {}

    def create_topic(self, topic: str, partitions: int) -> None:
        """Know a topic, on connections that are still to come."""
        self._sink.partitions[topic] = partitions
        self._records_before[topic] = self.counts()["records"]

    def delete_topic(self, topic: str) -> None:
        """Forget a topic."""
        del self._sink.partitions[topic], self._records_before[topic]

    def records(self, topic: str) -> int:
        """Return how many records have come since the topic was made: there is one topic at a time."""
        return self.counts()["records"] - self._records_before[topic]

    def counts(self) -> dict[str, int]:
        """Return the sums of what all connections carried."""
        return self._sink.counters.totals()

    def wait(self, link: Connection) -> None:
        """Take connections until the tool says something."""
        self._sink.serve_until(link)
