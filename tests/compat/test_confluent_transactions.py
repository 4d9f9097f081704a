"""Transactions by confluent-kafka's calls, with its consumer on the other side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from brokers import PATIENCE_S, consume, produce, wait_for_markers
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from fixture_types import Make
from producers import wait_until_gone

from shmaccum.compat.confluent import Producer
from shmaccum.compat.confluent.transactions import group_of


@pytest.fixture
def transactional(existing: str, settings: dict[str, Any], confluent: Make) -> Any:
    producer = confluent({**settings, "transactional.id": f"id-{existing}"})
    producer.init_transactions(PATIENCE_S)
    return producer


@pytest.fixture
def reader(existing: str, settings: dict[str, Any]) -> Iterator[Consumer]:
    own = {"group.id": f"group-{existing}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings | own)
    yield consumer
    consumer.close()


def send(producer: Any, topic: str, count: int) -> list[Any]:
    """Begin a transaction and produce into it; return the list of its reports."""
    reports: list[Any] = []
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, f"value {number}", on_delivery=lambda error, _: reports.append(error))
        producer.poll(0)
    return reports


def committed(settings: dict[str, Any], topic: str) -> int:
    wait_for_markers(settings["bootstrap.servers"])
    return sum(map(len, consume(settings | {"isolation.level": "read_committed"}, topic).values()))


def test_after_an_abort_the_next_one_commits(existing: str, settings: dict[str, Any], transactional: Any) -> None:
    reports = send(transactional, existing, 100)
    transactional.flush()
    transactional.abort_transaction(PATIENCE_S)
    assert len(reports) == 100
    assert committed(settings, existing) == 0
    send(transactional, existing, 100)
    transactional.abort_transaction()
    reports = send(transactional, existing, 25)
    transactional.commit_transaction(PATIENCE_S)
    assert (reports, len(transactional)) == ([None] * 25, 0)
    assert committed(settings, existing) == 25


def test_offsets_are_committed_with_the_transaction(
    existing: str, settings: dict[str, Any], transactional: Any, reader: Consumer
) -> None:
    """With what its consumer says of the group, generation and member included."""
    produce(settings, existing, [b"%d" % number for number in range(10)])
    reader.subscribe([existing])
    assert [message.error() for message in reader.consume(10, PATIENCE_S)] == [None] * 10
    positions = [each for each in reader.position(reader.assignment()) if each.offset >= 0]
    assert positions
    transactional.begin_transaction()
    transactional.produce(existing, b"output")
    transactional.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata())
    transactional.commit_transaction()
    wait_for_markers(settings["bootstrap.servers"])
    assert [each.offset for each in reader.committed(positions, PATIENCE_S)] == [10]


def test_a_groups_metadata_is_read(settings: dict[str, Any]) -> None:
    with pytest.raises(KafkaException, match="CGMDv2"):
        group_of(b"something else")
    consumer = Consumer({**settings, "group.id": "group", "group.instance.id": "instance"})
    found = group_of(consumer.consumer_group_metadata())
    consumer.close()
    assert (found.group_id, found.generation_id, found.member_id, found.group_instance_id) == (
        *("group", -1, ""),
        "instance",
    )


def test_calls_out_of_order_say_what_can_follow(confluent: Make) -> None:
    nowhere = confluent({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "nowhere"})
    with pytest.raises(KafkaException) as caught:
        nowhere.init_transactions(0.2)
    found = [caught.value.args[0]]
    for call in (
        nowhere.begin_transaction,
        lambda: nowhere.send_offsets_to_transaction([TopicPartition("t", 0, 123)], b"CGMDv2:\xff\xff\xff\xffg\0\0\1"),
        lambda: nowhere.commit_transaction(0.2),
        lambda: nowhere.abort_transaction(0.2),
    ):
        with pytest.raises(KafkaException) as caught:
            call()
        found.append(caught.value.args[0])
    assert [error.code() for error in found] == [KafkaError._TIMED_OUT] + [KafkaError._CONFLICT] * 4
    for error in found:
        assert (error.retriable(), error.fatal(), error.txn_requires_abort()) == (True, False, False)
    assert nowhere.close()


def test_a_refused_message_fails_the_transaction(existing: str, transactional: Any) -> None:
    with pytest.raises(KafkaException) as caught:  # outside of a transaction
        transactional.produce(existing, b"value", partition=0)
    assert caught.value.args[0].code() == KafkaError._STATE
    assert len(transactional) == 0
    for value, partition in ((b"x" * (2 << 20), 0), (b"value", 99)):
        transactional.begin_transaction()
        with pytest.raises(KafkaException):
            transactional.produce(existing, value, partition=partition)
        with pytest.raises(KafkaException) as caught:
            transactional.commit_transaction()
        error = caught.value.args[0]
        assert (error.txn_requires_abort(), error.retriable()) == (True, False)
        transactional.abort_transaction()
    transactional.begin_transaction()
    transactional.commit_transaction()


def test_a_second_producer_of_the_id_fences_the_first(existing: str, transactional: Any, confluent: Make) -> None:
    transactional.begin_transaction()
    second = confluent({"transactional.id": f"id-{existing}"})
    second.init_transactions()
    codes: list[int] = []
    with pytest.raises(KafkaException) as caught:  # noqa: PT012 (librdkafka's programs meet it in any of these)
        transactional.produce(existing, b"value", partition=0, callback=lambda error, _: codes.append(error.code()))
        transactional.commit_transaction()
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert caught.value.args[0].fatal()


def test_a_producer_of_another_host_fences_the_first(
    existing: str, settings: dict[str, Any], transactional: Any, slab_name: str
) -> None:
    """Its slab does not know: the broker refuses a batch. Programs ask first whether they can abort."""
    reports = send(transactional, existing, 1)
    transactional.flush(PATIENCE_S)
    other = Producer(
        {"bootstrap.servers": settings["bootstrap.servers"], "shmaccum.name": f"{slab_name}-2", "sender.idle.ms": 100}
        | {"transactional.id": f"id-{existing}"}
    )
    other.init_transactions(PATIENCE_S)
    transactional.produce(existing, b"value", partition=0, on_delivery=lambda error, _: reports.append(error))
    with pytest.raises(KafkaException) as caught:
        transactional.commit_transaction(PATIENCE_S)
    transactional.poll(0)
    for error in (reports[-1], caught.value.args[0]):
        assert (error.code(), error.fatal(), error.txn_requires_abort()) == (KafkaError._FENCED, True, False)
    with pytest.raises(KafkaException, match="taken over"):
        transactional.abort_transaction(PATIENCE_S)
    other.close()
    wait_until_gone(f"{slab_name}-2")


def test_calls_without_a_transactional_id_say_what_is_missing(confluent: Make) -> None:
    producer = confluent({"bootstrap.servers": "127.0.0.1:1"})
    for call in (
        producer.init_transactions,
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send_offsets_to_transaction([], None),
    ):
        with pytest.raises(KafkaException, match=r"requires transactional\.id") as caught:
            call()
        assert caught.value.args[0].code() == KafkaError._NOT_CONFIGURED
