"""The ready check: which nodes something can be sent to, and when to look again.

Kafka's ``RecordAccumulator.ready``. Only the sender calls this, in one thread. `shmaccum._core.ReadyCheck` looks at the
partitions; this module knows the cluster: it stores the partitions' leaders, and limits the open batches of a node.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from shmaccum import _core
from shmaccum._core import LOCK_STRIPES, STATE_MASK, Sequences, Slot, Super
from shmaccum.accumulator.drain.deferral import BatchReturns
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import Node, TopicPartition, broker_of, connection_id
from shmaccum.errors import KafkaError
from shmaccum.shm.layout import SlotState
from shmaccum.shm.slab import Slab

FOREVER_MS: Final = float("inf")
_SHARE: Final = 8
A_FEW: Final = 100
"""Open batches whose sending takes negligible time."""
_REST: Final = 3
"""Length of a rest, in times of the sending; handling the responses takes half as long as the sending."""
_LONGEST_REST_MS: Final = 50
"""Bound: the sender's processor may have run something else during the pass."""
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
        connections: broker -> how many connections to it are in use; one where it is not in it.
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
    connections: Mapping[int, int] = _NOTHING

    def leader_for(self, topic_partition: TopicPartition, lane: int = 0) -> Node | None:
        """Return the node that leads the partition, or None where none is known.

        A transaction, by its ``lane``, has a single connection to a broker: this looks for its partitions at the
        coordinator, and takes a second request meanwhile for a retry of the first (``AddPartitionsToTxnManager``).
        """
        leader = self.leaders.get(topic_partition)
        if leader is None:
            return None
        if lane:
            broker = broker_of(leader)
            leader = connection_id(broker, lane % self.connections.get(broker, 1))
        return self.nodes.get(leader)

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


class OpenBatchThrottle:
    """Limits how many open batches are sent before they are full.

    Sending costs by the batch. An open batch that leaves early wastes the rest of its slot, and its partition's next
    record needs another one. With thousands of partitions that feeds on itself: batches of one or two records keep the
    sender busy and memory short. So two rules hold open batches back:

    * *Rest*: after a pass that took more than `A_FEW` open batches, those that have merely lingered wait three times as
      long as the pass took. They then cost at most about half of the sender's time. This exceeds ``linger.ms`` only
      when the sender could hardly keep up with more.
    * *Room*: open batches leave only as far as free slots can replace them. Memory is short while fewer than 1/`_SHARE`
      of all slots are free, or a producer waits for memory. A node then gets open batches only after it has answered
      the last ones, and at most that share, or `A_FEW`. They free memory: no producer waits for memory while nothing is
      in flight, and no batch for longer than its node takes to answer.

    Full batches and retries gain nothing by waiting, and are not held back. The state is private to the sender's one
    thread; it reads FREE_SLOTS and slot headers without a lock, as hints, and writes no shared word. A new sender
    begins without a rest.

    Args:
        returning: slots of batches that are answered, and wait for a lock to be put back.
    """

    def __init__(self, slab: Slab, returning: Container[int]) -> None:
        self._words = slab.words
        self._returning = returning
        self._geometry = slab.geometry
        self._is_exhausted = slab.pool.is_exhausted
        self._least_free = max(1, slab.geometry.slot_count // _SHARE)
        self._at_once = max(A_FEW, self._least_free)
        self._taken = 0
        self.rest_until_ms = 0.0
        """Until when batches that have merely lingered rest."""
        self._last_taken: dict[int, tuple[int, int]] = {}
        """Node id -> slot and generation of the last open batch taken for it."""

    def room(self, node_id: int) -> int:
        """Return how many open batches may be taken for a node now; 0 only while a response of it is outstanding."""
        free = 0 if self._is_exhausted() else self._words[Super.FREE_SLOTS]
        if free >= self._least_free:
            return min(free, self._geometry.slot_count)
        return 0 if self._is_under_way(node_id) else self._at_once

    def take(self, node_id: int, count: int, last_slot: int) -> None:
        """Note that ``count`` open batches are about to be taken for a request to a node."""
        header = self._geometry.header(last_slot)
        self._last_taken[node_id] = last_slot, self._words[header + Slot.GENERATION]
        self._taken += count

    def rest_after(self, began_ms: float, ended_ms: float) -> None:
        """Start a rest if the pass between these times took more than `A_FEW` open batches."""
        if self._taken > A_FEW:
            self.rest_until_ms = ended_ms + min(_REST * (ended_ms - began_ms), _LONGEST_REST_MS)
        self._taken = 0

    def _is_under_way(self, node_id: int) -> bool:
        """Return whether the last open batch taken for a node has no answer yet: nodes answer in order."""
        slot, generation = self._last_taken.get(node_id, (-1, 0))
        if slot < 0 or slot in self._returning:
            return False
        words, header = self._words, self._geometry.header(slot)
        is_in_flight = words[header + Slot.STATE] & STATE_MASK == SlotState.IN_FLIGHT
        return is_in_flight and words[header + Slot.GENERATION] == generation


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

    Nothing is ready without a producer id, where there must be one, or behind a batch that waits to be put back.
    ``max_in_flight`` is ``max.in.flight.requests.per.connection``, here per partition.
    """

    def __init__(
        self, slab: Slab, known: PartitionMap, sequences: Sequences, returns: BatchReturns, max_in_flight: int
    ) -> None:
        self.core: Final = _core.ReadyCheck(slab.core, slab.pool, slab.damaged, max_in_flight)
        self._words = slab.words
        self._map = known
        self.sequences: Final = sequences
        self.returns: Final = returns
        self.deferral: Final = returns.deferral
        self.throttle: Final = OpenBatchThrottle(slab, returns.waiting)
        self._cluster: Cluster | None = None
        self._led = 0
        """How many partitions have their leaders stored."""
        self._is_holding_back = False

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Return the nodes to which something can be sent now (see `SenderAccumulator.ready`)."""
        self.prepare(cluster)
        leaders, growing, leaderless, delay_ms = self.core.ready(now_ms, not self.sequences.need_producer_id)
        for leader in growing - leaders:
            if self.room_to_leave(leader - 1, now_ms) > 0:
                leaders.add(leader)
            elif (rest_ms := self.throttle.rest_until_ms - now_ms) > 0:
                delay_ms = min(delay_ms, rest_ms)
        if self.deferral.until_ms:
            delay_ms = min(delay_ms, self.deferral.retry_delay_ms())
        unknown = set()
        for entry in leaderless:
            queue = self._map.by_entry[entry]
            self._store_leader(queue, cluster)  # again: damage can have erased one that the cluster has
            unknown.add(queue.topic_partition.topic)
        return ReadyCheckResult({cluster.nodes[leader - 1] for leader in leaders}, delay_ms, unknown)

    def room_to_leave(self, node_id: int, now_ms: int) -> int:
        """Return how many open batches may be taken for a node now."""
        if self.throttle.rest_until_ms > now_ms and not self.core.is_urgent:
            return 0
        return self.throttle.room(node_id)

    def prepare(self, cluster: Cluster) -> None:
        """Tell the core what has changed: leaders, and what a stopped process blocks."""
        if cluster is not self._cluster or self._words[Super.PARTITION_COUNT] != self._led:
            self._store_leaders(cluster)
        if self.deferral.until_ms or self.returns.waiting or self._is_holding_back:
            stripes = sum(1 << number - LOCK_STRIPES for number in self.deferral.held_up() if number >= LOCK_STRIPES)
            behind = self.returns.partitions()
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
        leader = cluster.leader_for(queue.topic_partition, queue.lane)
        epoch = cluster.leader_epochs.get(queue.topic_partition, -1)
        self.core.set_leader(queue.entry, 0 if leader is None else leader.id + 1, epoch)
