"""The producer's public behaviour: sent records are in the log, and futures and callbacks report it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from fixture_types import Produce, Settings
from kafka import KafkaProducer
from producers import in_the_way, kill_sender, sender_pid, sender_starts, wait_until_stored
from runs import in_threads
from senders import read_partition, read_topic, read_values

from shmaccum import FutureRecordMetadata, Producer, RecordMetadata, errors
from shmaccum.observe import kafka_metrics


def test_arguments_have_kafka_pythons_order() -> None:
    """A program changes one line: what it passes by position means the same."""
    ours = list(inspect.signature(Producer.send).parameters)
    theirs = list(inspect.signature(KafkaProducer.send).parameters)
    assert ours[: len(theirs)] == theirs


def test_send(producer: Producer, kept_log: Path, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    futures = [
        producer.send(topic, b"value", b"key", [("name", b"x"), ("none", None)], 1, 1_700_000_000_000),
        producer.send(topic, value="text", key="ключ", partition=1),
        producer.send(topic, partition=1),
        producer.send(topic, bytearray(b"array"), memoryview(b"view"), partition=1),
    ]
    found = [future.get(10) for future in futures]
    assert [(each.topic, each.partition, each.offset) for each in found] == [(topic, 1, number) for number in range(4)]
    records = read_partition(kept_log, topic, 1)
    assert [record[2:] for record in records] == [
        (b"key", b"value", [("name", b"x"), ("none", None)]),
        ("ключ".encode(), b"text", []),
        (None, None, []),
        (b"view", b"array", []),
    ]
    assert [record.timestamp for record in records] == [each.timestamp for each in found]
    assert found[0].timestamp == 1_700_000_000_000
    assert before <= found[1].timestamp <= time.time_ns() // 1_000_000


def test_a_serializer_is_called_once_whatever_its_record_waits_for(produce: Produce, log_dir: Path) -> None:
    """For the topic, for memory, or for nothing; and a record with headers as one without."""
    called: list[str] = []

    def serialize(value: str) -> bytes:
        called.append(value)
        return value.encode()

    producer = produce(value_serializer=serialize, buffer_memory=64 << 10, batch_size=4096, linger_ms=1)
    values = [f"{number}".ljust(1500, ".") for number in range(200)]
    for number, value in enumerate(values):
        producer.send("t", value, "key", {"h": "größe"} if number % 2 else None, partition=0)
    producer.flush()
    assert called == values
    stored = read_partition(log_dir, "t")
    assert [record[3].decode() for record in stored] == values
    assert [record.headers for record in stored[:2]] == [[], [("h", "größe".encode())]]


def test_partitioner_ignore_keys(join: Produce, kept_log: Path, topic: str) -> None:
    """Records stick to the partition of the moment, whichever it is, until it has a batch's worth; rows, too."""
    producer = join(partitioner_ignore_keys=True)
    for number in range(20):
        producer.send(topic, b"value", b"key %d" % number)
    producer.send_batch(topic, pa.record_batch({"key": [f"key {number}" for number in range(20)]}))
    producer.flush(10)
    (records,) = [records for records in read_topic(kept_log, topic).values() if records]
    assert len(records) == 40


def test_on_delivery(producer: Producer, topic: str) -> None:
    """Callbacks of one who only polls come as they are due."""
    told: list[tuple[Any, Any]] = []
    for number in range(3):
        producer.send(topic, b"%d" % number, partition=2, on_delivery=lambda *what: told.append(what))
    while len(told) < 3:
        producer.poll(1)
    assert [(error, metadata.offset) for error, metadata in told] == [(None, 0), (None, 1), (None, 2)]
    assert isinstance(told[0][1], RecordMetadata)
    producer.send(topic, b"3", partition=2, on_delivery=lambda *what: told.append(what))
    producer.flush(10)
    assert len(told) == 4


def test_order_within_a_partition(produce: Produce, log_dir: Path) -> None:
    """Some thousand records through few slots: waiting for memory, full batches and lingering ones."""
    producer = produce(buffer_memory=64 << 10, batch_size=4096, max_request_size=16 << 10)
    futures = [producer.send("t", b"%d" % number + bytes(number % 300), partition=number % 3) for number in range(4000)]
    producer.flush(20)
    for partition in range(3):
        values = read_values(log_dir, "t", partition)
        assert [int(value.rstrip(b"\0")) for value in values if value] == list(range(partition, 4000, 3))
    assert [future.get(0).offset for future in futures] == [number // 3 for number in range(4000)]


# --- flush and close ------------------------------------------------------------------------------------


def test_flush_does_not_wait_for_linger(join: Produce, topic: str) -> None:
    producer = join(linger_ms=60_000)
    future = producer.send(topic, b"value")
    producer.flush(10)
    assert future.succeeded()
    producer.flush(0)  # nothing is left to wait for


def test_flush_times_out(producer: Producer, kept_log: Path, topic: str) -> None:
    producer.partitions_for(topic)
    with in_the_way(kept_log / f"{topic}-0"):
        future = producer.send(topic, b"value", partition=0)
        with pytest.raises(errors.KafkaTimeoutError, match=r"after 0\.05 s"):
            producer.flush(0.05)
        assert not future.is_done
    assert future.get(10).offset == 0


def test_close_delivers(join: Produce, kept_log: Path, topic: str) -> None:
    """Also by the end of a block; by one of several threads, and the others do not wait for that."""
    producer = join(linger_ms=60_000)
    future = producer.send(topic, b"value", partition=0)
    in_threads(3, lambda _: producer.close(20))
    assert future.get(0).offset == 0
    producer.close()
    assert repr(producer).endswith("closed>")
    with join(linger_ms=60_000) as producer:
        producer.send(topic, b"next", partition=0)
    assert read_values(kept_log, topic) == [b"value", b"next"]


def test_futures_of_a_closed_producer(producer: Producer, kept_log: Path, topic: str) -> None:
    """They keep outcomes read before; later ones never reach them."""
    done = producer.send(topic, b"value", partition=1)
    rows = producer.send_batch(topic, pa.record_batch({"value": ["row"], "partition": [2]}))
    producer.flush(10)
    with in_the_way(kept_log / f"{topic}-0"):
        under_way = producer.send(topic, b"value", partition=0)
        producer.close(0)
        assert done.get(0).offset == 0
        assert rows.get(0).offsets.tolist() == [0]
        with pytest.raises(errors.IllegalStateError, match="gets no more wake-ups"):
            under_way.get(5)
        assert "/dev/shm/shmaccum-" not in Path("/proc/self/maps").read_text(), "they hold no shared memory"


def test_incidents_of_a_closed_producer(producer: Producer) -> None:
    incidents = producer.incidents
    producer.close()
    with pytest.raises(errors.ProducerClosedError, match="closed meanwhile"):
        incidents.current()


def test_send_is_a_method_like_any_other(join: Produce, kept: Settings, topic: str) -> None:
    """It is a function of another module: users can look it up, override it, and replace it in their tests."""

    class Upper(Producer):
        def send(self, topic: str, value: Any = None, *rest: Any, **named: Any) -> FutureRecordMetadata:
            return super().send(topic, value.upper(), *rest, **named)

    assert "on_delivery" in inspect.getdoc(join().send)  # type: ignore[operator]
    with Upper(kept()) as producer:
        future = producer.send(topic, b"value", partition=0)
        assert isinstance(future, FutureRecordMetadata)
        assert future.get(20).serialized_value_size == 5
    with mock.patch.object(Producer, "send") as replaced:
        join().send(topic, b"value")
    assert replaced.call_args.args == (topic, b"value")


def test_callback_can_close(join: Produce, kept_log: Path, topic: str) -> None:
    """In the middle of a close, it has nothing more to do."""
    producer = join(linger_ms=20)
    producer.partitions_for(topic)
    called: list[object] = []

    def close(error: object, metadata: object) -> None:
        called.append(error)
        producer.close()

    producer.send(topic, b"value", partition=0, on_delivery=close)
    producer.close(20)
    assert called == [None]
    assert read_values(kept_log, topic) == [b"value"]


def test_close_times_out(join: Produce, kept_log: Path, topic: str) -> None:
    """Or does not wait at all: the records are in the slab, and the sender outlives their producers."""
    waiting, hasty = join(retry_backoff_ms=10), join()
    waiting.partitions_for(topic)
    with in_the_way(kept_log / f"{topic}-0"):
        for producer in (waiting, hasty):
            producer.send(topic, b"value", partition=0)
        hasty.close(0)
        with pytest.raises(errors.KafkaTimeoutError, match="stay in the slab"):
            waiting.close(0.05)
    wait_until_stored(kept_log, 2, topic)


def test_after_close(producer: Producer, topic: str) -> None:
    producer.close()
    for call in (
        lambda: producer.send(topic, b"value"),
        lambda: producer.partitions_for(topic),
        lambda: producer.poll(),
        lambda: producer.metrics(),
        lambda: producer.send_batch(topic, None),
    ):
        with pytest.raises(errors.ProducerClosedError):
            call()
    producer.flush()  # as Kafka's does: there is nothing left to wait for
    with pytest.raises(errors.IllegalArgumentError):
        producer.flush(-1)


def test_a_close_while_metrics_are_read(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a thread that exports them."""
    read = kafka_metrics.slab_metrics

    def closing(*arguments: Any) -> Any:
        producer.close()
        return read(*arguments)

    monkeypatch.setattr(kafka_metrics, "slab_metrics", closing)
    with pytest.raises(errors.ProducerClosedError):
        producer.metrics()


class Closable:
    """A serializer that counts how often it is closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.closed = 0
        self._error = error

    def serialize(self, topic: str, data: str) -> bytes:
        return data.encode()

    def close(self) -> None:
        self.closed += 1
        if self._error is not None:
            raise self._error


def test_close_closes_serializers_behind_the_last_record(join: Produce, kept_log: Path, topic: str) -> None:
    key, value = Closable(), Closable()
    producer = join(key_serializer=key, value_serializer=value, linger_ms=60_000)
    producer.send(topic, "value", "key", partition=0, on_delivery=lambda error, metadata: stored.append(value.closed))
    stored: list[int] = []
    producer.close()
    producer.close()
    assert (key.closed, value.closed, stored) == (1, 1, [0])
    assert read_values(kept_log, topic) == [b"value"]


def test_serializer_whose_close_fails_is_logged_and_raised(join: Produce, caplog: pytest.LogCaptureFixture) -> None:
    key, value = Closable(ValueError("the first")), Closable(OSError("the second"))
    producer = join(key_serializer=key, value_serializer=value)
    with pytest.raises(errors.KafkaError, match="Failed to close") as caught:
        producer.close()
    assert str(caught.value.__cause__) == "the first"
    assert key.closed == value.closed == 1
    assert [record.message.split()[3] for record in caplog.records if record.levelname == "ERROR"] == [
        "key.serializer",
        "value.serializer",
    ]
    producer.close()


def test_producer_that_cannot_be_made_closes_its_serializers(settings: Settings) -> None:
    key, value = Closable(), Closable()
    with pytest.raises(errors.ShmaccumError):
        Producer(settings(key_serializer=key, value_serializer=value) | {"log.dir": "/proc/none"})
    assert key.closed == value.closed == 1


# --- several producers ----------------------------------------------------------------------------------


def test_several_producers_of_one_process(join: Produce, kept_log: Path, topic: str) -> None:
    """Equal where slabs are concerned, of their own where producers are; one's end is not the others'."""
    plain, shouting = join(), join(value_serializer=lambda value: value.upper().encode())
    assert sender_pid(plain) == sender_pid(shouting)
    quiet = plain.send(topic, b"quiet", partition=0)
    futures = [shouting.send(topic, f"loud{number}", partition=1) for number in range(500)]
    shouting.close()
    assert all(future.succeeded() for future in futures)
    plain.flush(10)
    assert quiet.get(0).offset == 0
    assert plain.send(topic, b"still there", partition=0).get(10).offset == 1
    assert read_values(kept_log, topic, 1)[:2] == [b"LOUD0", b"LOUD1"]


# --- the sender, from here ------------------------------------------------------------------------------


def test_killed_sender_is_replaced(producer: Producer, kept_log: Path, topic: str) -> None:
    """By who sends into a new batch, though it never looks back, and by who asks for a topic."""
    producer.send(topic, b"before", partition=0).get(10)
    starts = sender_starts(producer)
    kill_sender(producer)
    producer.send(topic, b"after", partition=0)
    wait_until_stored(kept_log, 2, topic)
    assert read_values(kept_log, topic) == [b"before", b"after"]
    assert sender_starts(producer) == starts + 1
    kill_sender(producer)
    producer.partitions_for(f"{topic}-new")
    assert sender_starts(producer) == starts + 2


def test_waiting_starts_a_missing_sender(join: Produce, topic: str) -> None:
    """Even if nothing more is sent."""
    producer = join(linger_ms=200)
    producer.partitions_for(topic)

    def poll() -> None:
        while not future.is_done:
            producer.poll()

    waits: list[Callable[[], object]] = [lambda: producer.flush(20), lambda: future.get(20), poll]
    for wait in waits:
        future = producer.send(topic, b"value")
        kill_sender(producer)
        wait()
        assert future.succeeded()


def test_futures_have_the_methods_of_concurrent_futures(join: Produce, topic: str) -> None:
    producer = join(linger_ms=60_000)
    future = producer.send(topic, b"value", partition=0)
    called: list[object] = []
    future.add_done_callback(called.append)
    assert (future.done(), future.running(), future.cancel(), future.cancelled()) == (False, True, False, False)
    for wait in (future.result, future.exception):
        with pytest.raises(TimeoutError, match=f"no acknowledgement from {topic}-0"):
            wait(0.01)
    assert called == []
    producer.flush()
    future.add_done_callback(called.append)
    assert called == [future, future]
    assert (future.done(), future.running()) == (True, False)
    assert future.result(0) == future.result() == future.get()
    assert future.exception() is None
