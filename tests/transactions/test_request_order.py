"""The order of a transaction's requests, and what they say.

Scenarios of Kafka's ``TransactionManagerTest``, ``SenderTest`` and ``KafkaProducerTest``:
docs/inside/transactions.md.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import Any

import pytest
from fake_broker import Request, produced
from fixture_types import LogCapture
from producers import PATIENCE_S, sender_pid, wait_until, wait_until_gone
from transaction_broker import ANSWER_LOST, LOST, TransactionBroker
from transaction_scenes import (
    Scene,
    impatient,
    in_thread,
    init,
    run_another,
    run_from,
    send,
    send_offsets,
    send_one,
)

from shmaccum import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition, errors
from shmaccum._core import Super
from shmaccum.producer.interceptors import ProducerInterceptor
from tools.support.messages import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

NO_REPLICAS = 19
"""NOT_ENOUGH_REPLICAS, which is retried."""


def added(scene: Scene) -> list[int]:
    """Return the partitions in all AddPartitionsToTxn."""
    requests = [request.asked for request in scene.broker.seen if request.api_key == ADD_PARTITIONS]
    return sorted(chain.from_iterable(topic.partitions for each in requests for topic in each.v3_and_below_topics))


def test_each_partition_is_added_once(scene: Scene) -> None:
    with scene.ready() as producer:
        for _ in range(2):
            scene.broker.seen.clear()
            producer.begin_transaction()
            for partition in (0, 1, 0, 1):
                send_one(producer, partition)
            producer.commit_transaction()
            assert added(scene) == ([0, 1] if scene.version == 1 else [])


def test_a_record_that_an_interceptor_sees_is_of_the_transaction(scene: Scene) -> None:
    with scene.begun(interceptor_classes=[ProducerInterceptor]) as producer:
        send_one(producer)
        producer.commit_transaction()
        assert END_TXN in {request.api_key for request in scene.broker.seen}


def test_nothing_is_sent_before_its_partition_is_added(scene: Scene) -> None:
    with scene.begun() as producer:
        with scene.broker.holding(ADD_PARTITIONS) as held:
            futures = [send_one(producer)]
            if scene.version == 1:
                held.acquire()
                futures += [send_one(producer), send_one(producer, 1)]
                producer.poll(0.05)
                assert scene.broker.count(PRODUCE) == 0
        producer.commit_transaction()
    assert [future.get(0).offset for future in futures] == [100] * len(futures)
    calls = [call for call in scene.broker.calls() if call not in ("FindCoordinator", "Produce")]
    assert calls == ["AddPartitionsToTxn"] * 2 * (scene.version == 1) + ["EndTxn"]


def test_a_coordinator_that_takes_no_partition_for_long(slab_name: str) -> None:
    """The batch is given up after ``request.timeout.ms``, and tried again as any other."""
    slow = {"request_timeout_ms": 200, "delivery_timeout_ms": 60_000}
    with TransactionBroker(1) as broker, Scene(broker, slab_name).begun(**slow) as producer:
        broker.fail(ADD_PARTITIONS, *30 * [errors.CoordinatorLoadInProgressError.code])
        future = send_one(producer)
        producer.commit_transaction()
        assert future.succeeded()
        assert broker.count(ADD_PARTITIONS) == 31
        assert producer._slab.words[Super.BATCHES_RETRIED] > 0
    wait_until_gone(slab_name)


def test_the_next_sender_adds_the_partitions_again(slab_name: str) -> None:
    with TransactionBroker(1) as broker, Scene(broker, slab_name).begun() as producer:
        first = send_one(producer)
        producer.flush()
        with broker.holding(ADD_PARTITIONS, LOST) as held:
            second = send_one(producer, 1)
            held.acquire()
            os.kill(sender_pid(producer), signal.SIGKILL)
        third = send_one(producer)
        producer.commit_transaction()
        assert all(future.succeeded() for future in (first, second, third))
    assert broker.ended == [True]
    wait_until_gone(slab_name)


def test_an_empty_transaction_has_no_requests(scene: Scene) -> None:
    with scene.begun() as producer:
        producer.send_offsets_to_transaction({}, ConsumerGroupMetadata("readers"))
        producer.commit_transaction()
        assert scene.broker.calls() == []
        producer.begin_transaction()
        producer.abort_transaction()
        assert END_TXN not in {request.api_key for request in scene.broker.seen}
        run_another(producer)
    assert scene.broker.ended == [True]


def test_the_end_waits_for_the_batches(scene: Scene) -> None:
    with scene.begun() as producer:
        with scene.broker.holding(PRODUCE) as held:
            send_one(producer)
            held.acquire()
            send_one(producer, 1)
            committing = in_thread(producer.commit_transaction)
            committing.join(0.05)
            assert committing.is_alive()
            assert scene.broker.count(END_TXN) == 0
        committing.join()
    assert scene.broker.calls()[-2:] == ["Produce", "EndTxn"]


def test_a_commit_does_not_wait_for_records_of_other_producers(scene: Scene) -> None:
    def refuse_others(request: Request) -> Any:
        return scene.broker.coordinate(request) if request.asked.transactional_id else produced((1, NO_REPLICAS))

    with scene.ready(max_block_ms=3000) as producer, Producer(scene.settings()) as other:
        scene.broker.answers[PRODUCE] = refuse_others
        stuck = send_one(other, 1)
        producer.begin_transaction()
        mine = [send_one(producer, partition) for partition in (0, 1)]
        producer.commit_transaction()
        assert all(future.succeeded() for future in mine)
        assert not stuck.is_done
        scene.broker.answers[PRODUCE] = lambda request: produced((0, 0), (1, 0))
        stuck.get(20)
        scene.broker.answers[PRODUCE] = scene.broker.coordinate
    assert scene.broker.ended == [True]


def test_a_commit_does_not_linger(slab_name: str) -> None:
    lingering = {"linger_ms": 100_000, "delivery_timeout_ms": 200_000}
    with TransactionBroker(2) as broker, (scene := Scene(broker, slab_name)).ready(**lingering) as producer:
        for _ in range(2):
            producer.begin_transaction()
            scene.broker.seen.clear()
            futures = [send_one(producer) for _ in range(3)]
            assert scene.broker.count(PRODUCE) == 0
            producer.commit_transaction()
            assert all(future.succeeded() for future in futures)
            assert scene.broker.count(PRODUCE) == 1
        producer.begin_transaction()
        scene.broker.seen.clear()
        send_one(producer)
        producer.abort_transaction()
        assert scene.broker.count(PRODUCE) == 0
    wait_until_gone(slab_name)


# --- calls that time out ----------------------------------------------------------------------------


ENDS = {"commit": Producer.commit_transaction, "abort": Producer.abort_transaction}


@pytest.mark.parametrize("processed", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_an_end_that_timed_out_is_repeated(scene: Scene, end: str, processed: bool) -> None:
    """Nothing else can follow."""
    with scene.begun() as producer:
        run_before_end(producer)
        lost = ANSWER_LOST if processed else LOST
        with scene.broker.holding(END_TXN, lost), impatient(producer), pytest.raises(errors.KafkaTimeoutError):
            ENDS[end](producer)
        (other,) = (call for name, call in ENDS.items() if name != end)
        for call in (other, Producer.init_transactions, Producer.begin_transaction, send, send_offsets):
            with pytest.raises(errors.IllegalStateError):
                call(producer)
        ENDS[end](producer)
        run_another(producer)
    assert scene.broker.ended == [end == "commit", True]


def run_before_end(producer: Producer) -> None:
    send(producer)
    send_offsets(producer)
    producer.flush()


def test_an_abort_that_timed_out_as_it_raised_the_epoch_is_repeated(scene: Scene) -> None:
    """Its transaction has ended already: another EndTxn would have an older epoch."""
    with scene.begun() as producer:
        run_before_end(producer)
        with scene.broker.holding(INIT_PRODUCER_ID, ANSWER_LOST), impatient(producer):
            if scene.version == 1:
                with pytest.raises(errors.KafkaTimeoutError):
                    producer.abort_transaction()
        producer.abort_transaction()
        run_another(producer)
    assert scene.broker.ended == [False, True]


@pytest.mark.parametrize("api_key", [FIND_COORDINATOR, INIT_PRODUCER_ID])
def test_init_transactions_that_timed_out_is_repeated(scene: Scene, api_key: int) -> None:
    with scene.producer() as producer:
        with scene.broker.holding(api_key, ANSWER_LOST), impatient(producer), pytest.raises(errors.KafkaTimeoutError):
            producer.init_transactions()
        for call in (*ENDS.values(), Producer.begin_transaction, send, send_offsets):
            with pytest.raises(errors.IllegalStateError):
                call(producer)
        run_from(producer, "init")
    assert scene.broker.ended == [True]


@pytest.mark.parametrize("api_key", [ADD_OFFSETS, TXN_OFFSET_COMMIT])
def test_offsets_that_timed_out_are_given_again_or_aborted(scene: Scene, api_key: int) -> None:
    """A commit without them would have other members of the group process the same records again."""
    if scene.version == 2 and api_key == ADD_OFFSETS:
        return
    with scene.ready() as producer:
        for again in (True, False):
            producer.begin_transaction()
            send(producer)
            with scene.broker.holding(api_key, LOST), impatient(producer), pytest.raises(errors.KafkaTimeoutError):
                send_offsets(producer)
            with pytest.raises(errors.IllegalStateError, match="call it again, or abort"):
                producer.commit_transaction()
            if again:
                run_from(producer, "offsets")
            else:
                producer.flush()
                producer.abort_transaction()
        producer.begin_transaction()
        send(producer)
        producer.commit_transaction()
    assert scene.broker.ended == [True, False, True]


def test_a_prepare_that_timed_out_is_aborted(scene: Scene) -> None:
    """No EndTxn is sent yet. A failed task of Spark closes its producer, which left the transaction open."""
    with scene.begun() as producer:
        with scene.broker.holding(PRODUCE) as held:
            send_one(producer)
            assert held.acquire(timeout=PATIENCE_S)
            with impatient(producer), pytest.raises(errors.KafkaTimeoutError):
                producer.transactions.prepare()
        producer.close(PATIENCE_S)
    assert scene.broker.ended == [False]


@pytest.mark.parametrize("api_key", [FIND_COORDINATOR, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT, END_TXN])
def test_a_close_ends_what_another_thread_waits_for(scene: Scene, api_key: int) -> None:
    raised: list[BaseException] = []

    def whole(producer: Producer) -> None:
        try:
            run_from(producer, "init")
        except errors.KafkaError as error:
            raised.append(error)

    with scene.producer(max_block_ms=100_000) as producer, scene.broker.holding(api_key, LOST) as held:
        transaction = in_thread(lambda: whole(producer))
        assert held.acquire(timeout=PATIENCE_S)
        producer.close(0)
        transaction.join()
    assert len(raised) == 1


@pytest.mark.parametrize("end", [Producer.commit_transaction, Producer.abort_transaction])
def test_a_close_ends_the_call_of_another_thread_that_waits_for_records(scene: Scene, end: Any) -> None:
    raised: list[BaseException] = []

    def run(producer: Producer) -> None:
        try:
            end(producer)
        except errors.KafkaError as error:
            raised.append(error)

    with scene.begun(max_block_ms=100_000) as producer, scene.broker.holding(PRODUCE) as held:
        send_one(producer)
        assert held.acquire(timeout=PATIENCE_S)
        ending = in_thread(lambda: run(producer))
        wait_until(lambda: producer.transactions.has_unfinished_call, "it waits for the record")
        producer.close(0)
        ending.join()
    assert [type(error) for error in raised] == [errors.ProducerClosedError]


@pytest.mark.parametrize("api_key", [INIT_PRODUCER_ID, TXN_OFFSET_COMMIT, END_TXN])
def test_a_signal_handlers_close_ends_the_call_that_it_interrupts(
    scene: Scene, caplog: LogCapture, api_key: int
) -> None:
    def close(held: threading.Semaphore) -> None:
        held.acquire(timeout=PATIENCE_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    with scene.producer(max_block_ms=100_000) as producer, scene.broker.holding(api_key, LOST) as held:
        usual = signal.signal(signal.SIGUSR1, lambda number, frame: producer.close(1))
        try:
            closing = in_thread(lambda: close(held))
            with pytest.raises(errors.ProducerClosedError):
                run_from(producer, "init")
            closing.join()
        finally:
            signal.signal(signal.SIGUSR1, usual)
    # An abort would wait for an answer within a call that waits for one.
    assert ("a signal handler called it" in caplog.text) is (api_key == TXN_OFFSET_COMMIT)


@pytest.mark.parametrize("fences", ["here", "elsewhere"])
def test_a_fenced_producers_close_does_not_warn(scene: Scene, caplog: LogCapture, fences: str) -> None:
    """Its transaction is aborted already: by the producer that has its id now, of this slab or of another host's."""
    with scene.ready(transactional_id="fenced") as fenced:
        fenced.begin_transaction()
        send_one(fenced)
        fenced.flush()
        if fences == "here":
            with scene.producer(transactional_id="fenced") as other:
                other.init_transactions()
        else:
            scene.broker.fail(END_TXN, errors.ProducerFencedError.code)
        caplog.clear()
        fenced.close()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_fenced_producers_abort_does_not_wait_for_the_newer_ones_records(scene: Scene) -> None:
    """They are in the same lane. So the abort timed out, and a close took ``max.block.ms``, while these were sent."""
    with scene.ready(transactional_id="fenced", max_block_ms=3000) as fenced:
        fenced.begin_transaction()
        send_one(fenced)
        fenced.flush()
        with scene.producer(transactional_id="fenced") as newer:
            init(newer)
            with scene.broker.holding(PRODUCE) as held:
                send_one(newer)
                assert held.acquire(timeout=PATIENCE_S)
                with pytest.raises(errors.ProducerFencedError):
                    fenced.abort_transaction()
            run_from(newer, "send")
    assert scene.broker.ended == [True]


def test_init_transactions_waits_for_what_the_ids_last_producer_has_in_flight(scene: Scene) -> None:
    """And ends if yet another producer of the host takes the id over meanwhile: it would fence that one."""
    name = {"transactional_id": "in turns"}
    with scene.begun(**name) as first, scene.producer(**name) as second, scene.producer(**name) as third:
        outcomes: list[Future[None]] = []
        with ThreadPoolExecutor(2) as threads, scene.broker.holding(PRODUCE) as held:
            send_one(first)
            assert held.acquire(timeout=PATIENCE_S)
            for producer in (second, third):
                outcomes.append(threads.submit(producer.init_transactions))
                wait_until(lambda each=producer: each.transactions._lease is not None, "it has the lane")
                assert not wait([outcomes[-1]], 0.1).done
            assert isinstance(outcomes[0].exception(PATIENCE_S), errors.ProducerFencedError)
            assert scene.broker.count(INIT_PRODUCER_ID) == 0
        outcomes[1].result()
        with pytest.raises(errors.ProducerFencedError):
            first.commit_transaction()
        assert scene.broker.count(END_TXN) == 0  # the lane has dropped what it had queued
        run_another(third)
    assert scene.broker.count(INIT_PRODUCER_ID) == 1
    assert scene.broker.ended == [True]


def test_a_producer_that_is_fenced_while_it_commits(scene: Scene) -> None:
    """The commit has succeeded, and the next transaction cannot begin."""
    name = {"transactional_id": "in turns"}
    with scene.begun(**name) as producer, scene.producer(**name) as newer:
        send(producer)
        with ThreadPoolExecutor(1) as threads, scene.broker.holding(END_TXN) as held:
            committing = threads.submit(producer.commit_transaction)
            assert held.acquire(timeout=PATIENCE_S)
            newer.init_transactions()
        committing.result()
        if scene.version == 2:  # else the lane need not be opened for the next one, and the first record is refused
            with pytest.raises(errors.ProducerFencedError):
                producer.begin_transaction()
        run_another(newer)
    assert scene.broker.ended == [True, True]


def test_a_prepared_transaction_says_nothing_of_the_next_one(scene: Scene) -> None:
    with scene.begun() as producer:
        send(producer)
        producer.transactions.prepare()
        producer.transactions.init("another")
        producer.begin_transaction()
        producer.abort_transaction()
        run_another(producer)
    assert scene.broker.ended == [True]


def test_after_a_close(scene: Scene) -> None:
    with scene.begun() as producer:
        producer.close()
        for call in (*ENDS.values(), Producer.init_transactions, Producer.begin_transaction, send, send_offsets):
            with pytest.raises(errors.KafkaError):
                call(producer)


# --- records that are refused -----------------------------------------------------------------------


def test_a_record_without_metadata_fails_the_transaction(scene: Scene) -> None:
    answer = scene.broker.answers[METADATA]

    def know_t_only(request: Request) -> Any:
        names = [topic.name for topic in request.asked.topics]
        unknown = errors.UnknownTopicOrPartitionError.code if names and names != ["t"] else 0
        return scene.broker.metadata(request, names=names, error=unknown)

    scene.broker.answers[METADATA] = know_t_only
    try:
        with scene.ready() as producer:
            producer._destinations._max_block_s = 0.2
            for topic, partition in (("missing", None), ("t", 7), ("topic abc", 0)):
                producer.begin_transaction()
                with pytest.raises(errors.KafkaError) as refused:
                    producer.send(topic, b"value", partition=partition)
                with pytest.raises(type(refused.value), match="abort the transaction"):
                    producer.commit_transaction()
                producer.abort_transaction()
            run_another(producer)
    finally:
        scene.broker.answers[METADATA] = answer
    assert scene.broker.ended == [True]


# --- offsets ----------------------------------------------------------------------------------------


GROUPS = [
    ConsumerGroupMetadata("readers"),
    ConsumerGroupMetadata("readers", generation_id=5, member_id="member"),
    ConsumerGroupMetadata("readers", generation_id=5, member_id="member", group_instance_id="instance"),
]


@pytest.mark.parametrize("group", GROUPS)
def test_the_groups_metadata_is_sent(scene: Scene, group: ConsumerGroupMetadata) -> None:
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5, "note", 3), TopicPartition("t", 1): OffsetAndMetadata(7)}
    with scene.begun() as producer:
        scene.broker.fail(TXN_OFFSET_COMMIT, errors.CoordinatorLoadInProgressError.code)
        producer.send_offsets_to_transaction(offsets, group)
        producer.commit_transaction()
    requests = [request.asked for request in scene.broker.seen if request.api_key == TXN_OFFSET_COMMIT]
    assert len(requests) == 2
    for request in requests:
        assert (request.producer_id, request.producer_epoch) == (77, 0)
        assert (
            ConsumerGroupMetadata(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
            == group
        )
        (topic,) = request.topics
        assert [
            (each.partition_index, each.committed_offset, each.committed_metadata, each.committed_leader_epoch)
            for each in topic.partitions
        ] == [(0, 5, "note", 3), (1, 7, "", -1)]


MEMBERS = [
    *GROUPS,
    ConsumerGroupMetadata("readers", generation_id=0),
    ConsumerGroupMetadata("readers", member_id="member"),
    ConsumerGroupMetadata("readers", group_instance_id="instance"),
]


@pytest.mark.parametrize("group", MEMBERS)
def test_a_coordinator_that_cannot_check_the_groups_metadata(scene: Scene, group: ConsumerGroupMetadata) -> None:
    """A member that its group has lost would commit offsets."""
    known = scene.broker.versions[TXN_OFFSET_COMMIT]
    scene.broker.versions[TXN_OFFSET_COMMIT] = 0, 2
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}
    try:
        with scene.begun() as producer:
            if group is GROUPS[0] and scene.version == 1:
                producer.send_offsets_to_transaction(offsets, group)
                producer.commit_transaction()
                return
            with pytest.raises(errors.UnsupportedVersionError):
                producer.send_offsets_to_transaction(offsets, group)
    finally:
        scene.broker.versions[TXN_OFFSET_COMMIT] = known


def test_an_error_of_offsets_names_the_partition(scene: Scene) -> None:
    with scene.begun() as producer:
        scene.broker.fail(TXN_OFFSET_COMMIT, errors.UnknownMemberIdError.code)
        with pytest.raises(errors.KafkaError, match="group 'readers', t-0: "):
            send_offsets(producer)
        producer.abort_transaction()


@pytest.mark.parametrize(
    "group",
    [
        *(None, b"CGMDv2:", ConsumerGroupMetadata("readers", generation_id=2)),
        *(ConsumerGroupMetadata(None), ConsumerGroupMetadata("readers", None)),  # type: ignore[arg-type]
    ],
)
def test_metadata_of_no_group(scene: Scene, group: Any) -> None:
    with scene.producer() as producer:
        init(producer)
        with pytest.raises(errors.IllegalArgumentError):
            producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(5)}, group)
        run_from(producer, "send")
    assert scene.broker.ended == [True]


@pytest.mark.parametrize(
    "offsets",
    [
        *([TopicPartition("t", 0)], {"t": OffsetAndMetadata(5)}, {TopicPartition("t", "0"): OffsetAndMetadata(5)}),
        *({TopicPartition("t", 0): position} for position in (5, (5, ""), (None, "", -1), (5, "", None), (-1, "", -1))),
    ],
    ids=str,
)
def test_offsets_that_are_none(scene: Scene, offsets: Any) -> None:
    """The slab is not called damaged for it, and the transaction goes on."""
    with scene.producer() as producer:
        init(producer)
        with pytest.raises(errors.IllegalArgumentError, match="must map each TopicPartition to an OffsetAndMetadata"):
            producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("readers"))
        run_from(producer, "send")
    assert scene.broker.ended == [True]
