"""Map of topics and partitions across processes: Kafka's ``CopyOnWriteMap`` of deques.

The truth is in two tables of the slab, whose entries never move or vanish. Each process keeps its own dicts and
refreshes them when the shared generation has changed. A lookup, one per record, takes no lock. A refresh costs by the
number of changes: new entries are at the ends of the tables, and a changed topic's entry has the generation of its
change.

A producer adds the entry of a topic that it asks for; the sender completes it, and adds its partitions. A process that
holds a lane adds the lane's own entries of partitions (`shmaccum.accumulator.state.lanes`). The sender stores a topic's
partition count after all their entries, so that no producer hashes a key over some of them. The count drops when the
topic is deleted, or recreated with fewer partitions (as in ``Metadata`` of Kafka's client). The entries of removed
partitions stay. Their batches expire, unless the topic grows again.

The words of both tables are written by `shmaccum._core.Tables`, under the tables' lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from shmaccum import _core
from shmaccum._core import KEY_LANE_SHIFT, KEY_TOPIC_SHIFT, WORD, Partition, Super, Topic
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import TopicPartition, check_topic
from shmaccum.errors import AuthorizationError, KafkaError, SlabFullError
from shmaccum.shm import native, validation
from shmaccum.shm.layout import CODE_MASK, KEY_NUMBER_MASK, KEY_TOPIC_MASK, TopicState, column_of, error_of
from shmaccum.shm.slab import Slab

_NEVER: Final = (1 << 64) - 1
"""Generation before the first refresh; the tables never have it."""
_CODE_BITS: Final = 16

Outcome: TypeAlias = tuple[int, bool]
Section: TypeAlias = Callable[[], Outcome]


class TopicUpdate(NamedTuple):
    """The cluster's current state of a topic, which is in the map."""

    name: str
    partition_count: int
    """How many partitions it has now; 0 if it has none or the number is unknown."""
    error: type[KafkaError] | None = None
    """Why it is unknown or 0. With an error and a count, the partitions stay as they are."""
    topic_id: int = 0
    """Kafka's, 128 bits; 0 where the cluster has none."""
    is_answer: bool = True
    """Whether this answers a request, or is only a change."""


class TopicEntry:
    """One topic, as one process sees it."""

    def __init__(self, slab: Slab, entry: int, name: str) -> None:
        self.entry = entry
        self.name = name
        self.queues: tuple[PartitionQueue, ...] = ()
        """By partition number, as of this process's last refresh; replaced, never changed."""
        self._words = slab.words
        self._at = slab.geometry.topic(entry)

    @property
    def state(self) -> TopicState:
        """What is known of it now."""
        return TopicState(self._words[self._at + Topic.STATE])

    @property
    def partition_count(self) -> int:
        """How many partitions it has, all of which are in the partition table."""
        return int(self._words[self._at + Topic.PARTITIONS])

    @property
    def answers(self) -> int:
        """How many times the sender has answered a `PartitionMap.request` for it."""
        return int(self._words[self._at + Topic.ANSWERS])

    @property
    def error(self) -> type[KafkaError] | None:
        """Why the last answer had no metadata of it; None if it had, or there is no answer yet."""
        return error_of(self._words[self._at + Topic.ERROR])

    @property
    def needed(self) -> int:
        """Partition entries that the topic needs but the full table cannot hold, counted from 0; 0 if it has room."""
        return int(self._words[self._at + Topic.ERROR]) >> _CODE_BITS

    @property
    def topic_id(self) -> int:
        """Kafka's id of the topic, which changes when it is recreated; 0 if not known."""
        words = self._words
        return int(words[self._at + Topic.ID_HIGH]) << 64 | int(words[self._at + Topic.ID_LOW])


class PartitionMap:
    """All topics and partitions of a slab, as one process sees them."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._words = slab.words
        self._geometry = slab.geometry
        self.generation = _NEVER
        """Of the tables at the last refresh."""
        self.forked()
        self.topics: dict[str, TopicEntry] = {}
        """By name; entries are only ever added."""
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        """By topic and partition, including partitions that no longer exist; entries are only ever added."""
        self.by_entry: list[PartitionQueue] = []
        """By partition entry."""
        self.of_lanes: dict[tuple[int, TopicPartition], PartitionQueue] = {}
        """By lane entry + 1, topic and partition: those of transactions. Entries are only ever added."""
        self._topics_by_entry: list[TopicEntry] = []
        slab.on_fork(self)
        self.refresh()

    def forked(self) -> None:
        """Replace the mutex in a forked child: another thread of the parent may have had it."""
        self._refreshing = native.RLock()

    def refresh(self) -> None:
        """Read what has changed since the last refresh, in any thread. Raises SlabDamagedError: a table is damaged."""
        if self._words[Super.GENERATION] != self.generation:
            with self._refreshing:
                self._refresh()

    def _refresh(self) -> None:
        """Read new and changed entries. A signal handler can interrupt it and do the same."""
        words, slab = self._words, self._slab
        generation, seen = words[Super.GENERATION], self.generation
        partitions = words[Super.PARTITION_COUNT]  # before the topics: then those of all partitions are there
        topics = words[Super.TOPIC_COUNT]
        validation.check_counts(slab.name, self._geometry, topics, partitions)
        since = 0 if seen == _NEVER else seen + 1
        changed = [entry for entry, when in enumerate(self._column(Topic.CHANGED, topics)) if when >= since]
        known = len(self._topics_by_entry)
        to_check = sorted({*changed, *range(known, topics)})
        first_partition = len(self.by_entry)
        validation.check_entries(slab.name, words, self._geometry, to_check, topics, first_partition, partitions)
        self._take_in_topics(known, topics)
        self._take_in_partitions(first_partition, partitions)
        for entry in changed:
            self._adopt_count(self._topics_by_entry[entry])
        self.generation = generation

    def _take_in_topics(self, first: int, stop: int) -> None:
        new = []
        for entry in range(first, stop):
            at = self._geometry.topic(entry)
            start = (at + Topic.NAME) * WORD
            name = str(self._slab.buffer[start : start + self._words[at + Topic.NAME_LENGTH]], "ascii")
            topic = self.topics.setdefault(name, TopicEntry(self._slab, entry, name))
            if topic.entry != entry:
                raise self._slab.damaged(f"topic entry {entry} has the name {name!r} of another entry")
            new.append(topic)
        self._topics_by_entry[first:stop] = new

    def _take_in_partitions(self, first: int, stop: int) -> None:
        words, geometry = self._words, self._geometry
        new = []
        for entry in range(first, stop):
            key = words[geometry.partition(entry) + Partition.KEY]
            lane = int(key >> KEY_LANE_SHIFT)
            topic = self._topics_by_entry[(key >> KEY_TOPIC_SHIFT & KEY_TOPIC_MASK) - 1]
            topic_partition = TopicPartition(topic.name, int(key & KEY_NUMBER_MASK))
            queue = PartitionQueue(self._slab, entry, topic_partition, lane)
            if lane:
                queue = self.of_lanes.setdefault((lane, topic_partition), queue)
            else:
                queue = self.queues.setdefault(topic_partition, queue)
            if queue.entry != entry:
                raise self._slab.damaged(f"partition entry {entry} is {topic_partition}, as is another entry")
            new.append(queue)
        self.by_entry[first:stop] = new

    def _adopt_count(self, topic: TopicEntry) -> None:
        """Set a topic's deques to those of its current partitions."""
        queues, count = topic.queues, topic.partition_count
        there = len(queues)
        if count < there:
            topic.queues = queues[:count]
        elif count > there:
            more = [self.queues.get(TopicPartition(topic.name, number)) for number in range(there, count)]
            found = [queue for queue in more if queue is not None]
            # If an entry is newer than this refresh, the generation is about to change, and the next one finds it.
            if len(found) == len(more):
                topic.queues = (*queues, *found)

    def current(self, name: str) -> TopicEntry | None:
        """Return a topic's entry after a refresh, None if no producer has asked for it yet."""
        # The check is repeated here: one call less for every record.
        if self._words[Super.GENERATION] != self.generation:
            self.refresh()
        return self.topics.get(name)

    def topic(self, name: str) -> TopicEntry | None:
        """Return a topic's entry, None if no producer has asked for it yet."""
        topic = self.topics.get(name)
        if topic is None:
            self.refresh()
            topic = self.topics.get(name)
        return topic

    def absence(self, topic_partition: TopicPartition) -> str:
        """Return in words why a partition no longer exists; "" if it exists as far as is known."""
        self.refresh()
        topic = self.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition < len(topic.queues):
            return ""
        count = len(topic.queues)
        if count:
            partitions = "1 partition" if count == 1 else f"{count} partitions"
            return f"topic {topic.name!r} was deleted and recreated, and has only {partitions} now"
        error = topic.error
        is_forbidden = error is not None and issubclass(error, AuthorizationError)
        what = f"no metadata of topic {topic.name!r}" if is_forbidden else f"topic {topic.name!r} is gone"
        return what + (f": {error.__name__}: {error.meaning()}" if error else "")

    def request(self, name: str) -> TopicEntry:
        """Ask the sender, again or for the first time, for a topic's metadata.

        The answer ends state REQUESTED. Another process may ask again before this one sees that: compare
        `TopicEntry.answers`.

        Raises:
            InvalidTopicError: Kafka does not allow the name.
            SlabFullError: the topic table is full.
        """
        check_topic(name)
        self.refresh()
        known = self.topics.get(name)
        begin = len(self._topics_by_entry) if known is None else known.entry
        request = partial(self._slab.tables.request, name.encode("ascii"), begin)
        _, entry = self._slab.tables_lock.run(request)
        if entry == _core.TABLES_FULL:
            most = self._slab.geometry.max_topics
            raise SlabFullError(
                f"no room for topic {name!r}: the slab has its {most} topics; set shmaccum.max.topics to {most + 1} or "
                "more (for all users of the slab)"
            )
        self.refresh()
        self._slab.button.press()
        return self.topics[name]

    def requested(self) -> list[str]:
        """Return the topics that producers wait for (the sender's side)."""
        self.refresh()
        topics = self._topics_by_entry
        states = self._column(Topic.STATE, len(topics))
        return [topic.name for topic, state in zip(topics, states, strict=True) if state == TopicState.REQUESTED]

    def _column(self, word: int, topics: int) -> list[int]:
        """Return one word of each of the first topic entries."""
        return column_of(self._words, self._geometry.topic(0) + word, topics, Topic.length)

    def update(self, name: str, partition_count: int, error: type[KafkaError] | None = None, topic_id: int = 0) -> None:
        """Store an answer about one topic, as `update_all`. Raises SlabFullError: it finds no room, and has FAILED."""
        if self.update_all([TopicUpdate(name, partition_count, error, topic_id)]):
            raise self.no_room(self.topics[name])

    def update_all(
        self, updates: Iterable[TopicUpdate], run: Callable[[Section], Outcome] | None = None
    ) -> list[TopicEntry]:
        """Store the cluster's state of topics (the sender's side); return those whose partitions find no room.

        These have FAILED, and keep the partitions that they had. ``run`` runs a section of the tables' lock, with the
        sender's short timeout. Raises LockTimeoutError: it timed out; some topics may have been stored.
        """
        run = run or self._slab.tables_lock.run
        without_room = []
        for update in updates:
            self.refresh()
            topic = self.topics[update.name]

            def store(entry: int = topic.entry, update: TopicUpdate = update) -> Outcome:
                return self._slab.tables.update(
                    entry,
                    update.partition_count,
                    0 if update.error is None else update.error.code & CODE_MASK,
                    update.topic_id,
                    update.is_answer,
                    len(self.queues_of(update.name)),
                    len(self.by_entry),
                    SlabFullError.code & CODE_MASK,
                )

            _, has_room = run(store)
            if not has_room:
                without_room.append(topic)
        self.refresh()
        return without_room

    def queues_of(self, name: str) -> list[PartitionQueue]:
        """Return the deques of all partition entries of a topic, including removed or half-added ones, not of lanes."""
        topic = self.topics.get(name)
        found = [] if topic is None else list(topic.queues)
        while (queue := self.queues.get(TopicPartition(name, len(found)))) is not None:
            found.append(queue)
        return found

    def all_of(self, topics: Collection[str]) -> list[PartitionQueue]:
        """Return the deques of all partition entries of topics, those of lanes included."""
        found = [queue for name in topics for queue in self.queues_of(name)]
        return found + [queue for queue in self.of_lanes.values() if queue.topic_partition.topic in topics]

    def lane_queue(self, lane: int, of: PartitionQueue) -> PartitionQueue:
        """Return a new object for the deque of a lane and a partition, whose entry it adds if there is none.

        The lane is given by its entry + 1. The caller holds it, so no other process adds an entry of it.

        Raises SlabFullError: the partition table is full.
        """
        queue = self.of_lanes.get((lane, of.topic_partition))
        if queue is None:
            self.refresh()
            add = partial(self._slab.tables.add_to_lane, lane - 1, of.entry, len(self.by_entry))
            _, entry = self._slab.tables_lock.run(add)
            if entry == _core.TABLES_FULL:
                raise SlabFullError(
                    f"no room for {of.topic_partition} in a transaction: all {self._slab.geometry.max_partitions} "
                    "partitions of the slab are in use; raise shmaccum.max.partitions (for all users of the slab)"
                )
            self.refresh()
            queue = self.by_entry[entry]
        return PartitionQueue(self._slab, queue.entry, of.topic_partition, lane)

    def no_room(self, topic: TopicEntry) -> SlabFullError:
        """Return the error for a topic whose partitions find no room, with the number to set."""
        geometry, needed = self._geometry, topic.needed
        used = self._words[Super.PARTITION_COUNT]
        return SlabFullError(
            f"no room for the {needed} partitions of topic {topic.name!r}: {used} of the slab's "
            f"{geometry.max_partitions} are in use; set shmaccum.max.partitions to "
            f"{used + needed - len(self.queues_of(topic.name))} or more (for all users of the slab)"
        )
