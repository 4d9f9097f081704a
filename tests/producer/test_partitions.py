"""What a running producer makes of what the sender learns: leaders that go, deques that get long."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from producers import settings_of
from senders import HandRun

from shmaccum import Producer, ProducerConfig, TopicPartition


@pytest.fixture
def config(slab_name: str, tmp_path: Path) -> ProducerConfig:
    """Return the settings of a slab with small batches and of a topic with three partitions."""
    return ProducerConfig.parse(settings_of(slab_name, tmp_path / "log", batch_size=1024, shmaccum_slot_size=1024))


@pytest.fixture
def producer(run: HandRun, config: ProducerConfig) -> Iterator[Producer]:
    """Return a producer that the sender's passes are made for."""
    producer = Producer(config)
    yield producer
    producer.close(0)


def test_records_and_columns_keep_away_from_a_partition_without_leader(run: HandRun, producer: Producer) -> None:
    run.transport.no_leader = frozenset({TopicPartition("t", 1)})
    run.run(1)
    futures = []
    for _ in range(40):
        futures.append(producer.send("t", b"x" * 1000))
        run.run(2)
    # The partition of the moment was chosen before: a batch's worth may still go there.
    assert {future.topic_partition.partition for future in futures[2:]} == {0, 2}
    producer.send_batch("t", pa.record_batch({"value": [b"x" * 500] * 100}))
    queued = [len(run.accumulator.map.queues[TopicPartition("t", number)]) for number in range(3)]
    assert queued[1] <= 1
    assert min(queued[0], queued[2]) > 5
    run.transport.no_leader = frozenset()
    run.run(60)


def test_a_partition_that_is_not_served_gets_less(run: HandRun, producer: Producer) -> None:
    random.seed(1)  # else it is only likely
    for _ in range(20):
        producer.send("t", b"x" * 1000, partition=0)
    chosen = Counter(producer.send("t", b"x" * 1000).topic_partition.partition for _ in range(90))
    assert 2 * chosen[0] < min(chosen[1], chosen[2])
    run.run(60)
