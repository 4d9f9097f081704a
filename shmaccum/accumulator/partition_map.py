"""The copy-on-write map of topics and partitions, across processes.

The seeds' ``CopyOnWriteMap``: looked up for every record, changed for every new partition. The truth is in two
tables of the slab that only ever grow; every process has a dict of its own, which it replaces when the shared
generation has moved. Looking up takes no lock.

A topic entry is made by the first producer that asks for it and completed by the sender, which alone adds
partitions. An entry's state (a topic's) or key (a partition's) is stored last, the count after that. The number of
a topic's partitions is stored when all of them are there: nobody hashes a key over some of them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from shmaccum.accumulator.partition_queue import PartitionQueue
from shmaccum.cluster import TopicPartition, check_topic
from shmaccum.errors import KafkaError, SlabFullError, error_for_code
from shmaccum.shm import soundness
from shmaccum.shm.layout import WORD, Partition, Super, Topic, TopicState
from shmaccum.shm.slab import Slab

_GENERATION: Final = Super.GENERATION


class TopicEntry:
    """One topic, as one process sees it."""

    __slots__ = ("_at", "_words", "entry", "name", "queues")

    def __init__(self, slab: Slab, entry: int, name: str) -> None:
        self.entry = entry
        self.name = name
        self.queues: Sequence[PartitionQueue] = ()
        """By partition number, as far as this process has looked; replaced, never changed."""
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
        """Why there was no metadata of it by the last answer; None if there was, or if there is no answer yet."""
        code = int(self._words[self._at + Topic.ERROR])
        return error_for_code(code - 0x10000 if code & 0x8000 else code) if code else None


class PartitionMap:
    """All topics and partitions of a slab, as one process sees them."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._words = slab.words
        self._memory = slab.memory
        self._geometry = slab.geometry
        self._generation = -1
        self._forked()
        self.topics: Mapping[str, TopicEntry] = {}
        """By name; replaced, never changed."""
        self.queues: Mapping[TopicPartition, PartitionQueue] = {}
        """By topic and partition; replaced, never changed."""
        self.by_entry: list[PartitionQueue] = []
        """By partition entry."""
        slab.tables_lock.rebuild = self._rebuild
        slab.on_fork(self._forked)
        self.refresh()

    def _forked(self) -> None:
        self._refreshing = threading.RLock()

    def refresh(self) -> None:
        """Take in what has been added since the last look. Threads may do so at once.

        Raises:
            SlabDamagedError: the tables say what they cannot.
        """
        if self._words[Super.GENERATION] != self._generation:
            with self._refreshing:
                self._refresh()

    def _refresh(self) -> None:
        words, geometry = self._words, self._geometry
        generation = words[Super.GENERATION]
        soundness.check_tables(self._slab.name, words, geometry)
        partition_entries = words[Super.PARTITION_COUNT]  # before the topics: the topics of all of them are there
        topics = dict(self.topics)
        for entry in range(len(topics), words[Super.TOPIC_COUNT]):
            name = self._name(entry)
            if name in topics:
                raise self._slab.damaged(f"topic entry {entry} has the name {name!r} of another one")
            topics[name] = TopicEntry(self._slab, entry, name)
        names = list(topics)
        queues = dict(self.queues)
        by_entry = list(self.by_entry)
        for entry in range(len(by_entry), partition_entries):
            key = words[geometry.partition(entry) + Partition.KEY]
            topic_partition = TopicPartition(names[(key >> 32) - 1], int(key & 0xFFFFFFFF))
            if topic_partition in queues:
                raise self._slab.damaged(f"partition entry {entry} is {topic_partition}, as is another one")
            queue = PartitionQueue(self._slab, entry, topic_partition)
            queues[topic_partition] = queue
            by_entry.append(queue)
        for topic in topics.values():
            count = topic.partition_count
            # If some came only just now, the generation is about to move, and they are seen then.
            if len(topic.queues) < count and TopicPartition(topic.name, count - 1) in queues:
                topic.queues = [queues[TopicPartition(topic.name, number)] for number in range(count)]
        self.topics, self.queues, self.by_entry = topics, queues, by_entry
        self._generation = generation

    def current(self, name: str) -> TopicEntry | None:
        """Return a topic's entry as of now, None if nobody has asked for it yet."""
        if self._memory.words[_GENERATION] != self._generation:
            self.refresh()
        return self.topics.get(name)

    def topic(self, name: str) -> TopicEntry | None:
        """Return a topic's entry, None if nobody has asked for it yet."""
        topic = self.topics.get(name)
        if topic is None:
            self.refresh()
            topic = self.topics.get(name)
        return topic

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue | None:
        """Return a partition's deque, None if it is not known to be."""
        queue = self.queues.get(topic_partition)
        if queue is None:
            self.refresh()
            queue = self.queues.get(topic_partition)
        return queue

    def request(self, name: str) -> TopicEntry:
        """Ask the sender, again or for the first time, for a topic's metadata.

        Its answer ends state REQUESTED, but somebody else may ask again before it is seen: `TopicEntry.answers` tells.

        Raises:
            InvalidTopicError: Kafka does not allow the name.
            SlabFullError: the topic table is full.
        """
        check_topic(name)
        words, geometry = self._words, self._geometry
        full = False
        with self._slab.tables_lock:
            self.refresh()
            topic = self.topics.get(name)
            if topic is not None:
                # Partitions that are known stay so: producers go by them, and not by the state.
                words[geometry.topic(topic.entry) + Topic.STATE] = TopicState.REQUESTED
            elif words[Super.TOPIC_COUNT] < geometry.max_topics:
                self._add_topic(name)
            else:
                full = True
            words[Super.METADATA_REQUESTS] += 1
            self.refresh()
        if full:
            raise SlabFullError(
                f"no room for topic {name!r}: the slab has its {geometry.max_topics} topics; raise "
                "shmaccum.max.topics (for all users of the slab)"
            )
        self._slab.rope.pull()
        return self.topics[name]

    def requested(self) -> list[str]:
        """Return the topics that producers wait for (the sender's side)."""
        self.refresh()
        return [name for name, topic in self.topics.items() if topic.state == TopicState.REQUESTED]

    def update(
        self,
        name: str,
        partition_count: int,
        error: type[KafkaError] | None,
        lock: AbstractContextManager[None] | None = None,
    ) -> None:
        """Store what the cluster says of a topic (the sender's side). A topic's partitions only ever grow.

        Args:
            name: of the topic, which the map has.
            partition_count: how many it has now; 0 where that is not known.
            error: why not.
            lock: the tables' lock, for a sender that does not wait for it for long.

        Raises:
            LockTimeoutError: as ``lock`` says.
            SlabFullError: the partition table is full; the topic has FAILED then.
        """
        words, geometry = self._words, self._geometry
        full = False
        with lock or self._slab.tables_lock:
            self.refresh()
            topic = self.topics[name]
            at = geometry.topic(topic.entry)
            there = len(topic.queues)
            while TopicPartition(name, there) in self.queues:  # the last sender died over them
                there += 1
            missing = range(there, partition_count)
            full = words[Super.PARTITION_COUNT] + len(missing) > geometry.max_partitions
            if error is None and not full:
                for number in missing:
                    self._add_partition(topic, number)
                words[at + Topic.PARTITIONS] = max(partition_count, there)
                words[at + Topic.ERROR] = 0
                words[at + Topic.STATE] = TopicState.KNOWN
            else:
                words[at + Topic.ERROR] = (error or SlabFullError).code & 0xFFFF
                words[at + Topic.STATE] = TopicState.FAILED
            words[at + Topic.ANSWERS] += 1
            words[Super.GENERATION] += 1
            self.refresh()
        if full:
            raise SlabFullError(
                f"no room for the {partition_count} partitions of topic {name!r}: the slab has "
                f"{geometry.max_partitions}; raise shmaccum.max.partitions (for all users of the slab)"
            )

    def _name(self, entry: int) -> str:
        at = self._geometry.topic(entry)
        start = (at + Topic.NAME) * WORD
        return str(self._slab.buffer[start : start + self._words[at + Topic.NAME_LENGTH]], "ascii")

    def _add_topic(self, name: str) -> None:
        words = self._words
        entry = words[Super.TOPIC_COUNT]
        at = self._geometry.topic(entry)
        start = (at + Topic.NAME) * WORD
        self._slab.buffer[start : start + len(name)] = name.encode("ascii")
        words[at + Topic.NAME_LENGTH] = len(name)
        words[at + Topic.STATE] = TopicState.REQUESTED
        words[Super.TOPIC_COUNT] = entry + 1
        words[Super.GENERATION] += 1

    def _add_partition(self, topic: TopicEntry, number: int) -> None:
        words = self._words
        entry = words[Super.PARTITION_COUNT]
        words[self._geometry.partition(entry) + Partition.KEY] = topic.entry + 1 << 32 | number
        words[Super.PARTITION_COUNT] = entry + 1

    def _rebuild(self) -> None:
        """Go on after a death in mid-change: entries behind the counts are not there, the rest is whole."""
        self._words[Super.GENERATION] += 1
