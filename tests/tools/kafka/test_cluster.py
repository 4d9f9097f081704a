"""A broker starts and serves, or says why it cannot; its topics and its log are seen from outside."""

from __future__ import annotations

import socket

import pytest
from brokers import produce
from fixture_types import MakeCluster

from tools.kafka import KafkaCluster, KafkaToolError, dump_batches, dump_text, segments

VALUES = [f"value {number}".encode() for number in range(100)]


def settings(cluster: KafkaCluster) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def test_the_dump(kafka: KafkaCluster, topic: str) -> None:
    kafka.admin.create_topic(topic)
    in_large_batches = {"linger.ms": 10_000, "compression.type": "zstd"}  # a flush does not wait for it
    produce(settings(kafka) | in_large_batches, topic, VALUES)
    produce(settings(kafka), topic, [b"last"])
    data = kafka.nodes[1].data
    *first, last = batches = dump_batches(data, topic)
    assert {(each.compression, each.magic, each.valid) for each in first} == {("zstd", 2, True)}
    assert (last.base_offset, last.last_offset, last.count) == (100, 100, 1)
    assert last.compression == "none"
    offset = 0
    for each in batches:
        assert (each.base_offset, each.last_offset - each.base_offset + 1) == (offset, each.count)
        offset += each.count
    assert offset == 101
    (segment,) = segments(data, topic)
    assert sum(each.size for each in batches) == segment.stat().st_size
    assert "payload: last" in dump_text(segment)


def test_a_damaged_segment_is_seen(kafka: KafkaCluster, topic: str) -> None:
    kafka.admin.create_topic(topic)
    produce(settings(kafka), topic, [b"value"])
    (segment,) = segments(kafka.nodes[1].data, topic)
    damaged = bytearray(segment.read_bytes())
    damaged[-2] ^= 1
    segment.write_bytes(damaged)
    assert [batch.valid for batch in dump_batches(kafka.nodes[1].data, topic)] == [False]


def test_a_wrong_setting_is_reported(kafka_cluster: MakeCluster) -> None:
    cluster = kafka_cluster(overrides={"compression.type": "none such"})
    with pytest.raises(KafkaToolError, match="Invalid value none such for configuration compression"):
        cluster.start()


def test_a_broker_that_cannot_start_says_why(kafka_cluster: MakeCluster) -> None:
    cluster = kafka_cluster()
    with (
        socket.create_server(("127.0.0.1", cluster.nodes[1].port)),
        pytest.raises(KafkaToolError, match=r"(?s)node 1 ended while it started.*Address already in use"),
    ):
        cluster.start()
    assert not cluster.nodes[1].is_running()


def test_a_node_runs_once(kafka: KafkaCluster) -> None:
    with pytest.raises(KafkaToolError, match="node 1 runs already"):
        kafka.nodes[1].start()
