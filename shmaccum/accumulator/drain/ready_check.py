"""The ready check: which nodes something can be sent to, and when to look again.

Kafka's ``RecordAccumulator.ready``. Only the sender calls this, in one thread. `shmaccum._core.ReadyCheck` looks at the
partitions; this module knows the cluster: it stores the partitions' leaders, and limits the open batches of a node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from shmaccum import _core
from shmaccum._core import LOCK_STRIPES, Sequences, Super
from shmaccum.accumulator.drain.deferral import BatchReturns, Deferral
from shmaccum.accumulator.drain.open_batch_throttle import OpenBatchThrottle
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import Node, TopicPartition
from shmaccum.errors import KafkaError
from shmaccum.shm import validation
from shmaccum.shm.slab import Slab

_PARTITION_COUNT: Final = Super.PARTITION_COUNT
FOREVER_MS: Final = float("inf")
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class Cluster(NamedTuple):
    """A transport's snapshot of its cluster.

    The snapshots of a transport can share their mappings of topics, so that an update of a few topics copies no others.
    Then only the newest snapshot is exact. `changed_since` works for shared and for separate mappings.

    Attributes:
        nodes: by node id.
        partition_counts: topic -> number of partitions, for every topic known to exist.
        leaders: partition -> id of the node that leads it; a partition without a leader is not in it.
        topic_errors: topic -> why the last request for its metadata failed; the next one can succeed. A topic whose
            partitions are known keeps them.
        topic_ids: topic -> Kafka's topic id, where there is one.
        leader_epochs: partition -> epoch of its leader, where there are epochs.
        pending: requested topics without a response yet.
        changes: topic -> version of the snapshot in which it last changed, in this order; None where the snapshots
            share no mappings.
        version: of this snapshot.
    """

    nodes: Mapping[int, Node] = _NOTHING
    partition_counts: Mapping[str, int] = _NOTHING
    leaders: Mapping[TopicPartition, int] = _NOTHING
    topic_errors: Mapping[str, type[KafkaError]] = _NOTHING
    topic_ids: Mapping[str, int] = _NOTHING
    leader_epochs: Mapping[TopicPartition, int] = _NOTHING
    pending: Collection[str] = frozenset()
    changes: dict[str, int] | None = None
    version: int = 0

    def leader_for(self, topic_partition: TopicPartition) -> Node | None:
        """Return the node that leads the partition, or None where none is known."""
        node_id = self.leaders.get(topic_partition)
        return None if node_id is None else self.nodes.get(node_id)

    def changed_since(self, before: Cluster | None) -> list[str] | None:
        """Return the topics that changed since another snapshot; None where that is not known."""
        changes = self.changes
        if changes is None or before is None or before.changes is not changes:
            return None
        changed = []
        for topic in reversed(changes):
            if changes[topic] <= before.version:
                break
            changed.append(topic)
        return changed


class ReadyCheckResult(NamedTuple):
    """Result of `ReadyCheck.ready`."""

    ready_nodes: set[Node]
    """Nodes that lead a partition with something to send."""
    next_ready_check_delay_ms: float
    """When to look again, if nothing else happens; infinite where only an event can change the result."""
    unknown_leader_topics: set[str]
    """Topics with something to send and no known leader."""


class ReadyCheck:
    """Looks for sendable batches in the deques of a slab.

    Args:
        slab: the slab.
        partition_map: the deques.
        sequences: without a producer id, where there must be one, nothing is ready.
        deferral: of work that a stopped process blocks.
        returns: nothing behind a batch that waits to be put back may be sent.
        throttle: limits how many open batches may be sent.
        max_in_flight: ``max.in.flight.requests.per.connection``, here per partition.

    Attributes:
        core: looks at the partitions.
    """

    def __init__(
        self,
        slab: Slab,
        partition_map: PartitionMap,
        sequences: Sequences,
        deferral: Deferral,
        returns: BatchReturns,
        throttle: OpenBatchThrottle,
        max_in_flight: int,
    ) -> None:
        self.core: Final = _core.ReadyCheck(slab.core, slab.pool, partial(validation.damaged, slab.name), max_in_flight)
        self._words = slab.words
        self._map = partition_map
        self._sequences = sequences
        self._deferral = deferral
        self._returns = returns
        self._throttle = throttle
        self._cluster: Cluster | None = None
        self._led = 0
        """How many partitions have their leaders stored."""
        self._is_holding_back = False

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Return the nodes to which something can be sent now (see `SenderAccumulator.ready`)."""
        self.prepare(cluster)
        leaders, growing, leaderless, delay_ms = self.core.ready(now_ms, not self._sequences.need_producer_id)
        for leader in growing - leaders:
            if self.room_to_leave(leader - 1, now_ms) > 0:
                leaders.add(leader)
            elif (rest_ms := self._throttle.rest_until_ms - now_ms) > 0:
                delay_ms = min(delay_ms, rest_ms)
        if self._deferral.until_ms:
            delay_ms = min(delay_ms, self._deferral.retry_delay_ms())
        unknown = set()
        for entry in leaderless:
            queue = self._map.by_entry[entry]
            self._store_leader(queue, cluster)  # again: damage can have erased one that the cluster has
            unknown.add(queue.topic_partition.topic)
        return ReadyCheckResult({cluster.nodes[leader - 1] for leader in leaders}, delay_ms, unknown)

    def room_to_leave(self, node_id: int, now_ms: int) -> int:
        """Return how many open batches may be taken for a node now."""
        if self._throttle.rest_until_ms > now_ms and not self.core.is_urgent:
            return 0
        return self._throttle.room(node_id)

    def prepare(self, cluster: Cluster) -> None:
        """Tell the core what has changed: leaders, and what a stopped process blocks."""
        if cluster is not self._cluster or self._words[_PARTITION_COUNT] != self._led:
            self._store_leaders(cluster)
        if self._deferral.until_ms or self._returns.waiting or self._is_holding_back:
            stripes = sum(1 << number - LOCK_STRIPES for number in self._deferral.held_up() if number >= LOCK_STRIPES)
            behind = self._returns.partitions()
            self.core.hold_back(stripes, behind)
            self._is_holding_back = bool(stripes or behind)

    def _store_leaders(self, cluster: Cluster) -> None:
        """Store the leaders that have changed since the last cluster snapshot in the partition table."""
        self._map.refresh()
        by_entry = self._map.by_entry
        queues, self._led = by_entry[self._led :], len(by_entry)
        if cluster is not self._cluster:
            changed = cluster.changed_since(self._cluster)
            self._cluster = cluster
            queues = by_entry if changed is None else queues + self._map.all_of(changed)
        for queue in queues:
            self._store_leader(queue, cluster)

    def _store_leader(self, queue: PartitionQueue, cluster: Cluster) -> None:
        leader = cluster.leader_for(queue.topic_partition)
        epoch = cluster.leader_epochs.get(queue.topic_partition, -1)
        self.core.set_leader(queue.entry, 0 if leader is None else leader.id + 1, epoch)
