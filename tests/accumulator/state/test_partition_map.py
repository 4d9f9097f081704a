"""The copy-on-write map: every process sees a change whole or not at all, despite deaths."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from accumulators import TOPIC
from fixture_types import OpenAccumulator
from runs import threads

from shmaccum._core import KEY_TOPIC_SHIFT, Partition, Super
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.cluster import TopicPartition
from shmaccum.errors import KafkaError, TopicAuthorizationError, UnknownTopicOrPartitionError
from shmaccum.shm.layout import TopicState
from tools.support.accumulators import Accumulators


@pytest.fixture
def known(accumulator: Accumulators) -> PartitionMap:
    """The map of an accumulator with one topic, "test", of four partitions; 7 more and 28 more find room."""
    return accumulator.map


@pytest.fixture
def other(accumulator: Accumulators) -> PartitionMap:
    """The same map in another process that has not refreshed."""
    return PartitionMap(accumulator.slab)


def partitions(of: PartitionMap, topic: str) -> list[int]:
    entry = of.topic(topic)
    return [] if entry is None else [queue.topic_partition.partition for queue in entry.queues]


def test_topic_lifecycle(known: PartitionMap, other: PartitionMap) -> None:
    assert other.topic("new") is None
    entry = known.request("new")
    assert (entry.state, partitions(known, "new")) == (TopicState.REQUESTED, [])
    assert other.requested() == ["new"]
    other.update("new", 3, None)
    known.refresh()
    assert (entry.state, partitions(known, "new")) == (TopicState.KNOWN, [0, 1, 2])
    assert known.queues[TopicPartition("new", 2)] is entry.queues[2]
    assert TopicPartition("new", 3) not in known.queues
    # It grows; what was there stays what it was.
    first = entry.queues[0]
    other.update("new", 5, None)
    known.refresh()
    assert TopicPartition("new", 4) in known.queues
    assert partitions(known, "new") == [0, 1, 2, 3, 4]
    assert entry.queues[0] is first
    assert known.topic("new") is entry


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnknownTopicOrPartitionError, "topic 'test' is gone: UnknownTopicOrPartitionError"),
        (TopicAuthorizationError, "no metadata of topic 'test': TopicAuthorizationError"),
    ],
)
def test_absent_topic_says_why(known: PartitionMap, other: PartitionMap, error: type[KafkaError], said: str) -> None:
    other.update(TOPIC, 0, error)
    known.refresh()
    assert known.absence(TopicPartition(TOPIC, 0)).startswith(said)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Have threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_refresh_concurrently(accumulate: OpenAccumulator) -> None:
    """However they come in between each other, none ever sees some of its partitions, or any of them twice."""
    rounds = 15
    accumulator = accumulate(shmaccum_max_topics=rounds + 1, shmaccum_max_partitions=4 + rounds * 100)
    known, sender = accumulator.map, PartitionMap(accumulator.slab)
    seen: set[int] = set()
    together = threading.Barrier(4)

    def look(_: int) -> None:
        together.wait()
        while not (entry := known.topic(name)) or not entry.queues:
            known.refresh()
        seen.add(len(entry.queues))
        known.refresh()
        seen.add(len(entry.queues))

    for number in range(rounds):
        name = f"wide{number}"
        known.request(name)
        with threads(3, look):
            together.wait()
            sender.update(name, 100, None)
    assert seen == {100}


@pytest.fixture
def roomy(accumulate: OpenAccumulator) -> Accumulators:
    """An accumulator with room for more topics."""
    return accumulate(shmaccum_max_topics=4, shmaccum_max_partitions=16)


def test_half_added_topic_is_used_once_it_is_whole(roomy: Accumulators) -> None:
    """A key is never hashed over some of the partitions."""
    topic = roomy.map.request("new")
    words, geometry = roomy.slab.words, roomy.slab.geometry
    for number in range(3):  # of 6: then the sender died
        words[geometry.partition(4 + number) + Partition.KEY] = topic.entry + 1 << KEY_TOPIC_SHIFT | number
        words[Super.PARTITION_COUNT] = 4 + number + 1
    roomy.map.request("another")  # moves the generation, so that everybody looks
    assert partitions(roomy.map, "new") == []
    assert partitions(PartitionMap(roomy.slab), "new") == []
    PartitionMap(roomy.slab).update("new", 6, None)
    assert words[Super.PARTITION_COUNT] == 4 + 6
    roomy.map.refresh()
    assert TopicPartition("new", 5) in roomy.map.queues
    assert partitions(roomy.map, "new") == list(range(6))
