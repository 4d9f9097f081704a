"""What a running producer makes of what the sender learns: topics that grow, leaders that go, deques that get long."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from producers import settings_of
from senders import HandRun, read_topic

from shmaccum import Producer, ProducerConfig, TopicPartition
from shmaccum.producer.partitioner import partition_for_key

KEYS = [b"key %d" % number for number in range(40)]


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


def grow(run: HandRun, log_dir: str) -> None:
    """Let the topic grow, and the sender find that without a request."""
    (Path(log_dir) / "t-3").mkdir()
    run.transport.request_update(["t"])
    run.run(1)


def test_keys_go_by_the_new_number_of_partitions(run: HandRun, producer: Producer, config: ProducerConfig) -> None:
    before = {key: producer.send("t", key=key) for key in KEYS}
    run.run(3)
    grow(run, config.log_dir)
    assert producer.partitions_for("t") == {0, 1, 2, 3}
    after = {key: producer.send("t", key=key) for key in KEYS}
    run.run(3)
    assert {key: future.get(0).partition for key, future in before.items()} == {
        key: partition_for_key(key, 3) for key in KEYS
    }
    assert {key: future.get(0).partition for key, future in after.items()} == {
        key: partition_for_key(key, 4) for key in KEYS
    }


def test_columns_go_by_it_too(run: HandRun, producer: Producer, config: ProducerConfig) -> None:
    producer.send("t", key=b"first")
    grow(run, config.log_dir)
    producer.send_batch("t", pa.record_batch({"key": KEYS}))
    run.run(3)
    found = {number: [each.key for each in there] for number, there in read_topic(Path(config.log_dir), "t").items()}
    assert all(partition_for_key(key, 4) == number for number in found for key in found[number] if key != b"first")
    assert found[3]


def test_records_without_keys_find_the_new_partition(run: HandRun, producer: Producer, config: ProducerConfig) -> None:
    producer.send("t", b"first")
    grow(run, config.log_dir)
    chosen = Counter()
    for _ in range(60):
        chosen[producer.send("t", b"x" * 1000).topic_partition.partition] += 1
        run.run(2)
    assert sorted(chosen) == [0, 1, 2, 3]


def test_records_without_keys_keep_away_from_a_partition_without_leader(run: HandRun, producer: Producer) -> None:
    run.transport.no_leader = frozenset({TopicPartition("t", 1)})
    run.run(1)
    futures = []
    for _ in range(40):
        futures.append(producer.send("t", b"x" * 1000))
        run.run(2)
    # The partition of the moment was chosen before: a batch's worth may still go there.
    assert {future.topic_partition.partition for future in futures[2:]} == {0, 2}
    run.transport.no_leader = frozenset()
    run.run(2)


def test_columns_keep_away_from_it_too(run: HandRun, producer: Producer) -> None:
    run.transport.no_leader = frozenset({TopicPartition("t", 1)})
    run.run(1)
    producer.send_batch("t", pa.record_batch({"value": [b"x" * 500] * 100}))
    queued = [len(run.accumulator.map.queues[TopicPartition("t", number)]) for number in range(3)]
    assert queued[1] == 0
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
