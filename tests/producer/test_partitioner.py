"""The partition of a record: the sticky one, which switches with a batch, or its key's, by murmur2."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2
from producers import settings_of, wait_until
from record_batches import examples
from runs import threads
from senders import HandRun

from shmaccum import Producer, ProducerConfig, TopicPartition
from shmaccum._core import Partition, murmur2
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.errors import TopicAuthorizationError
from shmaccum.producer.partitioner import StickyPartitioner, partition_for_key
from shmaccum.shm.layout import TopicState

BATCH = 1000


class _Queue(NamedTuple):
    topic_partition: TopicPartition


def queue_of(number: int) -> PartitionQueue:
    """Return what a partitioner needs of a deque."""
    return cast("PartitionQueue", _Queue(TopicPartition("t", number)))


class Partitions:
    """A topic of twenty partitions without batches."""

    queues = tuple(map(queue_of, range(20)))


def counting() -> StickyPartitioner:
    """Return one that chooses 0, 1, 2, ..."""
    numbers = itertools.count()
    return StickyPartitioner(Partitions(), BATCH, lambda times: list(itertools.islice(numbers, times)))


def sticky_of(partition_count: int, sticky_bytes: int = BATCH) -> StickyPartitioner:
    """Return one that chooses among some partitions alike."""
    return StickyPartitioner(Partitions(), sticky_bytes, lambda times: random.choices(range(partition_count), k=times))


def choose(sticky: StickyPartitioner, size: int, *, has_room: bool = True) -> int:
    """Send a record of ``size`` bytes; return its partition."""
    queue = queue_of(sticky.partition)
    if not has_room:
        queue = sticky.reroute(queue)
    sticky.note_appended(size)
    return queue.topic_partition.partition


def test_partition_changes_with_a_batch() -> None:
    """Once a batch of bytes has gone there, where another batch would begin, or at twice that wherever it is.

    A full batch is nearly always somewhat smaller than ``batch.size``, so a partition gets another one, as in Kafka.
    """
    sticky = counting()
    assert [choose(sticky, BATCH - 50, has_room=False) for _ in range(3)] == [0, 0, 1]
    sticky = counting()
    assert [choose(sticky, 300) for _ in range(8)] == [0] * 7 + [1]


def test_a_record_follows_a_thread_that_has_switched() -> None:
    """``isPartitionChanged``: it opens no batch where no other record will follow."""
    sticky = counting()
    queue = queue_of(sticky.partition)
    choose(sticky, 2 * BATCH)
    assert sticky.reroute(queue).topic_partition.partition == 1


@pytest.mark.parametrize("size", [10, 300, 5000])
def test_all_get_the_same(size: int) -> None:
    """``testUniformBuiltInPartitioner``: in the long run, whatever the sizes of the records."""
    random.seed(1)
    sticky, rounds = sticky_of(4), 40_000
    counts = Counter(choose(sticky, size, has_room=number % 7 != 0) for number in range(rounds))
    assert counts == pytest.approx(dict.fromkeys(range(4), rounds / 4), rel=0.15)


def test_batches_are_spread_evenly_in_pieces() -> None:
    """The partition of the moment has the first piece, the next one the last."""
    sticky = counting()
    assert sticky.spread(1, 1) == {0: 1}
    assert sticky.partition == 0
    assert sticky.spread(3, 1) == {0: 1, 1: 1, 2: 1}
    assert sticky.partition == 2
    assert sticky.spread(2, 0) == {3: 1, 4: 1}
    assert sticky.partition == 4
    random.seed(1)
    assert sticky_of(4).spread(1000, 0) == pytest.approx(dict.fromkeys(range(4), 250), abs=50)


# --- keys -----------------------------------------------------------------------------------------------


@examples
@given(st.binary(max_size=40) | st.integers(250, 270).map(lambda size: bytes(range(90)) * 3 + bytes(size - 250)))
def test_kafka_python_agrees(data: bytes) -> None:
    theirs = kafka_python_murmur2(data)
    assert murmur2(data) & 0xFFFFFFFF == theirs & 0xFFFFFFFF
    assert -(2**31) <= murmur2(data) < 2**31
    assert partition_for_key(data, 7) == (theirs & 0x7FFFFFFF) % 7


# --- what the broker gets --------------------------------------------------------------------------------


@pytest.fixture
def partitions() -> int:
    """Return how many partitions the topic has."""
    return 100


@pytest.fixture
def config(slab_name: str, tmp_path: Path, partitions: int) -> ProducerConfig:
    """Return the settings of a slab with small batches."""
    small = {"batch_size": 1024, "shmaccum_slot_size": 1024, "num_partitions": partitions, "linger_ms": 10}
    return ProducerConfig.parse(settings_of(slab_name, tmp_path / "log", **small))


@pytest.fixture
def produce(run: HandRun, config: ProducerConfig) -> Iterator[Callable[[], Producer]]:
    """Return a function that makes a producer, which is closed without a wait: no sender runs then."""
    made: list[Producer] = []

    def make() -> Producer:
        made.append(Producer(config))
        return made[-1]

    yield make
    for producer in made:
        producer.close(0)


def created(producer: Producer) -> int:
    """Return how many batches there have been."""
    return int(producer.metrics()["producer-metrics"]["batch-create-total"])


def test_a_switch_leaves_no_fractional_batch(
    run: HandRun, config: ProducerConfig, produce: Callable[[], Producer]
) -> None:
    """``RecordAccumulatorTest.testBuiltInPartitionerFractionalBatches``: where batches linger before they are full."""
    producer = produce()
    for _ in range(10):
        before = created(producer)
        futures = [producer.send("t", bytes(32)) for _ in range(config.batch_size * 2 // 3 // 32)]
        run.run(2)
        assert created(producer) - before == 1
        assert {future.get(0).partition for future in futures} == {futures[0].get(0).partition}


@pytest.mark.parametrize("producers", [1, 2])
def test_a_switch_leaves_no_batch_of_one_record(run: HandRun, produce: Callable[[], Producer], producers: int) -> None:
    """Where batches are full before they have lingered: no more batches than the records fill, some of which grow.

    Each process has a partition of the moment of its own; where it is the same, they fill the batches together.
    """
    made = [produce() for _ in range(producers)]
    before = created(made[0])
    futures = [each.send("t", bytes(32), timestamp_ms=0) for _ in range(24 * 40) for each in made]  # 24 in a batch
    run.run(50 * producers + 10)
    assert {future.get(0).timestamp for future in futures} == {0}
    assert 30 * producers < created(made[0]) - before <= 40 * producers + 2 * (producers - 1)
    assert len({future.topic_partition for future in futures}) > 10


@pytest.mark.parametrize(("rows", "records", "rounds"), [(100, 0, 10), (7, 7, 50)])
def test_columns_leave_one_batch_that_is_not_full(
    run: HandRun, produce: Callable[[], Producer], rows: int, records: int, rounds: int
) -> None:
    """Records fill batches together with them."""
    batch = pa.record_batch({"value": pa.array([bytes(32)] * rows)})
    producer = produce()
    for _ in range(rounds):
        producer.send_batch("t", batch)
        for _ in range(records):
            producer.send("t", bytes(32))
    assert created(producer) <= (rows + records) * rounds // 24 + 2
    run.run(200)


# --- what the sender learns: leaders that go, deques that get long, topics that are forbidden ---------------


@pytest.mark.parametrize("partitions", [3])
def test_records_and_columns_keep_away_from_a_partition_without_leader(
    run: HandRun, produce: Callable[[], Producer]
) -> None:
    producer = produce()
    run.transport.no_leader = frozenset({TopicPartition("t", 1)})
    run.run(1)
    futures = []
    for _ in range(40):
        futures.append(producer.send("t", b"x" * 1000))
        run.run(2)
    # The partition of the moment was chosen before: a batch's worth may still go there.
    assert {future.topic_partition.partition for future in futures[2:]} == {0, 2}
    rows = producer.send_batch("t", pa.record_batch({"value": [b"x" * 500] * 100}))
    run.transport.no_leader = frozenset()
    run.run(60)
    assert set(rows.get(0).partitions.tolist()) == {0, 2}


@pytest.mark.parametrize("partitions", [3])
def test_a_partition_that_is_not_served_gets_less(run: HandRun, produce: Callable[[], Producer]) -> None:
    producer = produce()
    for partition in range(3):
        run.slab.words[run.slab.geometry.partition(partition) + Partition.MAX_BYTES] = 1  # no batch grows
    random.seed(1)  # else it is only likely
    for _ in range(20):
        producer.send("t", b"x" * 1000, partition=0)
    chosen = Counter(producer.send("t", b"x" * 1000).topic_partition.partition for _ in range(90))
    assert 2 * chosen[0] < min(chosen[1], chosen[2])
    run.run(60)


def test_answer_counts_despite_a_later_request(run: HandRun, produce: Callable[[], Producer]) -> None:
    """A thread whose turn to run comes late would else wait for the next answer, and miss that as well."""
    producer, known = produce(), run.accumulator.map

    def ask(_: int) -> None:
        with pytest.raises(TopicAuthorizationError):
            producer.partitions_for("forbidden")

    with threads(1, ask):
        wait_until(lambda: known.requested() == ["forbidden"])
        known.update("forbidden", 0, TopicAuthorizationError)
        assert known.request("forbidden").state is TopicState.REQUESTED
        producer._slab.wakeups.wake(producer._slab.me)
