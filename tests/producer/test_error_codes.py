"""What each error code of a Produce answer means to a producer outside of transactions: as in Kafka's ``Sender``."""

from __future__ import annotations

import pyarrow as pa
import pytest
from fake_broker import FakeBroker, Request, produced
from fixture_types import Produce

from shmaccum.errors import (
    InvalidPidMappingError,
    KafkaError,
    PolicyViolationError,
    TransactionalIdAuthorizationError,
    error_for_code,
)
from tools.support.messages import PRODUCE

RETRIABLE = (41, 70, 71, 78, 80, 83, 84, 88, 106, 122, 123, 133)
"""Codes of other requests, which a producer meets in a broken cluster only."""
FATAL = (InvalidPidMappingError, TransactionalIdAuthorizationError)


def answer_with(fake: FakeBroker, *codes: int) -> None:
    """Answer the next batches of partition 0 with these codes, and store all that follow."""
    left = list(codes)

    def answer(request: Request) -> object:
        return produced((0, left.pop(0) if left else 0))

    fake.answers[PRODUCE] = answer


def test_batch_is_sent_again_after_each_retriable_error(fake: FakeBroker, connect: Produce) -> None:
    answer_with(fake, *RETRIABLE)
    producer = connect(retry_backoff_max_ms=1)
    assert producer.send("t", b"value", partition=0).get(20).offset == 100
    assert len(fake.of(PRODUCE)) == len(RETRIABLE) + 1


def test_retriable_error_is_that_of_the_batch_when_retries_end(fake: FakeBroker, connect: Produce) -> None:
    producer = connect(retries=0)
    for code in RETRIABLE:
        answer_with(fake, code)
        error = producer.send("t", b"value", partition=0).exception(20)
        assert type(error) is error_for_code(code)
        assert error.retriable


@pytest.mark.parametrize("error", FATAL)
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
    assert connect().send("t", b"value", partition=0).get(20).offset == 100


@pytest.mark.parametrize(("error", "idempotence"), [*((each, False) for each in FATAL), (PolicyViolationError, True)])
def test_other_errors_fail_one_batch(
    fake: FakeBroker, connect: Produce, error: type[KafkaError], idempotence: bool
) -> None:
    producer = connect(enable_idempotence=idempotence)
    answer_with(fake, error.code)
    assert type(producer.send("t", b"value", partition=0).exception(20)) is error
    assert producer.send("t", b"value", partition=0).get(20).offset == 100
