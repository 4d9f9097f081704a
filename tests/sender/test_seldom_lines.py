"""The sender's log has one line a minute of each kind of failure, and the number of those left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_broker import PRODUCE, FakeBroker, produced
from producers import settings_of, wait_until_gone

from shmaccum import Producer
from shmaccum.errors import InvalidRecordError
from shmaccum.sender.logfile import SELDOM_S, Seldom

INVALID_RECORD, NOT_ENOUGH_REPLICAS = 87, 19


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


def test_refused_batches_are_one_line(broker: FakeBroker, slab_name: str, tmp_path: Path) -> None:
    log = tmp_path / "sender.log"
    broker.answers[PRODUCE] = lambda request: produced((0, INVALID_RECORD), (1, INVALID_RECORD))
    settings = settings_of(slab_name, "", transport="kafka", bootstrap_servers=broker.servers, sender_log_file=log)
    with Producer(settings) as producer:
        for number in range(20):
            assert isinstance(producer.send("t", b"v", partition=number % 2).exception(20), InvalidRecordError)
    wait_until_gone(slab_name)
    assert log.read_text().count("InvalidRecordError for t-") == 1


def test_retried_batches_are_one_line(broker: FakeBroker, slab_name: str, tmp_path: Path) -> None:
    log = tmp_path / "sender.log"
    refusals = iter([NOT_ENOUGH_REPLICAS] * 20)
    broker.answers[PRODUCE] = lambda request: produced((0, next(refusals, 0)))
    settings = settings_of(slab_name, "", transport="kafka", bootstrap_servers=broker.servers, sender_log_file=log)
    with Producer(settings | {"retry.backoff.ms": 1, "retry.backoff.max.ms": 1}) as producer:
        producer.send("t", b"v", partition=0).get(20)
    wait_until_gone(slab_name)
    assert log.read_text().count("; retrying ") == 1


def test_a_line_counts_those_that_it_stands_for() -> None:
    now_s = 0.0
    seldom = Seldom(lambda: now_s)

    def shown(kind: object, text: str) -> str | None:
        record = logging.makeLogRecord({"msg": "%s", "args": (text,), "seldom": kind})
        first, second = seldom.filter(record), seldom.filter(record)  # of two handlers
        assert first == second
        return record.getMessage() if first else None

    assert shown("a", "first") == "first"
    assert [shown("a", "next") for _ in range(1234)] == [None] * 1234
    assert shown("b", "of another kind") == "of another kind"
    assert [shown(None, "always")] * 2 == ["always"] * 2
    now_s = SELDOM_S
    assert shown("a", "later") == "later (1,234 more like it since the last such line)"
    now_s = 2 * SELDOM_S
    assert shown("a", "latest") == "latest"
