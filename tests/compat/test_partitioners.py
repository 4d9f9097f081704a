"""A key's partition is the one that librdkafka chooses."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from brokers import PATIENCE_S, consume
from fixture_types import Make
from hypothesis import given
from hypothesis import strategies as st

from shmaccum.compat.confluent.settings import PARTITIONERS
from tools.kafka import KafkaCluster

KEYS = st.binary(min_size=1, max_size=40)
COUNTS = st.integers(min_value=1, max_value=2**31 - 1)


@given(KEYS, COUNTS)
def test_hashes_are_those_of_librdkafka(key: bytes, count: int) -> None:
    for name, theirs in (
        ("consistent", confluent_kafka.consistent),
        ("consistent_random", confluent_kafka.consistent),
        ("murmur2", confluent_kafka.murmur2),
        ("murmur2_random", confluent_kafka.murmur2),
        ("fnv1a", confluent_kafka.fnv1a),
        ("fnv1a_random", confluent_kafka.fnv1a),
    ):
        assert PARTITIONERS[name](key, count) == theirs(key, count), name


def test_a_null_key_has_one_partition_or_any() -> None:
    assert PARTITIONERS["consistent"](None, 7) == confluent_kafka.consistent(b"", 7)
    assert PARTITIONERS["murmur2"](None, 7) == confluent_kafka.murmur2(b"", 7)
    assert PARTITIONERS["fnv1a"](None, 7) == confluent_kafka.fnv1a(b"", 7)
    for name in ("random", "consistent_random", "murmur2_random", "fnv1a_random"):
        assert PARTITIONERS[name](None, 7) is None
    assert PARTITIONERS["consistent_random"](b"", 7) is None
    assert PARTITIONERS["random"](b"key", 7) is None


@pytest.mark.parametrize(
    ("partitioner", "keys"), [("random", ["", *map(str, range(20))]), ("consistent_random", [None, ""])]
)
def test_at_random_is_the_sticky_partition_whatever_the_key(
    existing: str, confluent: Make, partitioner: str, keys: list[str | None]
) -> None:
    places: set[int] = set()
    producer = confluent({"partitioner": partitioner})
    for key in keys:
        producer.produce(existing, b"value", key, callback=lambda _, message: places.add(message.partition()))
    assert producer.flush() == 0
    assert len(places) == 1


def test_a_partition_of_none_is_no_partition(existing: str, confluent: Make) -> None:
    places: dict[bytes, set[int]] = {}
    producer = confluent()
    for number in range(20):
        for partition in (None, -1):
            producer.produce(
                existing,
                b"value",
                f"key {number}",
                partition,
                lambda _, message: places.setdefault(message.key(), set()).add(message.partition()),
            )
    assert producer.flush() == 0
    assert [len(found) for found in places.values()] == [1] * 20


def test_keys_stay_in_their_partitions(
    kafka: KafkaCluster, settings: dict[str, Any], topic: str, confluent: Make
) -> None:
    for partitioner in (None, "consistent", "murmur2_random", "fnv1a"):
        name = f"{topic}-{partitioner}"
        kafka.admin.create_topic(name, 3)
        given = settings if partitioner is None else settings | {"partitioner": partitioner}
        theirs, ours = confluent_kafka.Producer(given), confluent(given)
        for number in range(50):
            for producer in (theirs, ours):
                producer.produce(name, f"{type(producer).__module__}", f"key {number}")
        assert (theirs.flush(PATIENCE_S), ours.flush(PATIENCE_S)) == (0, 0)
        places: dict[bytes | None, list[int]] = {}
        for partition, records in consume(settings, name).items():
            for record in records:
                places.setdefault(record.key(), []).append(partition)
        assert len(places) == 50
        assert all(len(found) == 2 and len(set(found)) == 1 for found in places.values())
