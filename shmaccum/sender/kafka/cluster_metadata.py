"""Cluster metadata of the topics in use (Kafka's ``Metadata``).

It decides when to send a Metadata request (`due_ms`) and for which topics (`request`), and stores the response. It
sends nothing itself.

A request names only the topics that are due; its response is merged into the metadata of the others. A topic is due
when first used, when its metadata is doubtful or incomplete, and every ``metadata.max.age.ms``. Topics requested while
a request is in flight wait for the next one.

Each response without news of a topic doubles the wait before it is due again (KIP-580). A request that fails doubles
the wait for all topics.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.cluster import MAX_TOPIC_LENGTH, Node, TopicPartition, broker_of, connection_id
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, NetworkError, error_for_code
from shmaccum.kafka.messages import METADATA
from shmaccum.kafka.poller import FOREVER_MS, ExponentialBackoff
from shmaccum.kafka.schema import ApiMessage
from shmaccum.sender.kafka.produce_response import LeaderHint, node_at

logger = logging.getLogger(__name__)

MOST_PARTITIONS: Final = 1 << 16
"""Partitions that a response can describe; ``shmaccum.max.partitions`` can raise it."""
_PARTITION_BYTES: Final = 64
"""Bytes of a response for a partition with five replicas."""
_TOPIC_BYTES: Final = 1024
"""Bytes of a response for a topic, without its partitions: a name of up to 249 bytes, an id."""
_CLUSTER_BYTES: Final = 1 << 20
"""Bytes of a response for the brokers: about 10,000 with long names."""
TOPICS_A_REQUEST: Final = 500
"""Most topics of one request: decoding the response takes about 50 ms, and nothing is sent meanwhile."""
REBOOTSTRAP_REQUIRED: Final = 129
"""The error code of a broker that has left the cluster (KIP-1102)."""


class _Topic:
    """A topic in use."""

    answered_ms: float | None = None
    """Time of its last response, None before the first."""
    unchanged = 0
    """Responses in a row without news."""

    def __init__(self, used_ms: float) -> None:
        self.used_ms = used_ms


class Metadata:
    """Keeps the metadata of the topics in use.

    ``cluster`` is the current snapshot, replaced by another object on every change.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._topics: dict[str, _Topic] = {}
        """The topics in use."""
        self._wanted: dict[str, float] = {}
        """Topics to request -> earliest time for it."""
        self._wanted_ms = FOREVER_MS
        """The earliest of these times."""
        self._asked: dict[str, None] = {}
        """The topics of the request in flight."""
        self._under_way = False
        self._failures = 0
        """Failed requests in a row."""
        self._not_before_ms = 0.0
        self._round_ms = FOREVER_MS
        """When to request all topics in use."""
        self._last_round_ms = 0.0
        self._rounds_unchanged = 0
        """Rounds in a row without news, not counting those due by age."""
        self._round_version = -1
        self._trying_since_ms: float | None = None
        """Since when a response is due and none has come."""
        self._brokers: dict[int, Node] = {}
        self._published: dict[int, Node] = {}
        """The brokers of the current snapshot."""
        self._assigned = 0
        """Partitions that were given a connection; each takes the one behind the last."""
        # Shared by all snapshots.
        self._connections: dict[int, int] = {}
        self._counts: dict[str, int] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._errors: dict[str, type[KafkaError]] = {}
        self._ids: dict[str, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._pending: set[str] = set()
        self._changes: dict[str, int] = {}
        self._version = 0
        self.cluster = Cluster()
        self._publish(())
        self.apply(config)

    def apply(self, config: ProducerConfig) -> None:
        """Use these settings from now on."""
        self._most_partitions = max(MOST_PARTITIONS, config.shmaccum_max_partitions)
        # Kafka's lower bound: with metadata.max.age.ms=0 each response would be followed by a request at once.
        self._max_age_ms = max(config.metadata_max_age_ms, config.retry_backoff_ms)
        self._max_idle_ms = config.metadata_max_idle_ms
        self.rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        # Below the backoff, each rebootstrap would close the connection that the one before it opened.
        self._rebootstrap_trigger_ms = max(config.metadata_recovery_rebootstrap_trigger_ms, config.retry_backoff_ms)
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._round_ms = self._last_round_ms + self._max_age_ms if self._topics else FOREVER_MS

    # --- when to ask --------------------------------------------------------------------------------

    def request_update(self, topics: Collection[str], now_ms: float) -> None:
        """Request these topics: new ones at once, the others when their backoff is over."""
        for name in topics:
            topic = self._topics.get(name)
            if topic is None:
                topic = self._topics[name] = _Topic(now_ms)
                self._round_ms = min(self._round_ms, now_ms + self._max_age_ms)
            topic.used_ms = now_ms
            self._pending.add(name)
            if name not in self._asked:
                self._want(name, topic, now_ms)

    def doubt(self, now_ms: float) -> None:
        """Note that the metadata can be out of date: request all topics in use when the backoff is over."""
        if self._topics:
            wait_ms = self._backoff.wait_ms(max(1, self._rounds_unchanged))
            self._round_ms = min(self._round_ms, max(now_ms, self._last_round_ms + wait_ms))

    def use(self, topic: str, now_ms: float) -> None:
        """Note that a batch is sent to a topic."""
        used = self._topics.get(topic)
        if used is not None:
            used.used_ms = now_ms

    def due_ms(self) -> float:
        """Return when to send the next request."""
        if self._under_way or not self._topics:
            return FOREVER_MS
        return max(min(self._wanted_ms, self._round_ms), self._not_before_ms)

    def request(self, now_ms: float) -> ApiMessage:
        """Return the request to send now; brokers with ``auto.create.topics.enable`` create missing topics on it."""
        if now_ms >= self._round_ms:
            self._begin_round(now_ms)
        due = [name for name, wanted_ms in self._wanted.items() if wanted_ms <= now_ms][:TOPICS_A_REQUEST]
        self._asked = dict.fromkeys(due)
        for name in due:
            del self._wanted[name]
        self._wanted_ms = min(self._wanted.values(), default=FOREVER_MS)
        self._under_way = True
        return METADATA.of(topics=[{"name": name} for name in due], allow_auto_topic_creation=True)

    def largest_answer(self) -> int:
        """Return the most bytes of the response to the request in flight."""
        return _CLUSTER_BYTES + len(self._asked) * _TOPIC_BYTES + self._most_partitions * _PARTITION_BYTES

    def _want(self, name: str, topic: _Topic, now_ms: float) -> None:
        """Request a topic when its backoff is over."""
        if name in self._wanted:
            return
        if topic.answered_ms is None:
            allowed_ms = now_ms
        else:
            allowed_ms = topic.answered_ms + self._backoff.wait_ms(max(1, topic.unchanged))
        self._wanted[name] = allowed_ms
        self._wanted_ms = min(self._wanted_ms, allowed_ms)

    def _begin_round(self, now_ms: float) -> None:
        self._forget_idle(now_ms)
        is_periodic = now_ms >= self._last_round_ms + self._max_age_ms
        self._rounds_unchanged = (
            0 if is_periodic or self._version != self._round_version else self._rounds_unchanged + 1
        )
        self._round_version = self._version
        self._last_round_ms = now_ms
        self._round_ms = now_ms + self._max_age_ms
        for name in self._topics:
            self._wanted[name] = now_ms

    def _forget_idle(self, now_ms: float) -> None:
        idle = [name for name, topic in self._topics.items() if now_ms - topic.used_ms >= self._max_idle_ms]
        for name in idle:
            del self._topics[name]
            self._wanted.pop(name, None)
            self._pending.discard(name)
            self._forget(name)
            self._ids.pop(name, None)
        self._publish(idle)

    @property
    def is_current(self) -> bool:
        """Whether the last request brought metadata."""
        return self._failures == 0

    # --- rebootstrap (KIP-1102) ---------------------------------------------------------------------

    def trying(self, now_ms: float) -> None:
        """Note that a response is due, even if no broker can be asked."""
        if self._trying_since_ms is None:
            self._trying_since_ms = now_ms

    def rebootstrap_ms(self) -> float:
        """Return when to start over from ``bootstrap.servers`` unless a response comes before."""
        since_ms = self._trying_since_ms
        if since_ms is None or not self.rebootstraps:
            return FOREVER_MS
        return since_ms + self._rebootstrap_trigger_ms

    def rebootstrap(self, now_ms: float) -> None:
        """Forget brokers and leaders; request all topics in use again.

        The backoff after failed requests goes on: brokers that answer each request with REBOOTSTRAP_REQUIRED would
        otherwise get hundreds of connections and requests a second.
        """
        logger.warning("metadata: rebootstrap from bootstrap.servers")
        self._trying_since_ms = now_ms
        self._brokers = {}
        self._leaders.clear()
        self._publish(list(self._counts))
        self._round_ms = now_ms

    # --- responses ----------------------------------------------------------------------------------

    def failed(self, now_ms: float) -> None:
        """Note that a request got no response."""
        asked, self._asked = self._asked, {}
        self._under_way = False
        self._failures += 1
        self._not_before_ms = now_ms + self._backoff.wait_ms(self._failures)
        for name in asked:
            if name in self._topics:
                self._wanted.setdefault(name, now_ms)
                self._wanted_ms = min(self._wanted_ms, self._wanted[name])

    def update(self, response: Any, now_ms: float) -> None:
        """Store a response, without topics no longer in use. Raises NetworkError: it contains impossible values."""
        if response.error_code == REBOOTSTRAP_REQUIRED:
            logger.warning("metadata: the broker asked has left the cluster (REBOOTSTRAP_REQUIRED)")
            self.failed(now_ms)
            self._trying_since_ms = -FOREVER_MS
            return
        nodes = {broker.node_id: self._node(broker) for broker in response.brokers}
        if not nodes:  # the broker is just starting
            self.failed(now_ms)
            return
        for answer in response.topics:
            if not answer.error_code:
                self._check(answer)
        asked, self._asked = self._asked, {}
        self._under_way = False
        self._failures = 0
        self._trying_since_ms = None
        changed: list[str] = []
        if self._brokers.keys() - nodes.keys():
            for where in [where for where, leader in self._leaders.items() if broker_of(leader) not in nodes]:
                del self._leaders[where]
                changed.append(where.topic)
        self._brokers = nodes if nodes != self._brokers else self._brokers
        for answer in response.topics:
            topic = self._topics.get(answer.name)
            if topic is None:
                continue
            asked.pop(answer.name, None)
            is_complete, is_changed = self._take_over(answer)
            topic.answered_ms = now_ms
            topic.unchanged = 0 if is_changed and not answer.error_code else topic.unchanged + 1
            if is_changed:
                changed.append(answer.name)
            self._pending.discard(answer.name)
            if not is_complete:
                self._want(answer.name, topic, now_ms)
        for name in asked:  # left out of the answer
            if name in self._topics:
                self._topics[name].answered_ms = now_ms
                self._topics[name].unchanged += 1
                self._want(name, self._topics[name], now_ms)
        self._publish(changed)

    def _node(self, broker: Any) -> Node:
        """Return a response's broker as a node; thousands can be known: unchecked. NetworkError: impossible address."""
        known = self._brokers.get(broker.node_id)
        if known is not None and known.host == broker.host and known.port == broker.port:
            return known
        return node_at(broker.node_id, broker.host, broker.port)

    def _check(self, answer: Any) -> None:
        """Check a topic of a response before any of it is stored. Raises NetworkError: it has impossible values."""
        name = str(answer.name)[:MAX_TOPIC_LENGTH]
        most = self._most_partitions
        if not 0 < len(answer.partitions) <= most:
            raise NetworkError(f"metadata of topic {name!r} has {len(answer.partitions)} partitions, not 1 to {most}")
        for partition in answer.partitions:
            number = partition.partition_index
            if not 0 <= number < most:
                raise NetworkError(f"metadata of topic {name!r} has partition number {number}, not below {most}")

    def _take_over(self, answer: Any) -> tuple[bool, bool]:
        """Store a topic of a response; return whether its metadata is complete, and whether it is news."""
        name = answer.name
        if answer.error_code:
            error = error_for_code(answer.error_code)
            is_news = name in self._counts or self._errors.get(name) is not error
            if is_news:
                logger.warning("no metadata of topic %r: %s", name, error.__name__)
            self._forget(name)
            self._errors[name] = error
            return not error.retriable, is_news
        before = self._counts.get(name, 0)
        is_news = self._errors.pop(name, None) is not None or before != len(answer.partitions) or not before
        topic_id = answer.topic_id
        if topic_id and topic_id != self._ids.get(name):
            # The topic was made again: its leader epochs start over.
            is_news = True
            self._ids[name] = topic_id
            self._forget(name)
        self._counts[name] = len(answer.partitions)
        is_complete = True
        for partition in answer.partitions:
            where = TopicPartition(name, partition.partition_index)
            known_epoch, known_leader = self._epochs.get(where, -1), self._leader(where)
            leader, epoch = partition.leader_id, partition.leader_epoch
            # An older epoch never replaces a newer one (KIP-320). Before Kafka 2.8 topics have no ids: one of them can
            # have been made again.
            if epoch < known_epoch and topic_id:
                leader, epoch = known_leader, known_epoch
            if leader not in self._brokers:
                leader, is_complete = -1, False
            is_news |= leader != known_leader or epoch != known_epoch
            self._epochs[where] = epoch
            if leader < 0:
                self._leaders.pop(where, None)
            elif leader != known_leader:
                self._leaders[where] = self._next_node(leader)
        for number in range(len(answer.partitions), before):
            self._forget_partition(TopicPartition(name, number))
        return is_complete, is_news

    def follow(self, hints: Iterable[LeaderHint]) -> None:
        """Store the new leaders that former leaders name in Produce responses (KIP-951)."""
        changed = []
        for hint in hints:
            where = hint.topic_partition
            node = hint.node or self._brokers.get(hint.leader_id)
            if hint.leader_epoch > self._epochs.get(where, -1) and node is not None and where in self._leaders:
                self._epochs[where] = hint.leader_epoch
                self._leaders[where] = self._next_node(node.id)
                self._brokers = {**self._brokers, node.id: node}
                changed.append(where.topic)
        self._publish(changed)

    def refuse(self, error: type[KafkaError]) -> None:
        """Answer pending topics, and those without metadata, with the reason why none can be had."""
        refused = [name for name in self._topics if name in self._pending or name not in self._counts]
        changed = [name for name in refused if name in self._pending or self._errors.get(name) is not error]
        for name in refused:
            self._errors[name] = error
            self._pending.discard(name)
        self._publish(changed)

    # --- connections --------------------------------------------------------------------------------

    def led_by(self, broker: int, most: int) -> int:
        """Return how many partitions a broker leads, up to ``most``."""
        return len(list(islice(self._led(broker), most)))

    def is_divided(self, broker: int) -> bool:
        """Return whether `divide` was called last, not `unite`."""
        return broker in self._connections

    def divide(self, broker: int, connections: int) -> None:
        """Divide a broker's partitions evenly among its connections."""
        self._connections[broker] = max(1, connections)
        if connections > 1:
            self._assign_all(broker)

    def unite(self, broker: int) -> None:
        """Leave a broker with its first connection."""
        if self._connections.pop(broker, 1) > 1:
            self._assign_all(broker)

    def _assign_all(self, broker: int) -> None:
        led = list(self._led(broker))
        logger.info("broker %d: %d partitions over %d connections", broker, len(led), self._connections.get(broker, 1))
        for where in led:
            self._leaders[where] = self._next_node(broker)
        self._publish({where.topic for where in led})

    def _led(self, broker: int) -> Iterator[TopicPartition]:
        return (where for where, leader in self._leaders.items() if broker_of(leader) == broker)

    def _next_node(self, broker: int) -> int:
        """Return the id of the node for one more partition that a broker leads."""
        self._assigned += 1
        return connection_id(broker, self._assigned % self._connections.get(broker, 1))

    def _leader(self, where: TopicPartition) -> int:
        """Return the broker that leads a partition, -1 for none."""
        leader = self._leaders.get(where)
        return -1 if leader is None else broker_of(leader)

    def _nodes(self) -> dict[int, Node]:
        """Return a node for each connection."""
        further = [
            self._brokers[broker].by_connection(number)
            for broker, connections in self._connections.items()
            if broker in self._brokers
            for number in range(1, connections)
        ]
        return {**self._brokers, **{node.id: node for node in further}} if further else self._brokers

    # --- snapshots ----------------------------------------------------------------------------------

    def _forget(self, name: str) -> None:
        """Forget the partitions and the error of a topic."""
        for number in range(self._counts.pop(name, 0)):
            self._forget_partition(TopicPartition(name, number))
        self._errors.pop(name, None)

    def _forget_partition(self, where: TopicPartition) -> None:
        self._leaders.pop(where, None)
        self._epochs.pop(where, None)

    def _publish(self, changed: Iterable[str]) -> None:
        """Replace the snapshot if anything has changed."""
        before = self._version
        for name in changed:
            self._version = before + 1
            self._changes.pop(name, None)
            self._changes[name] = self._version
        if self._version != before or self._brokers is not self._published:
            self._published = self._brokers
            self.cluster = Cluster(
                self._nodes(),
                self._counts,
                self._leaders,
                self._errors,
                self._ids,
                self._epochs,
                self._pending,
                self._changes,
                self._version,
                self._connections,
            )
