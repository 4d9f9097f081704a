"""The sticky partition: it switches with a batch, and all partitions get equal shares in the long run."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pyarrow as pa
import pytest
from producers import settings_of
from runs import in_threads
from senders import HandRun

from shmaccum import Producer, ProducerConfig, TopicPartition
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.producer.partitioner import StickyPartitioner

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


def test_threads_share_it() -> None:
    """They may count wrongly among each other, but what they get is a partition."""
    sticky = sticky_of(7, sticky_bytes=10)

    def run(_: int) -> None:
        assert all(0 <= choose(sticky, 3, has_room=False) < 7 for _ in range(5000))

    in_threads(4, run)


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


# --- what the broker gets --------------------------------------------------------------------------------


@pytest.fixture
def config(slab_name: str, tmp_path: Path) -> ProducerConfig:
    """Return the settings of a slab with small batches and of a topic with many partitions."""
    return ProducerConfig.parse(
        settings_of(
            slab_name, tmp_path / "log", batch_size=1024, shmaccum_slot_size=1024, num_partitions=100, linger_ms=10
        )
    )


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
