"""What a transport knows of its cluster: Kafka's ``Cluster``. Only the sender needs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from shmaccum.cluster import Node, TopicPartition
from shmaccum.errors import KafkaError


@dataclass(frozen=True, slots=True)
class Cluster:
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

    nodes: Mapping[int, Node] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_errors: Mapping[str, type[KafkaError]] = field(default_factory=dict)
    topic_ids: Mapping[str, int] = field(default_factory=dict)
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    pending: Collection[str] = frozenset()
    changes: dict[str, int] | None = field(default=None, compare=False)
    version: int = field(default=0, compare=False)

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
