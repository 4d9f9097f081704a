"""The transport for brokers by hand: a sender's steps, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from batches import make_batch
from processes import PATIENCE_S

from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import NotLeaderOrFollowerError
from shmaccum.sender.kafka.kafka_transport import KafkaTransport
from tools.kafka import KafkaCluster


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Wire:
    """Takes the sender's steps one at a time.

    Attributes:
        transport: started.
        answers: those that came and were not asked for yet.
    """

    def __init__(self, servers: str, settings: dict[str, object]) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.config = ProducerConfig.parse({"bootstrap.servers": servers, "client.id": "wire"} | given)
        self.transport = KafkaTransport(self.config)
        self.transport.start()
        self.answers: list[ProduceResponse] = []

    def poll(self, timeout_ms: float = 100) -> None:
        self.answers += self.transport.poll(timeout_ms, -1)

    def until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            assert time.monotonic() < deadline, "it does not come about"
            self.poll()
        return found

    def ask_until(self, condition: Callable[[], Any]) -> Any:
        """Ask about topic "t", and poll until a condition holds; return what it said."""
        self.transport.request_update(["t"])
        return self.until(condition)

    def leader(self, to: TopicPartition) -> Node:
        if self.transport.cluster().leader_for(to) is None:
            self.transport.request_update([to.topic])
        node: Node = self.until(lambda: self.transport.cluster().leader_for(to))
        return node

    def connect(self, to: TopicPartition) -> Node:
        node = self.leader(to)
        self.until(lambda: self.transport.ready(node, now_ms()))
        return node

    def send(self, *batches: ProduceBatch) -> Node:
        """Send a request to the leader of the first batch's partition, and do not wait for its answer."""
        node = self.connect(batches[0].topic_partition)
        self.transport.send(node, batches, now_ms())
        return node

    def take(self, count: int) -> list[ProduceResponse]:
        self.until(lambda: len(self.answers) >= count)
        taken, self.answers = self.answers[:count], self.answers[count:]
        return taken

    def ask(self, *batches: ProduceBatch) -> list[ProduceResponse]:
        """Send a request, and wait for its answers; they are returned in the order of the batches."""
        self.send(*batches)
        return sorted(self.take(len(batches)), key=lambda answer: batches.index(answer.batch))

    def store(self, *batches: ProduceBatch) -> list[ProduceResponse]:
        """Send a request as often as its topic is too new for the broker to know that it leads it."""
        while True:
            answers = self.ask(*batches)
            if NotLeaderOrFollowerError not in {answer.error for answer in answers}:
                return answers

    def producer_id(self) -> tuple[int, int]:
        answer: tuple[int, int] = self.until(self.transport.init_producer_id)
        return answer


def assert_stores(wire: MakeWire, cluster: KafkaCluster, topic: str, **settings: object) -> None:
    """Create a topic, and store a batch in it with these settings; ``servers`` can be another listener's."""
    cluster.admin.create_topic(topic)
    here = wire(**{"servers": cluster.bootstrap_servers} | settings)
    assert here.store(make_batch([b"x"], to=TopicPartition(topic, 0)))[0].error is None


def start_transport(**settings: object) -> None:
    """Start a transport to no broker at all, to see what is said of its settings."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    KafkaTransport(ProducerConfig.parse({"bootstrap.servers": "127.0.0.1:9092"} | given)).start()


MakeWire = Callable[..., Wire]
"""``make(servers, **settings)``; in the names of settings ``_`` stands for Kafka's ``.``."""
