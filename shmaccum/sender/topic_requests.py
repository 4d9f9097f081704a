"""What producers want to know of topics, and what they are told: ``Metadata`` between the processes.

A producer writes the name of a topic that it does not know into the tables of the slab, and waits. The sender asks its
transport, stores what comes there, and wakes everybody. What the transport finds out later about topics that are known
is stored, too: a topic that has grown, has been deleted, or has been made again.

A sender that dies in the middle of a store leaves the tables' lock to be taken over; its successor asks about all
topics and stores what differs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.partition_map import TopicEntry, TopicUpdate
from shmaccum.cluster import Cluster
from shmaccum.errors import LockTimeoutError
from shmaccum.sender.transport import Transport
from shmaccum.shm.layout import NEARLY_FULL, Super, TopicState

logger = logging.getLogger(__name__)

_REQUESTS: Final = Super.METADATA_REQUESTS
_NEVER: Final = (1 << 64) - 1


class TopicRequests:
    """The sender's side of the topics in the tables of a slab.

    Args:
        accumulator: of the slab.
        transport: knows, or finds out.
    """

    def __init__(self, accumulator: SenderAccumulator, transport: Transport) -> None:
        self._slab = accumulator.state.slab
        self._memory = accumulator.state.slab.memory
        self._map = accumulator.state.map
        self._deferral = accumulator.deferral
        self._sequences = accumulator.sequences
        self._transport = transport
        self._requests_seen = _NEVER
        """The word that counts producers' questions, as it was at the last look."""
        self._waiting: set[str] = set()
        """Topics that producers wait for."""
        self._cluster: Cluster | None = None
        """The last snapshot that is stored."""
        self._warned: set[str] = set()

    def serve(self, cluster: Cluster) -> bool:
        """Ask for what producers want to know, and store what came; say whether anybody has to wait for more.

        Args:
            cluster: what the transport knows now.
        """
        requests = self._memory.words[_REQUESTS]
        if requests == self._requests_seen and cluster is self._cluster and not self._waiting:
            return False
        if requests != self._requests_seen:
            requested = set(self._map.requested())
            # The first time, all: what a sender before this one knew of them went with it.
            wanted = list(self._map.topics) if self._requests_seen == _NEVER else list(requested - self._waiting)
            if wanted:
                self._transport.request_update(wanted)
                cluster = self._transport.cluster()
            self._waiting |= requested
            self._requests_seen = requests
        try:
            self._store(cluster)
        except LockTimeoutError:
            return True  # somebody stopped is in the way, and is not waited for any longer
        return bool(self._waiting)

    def _store(self, cluster: Cluster) -> None:
        """Store what is news of topics, and what answers those who wait.

        Raises:
            LockTimeoutError: as `Deferral.with_lock`.
        """
        changed = cluster.changed_since(self._cluster)
        answered = {name for name in self._waiting if name not in cluster.pending}
        updates = []
        for name in self._map.topics if changed is None else {*changed, *answered}:
            topic = self._map.topics.get(name)
            if topic is not None:
                update = _update_of(topic, cluster, name in answered)
                if update is not None:
                    updates.append(update)
        if updates:
            self._note_replaced(updates)
            lock = self._deferral.with_lock(self._slab.tables_lock)
            for topic in self._map.update_all(updates, lock):
                logger.error("%s", self._map.no_room(topic))
            self._warn_if_nearly_full()
            for entry in self._slab.processes.in_use():
                self._slab.wakeups.wake(entry)
        self._cluster = cluster
        self._waiting.difference_update(update.name for update in updates if update.is_answer)

    def _note_replaced(self, updates: Iterable[TopicUpdate]) -> None:
        """Begin the sequence numbers anew of topics that have been made again.

        Before their new ids are stored: if this sender dies in between, the next one notices again.
        """
        for update in updates:
            topic = self._map.topics[update.name]
            known = topic.topic_id
            before, now = topic.partition_count, update.partition_count
            if update.error is not None:
                if before and not now:
                    logger.warning("topic %r is gone: %s", update.name, update.error.__name__)
            elif now < before or (update.topic_id and known and update.topic_id != known):
                logger.warning(
                    "topic %r has been made again: it had %d partitions, and has %d now", update.name, before, now
                )
                for queue in self._map.queues_of(update.name):
                    self._sequences.log_replaced(queue.entry)

    def _warn_if_nearly_full(self) -> None:
        """Say once of each table that it is nearly full, before anything is refused for it."""
        words, geometry = self._memory.words, self._slab.geometry
        for used, most, what in (
            (words[Super.TOPIC_COUNT], geometry.max_topics, "topics"),
            (words[Super.PARTITION_COUNT], geometry.max_partitions, "partitions"),
        ):
            if used >= NEARLY_FULL * most and what not in self._warned:
                self._warned.add(what)
                logger.warning(
                    "%d of the slab's %d %s are in use; when there are more, set shmaccum.max.%s higher (for all users "
                    "of the slab), or sends to new ones fail with SlabFullError",
                    used,
                    most,
                    what,
                    what,
                )


def _update_of(topic: TopicEntry, cluster: Cluster, is_answer: bool) -> TopicUpdate | None:
    """Return what there is to store of a topic, None where that is nothing."""
    name = topic.name
    count, error = cluster.partition_counts.get(name, 0), cluster.topic_errors.get(name)
    if not count and error is None:
        return None  # out of use, and known to the slab all the same
    topic_id = cluster.topic_ids.get(name, 0)
    if error is not None:
        is_news = topic.error is not error or (not count and topic.partition_count > 0)
    else:
        is_news = (
            count != topic.partition_count
            or topic.state is TopicState.FAILED
            or (topic_id != 0 and topic_id != topic.topic_id)
        )
    return TopicUpdate(name, count, error, topic_id or topic.topic_id, is_answer) if is_news or is_answer else None
