"""What producers want to know of topics, and what they are told: ``Metadata`` between the processes.

A producer writes the name of a topic that it does not know into the tables of the slab, and waits. The sender asks its
transport, stores what comes there, and wakes everybody.
"""

from __future__ import annotations

import logging
from typing import Final

from shmaccum.accumulator.record_accumulator import RecordAccumulator
from shmaccum.cluster import Cluster
from shmaccum.errors import KafkaError, LockTimeoutError, SlabFullError
from shmaccum.sender.transport import Transport
from shmaccum.shm.layout import Super

logger = logging.getLogger(__name__)

_REQUESTS: Final = Super.METADATA_REQUESTS
_GENERATION: Final = Super.GENERATION


class TopicRequests:
    """The sender's side of the topics in the tables of a slab.

    Args:
        accumulator: of the slab.
        transport: knows, or finds out.
    """

    def __init__(self, accumulator: RecordAccumulator, transport: Transport) -> None:
        self._slab = accumulator.slab
        self._memory = accumulator.slab.memory
        self._map = accumulator.map
        self._patience = accumulator.patience
        self._transport = transport
        self._requests_seen = -1
        self._generation_seen = -1
        """The words that tell of requests and of changes of the tables, as they were at the last look."""
        self._is_asked = False
        self._cluster: Cluster | None = None

    def serve(self, cluster: Cluster) -> bool:
        """Ask for what producers want to know, and store what came; say whether anybody has to wait for more.

        Args:
            cluster: what the transport knows now.
        """
        words = self._memory.words
        requests, generation = words[_REQUESTS], words[_GENERATION]
        is_seen = requests == self._requests_seen and generation == self._generation_seen
        if is_seen and cluster is self._cluster and not self._is_asked:
            return False
        if requests != self._requests_seen:
            # The first time, all: what a sender before this one knew of them went with it.
            wanted = list(self._map.topics) if self._requests_seen < 0 else []
            wanted += self._map.requested()
            if wanted:
                self._transport.request_update(wanted)
                cluster = self._transport.cluster()
        self._requests_seen, self._generation_seen = requests, generation
        requested = self._map.requested()
        stored = True
        if cluster is not self._cluster or requested:
            stored = self._store(cluster, requested)
            self._cluster = cluster if stored else None
            for entry in self._slab.processes.in_use():
                self._slab.bells.ring(entry)
        self._is_asked = not stored or bool(self._map.requested())
        return self._is_asked

    def _store(self, cluster: Cluster, requested: list[str]) -> bool:
        """Store what is news of the topics; False if somebody is in the way, who is not waited for any longer."""
        stored = True
        for name, topic in self._map.topics.items():
            count = cluster.partition_counts.get(name, 0)
            error = cluster.topic_errors.get(name)
            if count > len(topic.queues) or (name in requested and (count or error)):
                stored = self._store_topic(name, count, None if count else error) and stored
        return stored

    def _store_topic(self, name: str, partition_count: int, error: type[KafkaError] | None) -> bool:
        try:
            self._map.update(name, partition_count, error, self._patience.with_lock(self._slab.tables_lock))
        except SlabFullError as full:
            logger.error("%s", full)
        except LockTimeoutError:
            return False
        return True
