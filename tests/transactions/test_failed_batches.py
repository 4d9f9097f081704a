"""What a broker's answer to a batch of a transaction leads to.

Scenarios of Kafka's ``TransactionManagerTest`` and ``SenderTest``: docs/inside/transactions.md.
"""

from __future__ import annotations

from typing import Any

import pytest
from fake_broker import Request, produced, producer_id_of
from producers import wait_until_gone
from transaction_broker import ANSWER_LOST, LOST
from transaction_scenes import (
    Error,
    Scene,
    check_only_abort_helps,
    check_only_close_helps,
    in_thread,
    rows_for,
    run_another,
    send_one,
)

from shmaccum import FutureRecordMetadata, Producer, errors
from tools.support.messages import END_TXN, INIT_PRODUCER_ID, PRODUCE

ABORTABLE = [
    errors.TopicAuthorizationError,
    errors.InvalidProducerEpochError,
    errors.InvalidTxnStateError,
    errors.TransactionAbortableError,
]
FATAL = [
    errors.ClusterAuthorizationError,
    errors.InvalidPidMappingError,
    errors.ProducerFencedError,
    errors.TransactionalIdAuthorizationError,
    errors.UnsupportedVersionError,
]
RETRIED = [
    errors.ConcurrentTransactionsError.code,
    errors.NotLeaderOrFollowerError.code,
    errors.RequestTimedOutError.code,
    errors.NotEnoughReplicasError.code,
    LOST,
    ANSWER_LOST,
]


def send_refused(scene: Scene, producer: Producer, error: Error) -> FutureRecordMetadata:
    """Send a record whose batch the broker answers with an error."""
    scene.broker.fail(PRODUCE, error.code)
    return send_one(producer)


@pytest.mark.parametrize("error", ABORTABLE)
def test_errors_that_the_abort_leads_out_of(scene: Scene, error: Error) -> None:
    with scene.begun() as producer:
        future = send_refused(scene, producer, error)
        with pytest.raises(error):
            producer.commit_transaction()
        assert type(future.exception()) is error
        check_only_abort_helps(producer, error)
        assert scene.broker.count(END_TXN) == 0
        scene.broker.is_open = True  # a real broker would have begun it with the partition, or the batch's verification
        producer.abort_transaction()
        run_another(producer)
    assert scene.broker.ended == [False, True]
    assert scene.epochs(END_TXN) == [0, 1]
    assert scene.epochs(INIT_PRODUCER_ID) == ([0] if scene.version == 1 else [])


@pytest.mark.parametrize("error", [errors.OutOfOrderSequenceError, errors.UnknownProducerIdError])
def test_numbers_that_the_broker_does_not_take_fail_the_transaction(scene: Scene, error: Error) -> None:
    """Kafka's producer goes on in the same transaction where it can; here it is the lane that fails."""
    with scene.begun() as producer:
        stored = send_one(producer)
        producer.flush()
        refused = send_refused(scene, producer, error)
        with pytest.raises(errors.OutOfOrderSequenceError):
            producer.commit_transaction()
        assert stored.succeeded()
        assert isinstance(refused.exception(), errors.TransactionAbortedError)
        producer.abort_transaction()
        run_another(producer)
    assert scene.broker.ended == [False, True]
    assert scene.epochs(END_TXN) == [0, 1]


@pytest.mark.parametrize("error", FATAL)
def test_errors_after_which_the_producer_can_only_be_closed(scene: Scene, error: Error) -> None:
    with scene.begun() as producer:
        future = send_refused(scene, producer, error)
        with pytest.raises(error):
            producer.commit_transaction()
        assert type(future.exception()) is error
        check_only_close_helps(producer, error)
    assert scene.broker.count(END_TXN) == 0


@pytest.mark.parametrize("error", [errors.InvalidPidMappingError, errors.TransactionalIdAuthorizationError])
def test_the_end_of_a_transactional_producer_is_not_that_of_others_in_its_process(scene: Scene, error: Error) -> None:
    with Producer(scene.settings()) as plain, scene.begun() as producer:
        future = send_refused(scene, producer, error)
        with pytest.raises(error):
            producer.commit_transaction()
        assert type(future.exception()) is error
        plain.poll()
        plain._accumulator.check_usable()


def test_a_fenced_transaction_costs_the_others_no_producer_id(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answer(request: Request) -> Any:
        if request.asked.transactional_id:
            return scene.broker.coordinate(request)
        asked.append(request.api_key)
        return produced((0, 0)) if request.api_key == PRODUCE else producer_id_of(5)

    for key in (PRODUCE, INIT_PRODUCER_ID):
        monkeypatch.setitem(scene.broker.answers, key, answer)
    with Producer(scene.settings()) as plain:
        assert send_one(plain).get(20)
        asked.clear()
        with scene.begun() as producer:
            future = send_refused(scene, producer, errors.ProducerFencedError)
            with pytest.raises(errors.ProducerFencedError):
                producer.commit_transaction()
            assert future.failed()
        assert send_one(plain).get(20)
    assert asked == [PRODUCE]


@pytest.mark.parametrize("code", RETRIED)
def test_batches_that_are_sent_again(scene: Scene, code: int) -> None:
    with scene.begun() as producer:
        scene.broker.fail(PRODUCE, code)
        future = send_one(producer)
        producer.commit_transaction()
        assert future.succeeded()
    assert scene.broker.count(PRODUCE) == 2
    assert scene.broker.ended == [True]


@pytest.mark.parametrize(
    "error", [None, errors.RequestTimedOutError, errors.OutOfOrderSequenceError, errors.TopicAuthorizationError]
)
def test_an_abort_waits_for_what_is_in_flight(scene: Scene, error: Error | None) -> None:
    with scene.begun() as producer:
        with scene.broker.holding(PRODUCE) as held:
            scene.broker.fail(PRODUCE, 0 if error is None else error.code)
            producer.send("t", b"in flight", partition=0)
            held.acquire()
            aborting = in_thread(producer.abort_transaction)
            aborting.join(0.05)
            assert aborting.is_alive()
            assert scene.broker.count(END_TXN) == 0
            scene.broker.is_open = True
        aborting.join()
        run_another(producer)
    assert scene.broker.ended == [False, True]


def test_a_batch_that_is_too_large_is_sent_in_parts(scene: Scene) -> None:
    with scene.begun() as producer:
        scene.broker.fail(PRODUCE, errors.RecordTooLargeError.code)
        future = producer.send_batch("t", rows_for(0, 0, 0, 0))
        producer.commit_transaction()
        assert future.is_done
        assert future.exception() is None
    assert scene.broker.count(PRODUCE) > 2  # the whole, and its parts
    assert scene.broker.ended == [True]


def test_batches_that_expire(scene: Scene, slab_name: str) -> None:
    """Two of them, for a broker that is silent."""
    short = {"delivery_timeout_ms": 600, "request_timeout_ms": 500, "shmaccum_name": slab_name}
    with scene.begun(**short) as producer:
        with scene.broker.holding(PRODUCE, LOST):
            futures = [send_one(producer, partition) for partition in (0, 1)]
            with pytest.raises(errors.DeliveryTimeoutError):
                producer.commit_transaction()
        assert all(isinstance(future.exception(), errors.DeliveryTimeoutError) for future in futures)
        scene.broker.is_open = True
        producer.abort_transaction()
        producer.begin_transaction()
        again = send_one(producer)
        producer.commit_transaction()
        assert again.succeeded()
    wait_until_gone(slab_name)
    assert scene.broker.ended == [False, True]
    assert scene.epochs(END_TXN) == [0, 1]
