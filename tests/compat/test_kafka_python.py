"""What programs of kafka-python's KafkaProducer rely on, with Apache Kafka."""

from __future__ import annotations

import threading
import time
from enum import StrEnum
from typing import Any

import kafka as theirs
import numpy as np
import pytest
from brokers import PATIENCE_S, wait_for_markers
from fixture_types import Link, Make, MonkeyPatch, Start
from kafka.errors import (
    IllegalStateError,
    InvalidTimestampError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    RetriableError,
)
from kafka.producer.future import RecordMetadata
from kafka.serializer import DefaultSerializer, JsonSerializer
from producers import kill_sender, stopped_sender, wait_until
from runs import run_python

from shmaccum.compat.kafka_python import KafkaProducer, futures
from shmaccum.sender import isolation
from shmaccum.shm.incidents import Incidents

NOWHERE = "127.0.0.1:1"
"""An address at which no broker can be."""


class Name(StrEnum):
    """Names that a program has as an enumeration."""

    KEY = "Header Key"


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_in_order(existing: str, values: Make, kafka_python: Make, compression: str | None) -> None:
    own = {"retries": 5, "max_block_ms": 30_000, "compression_type": compression, "batch_size": 100, "linger_ms": 5}
    idempotent = {"enable_idempotence": True, "max_in_flight_requests_per_connection": 1 if compression else 5}
    with kafka_python(value_serializer=DefaultSerializer(), **own, **idempotent) as producer:
        futures = [producer.send(existing, f"msg {number}", partition=1) for number in range(100)]
        assert [future.get(timeout=PATIENCE_S).offset for future in futures] == list(range(100))
    assert values(existing) == [b"msg %d" % number for number in range(100)]


def test_the_metadata_is_complete(existing: str, servers: str, kafka_python: Make) -> None:
    headers = [(Name.KEY, b"Header Value")]
    with kafka_python(bootstrap_servers=[servers]) as producer:
        record = producer.send(
            existing, b"Simple value", b"Simple key", headers, partition=0, timestamp_ms=9_999_999
        ).get(timeout=PATIENCE_S)
        where = theirs.TopicPartition(existing, 0)
        assert record == RecordMetadata(existing, 0, where, 0, 9_999_999, None, 10, 12, 22)
        before_ms = time.time() * 1000
        record = producer.send(existing, key=b"key", partition=0).get(PATIENCE_S)
        assert before_ms - 1000 <= record.timestamp <= time.time() * 1000 + 1000
        assert (record.serialized_key_size, record.serialized_value_size, record.serialized_header_size) == (3, -1, -1)


def test_callbacks_run_without_another_call(existing: str, kafka_python: Make) -> None:
    """In a thread of the producer, as kafka-python's do: no call sends, polls or waits meanwhile."""
    calls: list[Any] = []

    def fail(metadata: Any) -> None:
        raise ValueError("mine")

    producer = kafka_python()
    future = producer.send(existing, b"value")
    assert future.add_callback(lambda *args, **named: calls.append((args, named)), "more", name=1) is future
    future.add_errback(lambda error: calls.append(error)).add_both(calls.append)
    wait_until(lambda: len(calls) == 2, "both callbacks ran")
    assert calls == [(("more", future.value), {"name": 1}), future.value]
    future.add_callback(fail).add_callback(calls.append)
    wait_until(lambda: len(calls) == 3, "a callback of a future that is done ran, behind one that raised")
    assert (future.succeeded(), future.failed(), future.exception, future.retriable()) == (True, False, None, False)
    assert future.value == future.get()
    assert future.value.topic == existing
    looked_at = producer.send(existing, b"value")
    wait_until(lambda: looked_at.is_done, "a look at the future reads its answer")


def test_a_failed_record_has_kafka_pythons_error(existing: str, kafka_python: Make) -> None:
    own = {"delivery_timeout_ms": 300, "request_timeout_ms": 200, "linger_ms": 100}
    producer = kafka_python(**own)
    producer.send(existing, b"first").get(PATIENCE_S)
    with stopped_sender(producer._producer):
        future = producer.send(existing, b"value")
        with pytest.raises(KafkaTimeoutError):
            future.get(timeout=0.01)
        time.sleep(0.4)
    errors: list[Any] = []
    future.add_errback(errors.append).chain(chained := theirs.future.Future())
    with pytest.raises(KafkaTimeoutError):
        future.get(PATIENCE_S)
    wait_until(lambda: errors and chained.is_done, "the errback ran")
    assert (future.failed(), future.value, future.retriable()) == (True, None, True)
    assert errors == [future.exception] == [chained.exception]
    assert isinstance(future.exception, RetriableError)


def test_arguments_are_refused_as_there(existing: str, values: Make, kafka_python: Make) -> None:
    producer = kafka_python(max_request_size=1000, max_block_ms=500)
    for arguments, kind in (
        ({}, ValueError),
        ({"value": b"v", "partition": 99}, ValueError),
        ({"value": b"v", "partition": -1}, ValueError),
        ({"value": b"v", "partition": "0"}, TypeError),
        ({"value": b"v", "timestamp_ms": 1.5}, TypeError),
        ({"value": b"v", "timestamp_ms": -1}, InvalidTimestampError),
        ({"value": 5}, TypeError),
        ({"value": b"v", "key": 5}, TypeError),
        ({"value": b"v", "headers": ("a", b"b")}, TypeError),
        ({"value": b"v", "headers": [("a", "b")]}, TypeError),
        ({"value": b"x" * 2000}, MessageSizeTooLargeError),
    ):
        with pytest.raises(kind):
            producer.send(existing, **arguments)
    with pytest.raises(TypeError):
        producer.send(b"topic", b"value")
    with pytest.raises(ValueError, match="not allowed"):
        producer.send("no/topic", b"value")
    with pytest.raises(KafkaTimeoutError):
        producer.send(f"{existing}-unknown", b"value")
    with pytest.raises(KafkaTimeoutError):
        producer.partitions_for(f"{existing}-unknown")
    producer.flush(PATIENCE_S)
    assert values(existing) == []


def test_a_future_raises_kafka_pythons_error_without_a_sender(
    existing: str, kafka_python: Make, monkeypatch: MonkeyPatch
) -> None:
    producer = kafka_python(linger_ms=60_000, delivery_timeout_ms=120_000)
    future = producer.send(existing, b"value")
    with monkeypatch.context() as patched:
        patched.setattr(isolation, "EXECUTABLE", "/nowhere/python")
        kill_sender(producer._producer)
        with pytest.raises(KafkaError, match="/nowhere/python"):
            _ = future.is_done
    producer.close()


def test_a_close_while_another_thread_asks(existing: str, kafka_python: Make, monkeypatch: MonkeyPatch) -> None:
    producer = kafka_python()
    known = Incidents.has_been_let_in.fget

    def closing(incidents: Incidents) -> bool:
        producer.close()
        return known(incidents)

    monkeypatch.setattr(Incidents, "has_been_let_in", property(closing))
    with pytest.raises(IllegalStateError):
        producer.bootstrap_connected()


class Legacy:
    """A serializer of kafka-python before 3.0."""

    closed = False

    def serialize(self, topic: str, data: Any) -> bytes:
        return f"{topic}:{data}".encode()

    def close(self) -> None:
        self.closed = True


def test_serializers_of_all_forms(existing: str, values: Make, kafka_python: Make) -> None:
    legacy = Legacy()
    with kafka_python(key_serializer=str.encode, value_serializer=JsonSerializer()) as producer:
        producer.send(existing, {"a": 1}, "key", partition=0)
    with kafka_python(value_serializer=legacy) as producer:
        producer.send(existing, 5, partition=0)
    assert legacy.closed
    assert values(existing) == [b'{"a": 1}', f"{existing}:5".encode()]
    with pytest.raises(TypeError, match="descriptor"):  # a serializer's own error, as there
        kafka_python(value_serializer=str.encode).send(existing, b"bytes")


class Last(theirs.partitioner.Partitioner):  # type: ignore[misc]
    """Chooses the last partition."""

    def partition(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any) -> int:
        assert topic in cluster.topics()
        assert cluster.available_partitions_for_topic(topic) == cluster.partitions_for_topic(topic)
        return max(cluster.partitions_for_topic(topic))


class LastByDefault(theirs.partitioner.DefaultPartitioner):  # type: ignore[misc]
    """Chooses the last partition."""

    partition = Last.partition


class LastOfOld:
    """Chooses the last partition, in the form of kafka-python before 3.0."""

    def partition(self, topic: str, key_bytes: Any, cluster: Any) -> int:
        return Last().partition(topic, None, key_bytes, None, None, cluster)


@pytest.mark.parametrize("kind", [Last, LastByDefault, LastOfOld])
def test_a_partitioner_chooses_unless_the_partition_is_given(existing: str, kafka_python: Make, kind: Make) -> None:
    producer = kafka_python(partitioner=kind())
    assert producer.send(existing, b"value", b"key").get(PATIENCE_S).partition == 2
    assert producer.send(existing, b"value", partition=0).get(PATIENCE_S).partition == 0
    assert producer.send(existing, b"value", partition=np.int64(1)).get(PATIENCE_S).partition == 1
    assert producer.partitions_for(existing) == {0, 1, 2}


def test_keys_have_kafka_pythons_partitions(existing: str, servers: str, kafka_python: Make) -> None:
    producer = kafka_python()
    with theirs.KafkaProducer(bootstrap_servers=servers) as other:
        for number in range(20):
            key = b"key %d" % number
            ours = producer.send(existing, b"v", key).get(PATIENCE_S)
            assert ours.partition == other.send(existing, b"v", key).get(PATIENCE_S).partition


def test_closing_leaves_no_thread(existing: str, kafka_python: Make) -> None:
    kafka_python()  # the slab's own thread stays for all its producers
    threads = threading.active_count()
    with kafka_python() as producer:
        producer.send(existing, b"value").add_callback(lambda metadata: None)
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads
    producer.close()
    producer.flush()
    for call in (lambda: producer.send(existing, b"value"), lambda: producer.partitions_for(existing)):
        with pytest.raises(IllegalStateError):
            call()
    with pytest.raises(ValueError, match="Invalid timeout"):
        kafka_python().close(-1)


def test_callbacks_run_later_where_no_thread_can_be_started(
    existing: str, kafka_python: Make, monkeypatch: MonkeyPatch
) -> None:
    producer = kafka_python()
    calls: list[Any] = []

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        future = producer.send(existing, b"value").add_callback(calls.append)
        producer.flush()
    assert calls == [future.value]
    producer.send(existing, b"value").add_callback(calls.append)
    wait_until(lambda: len(calls) == 2, "a thread was started for the next one")


def test_a_dropped_producer_leaves_no_thread(existing: str, kafka_python: Make, monkeypatch: MonkeyPatch) -> None:
    kafka_python()  # the slab's own thread stays for all its producers
    monkeypatch.setattr(futures, "_IDLE_S", 0.05)
    threads, calls = threading.active_count(), []  # type: ignore[var-annotated]
    producer = kafka_python()
    for number in (1, 2):
        producer.send(existing, b"value").add_callback(calls.append)
        wait_until(lambda number=number: len(calls) == number, "the callback ran")  # type: ignore[misc]
        wait_until(lambda: threading.active_count() == threads, "its thread ended")


def test_metrics_are_in_groups(existing: str, kafka_python: Make, slab_name: str) -> None:
    producer = kafka_python(shmaccum_name=slab_name, sender_idle_ms=100)
    producer.send(existing, b"value").get(PATIENCE_S)
    metrics = producer.metrics()
    assert metrics["producer-metrics"]["record-append-total"] == 1
    assert metrics["slab-metrics"]["record-send-total"] == 1
    assert producer.bootstrap_connected()
    with pytest.raises(NotImplementedError):
        producer.metrics(raw=True)
    assert kafka_python(metrics_enabled=False).metrics() is None


def test_transactions(existing: str, values: Make, servers: str, kafka_python: Make) -> None:
    with kafka_python(transactional_id=f"id-{existing}") as producer:
        producer.init_transactions()
        for texts, end in (
            ((b"msg1", b"msg2"), producer.abort_transaction),
            ((b"msg3", b"msg4"), producer.commit_transaction),
        ):
            producer.begin_transaction()
            for text in texts:
                producer.send(existing, text, partition=0).get(PATIENCE_S)
            end()
            producer.init_transactions()  # does nothing the second time
    wait_for_markers(servers)
    assert values(existing, isolation_level="read_committed") == [b"msg3", b"msg4"]


def test_offsets_of_a_transaction(existing: str, servers: str, kafka_python: Make) -> None:
    group = f"group-{existing}"
    one, two = theirs.TopicPartition(existing, 0), theirs.TopicPartition(existing, 1)
    with kafka_python(transactional_id=f"id-{existing}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(existing, b"msg1", partition=0).get(PATIENCE_S)
        producer.send_offsets_to_transaction({one: theirs.OffsetAndMetadata(5, "metadata", 0)}, group)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({two: theirs.OffsetAndMetadata(1, "bad", 1)}, group)
        producer.abort_transaction()
    wait_for_markers(servers)
    consumer = theirs.KafkaConsumer(bootstrap_servers=servers, group_id=group)
    assert (consumer.committed(one), consumer.committed(two)) == (5, None)
    consumer.close()


def test_a_fenced_producer_gets_kafka_pythons_error(existing: str, kafka_python: Make) -> None:
    first, second = (kafka_python(transactional_id=f"id-{existing}") for _ in range(2))
    first.init_transactions()
    first.begin_transaction()
    first.send(existing, b"value")
    second.init_transactions()
    with pytest.raises(ProducerFencedError):
        first.commit_transaction()
    with pytest.raises(IllegalStateError):
        kafka_python().begin_transaction()


def test_a_forked_child_goes_on(existing: str, values: Make, kafka_python: Make, start: Start) -> None:
    calls: list[Any] = []
    producer = kafka_python()
    producer.send(existing, b"parent").add_callback(calls.append)
    wait_until(lambda: calls, "the parent's callback ran")

    def child(link: Link) -> int:
        producer.send(existing, b"child").add_callback(calls.append)
        wait_until(lambda: len(calls) == 2, "the child's callback ran")
        return len(calls)

    assert start(child, how="fork").result() == 2
    assert sorted(values(existing)) == [b"child", b"parent"]


def test_a_child_that_was_forked_while_a_thread_had_the_lock_closes(
    existing: str, kafka_python: Make, start: Start
) -> None:
    producer = kafka_python()
    producer.send(existing, b"parent").add_callback(lambda metadata: None)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with producer._callbacks._changed:
            held.set()
            done.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(PATIENCE_S)
    child = start(lambda link: producer.close() or 7, how="fork")
    done.set()
    thread.join()
    assert child.result() == 7


# --- KIP-679 as kafka-python resolves it, and settings that are refused ---


def test_defaults_are_idempotent(kafka_python: Make) -> None:
    producer = kafka_python(bootstrap_servers=NOWHERE)
    assert (producer.config["enable_idempotence"], producer.config["acks"]) == (True, -1)
    assert producer._producer.config.linger_ms == 0, "kafka-python's default, not Kafka's"
    assert kafka_python(bootstrap_servers=NOWHERE, acks="all").config["acks"] == -1
    producer = kafka_python(bootstrap_servers=NOWHERE, enable_idempotence=False)
    assert (producer.config["enable_idempotence"], producer.config["acks"]) == (False, -1)


@pytest.mark.parametrize(
    "own", [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 10}]
)
def test_a_conflict_turns_idempotence_off(kafka_python: Make, own: dict[str, Any]) -> None:
    producer = kafka_python(bootstrap_servers=NOWHERE, **own)
    assert producer.config["enable_idempotence"] is False
    ((name, value),) = own.items()
    for strict in ({"enable_idempotence": True}, {"transactional_id": "id"}):
        with pytest.raises(KafkaConfigurationError, match=f"{name}={value}"):
            KafkaProducer(bootstrap_servers=NOWHERE, **own, **strict)


@pytest.mark.parametrize(
    ("own", "error", "message"),
    [
        ({"enable_idempotence": True, "acks": 1, "retries": 0}, KafkaConfigurationError, "acks=1, retries=0"),
        (
            {"transactional_id": "id", "enable_idempotence": False},
            KafkaConfigurationError,
            "transactional_id without enable_idempotence",
        ),
        ({"api_version": (0, 10)}, KafkaConfigurationError, "api_version"),  # of brokers without record batches
        ({"no_such": 1}, ValueError, r"Unrecognized configs: no_such$"),
    ],
)
def test_settings_are_refused_by_name(own: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        KafkaProducer(bootstrap_servers=NOWHERE, **own)


def test_names_of_no_producer_are_kafka_pythons_own() -> None:
    from shmaccum.compat import kafka_python

    assert kafka_python.KafkaConsumer is theirs.KafkaConsumer
    assert kafka_python.TopicPartition is theirs.TopicPartition
    with pytest.raises(AttributeError):
        _ = kafka_python.NoSuchName


@pytest.mark.parametrize(
    "lack", ["sys.modules['kafka'] = None", "sys.modules['kafka.partitioner'] = types.ModuleType('kafka.partitioner')"]
)
def test_an_import_without_kafka_python_3_names_it(lack: str) -> None:
    """There is none, or version 2, which has other partitioners."""
    done = run_python("-c", f"import sys, types; {lack}; import shmaccum.compat.kafka_python")
    assert "ImportError: shmaccum.compat.kafka_python needs kafka-python 3: pip install 'shmaccum[" in done.stderr
