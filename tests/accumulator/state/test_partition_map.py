"""The copy-on-write map: every process sees a change whole or not at all, despite deaths."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest
from accumulators import TOPIC, config_of, open_accumulator
from fixture_types import Link, OpenAccumulator, Start
from runs import threads

from shmaccum._core import KEY_TOPIC_SHIFT, Partition, Super, Topic
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.cluster import TopicPartition
from shmaccum.errors import NetworkError, SlabFullError, TopicAuthorizationError, UnknownTopicOrPartitionError
from shmaccum.shm.layout import TopicState
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators
from tools.support.locks import held


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


def test_topic_recreated_with_fewer_partitions(known: PartitionMap, other: PartitionMap) -> None:
    """Batches of removed partitions stay, and are sent if the topic grows again."""
    entry = known.request("new")
    other.update("new", 5, None, topic_id=1)
    known.refresh()
    third = entry.queues[2]
    other.update("new", 2, None, topic_id=2)
    known.refresh()
    assert (entry.state, partitions(known, "new"), entry.topic_id) == (TopicState.KNOWN, [0, 1], 2)
    assert known.queues[TopicPartition("new", 2)] is third
    assert "only 2 partitions" in known.absence(TopicPartition("new", 2))
    assert known.absence(TopicPartition("new", 1)) == ""
    used = known._words[Super.PARTITION_COUNT]
    other.update("new", 6, None, topic_id=2)
    known.refresh()
    assert partitions(known, "new") == [0, 1, 2, 3, 4, 5]
    assert entry.queues[2] is third
    assert known._words[Super.PARTITION_COUNT] == used + 1
    assert partitions(PartitionMap(known._slab), "new") == [0, 1, 2, 3, 4, 5]


def test_deleted_topic(known: PartitionMap, other: PartitionMap) -> None:
    """A producer that sends to it requests metadata, as for a new one."""
    entry = known.topic(TOPIC)
    other.update(TOPIC, 0, UnknownTopicOrPartitionError)
    known.refresh()
    assert (entry.state, partitions(known, TOPIC)) == (TopicState.FAILED, [])
    assert known.absence(TopicPartition(TOPIC, 0)).startswith("topic 'test' is gone: UnknownTopicOrPartitionError")
    other.update(TOPIC, 4, None)
    known.refresh()
    assert (entry.state, partitions(known, TOPIC)) == (TopicState.KNOWN, [0, 1, 2, 3])


def test_a_forbidden_topic_is_not_said_to_be_gone(known: PartitionMap, other: PartitionMap) -> None:
    other.update(TOPIC, 0, TopicAuthorizationError)
    known.refresh()
    assert known.absence(TopicPartition(TOPIC, 0)).startswith("no metadata of topic 'test': TopicAuthorizationError")


def test_known_topic_stays_usable_during_a_request(known: PartitionMap, other: PartitionMap) -> None:
    known.request(TOPIC)
    assert partitions(known, TOPIC) == partitions(other, TOPIC) == [0, 1, 2, 3]
    other.update(TOPIC, 4, NetworkError)  # no broker is reachable: the topic's state is unknown
    known.refresh()
    assert partitions(known, TOPIC) == [0, 1, 2, 3]


def test_lookup_takes_no_lock(known: PartitionMap) -> None:
    """A lookup of a known topic works while another process holds the tables' lock."""
    with held(known._slab.tables_lock):
        assert TopicPartition(TOPIC, 0) in known.queues
        assert known.topic(TOPIC) is not None
        assert known.topic("nobody asked") is None


def test_longest_name(known: PartitionMap, other: PartitionMap) -> None:
    name = "x" * 249
    known.request(name)
    assert other.topic(name) is not None
    assert [*other.topics] == [TOPIC, name]


def test_full_partition_table_raises(known: PartitionMap, other: PartitionMap) -> None:
    large, small = known.request("large"), known.request("small")
    with pytest.raises(SlabFullError, match=r"29 partitions of topic 'large': 4 .* 32 .*max\.partitions to 33"):
        other.update("large", 29, None)
    known.refresh()
    assert (large.state, large.error, partitions(known, "large")) == (TopicState.FAILED, SlabFullError, [])
    other.update("small", 28, None)
    known.refresh()
    assert (small.state, len(small.queues)) == (TopicState.KNOWN, 28)


# --- at once --------------------------------------------------------------------------------------------


def request_topics(link: Link, name: str) -> dict[str, int]:
    accumulator = open_accumulator(config_of(name))
    link.send("ready")
    link.recv()
    entries = {f"topic{number}": accumulator.map.request(f"topic{number}").entry for number in range(7)}
    detach(accumulator.slab)
    return entries


def test_two_processes_request_the_same_topics(accumulator: Accumulators, slab_name: str, start: Start) -> None:
    children = [start(request_topics, slab_name) for _ in range(2)]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.tell()
    one, two = (child.result() for child in children)
    assert one == two == {f"topic{number}": number + 1 for number in range(7)}
    accumulator.map.refresh()
    assert [*accumulator.map.topics] == [TOPIC, *one]


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


# --- death ----------------------------------------------------------------------------------------------


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


def test_change_cut_short_by_a_death_is_seen_after_takeover(roomy: Accumulators) -> None:
    """The dead sender has stored the smaller count but not raised the generation."""
    other = PartitionMap(roomy.slab)
    words, at = roomy.slab.words, roomy.slab.geometry.topic(0)
    with held(roomy.slab.tables_lock, unfinished=True):
        words[at + Topic.CHANGED] = words[Super.GENERATION] + 1
        words[at + Topic.PARTITIONS] = 1
    other.refresh()
    assert partitions(other, TOPIC) == [0, 1, 2, 3]
    roomy.map.request(TOPIC)  # repairs
    other.refresh()
    assert partitions(other, TOPIC) == partitions(roomy.map, TOPIC) == [0]
