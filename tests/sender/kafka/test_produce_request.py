"""The request that is written here is byte for byte the one that the library writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest

from shmaccum._core import ProduceBatch
from shmaccum.cluster import TopicPartition
from shmaccum.kafka.handshake import NEWEST_PRODUCE, OLDEST_PRODUCE
from shmaccum.sender.kafka.produce_request import ProduceEncoder, by_partition

TOPICS = st.text("abcdefghijklmnopqrstuvwxyz._-", min_size=1, max_size=249)


def batch(topic: str, partition: int, payload: bytes) -> ProduceBatch:
    return ProduceBatch(TopicPartition(topic, partition), (memoryview(payload),), 1, 2, -1, -1, -1, -1, 0)


def by_library(version: int, correlation_id: int, client_id: str, batches: list[ProduceBatch], **fields: Any) -> bytes:
    Topic = ProduceRequest.TopicProduceData
    topics: dict[str, list[Any]] = {}
    for each in batches:
        data = Topic.PartitionProduceData(index=each.topic_partition.partition, records=b"".join(each.payload))
        topics.setdefault(each.topic_partition.topic, []).append(data)
    request = ProduceRequest(
        topic_data=[Topic(name=name, partition_data=data) for name, data in topics.items()],
        **fields,
    )
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(framed=True, header=True))


@settings(max_examples=30)
@given(
    version=st.integers(OLDEST_PRODUCE, NEWEST_PRODUCE),
    batches=st.lists(
        st.builds(batch, TOPICS, st.integers(0, 2**31 - 1), st.binary(min_size=1, max_size=300)),
        min_size=1,
        max_size=5,
        unique_by=lambda each: each.topic_partition,
    ),
    correlation_id=st.integers(0, 2**31 - 1),
    acks=st.sampled_from([-1, 0, 1]),
    client_id=st.text(max_size=20),
    transactional_id=st.none() | st.text(max_size=200),
)
def test_request_equals_the_librarys(
    version: int,
    batches: list[ProduceBatch],
    correlation_id: int,
    acks: int,
    client_id: str,
    transactional_id: str | None,
) -> None:
    encoder = ProduceEncoder(version, client_id, acks, 30_000)
    buffers = encoder.encode(by_partition(batches), correlation_id, transactional_id)
    fields = {"acks": acks, "timeout_ms": 30_000, "transactional_id": transactional_id}
    assert b"".join(buffers) == by_library(version, correlation_id, client_id, batches, **fields)


@pytest.mark.parametrize("version", [OLDEST_PRODUCE, NEWEST_PRODUCE])
@pytest.mark.parametrize("size", [127, 128, 16_383, 16_384, 3_000_000])
def test_batches_of_any_size(version: int, size: int) -> None:
    """Around the sizes where a varint gets longer."""
    batches = [batch("t", 0, bytes(size - 1)), batch("t", 1, bytes(size))]
    buffers = ProduceEncoder(version, "me", -1, 1).encode(by_partition(batches), 1)
    assert b"".join(buffers) == by_library(version, 1, "me", batches, acks=-1, timeout_ms=1, transactional_id=None)


def test_request_holds_views_of_the_batches() -> None:
    """Not copies of them."""
    batches = [batch("t", number, bytes(100)) for number in range(3)]
    buffers = ProduceEncoder(NEWEST_PRODUCE, "me", -1, 1).encode(by_partition(batches), 1)
    assert [each for each in buffers if isinstance(each, memoryview)] == [
        view for each in batches for view in each.payload
    ]
    assert all(any(buffer is each.payload[0] for buffer in buffers) for each in batches)
