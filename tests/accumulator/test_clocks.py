"""Times in the future: the producer runs in another time namespace, or a word is damaged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from accumulators import CLUSTER, NODE0, TP0, add, assert_empty, created_ms, drain, first
from fixture_types import OpenAccumulator

from shmaccum._core import Slot
from shmaccum.errors import DeliveryTimeoutError
from tools.support.accumulators import Accumulators

LINGER_MS = 10
TIMEOUT_MS = 2000
AHEAD_MS = 3_600_000


@pytest.fixture
def accumulator(accumulate: OpenAccumulator) -> Iterator[Accumulators]:
    opened = accumulate(linger_ms=LINGER_MS, delivery_timeout_ms=TIMEOUT_MS)
    yield opened
    opened.sender.recover()
    opened.sender.abort_expired_batches(1 << 40)
    assert_empty(opened)


def put_ahead(accumulator: Accumulators, word: int) -> int:
    """Put a time in the header of the first batch ahead; return when that was made."""
    batch = first(accumulator, TP0)
    made_ms = created_ms(accumulator, TP0)
    at = accumulator.slab.geometry.header(batch.slot) + word
    accumulator.slab.words[at] = (accumulator.slab.words[at] or made_ms) + AHEAD_MS
    return made_ms


def test_batch_time_in_the_future_lingers_from_now(accumulator: Accumulators) -> None:
    add(accumulator, TP0)
    made_ms = put_ahead(accumulator, Slot.ATTEMPTS)
    assert accumulator.sender.ready(CLUSTER, made_ms) == (set(), LINGER_MS, set())
    assert accumulator.sender.ready(CLUSTER, made_ms + LINGER_MS).ready_nodes == {NODE0}


def test_attempt_time_in_the_future_backs_off_from_now(accumulator: Accumulators) -> None:
    add(accumulator, TP0)
    made_ms = created_ms(accumulator, TP0)
    (batch,) = drain(accumulator, made_ms + LINGER_MS)
    accumulator.sender.reenqueue(batch, made_ms + AHEAD_MS)  # a sender before this one did
    delay_ms = accumulator.sender.ready(CLUSTER, made_ms).next_ready_check_delay_ms
    assert 0 < delay_ms < TIMEOUT_MS
    assert accumulator.sender.ready(CLUSTER, made_ms + int(delay_ms)).ready_nodes == {NODE0}


def test_creation_time_in_the_future_expires_from_now(accumulator: Accumulators) -> None:
    future = accumulator.append(TP0, 0, None, b"value").future
    made_ms = put_ahead(accumulator, Slot.CREATED_MS)
    assert accumulator.sender.abort_expired_batches(made_ms) == []
    assert accumulator.sender.expirer.next_expiry_ms == made_ms + TIMEOUT_MS
    assert len(accumulator.sender.abort_expired_batches(made_ms + TIMEOUT_MS)) == 1
    with pytest.raises(DeliveryTimeoutError):
        future.get(0)
