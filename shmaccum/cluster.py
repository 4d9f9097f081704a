"""Topics, partitions and nodes: the types of ``org.apache.kafka.common`` that all layers use.

This module is at the bottom: it imports nothing of the package but its errors.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shmaccum.errors import InvalidTopicError

MAX_TOPIC_LENGTH: Final = 249
"""Kafka's limit: the name must fit a directory's name together with ``-<partition>``."""

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is stored (``org.apache.kafka.clients.producer.RecordMetadata``)."""

    topic: str
    partition: int
    offset: int
    """Offset in the partition; -1 with ``acks=0``, where it is unknown."""
    timestamp: int
    """Milliseconds since the epoch: the record's own, or the broker's under LogAppendTime."""
    serialized_key_size: int = -1
    """Bytes of the key, serialized and uncompressed; -1 for a null."""
    serialized_value_size: int = -1
    """Bytes of the value, likewise."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's partition."""
        return TopicPartition(self.topic, self.partition)


class OffsetAndMetadata(NamedTuple):
    """An offset to commit for a partition (``org.apache.kafka.clients.consumer.OffsetAndMetadata``)."""

    offset: int
    """Of the next record to read."""
    metadata: str = ""
    """Any text."""
    leader_epoch: int = -1
    """Of the last record that was read; -1 if not known."""


class ConsumerGroupMetadata(NamedTuple):
    """A consumer group's member (``org.apache.kafka.clients.consumer.ConsumerGroupMetadata``).

    Objects of other classes with these attributes do as well.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


_CONNECTION_SHIFT: Final = 32


class Node(NamedTuple):
    """A broker, by one of our connections to it; the log transport has a single node, of id 0."""

    id: int
    """The broker's, and in the upper half the number of the connection: 0 for the first."""
    host: str = ""
    port: int = -1

    @property
    def broker(self) -> int:
        """Id of the broker; below 0 for an address of ``bootstrap.servers``."""
        return broker_of(self.id) if self.id >= 0 else self.id

    @property
    def is_further(self) -> bool:
        """Whether it is not the first connection."""
        return self.id >> _CONNECTION_SHIFT > 0

    def by_connection(self, number: int) -> Node:
        """Return the same broker by another connection."""
        return self._replace(id=connection_id(self.broker, number))

    @property
    def address(self) -> str:
        """Host and port, as in ``bootstrap.servers``: an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def connection_id(broker: int, number: int) -> int:
    """Return the id of the node for a connection to a broker."""
    return broker + (number << _CONNECTION_SHIFT)


def broker_of(node: int) -> int:
    """Return the id of a broker from a node's."""
    return node & (1 << _CONNECTION_SHIFT) - 1


def check_topic(topic: object) -> str:
    """Return ``topic`` if Kafka allows it as a topic's name (``Topic.validate``).

    Raises:
        InvalidTopicError: says which rule the name breaks.
    """
    if not isinstance(topic, str):
        raise InvalidTopicError(f"topic must be a str, not {type(topic).__name__}: {topic!r}")
    if topic in ("", ".", ".."):
        raise InvalidTopicError(f"topic {topic!r} is not allowed: it must not be empty, '.' or '..'")
    if len(topic) > MAX_TOPIC_LENGTH:
        raise InvalidTopicError(
            f"topic {topic[:40]!r}... is {len(topic)} characters long; at most {MAX_TOPIC_LENGTH} are allowed"
        )
    if not _LEGAL_TOPIC.fullmatch(topic):
        raise InvalidTopicError(
            f"topic {topic!r} is not allowed: only ASCII letters, digits, '.', '_' and '-' may be used"
        )
    return topic
