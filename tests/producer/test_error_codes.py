"""What each error code of a Produce answer means to a producer outside of transactions: as in Kafka's ``Sender``."""

from __future__ import annotations

import pyarrow as pa
import pytest
from fake_broker import FakeBroker, Request, produced
from fixture_types import Produce, Settings

from shmaccum.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    InvalidPidMappingError,
    InvalidShareSessionEpochError,
    KafkaError,
    NotControllerError,
    OffsetNotAvailableError,
    PolicyViolationError,
    PreferredLeaderNotAvailableError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
    TransactionalIdAuthorizationError,
    UnstableOffsetCommitError,
)
from tools.support.messages import PRODUCE

RETRIABLE = {
    41: NotControllerError,
    70: FetchSessionIdNotFoundError,
    71: InvalidFetchSessionEpochError,
    78: OffsetNotAvailableError,
    80: PreferredLeaderNotAvailableError,
    83: EligibleLeadersNotAvailableError,
    84: ElectionNotNeededError,
    88: UnstableOffsetCommitError,
    106: FetchSessionTopicIdError,
    122: ShareSessionNotFoundError,
    123: InvalidShareSessionEpochError,
    133: ShareSessionLimitReachedError,
}
"""Codes of other requests, which a producer meets in a broken cluster only."""
FATAL = {49: InvalidPidMappingError, 53: TransactionalIdAuthorizationError}


@pytest.fixture
def connect(kafka_settings: Settings, make_producer: Produce, fake: FakeBroker) -> Produce:
    """Return a function that makes a producer of the broker."""
    defaults = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 1, "bootstrap_servers": fake.servers}
    return lambda **changes: make_producer(kafka_settings(**defaults | changes))


def answer_with(fake: FakeBroker, *codes: int) -> None:
    """Answer the next batches of partition 0 with these codes, and store all that follow."""
    left = list(codes)

    def answer(request: Request) -> object:
        return produced((0, left.pop(0) if left else 0))

    fake.answers[PRODUCE] = answer


def test_batch_is_sent_again_after_each_retriable_error(fake: FakeBroker, connect: Produce) -> None:
    answer_with(fake, *RETRIABLE)
    producer = connect()
    assert producer.send("t", b"value", partition=0).get(20).offset == 100
    assert len(fake.of(PRODUCE)) == len(RETRIABLE) + 1


def test_retriable_error_is_that_of_the_batch_when_retries_end(fake: FakeBroker, connect: Produce) -> None:
    producer = connect(retries=0)
    for code, error in RETRIABLE.items():
        answer_with(fake, code)
        assert error.retriable
        assert type(producer.send("t", b"value", partition=0).exception(20)) is error


@pytest.mark.parametrize("error", FATAL.values())
def test_idempotent_producer_can_only_be_closed(fake: FakeBroker, connect: Produce, error: type[KafkaError]) -> None:
    producer = connect()
    answer_with(fake, error.code)
    assert type(producer.send("t", b"value", partition=0).exception(20)) is error
    for _ in range(2):
        with pytest.raises(error, match="close the producer"):
            producer.send("t", b"value", partition=0)
    with pytest.raises(error, match="close the producer"):
        producer.send_batch("t", pa.record_batch({"value": [b"value"]}))
    assert len(fake.of(PRODUCE)) == 1
    producer.close()
    another = connect()
    assert another.send("t", b"value", partition=0).get(20).offset == 100


@pytest.mark.parametrize("error", FATAL.values())
def test_producer_without_idempotence_fails_one_batch(
    fake: FakeBroker, connect: Produce, error: type[KafkaError]
) -> None:
    producer = connect(enable_idempotence=False)
    answer_with(fake, error.code)
    assert type(producer.send("t", b"value", partition=0).exception(20)) is error
    assert producer.send("t", b"value", partition=0).get(20).offset == 100


def test_other_errors_fail_one_batch(fake: FakeBroker, connect: Produce) -> None:
    producer = connect()
    answer_with(fake, PolicyViolationError.code)
    assert type(producer.send("t", b"value", partition=0).exception(20)) is PolicyViolationError
    assert producer.send("t", b"value", partition=0).get(20).offset == 100
