"""``Producer.produce_batch``: messages as dicts, which carry their errors themselves."""

from __future__ import annotations

from typing import Any

import pytest
from brokers import PATIENCE_S
from confluent_kafka import KafkaError
from fixture_types import Make
from runs import in_threads


def test_messages_of_all_kinds_arrive(existing: str, stored: Make, confluent: Make) -> None:
    messages: list[dict[str, Any]] = [
        {"value": b"bytes", "key": b"key"},
        {"value": "text: café 你好 🚀", "key": "🔑"},
        {"value": None, "key": None, "partition": None, "timestamp": None, "headers": None, "callback": None},
        {"value": b"", "key": ""},
        {},
        {"value": bytes(range(256))},
        {"value": b"other", "partition": 1},
        {"value": b"with", "headers": {"name": b"value"}, "unknown": "ignored", "_private": 1},
    ]
    producer = confluent()
    assert producer.produce_batch(existing, messages, partition=0) == len(messages)
    assert producer.produce_batch(existing, []) == 0
    assert producer.flush() == 0
    assert all("_error" not in message for message in messages)
    found = stored(existing)
    expected: list[tuple[Any, Any]] = [
        (b"key", b"bytes"),
        ("🔑".encode(), "text: café 你好 🚀".encode()),
        (None, None),
        (b"", b""),
        (None, None),
        (None, bytes(range(256))),
        (None, b"with"),
    ]
    assert [(record.key(), record.value()) for record in found[0]] == expected
    assert [record.value() for record in found[1]] == [b"other"]
    assert found[0][-1].headers() == [("name", b"value")]


def test_arguments_of_a_wrong_type_send_nothing(confluent: Make) -> None:
    producer = confluent({"bootstrap.servers": "127.0.0.1:1"})
    for arguments, expected in (
        (("t", "no list"), "messages must be a list"),
        (("t", {"not": "list"}), "messages must be a list"),
        (("t", [{"value": b"good"}, "no dict"]), "Message at index 1 must be a dict"),
        (("t", [{"value": 123}]), "Message value at index 0 must be bytes or str"),
        (("t", [{"value": b"good", "key": ["no"]}]), "Message key at index 0 must be bytes or str"),
        (("t", [{"value": b"good", "partition": "no"}]), "Message partition at index 0 must be int"),
        ((123, [{"value": b"good"}]), "must be str"),
        ((None, [{"value": b"good"}]), "must be str"),
        (("t", [{"value": b"good"}], "no"), "partition must be int"),
    ):
        with pytest.raises(TypeError, match=expected):
            producer.produce_batch(*arguments)
    with pytest.raises(NotImplementedError, match="Message timestamps are not currently supported"):
        producer.produce_batch("t", [{"value": b"value", "timestamp": 1}])
    for headers in (5, [("name", 1)]):
        with pytest.raises(ValueError, match="Invalid headers at index 1"):
            producer.produce_batch("t", [{"value": b"good"}, {"headers": headers}])
    assert len(producer) == 0


def test_messages_that_are_refused_carry_their_error(existing: str, confluent: Make) -> None:
    small = confluent({"queue.buffering.max.messages": 3, "message.max.bytes": 1000})
    messages: list[dict[str, Any]] = [{"value": b"x" * size} for size in (1, 2000, 2, 3, 4)]
    assert small.produce_batch(existing, messages) == 3
    assert [message["_error"].code() if "_error" in message else None for message in messages] == [
        *(None, KafkaError.MSG_SIZE_TOO_LARGE, None, None),
        KafkaError._QUEUE_FULL,
    ]
    assert small.flush() == 0
    strange: list[dict[str, Any]] = [{"value": b"x", "partition": number} for number in (-2, 999_999, 2**31 - 1)]
    assert small.produce_batch(existing, strange) == 0
    assert all("_error" in message for message in strange)


def test_each_message_has_its_callback_or_the_common_one(existing: str, confluent: Make) -> None:
    calls: list[tuple[str, bytes]] = []

    def callback(name: str) -> Any:
        return lambda error, message: calls.append((name, message.value()))

    producer = confluent()
    messages = [{"value": b"1", "callback": callback("own")}, {"value": b"2"}]
    producer.produce_batch(existing, messages, partition=0, on_delivery=callback("common"))
    producer.produce_batch(
        existing, [{"value": b"3"}], partition=0, callback=callback("alias"), on_delivery=callback("other")
    )
    producer.produce_batch(existing, [{"value": b"4"}], partition=0)
    assert producer.flush() == 0
    assert sorted(calls) == [("alias", b"3"), ("common", b"2"), ("own", b"1")]


def test_threads_share_a_producer_and_its_small_limit(existing: str, values: Make, confluent: Make) -> None:
    producer = confluent({"queue.buffering.max.messages": 100})

    def produce(thread: int) -> None:
        waiting = [{"value": f"{thread}-{number}"} for number in range(500)]
        while waiting:
            producer.produce_batch(existing, waiting)
            waiting = [{"value": message["value"]} for message in waiting if "_error" in message]
            producer.poll(0.01)

    in_threads(4, produce)
    assert producer.flush(PATIENCE_S) == 0
    assert sorted(values(existing)) == sorted(b"%d-%d" % (thread, each) for thread in range(4) for each in range(500))
