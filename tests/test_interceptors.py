"""Interceptors see every record and every acknowledgement; what goes wrong in them stays with them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from producers import settings_of, wait_until_gone
from senders import read_partition

from shmaccum import Producer, ProducerInterceptor, ProducerRecord, RecordMetadata
from shmaccum.errors import NetworkError, SerializationError, ShmaccumError
from shmaccum.interceptors import Interceptors


class Seen(ProducerInterceptor):
    """Notes what it sees, in one list for all of its kind."""

    calls: ClassVar[list[tuple[Any, ...]]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.calls.append((type(self).__name__, "on_send", record.value))
        return ProducerRecord(record.topic, f"{record.value}+{type(self).__name__}", record.key)

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ShmaccumError | None) -> None:
        self.calls.append((type(self).__name__, "on_acknowledgement", metadata, error))

    def close(self) -> None:
        self.calls.append((type(self).__name__, "close"))


class Second(Seen):
    """Another one."""


class Failing(ProducerInterceptor):
    """Fails whatever it does."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("on_send is no good")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ShmaccumError | None) -> None:
        raise ValueError("on_acknowledgement is no good")

    def close(self) -> None:
        raise ValueError("close is no good")


@pytest.fixture(autouse=True)
def calls() -> Iterator[list[tuple[Any, ...]]]:
    Seen.calls.clear()
    yield Seen.calls
    Seen.calls.clear()


METADATA = RecordMetadata("t", 0, 0, 0)


def test_in_order(calls: list[tuple[Any, ...]]) -> None:
    interceptors = Interceptors([Seen, Second])
    assert interceptors
    assert interceptors.on_send(ProducerRecord("t", "v")).value == "v+Seen+Second"
    told: list[Any] = []
    interceptors.acknowledging(lambda *what: told.append((what, len(calls))))(None, METADATA)
    interceptors.close()
    assert calls == [
        ("Seen", "on_send", "v"),
        ("Second", "on_send", "v+Seen"),
        ("Seen", "on_acknowledgement", METADATA, None),
        ("Second", "on_acknowledgement", METADATA, None),
        ("Seen", "close"),
        ("Second", "close"),
    ]
    assert told == [((None, METADATA), 4)]  # the user's own comes last


def test_none_at_all() -> None:
    assert not Interceptors([])


def test_the_base_does_nothing() -> None:
    interceptors = Interceptors([ProducerInterceptor])
    record = ProducerRecord("t", b"v")
    assert interceptors.on_send(record) is record
    interceptors.acknowledging(None)(NetworkError("gone"), None)
    interceptors.close()


def test_one_that_fails(calls: list[tuple[Any, ...]], caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the others and the user's callback have their turn."""
    interceptors = Interceptors([Failing, Seen])
    error = NetworkError("gone")
    told: list[Any] = []
    with caplog.at_level(logging.ERROR):
        assert interceptors.on_send(ProducerRecord("t", "v")).value == "v+Seen"
        interceptors.acknowledging(lambda *what: told.append(what))(error, None)
        interceptors.close()
    assert [call[:2] for call in calls] == [("Seen", "on_send"), ("Seen", "on_acknowledgement"), ("Seen", "close")]
    assert calls[1] == ("Seen", "on_acknowledgement", None, error)
    assert told == [(error, None)]
    for method in ("on_send", "on_acknowledgement", "close"):
        assert f"{method} is no good" in caplog.text


def test_of_a_producer(slab_name: str, tmp_path: Path, calls: list[tuple[Any, ...]]) -> None:
    """Before the serializers, in the process that sends; by class or by name."""
    settings = settings_of(
        slab_name,
        tmp_path,
        interceptor_classes=[Seen, "shmaccum.interceptors.ProducerInterceptor"],
        value_serializer=str.encode,
    )
    told: list[Any] = []
    with Producer(settings) as producer:
        future = producer.send("t", "v", "k", on_delivery=lambda *what: told.append(what))
        metadata = future.get(20)
        with pytest.raises(SerializationError, match=r"interceptor\.classes"):
            producer.send_batch("t", None)
    wait_until_gone(slab_name)
    assert told == [(None, metadata)]
    assert calls == [
        ("Seen", "on_send", "v"),
        ("Seen", "on_acknowledgement", metadata, None),
        ("Seen", "close"),
    ]
    assert [(r.key, r.value) for r in read_partition(tmp_path, "t", metadata.partition)] == [(b"k", b"v+Seen")]
