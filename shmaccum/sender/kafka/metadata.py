"""What is known of the cluster: which topics are asked about, when, and what came of it (Kafka's ``Metadata``).

It says when to ask (`due_ms`) and what (`request`), and is told the answer; it sends nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Any

from shmaccum.cluster import Cluster, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, error_for_code
from shmaccum.sender.kafka.backoff import ExponentialBackoff
from shmaccum.sender.kafka.clock import FOREVER_MS
from shmaccum.sender.kafka.kafka_python import MetadataRequest
from shmaccum.sender.kafka.produce_response import LeaderHint, node_at

logger = logging.getLogger(__name__)


class Metadata:
    """Keeps what is known of the topics in use.

    Args:
        config: the settings.

    Attributes:
        cluster: what is known now; replaced by another object whenever any of it changes.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self.cluster = Cluster()
        self._max_age_ms = config.metadata_max_age_ms
        self._max_idle_ms = config.metadata_max_idle_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._used_ms: dict[str, float] = {}
        """The topics in use, and when each was last used."""
        self._epochs: dict[TopicPartition, int] = {}
        """The leader's epoch by which a partition's leader is known."""
        self._topic_ids: dict[str, object] = {}
        self._under_way = False
        self._needed = False
        self._attempts = 0
        """Requests in a row that did not tell all that was asked."""
        self._not_before_ms = 0.0
        self._refreshed_ms = 0.0

    # --- when to ask --------------------------------------------------------------------------------

    def request_update(self, topics: Collection[str], now_ms: float) -> None:
        """Have these topics asked about: at once if one of them is new, otherwise when the last attempt allows."""
        self._needed = True
        if not self._used_ms.keys() >= set(topics):
            self._not_before_ms = now_ms
        for topic in topics:
            self._used_ms[topic] = now_ms
        self._forget_counts(topics)

    def doubt(self) -> None:
        """Note that what is known may not be so any more: ask when the last attempt allows, if anything is in use."""
        self._needed |= bool(self._used_ms)

    def _forget_counts(self, topics: Iterable[str]) -> None:
        """Take back what the last answer said of topics: whoever asks again is to be told by the next one.

        The leaders stay: what is sent meanwhile goes by them.
        """
        if not any(name in self.cluster.partition_counts or name in self.cluster.topic_errors for name in topics):
            return
        counts = {name: count for name, count in self.cluster.partition_counts.items() if name not in topics}
        errors = {name: error for name, error in self.cluster.topic_errors.items() if name not in topics}
        self._replace(Cluster(self.cluster.nodes, counts, self.cluster.leaders, errors))

    def use(self, topic: str, now_ms: float) -> None:
        """Note that something is sent to a topic."""
        if topic in self._used_ms:
            self._used_ms[topic] = now_ms

    def due_ms(self) -> float:
        """Return when to ask next."""
        if self._under_way:
            return FOREVER_MS
        if self._needed:
            return self._not_before_ms
        return max(self._refreshed_ms + self._max_age_ms, self._not_before_ms) if self._used_ms else FOREVER_MS

    def request(self, now_ms: float) -> Any:
        """Return the request to send now, about the topics in use.

        It also makes topics that are not there, where the brokers do that (``auto.create.topics.enable``).
        """
        self._forget_idle(now_ms)
        self._under_way = True
        self._needed = False
        topics = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in sorted(self._used_ms)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=True)

    def _forget_idle(self, now_ms: float) -> None:
        idle = {topic for topic, used_ms in self._used_ms.items() if now_ms - used_ms >= self._max_idle_ms}
        for topic in idle:
            del self._used_ms[topic]
            self._topic_ids.pop(topic, None)
        if idle:
            known = self.cluster
            self._forget_counts(idle)
            leaders = {where: leader for where, leader in known.leaders.items() if where.topic not in idle}
            self._epochs = {where: epoch for where, epoch in self._epochs.items() if where.topic not in idle}
            self._replace(Cluster(known.nodes, self.cluster.partition_counts, leaders, self.cluster.topic_errors))

    # --- what came of it ----------------------------------------------------------------------------

    def failed(self, now_ms: float) -> None:
        """Note that a request was not answered."""
        self._under_way = False
        self._needed = True
        self._again(now_ms)

    def update(self, response: Any, now_ms: float) -> None:
        """Take over an answer. What it says of topics that are not in use any more is left out.

        Raises:
            NetworkError: it cannot be so.
        """
        nodes = {broker.node_id: node_at(broker.node_id, broker.host, broker.port) for broker in response.brokers}
        self._under_way = False
        self._refreshed_ms = now_ms
        known = self.cluster
        topics = [topic for topic in response.topics if topic.name in self._used_ms]
        names = {topic.name for topic in topics}
        counts = {name: count for name, count in known.partition_counts.items() if name not in names}
        errors = {name: error for name, error in known.topic_errors.items() if name not in names}
        leaders = {where: leader for where, leader in known.leaders.items() if where.topic not in names}
        complete = bool(nodes)
        for topic in topics:
            error = error_for_code(topic.error_code) if topic.error_code else None
            if error is None:
                counts[topic.name] = len(topic.partitions)
                of_topic = self._leaders(topic)
                leaders |= {where: leader for where, leader in of_topic.items() if leader in nodes}
                complete &= nodes.keys() >= set(of_topic.values())
            else:
                errors[topic.name] = error
                complete &= not error.retriable
                logger.warning("no metadata of topic %r: %s", topic.name, error.__name__)
        if complete:
            self._attempts = 0
            self._not_before_ms = now_ms + self._backoff.wait_ms(1)
        else:
            self._needed = True
            self._again(now_ms)
        self._replace(Cluster(nodes or known.nodes, counts, leaders, errors))

    def _leaders(self, topic: Any) -> dict[TopicPartition, int]:
        """Return the partitions' leaders, -1 where there is none; what is known by a newer epoch stays (KIP-320)."""
        if self._topic_ids.get(topic.name) != topic.topic_id:
            # Deleted and made again: its epochs have begun anew.
            self._topic_ids[topic.name] = topic.topic_id
            self._epochs = {where: epoch for where, epoch in self._epochs.items() if where.topic != topic.name}
        leaders = {}
        for partition in topic.partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            if self._is_news(where, partition.leader_epoch):
                leaders[where] = partition.leader_id
            else:
                leaders[where] = self.cluster.leaders.get(where, -1)
        return leaders

    def _is_news(self, where: TopicPartition, epoch: int) -> bool:
        """Say whether a leader of that epoch is not older than the one that is known; remember it if so."""
        if epoch < self._epochs.get(where, -1):
            return False
        self._epochs[where] = epoch
        return True

    def follow(self, hints: Iterable[LeaderHint]) -> None:
        """Take over what brokers say of new leaders when they are no leaders any more (KIP-951)."""
        nodes, leaders = dict(self.cluster.nodes), dict(self.cluster.leaders)
        for hint in hints:
            is_newer = hint.leader_epoch > self._epochs.get(hint.topic_partition, -1)
            node = hint.node or nodes.get(hint.leader_id)
            if is_newer and node is not None and hint.topic_partition in leaders:
                self._epochs[hint.topic_partition] = hint.leader_epoch
                nodes[node.id] = node
                leaders[hint.topic_partition] = node.id
        self._replace(Cluster(nodes, self.cluster.partition_counts, leaders, self.cluster.topic_errors))

    def refuse(self, error: type[KafkaError]) -> None:
        """Note why nothing can be found out of the topics that nothing is known of."""
        unknown = self._used_ms.keys() - self.cluster.partition_counts.keys()
        errors = {**self.cluster.topic_errors, **dict.fromkeys(unknown, error)}
        cluster = self.cluster
        self._replace(Cluster(cluster.nodes, cluster.partition_counts, cluster.leaders, errors))

    def _again(self, now_ms: float) -> None:
        self._attempts += 1
        self._not_before_ms = now_ms + self._backoff.wait_ms(self._attempts)

    def _replace(self, cluster: Cluster) -> None:
        if cluster != self.cluster:
            self.cluster = cluster
