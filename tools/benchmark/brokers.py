"""The brokers that contestants send to, each in processes of its own."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.benchmark.remote import Remote
from tools.benchmark.settings import MEBIBYTE
from tools.support.processes import Children

if TYPE_CHECKING:
    from confluent_kafka import Consumer

APACHE: Final = "apache"
SINK: Final = "sink"
FIVE: Final = "apache-5"
TLS: Final = "apache-tls"
MOCK: Final = {delay_ms: f"mock-{delay_ms}" for delay_ms in (0, 2, 5, 20, 100)}
FAR: Final = {delay_ms: f"far-{delay_ms}" for delay_ms in (20, 50, 100)}
WINDOW: Final = {delay_ms: f"window-{delay_ms}" for delay_ms in (5, 20)}
TITLES: Final = {
    APACHE: "Apache Kafka",
    FIVE: "five brokers of Apache Kafka",
    TLS: "Apache Kafka with TLS",
    SINK: "the sink that only acknowledges",
    **{kind: f"librdkafka's mock cluster, {delay_ms} ms away" for delay_ms, kind in MOCK.items()},
    **{kind: f"Apache Kafka, {delay_ms} ms away" for delay_ms, kind in FAR.items()},
    **{kind: f"Apache Kafka, {delay_ms} ms away, 100 KiB a round trip" for delay_ms, kind in WINDOW.items()},
}
_RECEIVE_BUFFER: Final = 102_400
"""Kafka's default of ``socket.receive.buffer.bytes``."""
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


class Broker(Remote):
    """A running broker, whose methods are those of the classes below; ``servers`` is for ``bootstrap.servers``."""

    def __init__(self, kind: str, children: Children, directory: Path) -> None:
        super().__init__(children, TITLES[kind], lambda: _service(kind, directory))
        self.servers: str = self.call("address")


def authority(directory: Path, kind: str) -> str:
    """Return the certificate of the authority of a broker with TLS, given the directory of all; empty for others."""
    return str(directory / kind / "tls" / "ca.pem") if kind == TLS else ""


def _service(kind: str, directory: Path) -> object:
    name, _, delay_ms = kind.partition("-")
    match name:
        case "sink":
            return _Sink()
        case "mock":
            return _Mock(int(delay_ms))
        case "far":
            return _Apache(directory, delay_ms=int(delay_ms))
        case "window":
            return _Apache(directory, delay_ms=int(delay_ms), window=_RECEIVE_BUFFER)
        case _:
            return _Apache(directory, nodes=5 if kind == FIVE else 1, tls=kind == TLS)


class _Uncounted:
    """A broker that does not count what it does."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Leave it to the broker, which makes topics as they are asked for."""

    def delete_topic(self, topic: str) -> None:
        """Leave it."""

    def counts(self) -> dict[str, int]:
        return {}


class _Apache(_Uncounted):
    """Apache Kafka, with JVM options for load instead of a fast start; a topic has up to three replicas.

    With a delay, a proxy answers each request by so much later, and lets a window of bytes through meanwhile.
    """

    def __init__(
        self, directory: Path, *, nodes: int = 1, tls: bool = False, delay_ms: int = 0, window: int = 0
    ) -> None:
        from tools.kafka import KafkaCluster, ensure_kafka, make_certificates
        from tools.kafka.jvm import FOR_LOAD

        ensure_kafka()
        options: dict[str, Any] = {"overrides": _OVERRIDES, "jvm_options": FOR_LOAD}
        certificates = make_certificates(directory / "tls") if tls else None
        self._cluster = KafkaCluster(directory, nodes, certificates=certificates, **options)
        if delay_ms:
            from tools.support.proxy import Proxy

            (proxied,) = self._cluster.nodes.values()
            proxied.advertised_port = Proxy(proxied.port, delay_s=delay_ms / 1000, window=window).port
        self._cluster.start()

    def address(self) -> str:
        return self._cluster.bootstrap_servers

    def create_topic(self, topic: str, partitions: int) -> None:
        self._cluster.admin.create_topic(topic, partitions, settings=_DELETE_AT_ONCE)

    def delete_topic(self, topic: str) -> None:
        self._cluster.admin.delete_topic(topic)

    def records(self, topic: str) -> int:
        """Return the sum of the topic's end offsets; its partitions begin at 0."""
        from confluent_kafka import TopicPartition

        consumer, numbers = self._consumer(topic)
        spans = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=_TIMEOUT_S) for n in numbers]
        consumer.close()
        return sum(end for _, end in spans)

    def committed(self, topic: str, expected: int) -> int:
        """Wait until the records are expected, or until none has come for `_MARKERS_S`.

        The answer to a commit comes before its markers are in the partitions.
        """
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        consumer, numbers = self._consumer(topic)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
        found, deadline = 0, time.monotonic() + _MARKERS_S
        while found < expected and time.monotonic() < deadline:
            if some := self._consumed(consumer):
                found, deadline = found + some, time.monotonic() + _MARKERS_S
        found += self._consumed(consumer)
        consumer.close()
        return found

    def _consumer(self, topic: str) -> tuple[Consumer, list[int]]:
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": self._cluster.internal_servers, "group.id": "benchmark", "log_level": 0}
        consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.auto.commit": False})
        return consumer, list(consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)

    def _consumed(self, consumer: Consumer) -> int:
        return sum(message.error() is None for message in consumer.consume(10_000, timeout=0.1))


class _Mock(_Uncounted):
    """librdkafka's mock cluster, whose topics have four partitions."""

    def __init__(self, delay_ms: int) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
        self._keeper = Producer(settings | {"test.mock.broker.rtt": delay_ms})

    def address(self) -> str:
        (node,) = self._keeper.list_topics(timeout=10).brokers.values()
        return f"{node.host}:{node.port}"


class _Sink:
    """The sink that only acknowledges (`tools.sink`); it counts from the creation of the topic, one at a time."""

    def __init__(self) -> None:
        from tools.sink import Sink

        self._sink = Sink()
        self._records_before: dict[str, int] = {}

    def address(self) -> str:
        return self._sink.servers

    def create_topic(self, topic: str, partitions: int) -> None:
        self._sink.partitions[topic] = partitions
        self._records_before[topic] = self.counts()["records"]

    def delete_topic(self, topic: str) -> None:
        del self._sink.partitions[topic], self._records_before[topic]

    def records(self, topic: str) -> int:
        return self.counts()["records"] - self._records_before[topic]

    def counts(self) -> dict[str, int]:
        """Return its counts of connections, requests, batches and bytes."""
        return self._sink.counters.totals()

    def wait(self, link: Connection) -> None:
        """Serve connections until the tool calls."""
        self._sink.serve_until(link)
