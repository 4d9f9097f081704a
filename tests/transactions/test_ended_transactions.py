"""A `send` belongs to the transaction that was open when it was called, whatever it waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from processes import wait_until
from transaction_broker import TransactionBroker
from transaction_scenes import Scene, run_another, send_one, waiting_for_memory

from shmaccum import Producer
from shmaccum.compat import confluent
from shmaccum.compat.confluent.errors import KafkaException
from shmaccum.errors import BufferExhaustedError, IllegalStateError
from tools.support.messages import METADATA, PRODUCE

UNKNOWN_TOPIC = 3
VALUE = b"late"


@contextmanager
def waiting_for_metadata(broker: TransactionBroker, topic: str, call: Callable[[], object]) -> Iterator[Future[object]]:
    """Begin a call that waits for the metadata of its topic until the block ends."""
    asked, known = threading.Event(), threading.Event()

    def answer(request: Any) -> Any:
        names = [each.name for each in request.asked.topics or ()]
        if topic in names:
            asked.set()
        is_unknown = topic in names and not known.is_set()
        return broker.metadata(request, names=names or ["t"], error=UNKNOWN_TOPIC if is_unknown else 0)

    with ThreadPoolExecutor(1) as threads:
        broker.answers[METADATA] = answer
        outcome = threads.submit(call)
        try:
            wait_until(asked.is_set, "the topic is asked for")
            yield outcome
        finally:
            known.set()


class Slow:
    """A serializer that keeps the late value for a while."""

    def __init__(self) -> None:
        self.came, self.go_on = threading.Event(), threading.Event()

    def __call__(self, value: bytes) -> bytes:
        if value == VALUE:
            self.came.set()
            self.go_on.wait(30)
        return value


def with_partition(producer: Producer, topic: str = "t") -> object:
    return producer.send(topic, VALUE, partition=0)


def sticky(producer: Producer, topic: str = "t") -> object:
    return producer.send(topic, VALUE)


def batch(producer: Producer, topic: str = "t") -> object:
    return producer.send_batch(topic, pa.record_batch({"value": pa.array([VALUE] * 3, pa.binary())}))


def abort(producer: Producer) -> None:
    producer.abort_transaction()


def abort_and_begin(producer: Producer) -> None:
    producer.abort_transaction()
    producer.begin_transaction()


def commit_and_begin(producer: Producer) -> None:
    producer.commit_transaction()
    producer.begin_transaction()


Send = Callable[..., object]
SENDS = [with_partition, sticky, batch]
ENDS = [abort, abort_and_begin, commit_and_begin]
BEGINNING = [abort_and_begin, commit_and_begin]


def check_it_was_not_sent(scene: Scene, producer: Producer, is_in_transaction: bool) -> None:
    """Check that a record is in no transaction, and that another transaction works."""
    if is_in_transaction:
        producer.commit_transaction()
    producer.flush()
    assert scene.broker.count(PRODUCE) == 0
    run_another(producer)
    assert not any(VALUE in request.frame for request in scene.broker.of(PRODUCE))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("send", SENDS)
def test_a_send_that_waits_for_memory_ends_with_its_transaction(
    tight: Scene, send: Send, end: Callable[[Producer], None]
) -> None:
    with tight.begun() as producer:
        with waiting_for_memory(producer, lambda: send(producer)) as outcome:
            end(producer)
        with pytest.raises(IllegalStateError):
            outcome.result()
        check_it_was_not_sent(tight, producer, end in BEGINNING)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("send", SENDS)
def test_a_send_that_waits_for_metadata_ends_with_its_transaction(
    tight: Scene, topic: str, send: Send, end: Callable[[Producer], None]
) -> None:
    with tight.begun() as producer:
        with waiting_for_metadata(tight.broker, topic, lambda: send(producer, topic)) as outcome:
            end(producer)
        with pytest.raises(IllegalStateError):
            outcome.result()
        check_it_was_not_sent(tight, producer, end in BEGINNING)


@pytest.mark.parametrize("end", ENDS)
def test_a_send_whose_serializer_waits_ends_with_its_transaction(tight: Scene, end: Callable[[Producer], None]) -> None:
    serializer = Slow()
    with tight.begun(value_serializer=serializer) as producer, ThreadPoolExecutor(1) as threads:
        outcome = threads.submit(with_partition, producer)
        assert serializer.came.wait(30)
        end(producer)
        serializer.go_on.set()
        with pytest.raises(IllegalStateError):
            outcome.result()
        check_it_was_not_sent(tight, producer, end in BEGINNING)


def test_a_send_called_before_its_transaction_began_is_refused(tight: Scene) -> None:
    serializer = Slow()
    with tight.ready(value_serializer=serializer) as producer, ThreadPoolExecutor(1) as threads:
        outcome = threads.submit(with_partition, producer)
        assert serializer.came.wait(30)
        producer.begin_transaction()
        serializer.go_on.set()
        with pytest.raises(IllegalStateError):
            outcome.result()
        check_it_was_not_sent(tight, producer, is_in_transaction=True)


def test_an_error_of_an_ended_transactions_send_does_not_fail_the_next_one(tight: Scene) -> None:
    with tight.begun(max_block_ms=500) as producer:
        with waiting_for_memory(producer, lambda: sticky(producer)) as outcome:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(producer.transactions, "max_block_ms", 20_000)
                abort_and_begin(producer)
            with pytest.raises(BufferExhaustedError):
                outcome.result()
        send_one(producer)
        producer.commit_transaction()
    assert tight.broker.ended[-1] is True


@pytest.mark.parametrize("end", [abort, abort_and_begin])
@pytest.mark.parametrize("key", [None, b"key"])
def test_a_message_by_confluents_surface_that_waits_ends_with_its_transaction(
    tight: Scene, topic: str, end: Callable[[Any], None], key: bytes | None
) -> None:
    """A commit waits for it, as librdkafka's does: it counts as queued."""
    with closing(confluent.Producer(tight.settings(transactional_id="confluent"))) as producer:
        producer.init_transactions(20)
        producer.begin_transaction()
        with waiting_for_metadata(tight.broker, topic, lambda: producer.produce(topic, VALUE, key)) as outcome:
            end(producer)
        with pytest.raises(KafkaException):
            outcome.result()
        assert tight.broker.count(PRODUCE) == 0
