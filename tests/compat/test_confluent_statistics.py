"""``stats_cb``: its document beside the one that librdkafka makes for the same cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from brokers import PATIENCE_S
from confluent_kafka import KafkaException
from fixture_types import Make

from shmaccum.compat.confluent import Producer

INTERVAL = {"statistics.interval.ms": 50}
RECORDS = 20


def statistics(producer: Any, topic: str, documents: list[str], is_last: Callable[[dict[str, Any]], bool]) -> Any:
    """Produce, and poll until a document says that all is done."""
    for number in range(RECORDS):
        producer.produce(topic, b"value %d" % number, partition=number % 2)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        producer.poll(0.05)
        if documents and is_last(found := json.loads(documents[-1])):
            return found
    raise AssertionError(f"the last document is {documents[-1:]}")


def test_the_document_has_librdkafkas_fields_and_numbers(confluent: Make, servers: str, existing: str) -> None:
    def has_all(document: dict[str, Any]) -> bool:
        partitions = document["topics"].get(existing, {"partitions": {}})["partitions"]
        is_up = any(broker["nodeid"] >= 0 and broker["state"] == "UP" for broker in document["brokers"].values())
        return is_up and document["msg_cnt"] == 0 and sum(each["txmsgs"] for each in partitions.values()) == RECORDS

    ours: list[str] = []
    theirs: list[str] = []
    found = statistics(confluent(INTERVAL | {"stats_cb": ours.append}), existing, ours, has_all)
    settings = {"bootstrap.servers": servers, "client.id": "theirs", **INTERVAL, "stats_cb": theirs.append}
    expected = statistics(confluent_kafka.Producer(settings), existing, theirs, has_all)
    name, broker = next((name, each) for name, each in found["brokers"].items() if each["nodeid"] >= 0)
    assert broker.items() >= {"name": name, "nodename": servers, "source": "learned", "connects": 1}.items()
    assert broker["rx"] > 0 < broker["rxbytes"]
    for number, partition in found["topics"][existing]["partitions"].items():
        theirs_of_it = expected["topics"][existing]["partitions"][number]
        same = ("partition", "broker", "leader", "msgq_cnt", "msgs_inflight", "txmsgs")
        assert {each: partition[each] for each in same} == {each: theirs_of_it[each] for each in same}
        assert (partition["txbytes"] > 0) == (partition["txmsgs"] > 0)
    assert unknown(found, expected, existing) == []


def unknown(found: Any, expected: Any, topic: str) -> list[str]:
    """Return the fields of a document that librdkafka's does not have, or has with another type."""
    names = {"brokers": next(name for name, each in expected["brokers"].items() if each["nodeid"] >= 0)}
    names |= {"topics": topic, "partitions": "0"}

    def of(ours: dict[str, Any], theirs: dict[str, Any], path: str) -> list[str]:
        wrong = []
        for name, value in ours.items():
            if name not in theirs or type(value) is not type(theirs[name]):
                wrong.append(f"{path}{name}")
            elif name in names:
                for each in value.values():
                    wrong += of(each, theirs[name][names[name]], f"{path}{name}.")
            elif isinstance(value, dict):
                wrong += of(value, theirs[name], f"{path}{name}.")
        return wrong

    return of(found, expected, "")


def test_documents_come_at_their_interval_and_what_stats_cb_raises_reaches_the_caller(confluent: Make) -> None:
    def stats_cb(document: str) -> None:
        raise ValueError(json.loads(document)["type"])

    began = time.monotonic()
    producer = confluent({"bootstrap.servers": "127.0.0.1:1", **INTERVAL, "stats_cb": stats_cb})
    for _ in range(2):
        with pytest.raises(ValueError, match="producer"):
            producer.poll(PATIENCE_S)
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("settings", [{"statistics.interval.ms": 50}, {"stats_cb": print}])
def test_neither_of_the_two_settings_alone_does_anything(settings: dict[str, Any], confluent: Make) -> None:
    assert confluent({"bootstrap.servers": "127.0.0.1:1", **settings})._shm._statistics is None


def test_a_wrong_interval_is_refused() -> None:
    for wrong in (-1, 86_400_001, "often"):
        with pytest.raises(KafkaException, match=r"statistics\.interval\.ms"):
            Producer({"bootstrap.servers": "h:1", "statistics.interval.ms": wrong})
