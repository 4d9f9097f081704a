"""Answers producers' requests for topic metadata through the slab's tables.

A producer writes the name of an unknown topic into the topic table, counts ``Super.METADATA_REQUESTS`` up, and waits.
The sender asks its transport, stores the answer under the tables' lock, and wakes all processes. It stores later news
too: a topic that has grown, was deleted, or was made again.

A sender that dies in the middle of a store leaves the tables' lock to be taken over. The next sender asks about all
topics and stores what differs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from shmaccum._core import Super
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.partition_map import TopicEntry, TopicUpdate
from shmaccum.errors import LockTimeoutError, NetworkError
from shmaccum.sender.transport import Transport
from shmaccum.shm.layout import NEARLY_FULL, TopicState

logger = logging.getLogger(__name__)

_NEVER: Final = (1 << 64) - 1


class TopicRequests:
    """The sender's side of a slab's topic table."""

    def __init__(self, accumulator: SenderAccumulator, transport: Transport) -> None:
        self._slab = accumulator.state.slab
        self._words = accumulator.state.slab.words
        self._map = accumulator.state.map
        self._deferral = accumulator.deferral
        self._sequences = accumulator.sequences
        self._transport = transport
        self._requests_seen = _NEVER
        """``Super.METADATA_REQUESTS`` at the last pass."""
        self._waiting: set[str] = set()
        """Topics that producers wait for."""
        self._cluster: Cluster | None = None
        """The snapshot stored last."""
        self._warned: set[str] = set()

    def serve(self, cluster: Cluster) -> bool:
        """Request what producers wait for, store what came; return whether a producer still waits."""
        requests = self._words[Super.METADATA_REQUESTS]
        if requests == self._requests_seen and cluster is self._cluster and not self._waiting:
            return False
        if requests != self._requests_seen:
            requested = set(self._map.requested())
            # The first time, all topics: a sender before this one took its metadata with it.
            wanted = list(self._map.topics) if self._requests_seen == _NEVER else list(requested - self._waiting)
            if wanted:
                self._transport.request_update(wanted)
                cluster = self._transport.cluster()
            self._waiting |= requested
            self._requests_seen = requests
        try:
            self._store(cluster)
        except LockTimeoutError:
            return True  # a stopped process holds the tables' lock: stored in a later pass
        return bool(self._waiting)

    def _store(self, cluster: Cluster) -> None:
        """Store news of topics, and answers that producers wait for. Raises LockTimeoutError: as `Deferral.section`."""
        changed = cluster.changed_since(self._cluster)
        answered = {name for name in self._waiting if name not in cluster.pending}
        updates = []
        for name in self._map.topics if changed is None else {*changed, *answered}:
            topic = self._map.topics.get(name)
            if topic is not None and (update := _update_of(topic, cluster, name in answered)) is not None:
                updates.append(update)
        if updates:
            self._note_replaced(updates)
            full = self._map.update_all(updates, partial(self._deferral.section, self._slab.tables_lock))
            for topic in full:
                logger.error("%s", self._map.no_room(topic))
            self._warn_if_nearly_full()
            for entry in self._slab.processes.in_use():
                self._slab.wakeups.wake(entry)
        self._cluster = cluster
        self._waiting.difference_update(update.name for update in updates if update.is_answer)

    def _note_replaced(self, updates: Iterable[TopicUpdate]) -> None:
        """Restart the sequence numbers of topics that were made again.

        Before their new ids are stored: if this sender dies in between, the next one notices the change again.
        """
        for update in updates:
            topic = self._map.topics[update.name]
            known = topic.topic_id
            before, now = topic.partition_count, update.partition_count
            if update.error is not None:
                if before and not now:
                    logger.warning("topic %r was deleted or cannot be used: %s", update.name, update.error.__name__)
            elif now < before or (update.topic_id and known and update.topic_id != known):
                logger.warning("topic %r was made again: it had %d partitions and now has %d", update.name, before, now)
                for queue in self._map.all_of([update.name]):
                    self._sequences.log_replaced(queue.entry)

    def _warn_if_nearly_full(self) -> None:
        """Log once for each table that it is nearly full, before sends fail."""
        words, geometry = self._words, self._slab.geometry
        for used, most, what in (
            (words[Super.TOPIC_COUNT], geometry.max_topics, "topics"),
            (words[Super.PARTITION_COUNT], geometry.max_partitions, "partitions"),
        ):
            if used >= NEARLY_FULL * most and what not in self._warned:
                self._warned.add(what)
                logger.warning(
                    "%d of the slab's %d %s are in use; once all are, sends to new ones fail with SlabFullError: raise "
                    "shmaccum.max.%s for all users of the slab",
                    used,
                    most,
                    what,
                    what,
                )


def _update_of(topic: TopicEntry, cluster: Cluster, is_answer: bool) -> TopicUpdate | None:
    """Return the words to store of a topic, None for nothing."""
    name = topic.name
    count, error = cluster.partition_counts.get(name, 0), cluster.topic_errors.get(name)
    if not count and error is None:
        return None  # the transport has forgotten an idle topic; the slab keeps it
    if error is not None and issubclass(error, NetworkError):
        # No broker has answered. The partitions that a sender before this one knew are there still: a sender that
        # starts in an outage would else make every `send` wait for metadata, and fail.
        count = topic.partition_count
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
