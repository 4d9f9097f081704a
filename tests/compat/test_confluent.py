"""What programs of confluent-kafka's Producer rely on, with a broker and without one.

docs/compat.md lists confluent-kafka's own tests beside these.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import struct
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np
import pytest
from brokers import PATIENCE_S
from confluent_kafka import KafkaError, KafkaException
from fixture_types import Link, Make, MonkeyPatch, Start
from processes import in_threads
from producers import settings_of, stopped_sender, wait_until_gone

from shmaccum import errors
from shmaccum._core import Message
from shmaccum.compat import confluent as module
from shmaccum.compat.confluent import Producer
from shmaccum.compat.confluent.parking import Produced
from tools.kafka import KafkaCluster

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 10}
"""Settings of a producer that reaches no broker, and gives its messages up soon."""

ADVICE = r"confluent-kafka's asyncio client is not provided.*shmaccum\.AsyncProducer.*docs/asyncio\.md"


# --- without a broker ------------------------------------------------------------------------------------------------


def test_a_producer_without_settings_is_refused() -> None:
    with pytest.raises(TypeError, match="expected configuration dict"):
        Producer()
    with pytest.raises(TypeError, match="expected configuration dict"):
        Producer("localhost:9092")  # type: ignore[arg-type]
    for wrong, message in (({}, r"bootstrap\.servers is missing"), ({"no.such": 1}, "No such configuration property")):
        with pytest.raises(KafkaException, match=message) as caught:
            Producer(wrong)
        assert caught.value.args[0].code() == KafkaError._INVALID_ARG


def test_messages_without_a_broker_are_reported_as_timed_out(confluent: Make) -> None:
    reports: list[Any] = []
    producer = confluent(NOWHERE)
    assert producer, "true although its length is 0"
    producer.produce("t")
    producer.produce("t", value="data", key="key")
    for value in ("data", "\xc2\xc2", b"\xc2"):
        producer.produce(topic="other", value=value, partition=9, callback=lambda *report: reports.append(report))
    assert (len(producer), reports) == (5, [])
    assert producer.flush() == 0
    for error, message in reports:
        assert error.code() == KafkaError._MSG_TIMED_OUT == message.error().code()
        assert error.str().startswith("Local: Message timed out")
        assert "Topic other not present in metadata after 10 ms" in error.str()
        assert (message.topic(), message.partition(), message.offset()) == ("other", None, None)
        assert message.latency() > 0
    assert [message.value() for _, message in reports] == [b"data", "\xc2\xc2".encode(), b"\xc2"]
    assert producer.close()


def test_a_cluster_that_cannot_be_reached_is_an_error_of_list_topics(confluent: Make) -> None:
    """As is a call that there is not."""
    producer = confluent(NOWHERE)
    with pytest.raises(KafkaException) as caught:
        producer.list_topics(timeout=0.1)
    assert caught.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
    with pytest.raises(KafkaException) as caught:
        producer.set_sasl_credentials("user", "password")
    assert caught.value.args[0].code() == KafkaError._NOT_IMPLEMENTED


def test_what_error_cb_raises_reaches_the_caller(confluent: Make) -> None:
    """It gets the sender's troubles."""
    errors: list[Any] = []
    for kind in (KafkaException, ValueError, RuntimeError):

        def error_cb(error: Any, kind: type[Exception] = kind) -> None:
            errors.append(error)
            raise kind("from error_cb")

        producer = confluent({**NOWHERE, "message.timeout.ms": 2000, "error_cb": error_cb})
        producer.produce("t", "value")
        with pytest.raises(kind, match="from error_cb"):
            producer.flush(PATIENCE_S)
    assert errors[0].code() == KafkaError._TRANSPORT
    assert "127.0.0.1:1" in errors[0].str()


def test_a_close_in_another_thread_while_poll_looks_for_troubles(confluent: Make) -> None:
    producer = confluent({**NOWHERE, "error_cb": print})
    producer._shm.next_look = time.monotonic() + PATIENCE_S  # so it is between `poll` of ours and this look
    producer._shm.producer.close(0)
    with pytest.raises(RuntimeError, match="Producer has been closed"):
        producer.poll(0)


def test_what_a_callback_raises_reaches_the_caller(confluent: Make) -> None:
    calls: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        calls.append(error)
        raise RuntimeError("from the callback")

    producer = confluent({**NOWHERE, "on_delivery": on_delivery})
    producer.produce("t", "text")
    producer.produce("t", b"bytes")
    for number in (1, 2):
        with pytest.raises(RuntimeError, match="from the callback"):
            producer.flush(PATIENCE_S)
        assert (len(calls), len(producer)) == (number, 2 - number), "the other message is still reported"


def test_a_closed_producer_refuses_calls(confluent: Make) -> None:
    reports: list[Any] = []
    with confluent({**NOWHERE, "debug": "all"}) as producer:
        assert producer.__enter__() is producer
        producer.produce("t", b"value", "key", callback=lambda *report: reports.append(report))
        producer.poll(0)
    assert len(reports) == 1
    for call in (lambda: producer.produce("t", b"value"), producer.flush, lambda: producer.poll(0)):
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            call()
    assert len(producer) == 0
    with producer:  # as in confluent-kafka, this is no error
        pass
    assert producer.close()


def test_an_error_in_the_block_passes_and_closes_that_producer_alone(confluent: Make) -> None:
    other, producer = confluent(NOWHERE), confluent(NOWHERE)

    def fail() -> None:
        with producer:
            producer.produce("t", b"value")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    with pytest.raises(RuntimeError, match="closed"):
        producer.produce("t", b"value")
    other.produce("t", b"value")


def test_methods_of_a_producer_without_constructor_raise(confluent: Make) -> None:
    class Bare(Producer):
        def __init__(self) -> None:
            pass

    bare = Bare()
    for call in (
        lambda: bare.produce("t", b"value"),
        bare.poll,
        bare.flush,
        bare.purge,
        lambda: bare.produce_batch("t", [{"value": b"value"}]),
        bare.init_transactions,
        bare.begin_transaction,
        lambda: bare.send_offsets_to_transaction([], b""),
        bare.commit_transaction,
        bare.abort_transaction,
    ):
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            call()
    assert len(bare) == 0


def test_names_of_no_producer_are_confluents_own() -> None:
    assert module.Consumer is confluent_kafka.Consumer
    assert (module.KafkaError, module.KafkaException) == (KafkaError, KafkaException)
    with pytest.raises(AttributeError):
        _ = module.NoSuchName


def test_the_asyncio_client_has_a_substitute() -> None:
    statements = [
        "from shmaccum.compat.confluent.aio import AIOProducer",
        "import shmaccum.compat.confluent.aio",
        "from shmaccum.compat.confluent import aio",
    ]
    for statement in (*statements, "import confluent_kafka.aio; from shmaccum.compat.confluent import aio"):
        with pytest.raises(ImportError, match=ADVICE):
            exec(statement)
    with pytest.raises(AttributeError, match=ADVICE):
        module.aio  # noqa: B018


# --- with Apache Kafka -----------------------------------------------------------------------------------------------


class Text(str):
    """As the members of a `StrEnum` are."""

    __slots__ = ()


def test_callbacks_run_in_poll_and_tell_where_a_message_is(existing: str, confluent: Make) -> None:
    reports: list[Any] = []
    threads: set[int] = set()

    def on_delivery(error: Any, message: Any) -> None:
        threads.add(threading.get_ident())
        reports.append((error, message))

    producer = confluent()
    for number in range(10):
        fields = Text(f"value {number}"), Text(f"key {number}"), np.int64(number % 3)
        producer.produce(existing, *fields, on_delivery, timestamp=np.int64(1000 + number), on_delivery=pytest.fail)
    assert (len(producer), reports) == (10, [])
    while len(reports) < 10:
        assert producer.poll(PATIENCE_S) > 0
    assert (len(producer), threads) == (0, {threading.get_ident()})
    for error, message in reports:
        number = int(message.value()[6:])
        assert (error, message.error(), message.topic()) == (None, None, existing)
        assert (message.partition(), message.offset()) == (number % 3, number // 3)
        assert (message.key(), message.timestamp()) == (b"key %d" % number, (1, 1000 + number))
        assert message.latency() > 0
        assert len(message) == len(message.value())
    assert [message.value() for _, message in reports if message.partition() == 0] == [
        b"value %d" % number for number in (0, 3, 6, 9)
    ]


def test_a_message_without_an_acknowledgement_has_no_offset(existing: str, confluent: Make) -> None:
    reports: list[Any] = []
    producer = confluent({"acks": 0, "on_delivery": lambda *report: reports.append(report)})
    producer.produce(existing, "value", partition=1)
    assert producer.flush() == 0
    ((error, message),) = reports
    assert (error, message.partition(), message.offset()) == (None, 1, None)


def test_a_timestamp_of_the_broker_says_so(kafka: KafkaCluster, topic: str, confluent: Make) -> None:
    kafka.admin.create_topic(topic, settings={"message.timestamp.type": "LogAppendTime"})
    stamps: list[tuple[int, int]] = []
    producer = confluent({"on_delivery": lambda _, message: stamps.append(message.timestamp())})
    producer.produce(topic, "value", timestamp=1000)
    assert producer.flush() == 0
    ((kind, timestamp),) = stamps
    assert kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    assert timestamp > 1000


def test_poll_and_flush_deliver_while_other_threads_do(existing: str, confluent: Make) -> None:
    delivered: list[Any] = []
    producer = confluent({"linger.ms": 1.5})
    flushed = threading.Event()

    def poll() -> None:
        while not flushed.is_set() or len(delivered) < 1000:
            producer.poll(0.05)

    with in_threads(poll):
        for number in range(1000):
            producer.produce(existing, str(number), callback=lambda error, message: delivered.append(message.value()))
        assert producer.flush(PATIENCE_S) == 0
        flushed.set()
    assert sorted(map(int, delivered)) == list(range(1000))


BINARY = struct.pack("hhl", 1, 2, 3)
HEADERS: list[Any] = [
    [("name", "value")],
    [("twice", "value"), ("empty", ""), ("twice", "other")],
    [("null", None)],
    [("binary", BINARY)],
    [("utf8", "Småland".encode()), ("text", "Jämtland")],
    {"name": "value", "empty": "", "null": None, "binary": BINARY},
    [],
    None,
]


def test_headers_arrive(existing: str, stored: Make, confluent: Make) -> None:
    reported: list[Any] = []
    producer = confluent()
    for headers in HEADERS:
        producer.produce(
            existing, b"value", partition=0, headers=headers, callback=lambda _, each: reported.append(each.headers())
        )
    producer.flush()
    expected = []
    for headers in HEADERS:
        pairs = list(headers.items()) if isinstance(headers, dict) else headers or []
        expected.append([(name, value.encode() if isinstance(value, str) else value) for name, value in pairs] or None)
    assert [record.headers() for record in stored(existing)[0]] == expected == reported


def test_arguments_of_a_wrong_type_are_type_errors(confluent: Make) -> None:
    producer = confluent(NOWHERE)
    wrong: list[dict[str, Any]] = [{"topic": 5}, {"value": 5}, {"key": ["a"]}]
    wrong += [{"headers": each} for each in (("a", "b"), ["malformed"], {"number": 1234}, "text", [("name", 5)])]
    wrong += [{"partition": 1.0}, {"partition": "1"}, {"timestamp": 1.5}, {"timestamp": float("nan")}]
    for arguments in wrong:
        with pytest.raises(TypeError):
            producer.produce(**({"topic": "t", "value": "data"} | arguments))
    assert len(producer) == 0


def test_a_message_that_cannot_be_sent_is_refused_at_once(existing: str, confluent: Make) -> None:
    producer = confluent({"message.max.bytes": 1000, "queue.buffering.max.messages": 5})
    for arguments, code in (
        ((existing, b"x" * 2000), KafkaError.MSG_SIZE_TOO_LARGE),
        ((existing, b"x", b"key", 99), KafkaError._UNKNOWN_PARTITION),
        ((existing, b"x", b"key", -2), KafkaError._UNKNOWN_PARTITION),
    ):
        with pytest.raises(KafkaException) as caught:
            producer.produce(*arguments)
        assert caught.value.args[0].code() == code
    assert (len(producer), producer.flush()) == (0, 0)
    for _ in range(5):
        producer.produce(existing, b"value")
    with pytest.raises(BufferError, match="Local: Queue full"):
        producer.produce(existing, b"value")
    assert (len(producer), producer.flush(), len(producer)) == (5, 0, 0)
    producer.produce(existing, b"value")


def test_only_errors_are_reported_if_so_set(existing: str, topic: str, confluent: Make) -> None:
    errors: list[Any] = []
    producer = confluent({"message.timeout.ms": 300, "delivery.report.only.error": True})
    for name in (existing, f"{topic}-unknown", "no/topic"):
        producer.produce(name, "value", on_delivery=lambda error, _: errors.append(error.code()))
    assert producer.flush() == 0
    assert sorted(errors) == [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION]


def test_a_full_slab_is_a_buffer_error(existing: str, confluent: Make) -> None:
    errors: list[Any] = []
    own = {"queue.buffering.max.kbytes": 64, "on_delivery": lambda error, _: errors.append(error)}
    producer = confluent(own)
    producer.produce(existing, b"first")
    producer.flush()

    def fill() -> None:
        while True:
            producer.produce(existing, b"x" * 10_000)

    with stopped_sender(producer._shm.producer):
        with pytest.raises(BufferError, match="Local: Queue full"):
            fill()
        accepted = len(producer)
    assert 0 < accepted < 7
    assert (producer.flush(PATIENCE_S), errors) == (0, [None] * (1 + accepted))


def test_messages_wait_for_their_topic_in_their_order(
    stored: Make, kafka: KafkaCluster, existing: str, topic: str, confluent: Make
) -> None:
    """As librdkafka does: in the process, in their order, up to ``message.timeout.ms``, also while no thread polls.

    The slab has no memory for all of them at once when the topic is there; other topics' messages go ahead.
    """
    errors: list[Any] = []
    missing = f"{topic}-missing"
    own = {"queue.buffering.max.kbytes": 64, "on_delivery": lambda error, _: errors.append(error)}
    producer = confluent(own)

    def produce(number: int) -> None:
        producer.produce(missing, f"{number}".ljust(10_000), partition=0)

    for number in range(20):
        produce(number)
    with in_threads(lambda: producer.poll(0.2), lambda: producer.flush(0.2)):
        pass
    assert (len(producer), producer.flush(0.05), errors) == (20, 20, [])
    producer.produce(existing, "value")
    while not errors:
        producer.poll(PATIENCE_S)
    assert (len(producer), errors) == (20, [None])
    kafka.admin.create_topic(missing)
    produce(20)
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * 22
    assert [int(record.value()) for record in stored(missing)[0]] == list(range(21))


def test_purge_drops_what_waits_for_its_topic(confluent: Make) -> None:
    codes: list[int] = []
    producer = confluent({**NOWHERE, "message.timeout.ms": 30_000})
    producer.produce("t", "value", partition=9, callback=lambda error, _: codes.append(error.code()))
    assert (producer.flush(0.002), codes) == (1, [])
    producer.purge(in_queue=False)
    assert (producer.flush(0.002), codes) == (1, [])
    producer.purge()
    assert (producer.flush(0.002), codes) == (0, [KafkaError._PURGE_QUEUE])


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_doubles_no_message_that_waited_for_its_topic(
    existing: str, values: Make, confluent: Make, monkeypatch: MonkeyPatch, error: type[BaseException]
) -> None:
    """The next call sends what the slab has not accepted, and nothing else; no message fails by a signal's handler."""
    reports: list[Any] = []
    producer = confluent()
    producer.produce(existing, b"first", partition=0)
    producer.flush()
    records = producer._shm.producer._records
    send_in, sent = records.send_in, [b"%d" % number for number in range(4)]
    for value in sent:
        message = Message(producer._shm.reports, existing, None, value, None, lambda *report: reports.append(report))
        producer._shm.parking.add(Produced(message, 0, 0, None))

    def interrupted(*arguments: Any) -> Any:
        """Send a message at the second call for it; both are interrupted."""
        calls.append(arguments)
        if len(calls) % 2:
            raise error
        send_in(*arguments)
        raise error

    calls: list[Any] = []
    monkeypatch.setattr(records, "send_in", interrupted)
    while producer._shm.parking:
        producer._shm.parking._next = 0.0
        with contextlib.suppress(error):
            producer._shm.parking.retry()
    assert producer.flush() == 0
    assert len(calls) == 2 * len(sent)
    assert [failure for failure, _ in reports] == [None] * len(sent)
    assert values(existing) == [b"first", *sent]


@pytest.mark.parametrize("end", [Producer.poll, Producer.flush])
def test_a_signals_handler_doubles_no_message_that_waited_for_its_topic(
    existing: str, values: Make, confluent: Make, monkeypatch: MonkeyPatch, end: Any
) -> None:
    """It comes in the middle of their sending; if it flushes, all but the interrupted one are sent then."""
    producer = confluent()
    producer.produce(existing, b"first", partition=0)
    producer.flush()
    records, parking = producer._shm.producer._records, producer._shm.parking
    send_in, left = records.send_in, []
    for number in range(4):
        message = Message(producer._shm.reports, existing, None, b"%d" % number, None, None)
        parking.add(Produced(message, 0, 0, None))

    def interrupted(*arguments: Any) -> Any:
        if not left:
            left.append(0)
            parking._next = 0.0
            end(producer, 0.2)
            left.append(len(producer))
            producer.produce(existing, b"of the handler", partition=0)
        return send_in(*arguments)

    monkeypatch.setattr(records, "send_in", interrupted)
    parking._next = 0.0
    parking.retry()
    assert producer.flush() == 0
    expected = [b"0", b"1", b"2", b"3", b"of the handler"]
    if end is Producer.flush:
        expected = [b"1", b"2", b"3", b"0", b"of the handler"]
    assert values(existing) == [b"first", *expected]
    assert left[1] == (1 if end is Producer.flush else 4)


def test_a_signals_handler_that_flushes_does_not_wait_for_the_message_that_it_interrupts(
    confluent: Make, monkeypatch: MonkeyPatch
) -> None:
    left: list[int] = []

    def interrupted(*_: Any) -> None:
        began = time.monotonic()
        left.append(producer.flush(PATIENCE_S))
        assert time.monotonic() - began < PATIENCE_S
        raise errors.KafkaTimeoutError

    monkeypatch.setattr("shmaccum.compat.confluent.calls.wait_for_topic", interrupted)
    producer = confluent(NOWHERE)
    producer.produce("t", b"value")
    assert (left, len(producer)) == ([1], 1)


def test_a_signals_handler_closes_while_close_waits(confluent: Make, monkeypatch: MonkeyPatch) -> None:
    reports: list[Any] = []
    producer = confluent(NOWHERE | {"message.timeout.ms": 2000})
    producer.produce("t", b"value", callback=lambda *report: reports.append(report))
    usual = signal.signal(signal.SIGUSR1, lambda number, frame: producer.close())
    try:
        threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
        assert producer.close()
    finally:
        signal.signal(signal.SIGUSR1, usual)
    assert len(reports) == 1


def test_purge_reports_what_is_not_acknowledged(existing: str, values: Make, confluent: Make) -> None:
    """An accepted record is stored all the same: librdkafka promises as much for messages that it purges in flight."""
    codes: list[int] = []
    producer = confluent()
    producer.produce(existing, b"first", partition=0)
    producer.flush()
    with stopped_sender(producer._shm.producer):
        producer.produce(existing, b"purged", partition=0, callback=lambda error, _: codes.append(error.code()))
        producer.purge(in_queue=False)
        assert (producer.flush(0.01), codes) == (1, [])
        producer.purge()
        assert (len(producer), producer.flush(0.01), codes) == (1, 0, [KafkaError._PURGE_INFLIGHT])
    assert producer.close()
    assert len(codes) == 1, "a message is reported once"
    assert values(existing) == [b"first", b"purged"]


def test_list_topics_describes_the_cluster(
    existing: str, settings: dict[str, Any], confluent: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    producer = confluent()
    ours, theirs = (each.list_topics(timeout=PATIENCE_S) for each in (producer, confluent_kafka.Producer(settings)))
    assert (ours.cluster_id, ours.controller_id) == (theirs.cluster_id, theirs.controller_id)
    assert {(each.id, each.host, each.port) for each in ours.brokers.values()} == {
        (each.id, each.host, each.port) for each in theirs.brokers.values()
    }
    mine, other = (
        {
            number: (each.id, each.leader, each.replicas, each.isrs, each.error)
            for number, each in cluster.topics[existing].partitions.items()
        }
        for cluster in (ours, theirs)
    )
    assert mine == other
    assert len(mine) == 3
    assert list(producer.list_topics(existing).topics) == [existing]
    assert producer.list_topics("no-such-topic").topics["no-such-topic"].error == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert producer.cluster_id(PATIENCE_S) == theirs.cluster_id
    assert "closed by this process" in caplog.text, "each call has a connection of its own"


def test_callbacks_can_produce(existing: str, values: Make, confluent: Make) -> None:
    producer = confluent()

    def again(error: Any, message: Any) -> None:
        number = int(message.value())
        if number:
            producer.produce(existing, str(number - 1), partition=0, callback=again)

    producer.produce(existing, "5", partition=0, callback=again)
    assert producer.flush() == 0
    assert values(existing) == [b"5", b"4", b"3", b"2", b"1", b"0"]


def test_while_one_thread_closes_the_others_cannot_produce(existing: str, values: Make, confluent: Make) -> None:
    producer = confluent()

    def refused() -> None:
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            producer.produce(existing, b"of another thread")

    def again(error: Any, message: Any) -> None:
        producer.produce(existing, b"of a callback")
        with in_threads(refused):
            pass

    producer.produce(existing, b"first", callback=again)
    assert producer.close()
    assert sorted(values(existing)) == [b"first", b"of a callback"]


def test_a_second_thread_that_closes_waits_for_the_first(existing: str, values: Make, confluent: Make) -> None:
    producer = confluent()
    closed: list[bool] = []
    second = threading.Thread(target=lambda: closed.append(producer.close()), daemon=True)

    def again(error: Any, message: Any) -> None:
        second.start()
        second.join(0.1)
        assert closed == []
        producer.produce(existing, b"of a callback")

    producer.produce(existing, b"first", callback=again)
    assert producer.close()
    second.join(PATIENCE_S)
    assert closed == [True]
    assert sorted(values(existing)) == [b"first", b"of a callback"]


class Subclass(Producer):
    """Has names that are likely in a subclass, and calls that take other arguments than those they replace."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.reports: list[int] = []
        self._producer = self._parking = self._open = self._metadata = self._refused = None

    def __len__(self) -> int:
        return 5

    def _poll(self) -> None:
        self.poll(0)

    def _send(self, topic: str) -> None:
        self.produce(topic, b"value", partition=0, callback=lambda _, message: self.reports.append(message.offset()))

    def flush(self) -> int:  # type: ignore[override]
        return super().flush(PATIENCE_S)

    def close(self, reason: str) -> bool:  # type: ignore[override]
        raise AssertionError(reason)


def test_a_subclass_is_free_in_its_names(existing: str, confluent: Make) -> None:
    with confluent(kind=Subclass) as producer:
        producer._send(existing)
        producer._poll()
        assert (producer.flush(), producer.reports) == (0, [0])
        assert existing in producer.list_topics().topics
        producer._send(existing)
    assert producer.reports == [0, 1]
    transactional = confluent({"transactional.id": existing}, Subclass)
    transactional.init_transactions(PATIENCE_S)
    transactional.begin_transaction()
    transactional._send(existing)
    transactional.commit_transaction(PATIENCE_S)
    assert transactional.reports == [2]


def test_a_forked_child_goes_on(existing: str, values: Make, confluent: Make, start: Start) -> None:
    reports: list[Any] = []
    producer = confluent({"on_delivery": lambda *report: reports.append(report)})
    producer.produce(existing, b"parent", partition=0)

    def child(link: Link) -> tuple[int, int, int]:
        before = len(producer)
        producer.produce(existing, b"child", partition=0)
        return before, producer.flush(PATIENCE_S), len(reports)

    assert start(child, how="fork").result() == (0, 0, 1)
    assert (producer.flush(), len(reports)) == (0, 1)
    assert set(values(existing)) == {b"parent", b"child"}


def test_a_producer_that_is_dropped_keeps_no_message(tmp_path: Path, slab_name: str) -> None:
    """Not even one whose report was never asked for. Settings of our own can be among librdkafka's: a log as well."""

    class Program:
        def note(self, error: Any, message: Any) -> None:
            raise AssertionError

    own = settings_of(slab_name, tmp_path / "log")
    program, producer = Program(), Producer(**own)
    kept = weakref.ref(program)
    producer.produce("t", b"value", callback=program.note)
    with pytest.raises(KafkaException, match="no brokers to ask"):
        producer.list_topics()
    shared = producer._shm.opened()
    while not producer._shm.reports.due:
        shared.poll(0.1)
    del program, producer
    gc.collect()
    assert kept() is None
    shared.close()
    wait_until_gone(slab_name)
