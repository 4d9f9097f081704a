"""The verdict on a slab whose sends fail before acceptance, and what monitoring counts of them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest
from fake_broker import FakeBroker, Request, authenticated, produced, silent
from fixture_types import Capture
from processes import in_threads, wait_until
from producers import wait_until_gone
from slab_settings import Settings

from shmaccum import AsyncProducer, Producer
from shmaccum.cli.main import main
from shmaccum.compat.confluent import Producer as ConfluentProducer
from shmaccum.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    NotEnoughReplicasError,
    PolicyViolationError,
    RecordTooLargeError,
    SaslAuthenticationError,
    SerializationError,
    SlabFullError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from shmaccum.observe.catalogue import Series, series_of
from shmaccum.observe.report import report
from shmaccum.observe.verdict import Level, findings, verdict
from shmaccum.shm.incidents import Incidents
from tools.support.messages import API_VERSIONS, METADATA, PRODUCE, SASL_AUTHENTICATE


def values_of(slab: str, metric: str) -> Series:
    """Return the values of a metric of a slab by labels."""
    return next(series for each, series in series_of(report(slab)).items() if each.name == metric)


def counted(slab: str, topic: str = "t") -> dict[str, float]:
    """Return the refused calls of a topic by reason, as monitoring has them."""
    series = values_of(slab, "shmaccum_sends_refused")
    return {of[1]: value for of, value in series.items() if of[0] == topic and isinstance(value, float | int) and value}


@pytest.fixture
def to_broker(fake: FakeBroker, slab_name: str) -> Iterator[Settings]:
    yield {
        "bootstrap.servers": fake.servers,
        "shmaccum.name": slab_name,
        "buffer.memory": 1 << 20,
        "metadata.max.age.ms": 100,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 20,
        "sender.idle.ms": 50,
    }
    wait_until_gone(slab_name)


def delete_topic(broker: FakeBroker) -> None:
    gone = UnknownTopicOrPartitionError.code
    broker.answers[METADATA] = lambda request: broker.metadata(request, error=gone, partition_count=0)


def test_a_deleted_topic_is_never_healthy_while_its_sends_fail(
    fake: FakeBroker, to_broker: Settings, slab_name: str
) -> None:
    """In no look: neither while a `send` waits for the topic nor between two of them."""
    with Producer(to_broker | {"max.block.ms": 300}) as producer:
        producer.send("t", b"x", partition=0).get(timeout=30)
        delete_topic(fake)
        wait_until(lambda: verdict(report(slab_name)) == "there is no topic t")
        ended, said = threading.Event(), set()

        def fail() -> None:
            for _ in range(3):
                with pytest.raises(KafkaTimeoutError, match="not present in metadata"):
                    producer.send("t", b"x", partition=0)
            ended.set()

        with in_threads(fail):
            while not ended.is_set():
                said.add(verdict(report(slab_name)))
        assert said
        assert all(each.startswith("there is no topic t") for each in said), said
        (found,) = findings(report(slab_name))
        assert found.level is Level.FAULT
        assert found.text.startswith("there is no topic t: 3 calls of send failed, the last ")
        assert counted(slab_name) == {"topic": 3}
        fake.answers[METADATA] = fake.metadata
        producer.send("t", b"x", partition=0).get(timeout=30)
        wait_until(lambda: verdict(report(slab_name)) == "healthy")
        assert counted(slab_name) == {"topic": 3}


def test_records_in_flight_of_a_dead_sender_wait_for_the_next(
    fake: FakeBroker, to_broker: Settings, slab_name: str
) -> None:
    """And not for the broker: no sender would read its answer."""
    producer = Producer(to_broker | {"linger.ms": 0})
    producer.send("t", b"x", partition=0).get(timeout=30)
    answer, fake.answers[PRODUCE] = fake.answers[PRODUCE], silent
    producer.send("t", b"x", partition=0)
    wait_until(lambda: report(slab_name).partitions[0].in_flight_records == 1)
    pid = report(slab_name).sender.pid
    assert pid is not None
    producer.close(0)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: report(slab_name).partitions[0].oldest_ms > 1500)
    (found,) = findings(report(slab_name))
    assert (found.level, found.text) == (Level.FAULT, f"no sender: process {pid} has died: 1 record waiting")
    fake.answers[PRODUCE] = answer
    with Producer(to_broker) as producer:
        producer.flush(30)


def test_records_that_wait_for_a_deleted_topic_name_it(fake: FakeBroker, to_broker: Settings, slab_name: str) -> None:
    """Not a partition without a leader: it is the topic that is missing."""
    with Producer(to_broker | {"linger.ms": 300}) as producer:
        future = producer.send("t", b"x", partition=0)
        delete_topic(fake)
        wait_until(lambda: report(slab_name).partitions[0].oldest_ms > 1500)
        (found,) = findings(report(slab_name))
        assert found.text.startswith("there is no topic t: records wait for ")
        assert found.level is Level.FAULT
        fake.answers[METADATA] = fake.metadata
        future.get(timeout=30)


def test_a_permission_that_is_given_back_ends_the_fault(fake: FakeBroker, to_broker: Settings, slab_name: str) -> None:
    denied = TopicAuthorizationError.code
    fake.answers[METADATA] = lambda request: fake.metadata(request, error=denied, partition_count=0)
    with Producer(to_broker) as producer:
        with pytest.raises(TopicAuthorizationError):
            producer.send("t", b"x", partition=0)
        (found,) = findings(report(slab_name))
        assert found.text.startswith("no metadata of topic t: TopicAuthorizationError: 1 call of send failed")
        assert found.level is Level.FAULT
        fake.answers[METADATA] = fake.metadata
        producer.send("t", b"x", partition=0).get(timeout=30)
        began = time.monotonic()
        wait_until(lambda: verdict(report(slab_name)) == "healthy")
        assert time.monotonic() - began < 20, "a fault for long after the permission was given back"


def test_refused_sends_are_counted_by_topic_and_reason(settings: Settings, slab_name: str, capfd: Capture) -> None:
    """And stay counted when the producer's process has ended: they are in the slab."""
    settings |= {"max.request.size": 10_000, "max.block.ms": 20, "shmaccum.max.topics": 1}
    settings |= {"linger.ms": 600_000, "delivery.timeout.ms": 700_000}

    async def fail() -> None:
        async with AsyncProducer(settings) as producer:
            await producer.send("t", b"x")
            with pytest.raises(KafkaError):
                await producer.send("t", b"x" * 20_000)

    with Producer(settings) as producer:
        producer.send("t", b"x", partition=0)
        for _ in range(2):
            with pytest.raises(RecordTooLargeError):
                producer.send("t", b"x" * 20_000)
        assert verdict(report(slab_name)).startswith(
            "send to topic t fails: RecordTooLargeError: 2 calls of send failed"
        )
        with pytest.raises(SerializationError):
            producer.send("t", object())
        with pytest.raises(SlabFullError):
            producer.send("another", b"x")
        with pytest.raises(InvalidTopicError):
            producer.send("no topic", b"x")
        assert counted(slab_name) == {"too_large": 2, "argument": 1}
        assert counted(slab_name, "") == {"topic": 2}
        assert main(["status", slab_name]) == 0
        assert (
            "refused   calls of send to t: 2 too_large, 1 argument; the last: SerializationError"
            in capfd.readouterr().out
        )
        with pytest.raises(SerializationError):
            producer.send_batch("t", pa.RecordBatch.from_pydict({"unknown": [1]}))
        asyncio.run(fail())
        assert counted(slab_name) == {"too_large": 3, "argument": 2}


def test_full_memory_names_the_broker_that_opens_no_connection(
    fake: FakeBroker, to_broker: Settings, slab_name: str
) -> None:
    """Not the sends that memory refuses: these are counted, but follow from it."""
    settings = to_broker | {"batch.max.bytes": 16384, "request.timeout.ms": 5000, "max.block.ms": 3000}

    def fail(producer: Producer) -> None:
        with pytest.raises(BufferExhaustedError):
            producer.send("t", b"x" * 10_000, partition=0)

    with Producer(settings) as producer, Producer(settings | {"max.block.ms": 20}) as other:
        producer.send("t", b"x", partition=0).get(timeout=30)
        fake.answers[API_VERSIONS] = fake.answers[PRODUCE] = silent
        fake.cut()
        for _ in range(64):  # as many as there are slots
            producer.send("t", b"x" * 10_000, partition=0)
        fail(other)
        assert counted(slab_name) == {"memory": 1}
        assert "BufferExhaustedError: 1 call of send failed" in verdict(report(slab_name))

        with in_threads(partial(fail, producer)):
            wait_until(lambda: verdict(report(slab_name)).startswith("memory full for 2 s: "))
            assert "broker 1 has not answered our first request for " in verdict(report(slab_name))
        found = {each.text: each.level for each in findings(report(slab_name))}
        assert any(text.startswith("broker 1 has not answered our first request for ") for text in found), found
        assert not any(text.startswith("memory full") and "send to topic" in text for text in found), found

        fake.answers[API_VERSIONS] = fake.api_versions
        fake.answers[PRODUCE] = lambda request: produced((0, 0))
        fake.cut()
        producer.flush(30)
        began = time.monotonic()
        wait_until(lambda: verdict(report(slab_name)) == "healthy")
        assert time.monotonic() - began < 20, "a fault for long after there is memory again"


def test_records_that_wait_for_a_partition_that_takes_none_are_a_fault(
    fake: FakeBroker, to_broker: Settings, slab_name: str, capfd: Capture
) -> None:
    """A probe fails then, and no longer when the partition takes records again."""
    fake.answers[PRODUCE] = lambda request: produced((0, NotEnoughReplicasError.code))
    with Producer(to_broker) as producer:
        future = producer.send("t", b"x", partition=0)
        wait_until(lambda: report(slab_name).partitions[0].oldest_ms > 1200)
        (found,) = findings(report(slab_name))
        assert found.text.startswith("t-0 does not take records: NotEnoughReplicasError: ")
        assert found.level is Level.FAULT
        assert main(["probe", slab_name]) == 1
        assert capfd.readouterr().out.startswith("fault: t-0 does not take records")
        fake.answers[PRODUCE] = lambda request: produced((0, 0))
        future.get(timeout=30)
        assert main(["probe", slab_name]) == 0


def test_a_refused_login_counts_from_the_first_broker(settings: Settings, slab_name: str) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"x").get(timeout=30)
        incidents, now_ms = Incidents(producer._slab), time.time_ns() // 1_000_000
        for node, ago_ms in ((1, 600_000), (2, 60_000)):
            said = f"connection to broker {node}: refused"
            incidents.note(SaslAuthenticationError, said, lasts=True, since_ms=now_ms - ago_ms, node=node)
        assert verdict(report(slab_name)).startswith("login refused for 10 min: ")


def test_an_error_of_a_clock_that_was_set_back_is_over(
    fake: FakeBroker, to_broker: Settings, slab_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a fault until the clock is there again: the error has not happened since."""
    with Producer(to_broker) as producer:
        producer.send("t", b"x", partition=0).get(timeout=30)
        incidents, real = Incidents(producer._slab), time.time_ns
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
            incidents.note_of_partition(PolicyViolationError, "no", 0)
        assert incidents.current() is None
        assert verdict(report(slab_name)) == "healthy"
        incidents.note_of_partition(PolicyViolationError, "no", 0)
        assert incidents.current() is not None
        assert "t-0 does not take records: PolicyViolationError" in verdict(report(slab_name))


def test_a_refused_login_is_over_when_its_broker_is_not_needed(
    fake: FakeBroker, to_broker: Settings, slab_name: str
) -> None:
    """No attempt to log in again would show that the cause is gone."""
    with FakeBroker() as other:
        for broker in (fake, other):
            broker.let_in("PLAIN")
            broker.answers[METADATA] = lambda request: fake.metadata(request, brokers=[(1, fake), (2, other)], leader=2)
        other.answers[SASL_AUTHENTICATE] = lambda request: authenticated(SaslAuthenticationError.code)
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        limits = {"sasl.username": "a", "sasl.password": "b", "request.timeout.ms": 500, "delivery.timeout.ms": 1000}
        with Producer(to_broker | login | limits) as producer:
            future = producer.send("t", b"x", partition=0)
            wait_until(lambda: verdict(report(slab_name)).startswith("login refused for "))
            assert isinstance(future.exception(timeout=30), DeliveryTimeoutError)
            wait_until(lambda: verdict(report(slab_name)) == "healthy")
            assert not any(each.lasts for each in report(slab_name).incidents)
            assert values_of(slab_name, "shmaccum_lasting_errors")["SaslAuthenticationError",] == 0


def test_a_wait_that_ends_well_is_no_refusal(fake: FakeBroker, to_broker: Settings, slab_name: str) -> None:
    """confluent-kafka's producer tries again until the topic is known."""
    answer = threading.Event()

    def late(request: Request) -> object:
        answer.wait()
        return fake.metadata(request)

    fake.answers[METADATA] = late
    producer = ConfluentProducer(
        {each: to_broker[each] for each in ("bootstrap.servers", "shmaccum.name", "sender.idle.ms")}
    )
    threading.Timer(0.2, answer.set).start()
    producer.produce("t", b"x", partition=0)
    assert producer.flush(30) == 0
    assert counted(slab_name) == {}
    producer.close()
