"""Interceptors see every record and every acknowledgement; what goes wrong in them stays with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fixture_types import LogCapture, Produce
from producers import settings_of
from senders import read_partition

from shmaccum import Producer, ProducerInterceptor, ProducerRecord, RecordMetadata, errors

Calls = list[tuple[Any, ...]]
FAILED = RecordMetadata("t", -1, -1, -1)
"""What they get of a record that is stored nowhere."""


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


class Recognizing(Seen):
    """Adds a header to texts, and notes which headers records have at their outcome."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        headers = [("id", record.value)] if isinstance(record.value, str) else None
        return ProducerRecord(record.topic, record.value, headers=headers)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Any = None) -> None:
        self.calls.append((error, headers))


class NotMade(ProducerInterceptor):
    """Cannot be made."""

    def __init__(self) -> None:
        raise ValueError("not to be made")


class Forgetful(ProducerInterceptor):
    """Forgets to return the record."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return None  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def calls() -> Iterator[Calls]:
    """Return what the interceptors of this test note."""
    yield Seen.calls
    Seen.calls.clear()


@pytest.fixture
def producer(join: Produce) -> Producer:
    """Return a producer whose interceptor notes what it sees; values longer than 1 kB are too large."""
    return join(interceptor_classes=[Seen], max_request_size=1024)


def refused(producer: Producer, **record: Any) -> tuple[Exception, list[Any]]:
    """Send what is refused; return the error, and what the record's callback was called with."""
    told: list[Any] = []
    with pytest.raises(errors.ShmaccumError) as caught:
        producer.send("t", on_delivery=lambda *what: told.append(what), **record)
    return caught.value, told


def test_interceptors_run_in_order_and_before_serializers(
    join: Produce, kept_log: Path, calls: Calls, topic: str
) -> None:
    """In the process that sends; by class or by name. The user's own callback comes last."""
    classes = [Seen, "shmaccum.producer.interceptors.ProducerInterceptor", Second]
    told: list[Any] = []
    with join(interceptor_classes=classes, value_serializer=str.encode) as producer:
        future = producer.send(topic, "v", "k", on_delivery=lambda *what: told.append((*what, len(calls))))
        metadata = future.get(20)
        with pytest.raises(errors.SerializationError, match=r"interceptor\.classes"):
            producer.send_batch(topic, None)
    assert told == [(None, metadata, 4)]
    assert calls == [
        ("Seen", "on_send", "v"),
        ("Second", "on_send", "v+Seen"),
        ("Seen", "on_acknowledgement", metadata, None),
        ("Second", "on_acknowledgement", metadata, None),
        ("Seen", "close"),
        ("Second", "close"),
    ]
    stored = read_partition(kept_log, topic, metadata.partition)
    assert [(record.key, record.value) for record in stored] == [(b"k", b"v+Seen+Second")]


def test_failing_interceptor_is_logged(join: Produce, calls: Calls, caplog: LogCapture, topic: str) -> None:
    """It is logged, and the others and the user's callback have their turn."""
    told: list[Any] = []
    with join(interceptor_classes=[Failing, Seen]) as producer:
        metadata = producer.send(topic, "v", on_delivery=lambda *what: told.append(what)).get(20)
    assert told == [(None, metadata)]
    assert [call[:2] for call in calls] == [("Seen", "on_send"), ("Seen", "on_acknowledgement"), ("Seen", "close")]
    for method in ("on_send", "on_acknowledgement", "close"):
        assert f"{method} is no good" in caplog.text


def test_an_interceptor_that_asks_for_headers_gets_them(join: Produce, calls: Calls, topic: str) -> None:
    """KIP-512: as the interceptors left them, also of a refused record. None are an empty sequence."""
    producer = join(interceptor_classes=[Recognizing], max_request_size=1024)
    for value in ("text", b"bytes"):
        producer.send(topic, value).get(20)
    error, _ = refused(producer, value="x" * 2000)
    assert calls == [(None, [("id", "text")]), (None, ()), (error, [("id", "x" * 2000)])]


def test_interceptors_are_closed_if_a_constructor_raises(tmp_path: Path, calls: Calls) -> None:
    """That of another interceptor, or the producer's."""
    with pytest.raises(ValueError, match="not to be made"):
        Producer(settings_of("x", tmp_path, interceptor_classes=[Seen, Second, NotMade]))
    with pytest.raises(errors.SlabMemoryError):
        Producer(
            settings_of("x", tmp_path, interceptor_classes=[Seen], buffer_memory=1 << 39, shmaccum_slot_size=1 << 16)
        )
    assert calls == [("Seen", "close"), ("Second", "close"), ("Seen", "close")]


def test_refused_record_is_acknowledged_with_its_error(producer: Producer, calls: Calls) -> None:
    """``KafkaProducer.doSend``: of an ``ApiException`` the record's callback hears, too."""
    error, told = refused(producer, value="x" * 2000, partition=1)
    assert isinstance(error, errors.RecordTooLargeError)
    assert told == [(error, None)]
    # The interceptor has changed the record, and left out its partition.
    assert calls[1:] == [("Seen", "on_acknowledgement", FAILED, error)]
    calls.clear()
    error, told = refused(producer, value="v", key=object())
    assert isinstance(error, errors.SerializationError)
    assert told == []
    assert calls[1:] == [("Seen", "on_acknowledgement", FAILED, error)]


def test_raising_callback_changes_nothing(producer: Producer, caplog: LogCapture) -> None:
    def fail(*_: object) -> None:
        raise ValueError("the callback is no good")

    with pytest.raises(errors.RecordTooLargeError):
        producer.send("t", "x" * 2000, on_delivery=fail)
    assert "the callback is no good" in caplog.text


def test_closed_producer_calls_no_interceptor(producer: Producer, calls: Calls) -> None:
    producer.close()
    error, told = refused(producer, value="v")
    assert isinstance(error, errors.ProducerClosedError)
    assert (told, calls) == ([], [("Seen", "close")])


def test_on_send_that_returns_none_raises(join: Produce, calls: Calls) -> None:
    error, told = refused(join(interceptor_classes=[Forgetful, Seen]), value="v", partition=2)
    assert isinstance(error, errors.IllegalStateError)
    assert "Forgetful.on_send returned None for a record of topic 't'" in str(error)
    assert told == []
    assert calls == [("Seen", "on_acknowledgement", RecordMetadata("t", 2, -1, -1), error)]
