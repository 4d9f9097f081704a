"""Compares the requests of Kafka's Java producer and of ours, for the same transactions.

Both do the same steps, with the same settings, against the same fake broker. The requests of transactions come in the
same order, in the same versions, and are equal byte for byte but for the correlation id. Each side counts the requests
of a connection, and ours has other connections. Requests of connections and metadata do not belong to it.

What differs on purpose, in version 1 of the protocol: our abort ends with InitProducerId, so the transaction behind it
has the next epoch, and numbers from 0 (docs/inside/differences.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from fake_broker import Request
from java_producer import producer_line, run_java
from producers import kafka_settings, wait_until_gone
from transaction_broker import NAMES, TransactionBroker

from shmaccum import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from tools.support.messages import ADD_OFFSETS, ADD_PARTITIONS, END_TXN, INIT_PRODUCER_ID

NOW = 1_700_000_000_000
SETTINGS = {"client.id": "the same", "transactional.id": "both", "linger.ms": 0, "transaction.timeout.ms": 50_000}


class Step(NamedTuple):
    """What both producers do: a line for Java's, a call for ours."""

    line: str
    call: Callable[[Producer], object]


def record(partition: int) -> Step:
    """Send a record, and wait until it is stored: so every request has one batch."""

    def call(producer: Producer) -> None:
        producer.send("t", b"value", b"key", partition=partition, timestamp_ms=NOW)
        producer.flush()

    return Step(f"record\tt\t{partition}\t{NOW}\t{b'key'.hex()}\t{b'value'.hex()}\nflush", call)


def offsets(partition: int) -> Step:
    given = {TopicPartition("t", partition): OffsetAndMetadata(5, "note", 3)}
    return Step(
        f"offsets\treaders\tt\t{partition}\t5\t3\tnote",
        lambda producer: producer.send_offsets_to_transaction(given, ConsumerGroupMetadata("readers")),
    )


INIT = Step("init", Producer.init_transactions)
BEGIN = Step("begin", Producer.begin_transaction)
COMMIT = Step("commit", Producer.commit_transaction)
ABORT = Step("abort", Producer.abort_transaction)

BEFORE = [
    *(INIT, BEGIN, record(0), record(1), record(0), offsets(0), COMMIT),
    *(BEGIN, COMMIT),
    *(BEGIN, record(1), offsets(1), COMMIT),
    *(BEGIN, record(0), ABORT),
]
"""Until the first abort."""
AFTER = [BEGIN, record(1), record(0), offsets(0), COMMIT, BEGIN, offsets(0), ABORT]


class Both(NamedTuple):
    """The requests of both, up to the first abort, and those behind it."""

    javas: tuple[list[Request], list[Request]]
    ours: tuple[list[Request], list[Request]]


@pytest.fixture(scope="module")
def both(apache_kafka: None) -> Iterator[dict[int, Both]]:
    """Run both producers, with each version of the protocol; the Java program runs once."""
    with TransactionBroker(1) as first, TransactionBroker(2) as second:
        brokers = {broker.version: broker for broker in (first, second)}
        lines: list[str] = []
        for broker in brokers.values():
            lines.append(producer_line(SETTINGS | {"bootstrap.servers": broker.servers}))
            lines += [step.line for step in BEFORE + AFTER]
        run_java(lines)
        found = {}
        for version, broker in brokers.items():
            javas = list(broker.seen)
            broker.reset()
            ours = run_ours(broker)
            found[version] = Both(split_at_abort(javas), ours)
        yield found


def run_ours(broker: TransactionBroker) -> tuple[list[Request], list[Request]]:
    slab = f"java-transactions-{os.getpid()}-{broker.version}"
    with Producer(kafka_settings(broker.servers, slab) | SETTINGS) as producer:
        for step in BEFORE + AFTER:
            step.call(producer)
    wait_until_gone(slab)
    return split_at_abort(broker.seen)


def split_at_abort(requests: list[Request]) -> tuple[list[Request], list[Request]]:
    """Return the requests up to the first abort, and those behind it."""
    ends = [number for number, each in enumerate(requests) if each.api_key == END_TXN]
    first = next(number for number in ends if not requests[number].asked.committed)
    return requests[: first + 1], requests[first + 1 :]


def shown(request: Request) -> tuple[str, int, str]:
    """Return what is to be equal: the name, the version, and all bytes but the correlation id."""
    frame = bytearray(request.frame)
    frame[8:12] = bytes(4)
    return NAMES[request.api_key], request.version, frame.hex(" ")


@pytest.mark.parametrize("version", [1, 2])
def test_requests_are_equal(both: dict[int, Both], version: int) -> None:
    """In version 1 also but for one: the sender asks for the coordinator, too."""
    (javas, _), (ours, _) = both[version]
    asked = [shown(each) for each in ours]
    if version == 1:
        del asked[asked.index(asked[0], 1)]
    assert asked == [shown(each) for each in javas]
    assert {ADD_PARTITIONS, ADD_OFFSETS}.isdisjoint(each.api_key for each in ours) == (version == 2)


def test_requests_behind_an_abort_are_equal_in_version_2(both: dict[int, Both]) -> None:
    (_, javas), (_, ours) = both[2]
    assert [shown(each) for each in ours] == [shown(each) for each in javas]


def test_requests_behind_an_abort_differ_by_the_epoch_in_version_1(both: dict[int, Both]) -> None:
    (_, javas), (_, ours) = both[1]
    assert NAMES[ours[0].api_key] == "InitProducerId"
    asked = ours[0].asked
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("both", 77, 0)
    others = [each for each in ours if each.api_key != INIT_PRODUCER_ID]
    assert [(each.api_key, each.version, len(each.frame)) for each in others] == [
        (each.api_key, each.version, len(each.frame)) for each in javas
    ]
