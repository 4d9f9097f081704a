"""Answers of brokers, also those that a real broker cannot be made to give: none is lost or mistaken."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pytest
from batches import make_batch
from fake_broker import Answer, FakeBroker, Request, produced, producer_id_of
from wires import MakeWire, Wire, now_ms

from shmaccum.cluster import Node, TopicPartition
from shmaccum.errors import (
    ClusterAuthorizationError,
    CoordinatorLoadInProgressError,
    InvalidMetadataError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    NetworkError,
    NotLeaderOrFollowerError,
    UnknownServerError,
    error_for_code,
)
from tools.support.messages import INIT_PRODUCER_ID, METADATA, PRODUCE

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ONE = make_batch([b"value"], to=T0)
OTHER = make_batch([b"value"], to=T1)
INVALID = [{"batch_index": index, "batch_index_error_message": None} for index in (1, 4)]


@pytest.mark.parametrize("version", range(7, 13))
def test_offsets_of_stored_batches(fake: FakeBroker, here: Wire, version: int) -> None:
    fake.versions[PRODUCE] = (3, version)
    fake.answers[PRODUCE] = lambda request: produced((1, 0), (0, 0), log_append_time_ms=5)
    first, second = here.ask(ONE, OTHER)
    assert fake.of(PRODUCE)[0].version == version
    assert (first.batch, first.base_offset, first.log_append_time_ms) == (ONE, 100, 5)
    assert (second.batch, second.base_offset, second.log_append_time_ms) == (OTHER, 101, 5)
    assert first.error is second.error is None


@pytest.mark.parametrize("version", [7, 12])
def test_an_error_is_that_of_its_batch(fake: FakeBroker, here: Wire, version: int) -> None:
    fake.versions[PRODUCE] = (3, version)
    fake.answers[PRODUCE] = lambda request: produced((0, 6), (1, 0))
    failed, stored = here.ask(ONE, OTHER)
    assert (failed.error, failed.message) == (
        NotLeaderOrFollowerError,
        "broker 1 answered NotLeaderOrFollowerError for t-0",
    )
    assert (stored.error, stored.base_offset) == (None, 101)


@pytest.mark.parametrize(
    ("answer", "error", "invalid", "said"),
    [
        (produced((0, 1234), error_message="new in 9"), UnknownServerError, (), "code 1234 for t-0: new in 9"),
        (produced((0, 87), record_errors=INVALID, error_message="no key"), InvalidRecordError, (1, 4), "no key"),
    ],
)
def test_error_without_a_name_and_refused_records(
    fake: FakeBroker, here: Wire, answer: Any, error: type[KafkaError], invalid: tuple[int, ...], said: str
) -> None:
    """The numbers of refused records are of KIP-467."""
    fake.answers[PRODUCE] = lambda request: answer
    (response,) = here.ask(ONE)
    assert (response.error, tuple(response.invalid_records)) == (error, invalid)
    assert response.message.endswith(said)


def test_a_new_leader_is_followed_at_once(fake: FakeBroker, here: Wire) -> None:
    """KIP-951: the answer says who leads now, and where that is."""
    leader, endpoint = {"leader_id": 2, "leader_epoch": 4}, {"node_id": 2, "host": "elsewhere", "port": 9}
    fake.answers[PRODUCE] = lambda request: produced((0, 6), current_leader=leader, node_endpoints=[endpoint])
    here.ask(ONE)
    assert here.transport.cluster().leader_for(T0) == Node(2, "elsewhere", 9)
    assert here.transport.cluster().leader_for(T1) == Node(1, "127.0.0.1", fake.port)


def test_leader_hint_with_an_older_epoch_is_ignored(fake: FakeBroker, here: Wire) -> None:
    """The metadata had epoch 3."""
    fake.answers[PRODUCE] = lambda request: produced((0, 6), current_leader={"leader_id": 2, "leader_epoch": 3})
    before = here.leader(T0)
    here.ask(ONE)
    assert here.transport.cluster().leader_for(T0) == before


@pytest.mark.parametrize("topic_id", [uuid.UUID(int=7), None])
def test_old_metadata_does_not_undo_a_leader(fake: FakeBroker, here: Wire, topic_id: uuid.UUID | None) -> None:
    """But without ids, before Kafka 2.8, a topic that was made again looks the same."""
    brokers = [(1, fake), (2, fake)]
    fake.answers[METADATA] = lambda request: fake.metadata(request, brokers=brokers, topic_id=topic_id)
    assert here.leader(T0).id == 1
    fake.answers[METADATA] = lambda request: fake.metadata(
        request, brokers=brokers, leader=2, epoch=2, topic_id=topic_id
    )
    asked = len(fake.of(METADATA))
    here.ask_until(lambda: not here.transport.cluster().pending)
    assert len(fake.of(METADATA)) > asked
    assert here.leader(T0).id == (1 if topic_id else 2)


def null(request: Request) -> bytes:
    """Return an answer with null instead of the list of topics: no tags, no topics, no throttling, no tags."""
    return b"\0\0\0\x0b" + request.correlation_id.to_bytes(4, "big") + bytes(7)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (null, "responses is null"),
        (lambda request: produced((0, 0), base_offset=-7), "offset -7"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a Kafka broker"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "security.protocol"),
        (b"\x00\x00\x00\x05\x7f\x00\x00\x00\x00", "request 2130706432"),
        (b"\x00\x00\x00\x02\x00\x00", "answers no request"),
    ],
)
def test_malformed_answer_is_a_network_error(fake: FakeBroker, here: Wire, answer: bytes | Answer, said: str) -> None:
    """It ends the connection, and nothing else."""
    fake.answers[PRODUCE] = answer if callable(answer) else lambda request: answer
    (response,) = here.ask(ONE)
    assert response.error is NetworkError
    assert said in response.message
    fake.answers[PRODUCE] = lambda request: produced((0, 0))
    (response,) = here.ask(ONE)
    assert response.error is None


def test_answer_in_several_reads(fake: FakeBroker, here: Wire) -> None:
    """A frame may come in any number of pieces, and several in one."""
    held: list[bytes] = []

    def answer(request: Request) -> bytes:
        held.append(request.encoded(produced((0, 0))))
        return b"" if len(held) < 3 else b"".join(held)[:-1]

    fake.answers[PRODUCE] = answer
    for _ in range(3):
        here.send(ONE)
    assert [response.error for response in here.take(2)] == [None, None]
    fake.send(held[2][-1:])
    assert here.take(1)[0].error is None


def test_every_code_of_the_protocol_has_the_name_and_retriability_of_kafka_python() -> None:
    """Where both have the error, both say the same of it; kafka-python took it from Kafka's ``Errors``."""
    from kafka import errors

    theirs = {
        error.errno: error
        for error in vars(errors).values()
        if isinstance(error, type) and getattr(error, "errno", None) is not None
    }
    ours = {code: error_for_code(code) for code in theirs if error_for_code(code) is not UnknownServerError}
    assert len(ours) > 35
    differing = {code for code, error in ours.items() if error.retriable != theirs[code].retriable}
    # kafka-python counts a corrupt batch as final; Kafka's CorruptRecordException is retriable.
    assert differing <= {2}
    # Kafka's InvalidMetadataException and its subclasses, kafka-clients 4.3.1.
    refreshing = {code for code in ours if issubclass(ours[code], InvalidMetadataError)}
    assert refreshing == {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}


def test_invalid_topic_stays_until_the_next_request(fake: FakeBroker, here: Wire) -> None:
    """A final answer counts until the next request."""
    fake.answers[METADATA] = lambda request: fake.metadata(request, error=17, partition_count=0)
    assert here.ask_until(lambda: here.transport.cluster().topic_errors) == {"t": InvalidTopicError}
    assert not here.transport.cluster().pending
    here.transport.request_update(["t"])
    assert here.transport.cluster().pending == {"t"}
    fake.answers[METADATA] = fake.metadata
    assert here.until(lambda: here.transport.cluster().partition_counts) == {"t": 2}


@pytest.mark.parametrize("error", [3, 5])
def test_a_topic_that_is_not_there_yet(fake: FakeBroker, wire: MakeWire, error: int) -> None:
    """Asked for again and again, each time after a longer while."""
    fake.answers[METADATA] = lambda request: fake.metadata(request, error=error, partition_count=0)
    here = wire(fake.servers, retry_backoff_ms=20, retry_backoff_max_ms=80)
    here.ask_until(lambda: len(fake.of(METADATA)) >= 6)
    assert here.transport.cluster().topic_errors == {"t": error_for_code(error)}
    came = [request.came for request in fake.of(METADATA)]
    assert came[3] - came[1] >= 0.8 * 0.020 + 0.8 * 0.040
    fake.answers[METADATA] = fake.metadata
    here.leader(T0)


def test_a_partition_without_a_leader(fake: FakeBroker, here: Wire) -> None:
    fake.answers[METADATA] = lambda request: fake.metadata(request, leader=-1)
    here.ask_until(lambda: here.transport.cluster().partition_counts)
    assert here.transport.cluster().leader_for(T0) is None
    fake.answers[METADATA] = lambda request: fake.metadata(request, epoch=4)
    assert here.until(lambda: here.transport.cluster().leader_for(T0)).id == 1


def test_nothing_is_asked_about_a_topic_out_of_use(fake: FakeBroker, wire: MakeWire) -> None:
    here = wire(fake.servers, metadata_max_age_ms=50, metadata_max_idle_ms=5000)
    here.leader(T0)
    metadata = here.transport._metadata
    metadata.use("t", now_ms() - 5000)
    here.until(lambda: not here.transport.cluster().partition_counts)
    assert here.transport.cluster().leaders == {}
    here.until(lambda: here.transport._metadata.due_ms() == math.inf and not here.transport._metadata._under_way)
    asked = len(fake.of(METADATA))
    here.poll(300)
    assert len(fake.of(METADATA)) == asked
    here.leader(T0)


def test_a_producer_id_at_the_second_attempt(fake: FakeBroker, here: Wire) -> None:
    codes = [CoordinatorLoadInProgressError.code, 0]
    fake.answers[INIT_PRODUCER_ID] = lambda request: producer_id_of(9, codes.pop(0))
    assert here.producer_id() == (9, 0)
    assert here.transport.failure() is None


def test_refused_producer_id_is_a_failure(fake: FakeBroker, here: Wire) -> None:
    """An idempotent producer may have to be permitted to be one."""
    code = ClusterAuthorizationError.code
    fake.answers[INIT_PRODUCER_ID] = lambda request: producer_id_of(9, code)

    def failure() -> object:
        assert here.transport.init_producer_id() is None
        return here.transport.failure()

    assert here.until(failure) is ClusterAuthorizationError
    code = 0
    assert here.producer_id() == (9, 0)
    assert here.transport.failure() is None
