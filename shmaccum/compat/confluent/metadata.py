"""The cluster as ``list_topics`` shows it, asked by this process itself: the sender knows only topics in use."""

from __future__ import annotations

from typing import Any, Final

from shmaccum.compat.confluent.errors import KafkaError
from shmaccum.config import ProducerConfig
from shmaccum.errors import error_for_code
from shmaccum.kafka.connection import Connection
from shmaccum.kafka.handshake import Call
from shmaccum.kafka.messages import METADATA
from shmaccum.transactions.broker_client import BrokerClient, call
from shmaccum.transactions.coordinator import deadline_after

_LARGEST_ANSWER: Final = 256 << 20


class _Shown:
    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class BrokerMetadata(_Shown):
    """A broker: its ``id``, ``host`` and ``port``."""

    def __init__(self, number: int, host: str, port: int) -> None:
        self.id, self.host, self.port = number, host, port

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


class PartitionMetadata(_Shown):
    """A partition: its ``id``, ``leader``, ``replicas``, ``isrs``, and ``error`` or None."""

    def __init__(self, answer: Any) -> None:
        self.id, self.leader = answer.partition_index, answer.leader_id
        self.replicas, self.isrs = list(answer.replica_nodes), list(answer.isr_nodes)
        self.error = _error(answer.error_code)

    def __str__(self) -> str:
        return str(self.id)


class TopicMetadata(_Shown):
    """A topic: its name (``topic``), its ``partitions`` by number, and ``error`` or None."""

    def __init__(self, answer: Any) -> None:
        self.topic = answer.name
        self.partitions = {each.partition_index: PartitionMetadata(each) for each in answer.partitions}
        self.error = _error(answer.error_code)

    def __str__(self) -> str:
        return str(self.topic)


class ClusterMetadata(_Shown):
    """The cluster: ``cluster_id``, ``controller_id``, ``brokers`` by id, ``topics`` by name."""

    def __init__(self, answer: Any) -> None:
        self.cluster_id: str | None = answer.cluster_id
        self.controller_id: int = answer.controller_id
        self.brokers = {each.node_id: BrokerMetadata(each.node_id, each.host, each.port) for each in answer.brokers}
        self.topics = {each.name: TopicMetadata(each) for each in answer.topics}
        self.orig_broker_id, self.orig_broker_name = -1, None

    def __str__(self) -> str:
        return str(self.cluster_id)


def cluster_metadata(config: ProducerConfig, topics: list[str] | None, timeout_s: float) -> ClusterMetadata:
    """Ask a broker for the cluster's metadata, of all topics if None, on a connection for this call.

    Raises KafkaError: no broker answered in time, or the cluster refuses us.
    """
    named = None if topics is None else [{"name": name} for name in topics]

    def make(connection: Connection) -> Call:
        request = METADATA.of(topics=named, allow_auto_topic_creation=True)
        return call(request, connection, oldest=1, newest=12, largest_answer=_LARGEST_ANSWER)

    with BrokerClient(config) as client:
        return ClusterMetadata(client.ask(None, make, deadline_after(timeout_s * 1000)))


def _error(code: int) -> Any:
    return KafkaError(code, error_for_code(code).meaning()) if code else None
