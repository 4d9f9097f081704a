"""Interceptors see every record and every acknowledgement; what goes wrong in them stays with them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fixture_types import Produce
from producers import settings_of
from senders import read_partition

from shmaccum import Producer, ProducerInterceptor, ProducerRecord, RecordMetadata
from shmaccum.errors import (
    IllegalStateError,
    NetworkError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
    ShmaccumError,
    SlabMemoryError,
)
from shmaccum.producer.interceptors import Interceptors

Calls = list[tuple[Any, ...]]


class Seen(ProducerInterceptor):
    """Notes what it sees, in one list for all of its kind."""

    calls: ClassVar[Calls] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.calls.append((type(self).__name__, "on_send", record.value))
        return ProducerRecord(record.topic, f"{record.value}+{type(self).__name__}", record.key)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.calls.append((type(self).__name__, "on_acknowledgement", metadata, error))

    def close(self) -> None:
        self.calls.append((type(self).__name__, "close"))


class Second(Seen):
    """Another one."""


class Failing(ProducerInterceptor):
    """Fails whatever it does."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("on_send is no good")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise ValueError("on_acknowledgement is no good")

    def close(self) -> None:
        raise ValueError("close is no good")


@pytest.fixture(autouse=True)
def calls() -> Iterator[Calls]:
    Seen.calls.clear()
    yield Seen.calls
    Seen.calls.clear()


METADATA = RecordMetadata("t", 0, 0, 0)
RECORD = ProducerRecord("t", b"v")
FAILED = RecordMetadata("t", -1, -1, -1)
"""What they get of a record that is stored nowhere."""


def test_interceptors_run_in_order(calls: Calls) -> None:
    interceptors = Interceptors([Seen, Second])
    assert interceptors
    assert interceptors.on_send(ProducerRecord("t", "v")).value == "v+Seen+Second"
    told: list[Any] = []
    interceptors.acknowledging(RECORD, lambda *what: told.append((what, len(calls))))(None, METADATA)
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


def test_base_interceptor_changes_nothing() -> None:
    assert not Interceptors([])
    interceptors = Interceptors([ProducerInterceptor])
    record = ProducerRecord("t", b"v")
    assert interceptors.on_send(record) is record
    interceptors.acknowledging(RECORD, None)(NetworkError("gone"), None)
    interceptors.close()


def test_failing_interceptor_is_logged(calls: Calls, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the others and the user's callback have their turn."""
    interceptors = Interceptors([Failing, Seen])
    error = NetworkError("gone")
    told: list[Any] = []
    with caplog.at_level(logging.ERROR):
        assert interceptors.on_send(ProducerRecord("t", "v")).value == "v+Seen"
        interceptors.acknowledging(RECORD, lambda *what: told.append(what))(error, None)
        interceptors.close()
    assert [call[:2] for call in calls] == [("Seen", "on_send"), ("Seen", "on_acknowledgement"), ("Seen", "close")]
    assert calls[1] == ("Seen", "on_acknowledgement", FAILED, error)
    assert told == [(error, None)]
    for method in ("on_send", "on_acknowledgement", "close"):
        assert f"{method} is no good" in caplog.text


class Recognizing(ProducerInterceptor):
    """Adds a header, and notes which headers records have at their outcome."""

    seen: ClassVar[list[Any]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, record.value, headers=[("id", record.value)])

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Any = None) -> None:
        self.seen.append((error, headers))


@pytest.fixture
def recognized() -> Iterator[list[Any]]:
    """Return what `Recognizing` notes."""
    Recognizing.seen.clear()
    yield Recognizing.seen
    Recognizing.seen.clear()


def test_an_interceptor_that_asks_for_headers_gets_them(
    join: Produce, recognized: list[Any], calls: Calls, topic: str
) -> None:
    """KIP-512: as the interceptors left them. Those that do not ask get what they always got."""
    with join(interceptor_classes=[Recognizing, "shmaccum.ProducerInterceptor"]) as producer:
        producer.send(topic, b"1").get(20)
        assert recognized == [(None, [("id", b"1")])]


def test_headers_of_a_refused_record(join: Produce, recognized: list[Any]) -> None:
    producer = join(interceptor_classes=[Recognizing], max_request_size=1024)
    error, _ = refused(producer, value="x" * 2000)
    assert recognized == [(error, [("id", "x" * 2000)])]


def test_no_headers_are_an_empty_sequence(recognized: list[Any]) -> None:
    interceptors = Interceptors([Recognizing])
    interceptors.acknowledging(RECORD, None)(None, METADATA)
    assert recognized == [(None, ())]


class NotMade(ProducerInterceptor):
    """Cannot be made."""

    def __init__(self) -> None:
        raise ValueError("not to be made")


class Forgetful(ProducerInterceptor):
    """Forgets to return the record."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return None  # type: ignore[return-value]


def test_interceptors_are_closed_if_another_constructor_raises(calls: Calls) -> None:
    with pytest.raises(ValueError, match="not to be made"):
        Interceptors([Seen, Second, NotMade])
    assert calls == [("Seen", "close"), ("Second", "close")]


def test_interceptors_are_closed_if_the_producer_constructor_raises(tmp_path: Path, calls: Calls) -> None:
    settings = settings_of("x", tmp_path, interceptor_classes=[Seen], buffer_memory=1 << 39, shmaccum_slot_size=1 << 16)
    with pytest.raises(SlabMemoryError):
        Producer(settings)
    assert calls == [("Seen", "close")]


@pytest.fixture
def producer(join: Produce) -> Producer:
    """Return a producer whose interceptor notes what it sees; values longer than 1 kB are too large."""
    return join(interceptor_classes=[Seen], max_request_size=1024)


def refused(producer: Producer, **record: Any) -> tuple[Exception, list[Any]]:
    """Send what is refused; return the error, and what the record's callback was called with."""
    told: list[Any] = []
    with pytest.raises(ShmaccumError) as caught:
        producer.send("t", on_delivery=lambda *what: told.append(what), **record)
    return caught.value, told


def test_refused_record_is_acknowledged_with_its_error(producer: Producer, calls: Calls) -> None:
    """``KafkaProducer.doSend``: of an ``ApiException`` the record's callback hears, too."""
    error, told = refused(producer, value="x" * 2000, partition=1)
    assert isinstance(error, RecordTooLargeError)
    assert told == [(error, None)]
    # The interceptor has changed the record, and left out its partition.
    assert calls[1:] == [("Seen", "on_acknowledgement", FAILED, error)]


def test_callback_is_not_called_for_an_invalid_record(producer: Producer, calls: Calls) -> None:
    error, told = refused(producer, value="v", key=object())
    assert isinstance(error, SerializationError)
    assert told == []
    assert calls[1:] == [("Seen", "on_acknowledgement", FAILED, error)]


def test_raising_callback_changes_nothing(producer: Producer, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise ValueError("the callback is no good")

    with caplog.at_level(logging.ERROR), pytest.raises(RecordTooLargeError):
        producer.send("t", "x" * 2000, on_delivery=fail)
    assert "the callback is no good" in caplog.text


def test_closed_producer_calls_no_interceptor(producer: Producer, calls: Calls) -> None:
    producer.close()
    error, told = refused(producer, value="v")
    assert isinstance(error, ProducerClosedError)
    assert (told, calls) == ([], [("Seen", "close")])


def test_on_send_that_returns_none_raises(join: Produce, calls: Calls) -> None:
    error, told = refused(join(interceptor_classes=[Forgetful, Seen]), value="v", partition=2)
    assert isinstance(error, IllegalStateError)
    assert "Forgetful.on_send returned None for a record of topic 't'" in str(error)
    assert told == []
    assert calls == [("Seen", "on_acknowledgement", RecordMetadata("t", 2, -1, -1), error)]


def test_producer_runs_interceptors_before_serializers(join: Produce, kept_log: Path, calls: Calls, topic: str) -> None:
    """Before the serializers, in the process that sends; by class or by name."""
    classes = [Seen, "shmaccum.producer.interceptors.ProducerInterceptor"]
    told: list[Any] = []
    with join(interceptor_classes=classes, value_serializer=str.encode) as producer:
        future = producer.send(topic, "v", "k", on_delivery=lambda *what: told.append(what))
        metadata = future.get(20)
        with pytest.raises(SerializationError, match=r"interceptor\.classes"):
            producer.send_batch(topic, None)
    assert told == [(None, metadata)]
    assert calls == [
        ("Seen", "on_send", "v"),
        ("Seen", "on_acknowledgement", metadata, None),
        ("Seen", "close"),
    ]
    assert [(r.key, r.value) for r in read_partition(kept_log, topic, metadata.partition)] == [(b"k", b"v+Seen")]
