"""What each answer of a coordinator leads to: the same request again, an abort, or the end of the producer.

The scenarios are those of Kafka's ``TransactionManagerTest``: docs/inside/transactions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import groupby
from typing import Any

import pytest
from fake_broker import Request
from transaction_broker import ANSWER_LOST, LOST, NAMES
from transaction_scenes import (
    STEPS,
    Error,
    Scene,
    check_only_abort_helps,
    check_only_close_helps,
    impatient,
    init,
    rows_for,
    run_aborted,
    run_another,
    run_before,
    run_from,
    send,
    send_one,
)

from shmaccum import Producer, errors
from tools.support.messages import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    API_VERSIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    api_versions,
)

STEP_OF = [
    (FIND_COORDINATOR, "init"),
    (FIND_COORDINATOR, "offsets"),
    (INIT_PRODUCER_ID, "init"),
    (ADD_PARTITIONS, "send"),
    (ADD_OFFSETS, "offsets"),
    (TXN_OFFSET_COMMIT, "offsets"),
    (END_TXN, "commit"),
]
"""Each request, and the step that sends it."""
ONLY_IN_VERSION_1 = (ADD_PARTITIONS, ADD_OFFSETS)


def named(names: str) -> list[Error]:
    """Return errors by their names, without ``Error``."""
    return [getattr(errors, f"{name}Error") for name in names.split()]


def each_of(table: dict[tuple[str, int], str]) -> list[tuple[str, int, Error]]:
    """Return step, request and error for each of a table."""
    return [(*request, error) for request, names in table.items() for error in named(names)]


def name_of(value: object) -> str:
    """Return a name for what a test is run with."""
    if isinstance(value, type):
        return value.__name__
    return NAMES.get(value, str(value)) if isinstance(value, int) else str(value)


def is_sent(scene: Scene, api_key: int) -> bool:
    """Return whether producers send a request in the scene's version of the protocol."""
    return scene.version == 1 or api_key not in ONLY_IN_VERSION_1


def send_and_commit(producer: Producer) -> None:
    send_one(producer)
    producer.commit_transaction()


REFUSED = STEPS | {"send": send_and_commit}
"""The steps that raise what a coordinator answers: the sender adds partitions, so the commit says that it could not."""


def refuse(scene: Scene, producer: Producer, step: str, api_key: int, error: Error) -> errors.KafkaError:
    """Let a coordinator refuse a request of a step; return what the step raises."""
    run_before(producer, step)
    scene.broker.fail(api_key, error.code)
    with pytest.raises(errors.KafkaError) as caught:
        REFUSED[step](producer)
    return caught.value


# --- once more --------------------------------------------------------------------------------------


RETRIABLE = named(
    "UnknownTopicOrPartition RequestTimedOut CoordinatorLoadInProgress ConcurrentTransactions CoordinatorNotAvailable "
    "LeaderNotAvailable NotEnoughReplicas NotController OffsetNotAvailable PreferredLeaderNotAvailable "
    "EligibleLeadersNotAvailable ElectionNotNeeded UnstableOffsetCommit InvalidShareSessionEpoch"
)


@pytest.mark.parametrize(("api_key", "step"), STEP_OF, ids=name_of)
def test_retriable_errors(scene: Scene, api_key: int, step: str) -> None:
    with scene.producer() as producer:
        run_before(producer, step)
        before = scene.broker.count(api_key)
        scene.broker.fail(api_key, *(error.code for error in RETRIABLE))
        run_from(producer, step)
        if is_sent(scene, api_key):
            assert scene.broker.count(api_key) - before > len(RETRIABLE)
    assert scene.broker.ended == [True]


MOVED = (
    errors.NotCoordinatorError.code,
    errors.CoordinatorNotAvailableError.code,
    errors.RequestTimedOutError.code,
    LOST,
    ANSWER_LOST,
)


@pytest.mark.parametrize("code", MOVED)
@pytest.mark.parametrize(("api_key", "step"), STEP_OF[2:], ids=name_of)
def test_a_coordinator_that_is_asked_for_again(scene: Scene, api_key: int, step: str, code: int) -> None:
    with scene.producer() as producer:
        run_before(producer, step)
        scene.broker.fail(api_key, code)
        run_from(producer, step)
    if is_sent(scene, api_key):
        calls = [call for call, _ in groupby(call for call in scene.broker.calls() if call != "Produce")]
        first = calls.index(NAMES[api_key])
        assert calls[first : first + 3] == [NAMES[api_key], "FindCoordinator", NAMES[api_key]]
    assert scene.broker.ended == [True]


@pytest.mark.parametrize(("api_key", "step"), STEP_OF[:2], ids=name_of)
def test_a_broker_that_is_lost_while_it_is_asked_for_a_coordinator(scene: Scene, api_key: int, step: str) -> None:
    with scene.producer() as producer:
        run_before(producer, step)
        scene.broker.fail(api_key, LOST, ANSWER_LOST)
        run_from(producer, step)
    assert scene.broker.ended == [True]


def test_a_coordinator_that_was_lost_before_it_is_asked(scene: Scene) -> None:
    """The connection ended while nothing was under way."""
    with scene.ready() as producer:
        scene.broker.cut()
        run_another(producer)
        scene.broker.cut()
        run_another(producer)
    assert scene.broker.ended == [True, True]


def test_an_end_whose_answer_is_lost_counts_once(scene: Scene) -> None:
    with scene.ready() as producer:
        for _ in range(2):
            scene.broker.fail(END_TXN, ANSWER_LOST)
            run_another(producer)
    assert scene.broker.ended == [True, True]
    assert scene.broker.count(END_TXN) == 4


def test_the_last_transaction_is_still_ending(scene: Scene) -> None:
    """CONCURRENT_TRANSACTIONS takes milliseconds, so ``retry.backoff.ms`` is too long: the test would time out."""
    first = ADD_PARTITIONS if scene.version == 1 else TXN_OFFSET_COMMIT
    with scene.begun(retry_backoff_ms=200_000, retry_backoff_max_ms=200_000, max_block_ms=100_000) as producer:
        scene.broker.fail(first, errors.ConcurrentTransactionsError.code)
        run_from(producer, "send")
        assert scene.broker.count(first) in ((2, 3) if first == ADD_PARTITIONS else (2,))


def test_other_errors_wait_for_the_backoff(scene: Scene) -> None:
    with scene.begun(retry_backoff_ms=300, retry_backoff_max_ms=300) as producer:
        send(producer)
        scene.broker.fail(END_TXN, errors.CoordinatorLoadInProgressError.code)
        producer.commit_transaction()
    first, second = (request.came for request in scene.broker.seen if request.api_key == END_TXN)
    assert second - first > 0.25


@pytest.mark.parametrize("error", named("CoordinatorLoadInProgress CoordinatorNotAvailable"))
def test_the_cause_of_a_timeout_is_what_was_answered_last(scene: Scene, error: Error) -> None:
    """Another attempt after the backoff would be too late."""
    with scene.begun(retry_backoff_ms=200_000, retry_backoff_max_ms=200_000, max_block_ms=100_000) as producer:
        send(producer)
        scene.broker.fail(END_TXN, error.code)
        with pytest.raises(errors.KafkaTimeoutError, match=error.__name__) as caught:
            producer.commit_transaction()
        assert type(caught.value.__cause__) is error
        producer.commit_transaction()
    assert scene.broker.ended == [True]


def test_a_throttled_coordinator(scene: Scene) -> None:
    """Its answer forbids further requests on the connection for a while."""
    with scene.producer() as producer:
        answer = scene.broker.answers[INIT_PRODUCER_ID]

        def throttle(request: Request) -> object:
            response = answer(request)
            response.throttle_time_ms = 100
            return response

        scene.broker.answers[INIT_PRODUCER_ID] = throttle
        try:
            init(producer)
        finally:
            scene.broker.answers[INIT_PRODUCER_ID] = answer
        run_from(producer, "send")
    assert scene.broker.ended == [True]


@pytest.mark.parametrize("refused", [(), ("b",)])
def test_one_request_finds_the_coordinators_of_ids_that_follow(scene: Scene, refused: Collection[str]) -> None:
    with scene.producer() as producer:
        answer = scene.broker.answers[FIND_COORDINATOR]

        def refuse(request: Request) -> object:
            response = answer(request)
            for found in response.coordinators:
                found.error_code = errors.CoordinatorNotAvailableError.code if found.key in refused else 0
            return response

        scene.broker.answers[FIND_COORDINATOR] = refuse
        try:
            producer.transactions.init("a", ["b", "c"])
            producer.transactions.begin()
            producer.transactions.prepare()
        finally:
            scene.broker.answers[FIND_COORDINATOR] = answer
        producer.transactions.init("b")
    assert scene.broker.count(FIND_COORDINATOR) == 1 + len(refused)


def no_partition(response: Any) -> None:
    response.results_by_topic_v3_and_below = []


def no_broker(response: Any) -> None:
    for found in response.coordinators:
        found.node_id = -1


@pytest.mark.parametrize(("api_key", "spoil"), [(ADD_PARTITIONS, no_partition), (FIND_COORDINATOR, no_broker)])
def test_a_coordinators_answer_that_makes_no_sense(scene: Scene, api_key: int, spoil: Callable[[Any], None]) -> None:
    """The sender asks again, over another connection."""
    if scene.version == 2:
        return
    answer, spoiled = scene.broker.answers[api_key], list[Any]()

    def once(request: Request) -> object:
        response = answer(request)
        if not spoiled:
            spoil(response)
            spoiled.append(response)
        return response

    with scene.begun() as producer:
        scene.broker.answers[api_key] = once
        try:
            future = send_one(producer)
            producer.commit_transaction()
        finally:
            scene.broker.answers[api_key] = answer
        assert future.succeeded()
    assert scene.broker.count(api_key) >= 2
    assert scene.broker.ended == [True]


# --- the transaction can only be aborted ------------------------------------------------------------


ABORTABLE = {
    ("send", ADD_PARTITIONS): "TopicAuthorization InvalidTxnState TransactionAbortable UnknownServer InvalidRecord",
    ("offsets", FIND_COORDINATOR): "GroupAuthorization TransactionAbortable",
    ("offsets", ADD_OFFSETS): "GroupAuthorization UnknownProducerId TransactionAbortable",
    ("offsets", TXN_OFFSET_COMMIT): "GroupAuthorization FencedInstanceId UnknownMemberId IllegalGeneration "
    "TransactionAbortable",
    ("commit", END_TXN): "UnknownProducerId TransactionAbortable",
}


@pytest.mark.parametrize(("step", "api_key", "error"), each_of(ABORTABLE), ids=name_of)
def test_errors_that_the_abort_leads_out_of(scene: Scene, step: str, api_key: int, error: Error) -> None:
    if not is_sent(scene, api_key):
        return
    with scene.producer() as producer:
        assert type(refuse(scene, producer, step, api_key, error)) is error
        check_only_abort_helps(producer, error)
        producer.abort_transaction()
        scene.broker.ended.clear()
        run_another(producer)
    assert scene.broker.ended == [True]
    assert scene.epochs(END_TXN)[-1] == 1


def test_a_second_partition_that_is_refused(scene: Scene) -> None:
    """The transaction has begun with the first one."""
    if scene.version == 2:
        return
    with scene.begun() as producer:
        future = send_one(producer)
        producer.flush()
        scene.broker.fail(ADD_PARTITIONS, errors.TopicAuthorizationError.code)
        refused = send_one(producer, 1)
        producer.flush()
        assert future.succeeded()
        assert isinstance(refused.exception(), errors.TopicAuthorizationError)
        with pytest.raises(errors.TopicAuthorizationError):
            producer.commit_transaction()
        producer.abort_transaction()
        run_another(producer)
    assert scene.broker.ended == [False, True]
    assert scene.epochs(END_TXN)[-1] == 1


def test_the_partitions_error_counts_and_not_that_others_were_not_attempted(scene: Scene) -> None:
    if scene.version == 2:
        return
    with scene.begun(linger_ms=1000) as producer:
        scene.broker.fail_partitions(errors.OperationNotAttemptedError.code, errors.UnknownTopicOrPartitionError.code)
        producer.send_batch("t", rows_for(0, 1, 0, 1))
        producer.commit_transaction()
        assert scene.broker.count(ADD_PARTITIONS) == 2
        producer.begin_transaction()
        scene.broker.fail_partitions(errors.OperationNotAttemptedError.code, errors.TopicAuthorizationError.code)
        producer.send_batch("t", rows_for(0, 1, 0, 1))
        with pytest.raises(errors.TopicAuthorizationError):
            producer.commit_transaction()
        producer.abort_transaction()
    assert scene.broker.ended == [True]


@pytest.mark.parametrize(
    ("other", "raised"),
    [
        (errors.UnknownTopicOrPartitionError, errors.TopicAuthorizationError),  # a repetition would not help
        (errors.OperationNotAttemptedError, errors.OperationNotAttemptedError),
    ],
)
def test_partitions_that_are_not_added(scene: Scene, other: Error, raised: Error) -> None:
    if scene.version == 2:
        return
    with scene.begun(linger_ms=1000) as producer:
        scene.broker.fail_partitions(other.code, raised.code)
        producer.send_batch("t", rows_for(0, 1))
        with pytest.raises(raised):
            producer.commit_transaction()
        producer.abort_transaction()
        run_another(producer)
    assert scene.broker.ended == [True]


@pytest.mark.parametrize("step", ["send", "offsets"])
def test_what_never_began_is_not_ended(scene: Scene, step: str) -> None:
    """A coordinator answers INVALID_TXN_STATE to the end of a transaction that it has not begun."""
    api_key, error = {
        "send": (ADD_PARTITIONS, errors.TopicAuthorizationError),
        "offsets": (ADD_OFFSETS, errors.GroupAuthorizationError),
    }[step]
    if not is_sent(scene, api_key):
        return
    with scene.begun() as producer:
        scene.broker.fail(api_key, error.code)
        with pytest.raises(error):
            REFUSED[step](producer)
        producer.abort_transaction()
        assert scene.broker.count(END_TXN) == (step == "send"), "what the sender has begun is not known"
        run_another(producer)
    assert scene.broker.ended == [True]


@pytest.mark.parametrize("processed", [True, False])
@pytest.mark.parametrize("step", ["send", "offsets"])
def test_what_may_have_begun_is_ended(scene: Scene, step: str, processed: bool) -> None:
    """Its first request has no answer in time; the broker has processed it or not."""
    api_key = {"send": ADD_PARTITIONS, "offsets": ADD_OFFSETS}[step]
    if not is_sent(scene, api_key):
        return
    with scene.ready() as producer:
        run_another(producer)  # what it has sent says nothing of the next one
        scene.broker.ended.clear()
        producer.begin_transaction()
        lost = ANSWER_LOST if processed else LOST
        late = {"send": Producer.abort_transaction, "offsets": STEPS["offsets"]}[step]
        with scene.broker.holding(api_key, lost) as held, impatient(producer):
            if step == "send":
                send(producer)
                held.acquire()
            with pytest.raises(errors.KafkaTimeoutError):
                late(producer)
        producer.abort_transaction()
        assert scene.broker.ended == [False] * (processed or step == "send"), "the sender asks again"
        assert not scene.broker.is_open
        run_another(producer)


def test_the_abort_behind_an_error_finds_a_new_coordinator(scene: Scene) -> None:
    with scene.producer() as producer:
        refuse(scene, producer, "commit", END_TXN, errors.TransactionAbortableError)
        scene.broker.fail(END_TXN, errors.NotCoordinatorError.code)
        producer.abort_transaction()
        run_another(producer)
    assert scene.broker.ended == [False, True]


# --- the producer can only be closed ----------------------------------------------------------------


FENCED = "ProducerFenced InvalidProducerEpoch"
STALE = f"{FENCED} TransactionalIdAuthorization InvalidTxnState InvalidPidMapping UnknownServer"
FATAL = {
    ("init", INIT_PRODUCER_ID): f"{FENCED} InvalidTxnTimeout UnknownServer TransactionAbortable",
    ("init", FIND_COORDINATOR): "TransactionAbortable GroupAuthorization",
    ("send", ADD_PARTITIONS): f"{FENCED} TransactionalIdAuthorization InvalidPidMapping",
    ("offsets", ADD_OFFSETS): f"{STALE} IllegalGeneration UnknownMemberId TopicAuthorization FencedInstanceId",
    ("offsets", TXN_OFFSET_COMMIT): f"{FENCED} TransactionalIdAuthorization UnsupportedForMessageFormat UnknownServer "
    "TopicAuthorization UnknownProducerId OffsetMetadataTooLarge",
    ("commit", END_TXN): f"{STALE} IllegalGeneration UnknownMemberId TopicAuthorization GroupAuthorization "
    "FencedInstanceId",
}


@pytest.mark.parametrize(("step", "api_key", "error"), each_of(FATAL), ids=name_of)
def test_errors_after_which_the_producer_can_only_be_closed(
    scene: Scene, step: str, api_key: int, error: Error
) -> None:
    if not is_sent(scene, api_key):
        return
    raised = errors.ProducerFencedError if error in named(FENCED) else error  # older brokers' code for the same
    with scene.producer() as producer:
        assert type(refuse(scene, producer, step, api_key, error)) is raised
        check_only_close_helps(producer, raised)
    assert scene.broker.ended == []


def test_a_coordinator_that_knows_nothing_of_what_was_sent(scene: Scene) -> None:
    """A commit that seemed to succeed would lose the records."""
    with scene.begun() as producer:
        send(producer)
        scene.broker.fail(END_TXN, errors.InvalidTxnStateError.code)
        with pytest.raises(errors.InvalidTxnStateError):
            producer.commit_transaction()
        check_only_close_helps(producer, errors.InvalidTxnStateError)


@pytest.mark.parametrize("error", named("UnknownServer GroupAuthorization UnknownProducerId"))
def test_an_abort_that_is_refused(scene: Scene, error: Error) -> None:
    with scene.producer() as producer:
        run_before(producer, "commit")
        scene.broker.fail(END_TXN, error.code)
        with pytest.raises(error):
            producer.abort_transaction()
        check_only_close_helps(producer, error)


def test_an_abort_is_not_answered_by_another_abort(scene: Scene) -> None:
    """KIP-1050: a program that aborts after every TransactionAbortableError would never end."""
    with scene.producer() as producer:
        run_before(producer, "commit")
        scene.broker.fail(END_TXN, errors.TransactionAbortableError.code)
        with pytest.raises(errors.KafkaError, match="Failed to abort transaction") as caught:
            producer.abort_transaction()
        assert type(caught.value) is errors.KafkaError
        assert type(caught.value.__cause__) is errors.TransactionAbortableError
        check_only_close_helps(producer, errors.KafkaError)


@pytest.mark.parametrize("error", [errors.TransactionalIdAuthorizationError, errors.ClusterAuthorizationError])
@pytest.mark.parametrize("api_key", [FIND_COORDINATOR, INIT_PRODUCER_ID], ids=NAMES.get)
def test_init_transactions_is_repeated_once_the_user_is_authorized(scene: Scene, api_key: int, error: Error) -> None:
    with scene.producer() as producer:
        assert type(refuse(scene, producer, "init", api_key, error)) is error
        with pytest.raises(errors.IllegalStateError):
            producer.begin_transaction()
        run_from(producer, "init")
    assert scene.broker.ended == [True]


# --- versions and identities ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "api_key", "newest"),
    [
        ("init", FIND_COORDINATOR, 0),
        ("init", INIT_PRODUCER_ID, -1),
        ("offsets", TXN_OFFSET_COMMIT, -1),
        ("commit", END_TXN, -1),
    ],
    ids=name_of,
)
def test_a_coordinator_that_is_too_old(scene: Scene, step: str, api_key: int, newest: int) -> None:
    known = scene.broker.versions.pop(api_key)
    if newest >= 0:
        scene.broker.versions[api_key] = 0, newest
    try:
        with scene.producer() as producer:
            run_before(producer, step)
            with pytest.raises(errors.UnsupportedVersionError):
                STEPS[step](producer)
            with pytest.raises(errors.UnsupportedVersionError, match="close the producer"):
                producer.abort_transaction()
    finally:
        scene.broker.versions[api_key] = known


def test_an_epoch_that_the_coordinator_cannot_raise(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Kafka 2.5, InitProducerId has no identity: a producer that is fenced would fence the newer one by it."""
    monkeypatch.setitem(scene.broker.versions, INIT_PRODUCER_ID, (0, 2))
    with scene.ready() as producer:
        if scene.version == 1:
            with pytest.raises(errors.UnsupportedVersionError):
                run_aborted(producer)
            check_only_close_helps(producer, errors.UnsupportedVersionError)
        else:  # the end of a transaction raises it
            run_aborted(producer)
    assert scene.broker.count(INIT_PRODUCER_ID) == 0


def test_a_cluster_without_versions_of_transactions(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers before Kafka 3.9 name none, and add no partition to a transaction by its first record."""
    monkeypatch.setitem(scene.broker.answers, API_VERSIONS, lambda request: api_versions(scene.broker.versions))
    with scene.ready() as producer:
        run_another(producer)
        assert "AddPartitionsToTxn" in scene.broker.calls()


def test_a_later_version_is_used_as_version_2(scene: Scene) -> None:
    scene.broker.version = 3
    with scene.ready() as producer:
        run_another(producer)
        assert not {"AddPartitionsToTxn", "AddOffsetsToTxn"} & set(scene.broker.calls())
    assert scene.broker.ended == [True]


def test_every_transaction_of_version_2_has_an_epoch_of_its_own(scene: Scene) -> None:
    with scene.ready() as producer:
        for _ in range(3):
            run_another(producer)
        run_aborted(producer)
        run_another(producer)
    assert scene.epochs(END_TXN) == ([0, 1, 2, 3, 4] if scene.version == 2 else [0, 0, 0, 0, 1])


def test_epochs_that_run_out(scene: Scene) -> None:
    """The coordinator gives the next transaction another producer id."""
    with scene.ready() as producer:
        run_another(producer)
        scene.broker.producer_id, scene.broker.epoch = 78, -1
        run_aborted(producer)
        scene.broker.seen.clear()
        run_another(producer)
    used = {each.asked.producer_id for each in scene.broker.seen if each.api_key in (TXN_OFFSET_COMMIT, END_TXN)}
    assert used == {78}


def test_a_cluster_that_changes_its_version(scene: Scene) -> None:
    """A producer follows with its next InitProducerId: in version 1, that is after an abort."""
    with scene.ready() as producer:
        run_another(producer)
        scene.broker.version = 3 - scene.version
        scene.broker.cut()  # a new connection learns of it
        run_another(producer)
        producer.begin_transaction()
        producer.abort_transaction()
        scene.broker.seen.clear()
        run_another(producer)
    assert "AddOffsetsToTxn" not in scene.broker.calls()
    assert scene.broker.ended == [True] * 3
