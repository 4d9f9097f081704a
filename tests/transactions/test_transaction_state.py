"""Which call each state allows, and where errors lead; what the calls then do is tested with the whole producer."""

from __future__ import annotations

import pytest

from shmaccum.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TopicAuthorizationError,
    UnknownServerError,
)
from shmaccum.transactions.transaction_state import State, TransactionState

ALLOWED = {
    (State.UNINITIALIZED, State.INITIALIZING),
    (State.INITIALIZING, State.INITIALIZING),
    (State.READY, State.IN_TRANSACTION),
    (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION),
    (State.COMMITTING_TRANSACTION, State.COMMITTING_TRANSACTION),
    (State.IN_TRANSACTION, State.ABORTING_TRANSACTION),
    (State.ABORTABLE_ERROR, State.ABORTING_TRANSACTION),
    (State.ABORTING_TRANSACTION, State.ABORTING_TRANSACTION),
}
ENTERED = {to for _, to in ALLOWED}


def state(now: State = State.IN_TRANSACTION) -> TransactionState:
    found = TransactionState("orders", on_error=lambda: None)
    found.now = now
    return found


@pytest.mark.parametrize("now", State)
@pytest.mark.parametrize("to", sorted(ENTERED, key=lambda each: each.value))
def test_transitions(now: State, to: State) -> None:
    of = state(now)
    assert of.allows(to) == ((now, to) in ALLOWED)
    if of.allows(to):
        of.enter(to, "a_call")
        assert of.now is to
    else:
        with pytest.raises(IllegalStateError, match=f"'orders': a_call .* from state {now.value} to state {to.value}"):
            of.enter(to, "a_call")
        assert of.now is now


def abortable(error: KafkaError) -> KafkaError:
    error.requires_abort = True
    return error


@pytest.mark.parametrize(
    ("error", "of_batch", "now"),
    [
        (abortable(TopicAuthorizationError("t")), False, State.ABORTABLE_ERROR),
        (TopicAuthorizationError("t"), False, State.FATAL_ERROR),
        (UnknownServerError("a coordinator's"), False, State.FATAL_ERROR),
        (UnknownServerError("a broker's"), True, State.ABORTABLE_ERROR),
        (InvalidProducerEpochError("a broker's"), True, State.ABORTABLE_ERROR),
        (ProducerFencedError("by another one"), False, State.FATAL_ERROR),
        (ProducerFencedError("by another one"), True, State.FATAL_ERROR),
    ],
)
def test_errors(error: KafkaError, of_batch: bool, now: State) -> None:
    noted: list[State] = []
    of = TransactionState("orders", on_error=lambda: noted.append(of.now))
    of.now = State.IN_TRANSACTION
    with pytest.raises(type(error)):
        of.fail(error, of_batch=of_batch)
    assert noted == [of.now] == [now]
    advice = "abort the transaction" if now is State.ABORTABLE_ERROR else "close the producer"
    with pytest.raises(type(error), match=f"{advice}: {error}"):
        of.check(State.IN_TRANSACTION, "send")


def test_an_error_is_left_behind_by_an_abort() -> None:
    of = state()
    of.note(abortable(TopicAuthorizationError("t")))
    of.enter(State.ABORTING_TRANSACTION, "abort_transaction")
    of.succeed(State.READY)
    with pytest.raises(IllegalStateError, match="from state READY"):
        of.check(State.IN_TRANSACTION, "send")


@pytest.mark.parametrize("error", [KafkaTimeoutError("max.block.ms"), IllegalStateError("a misuse")])
def test_errors_after_which_a_call_can_be_repeated(error: KafkaError) -> None:
    of = state()
    with pytest.raises(type(error)), of.failing():
        raise error
    of.check(State.IN_TRANSACTION, "send")


@pytest.mark.parametrize("now", [State.INITIALIZING, State.ABORTING_TRANSACTION])
def test_there_is_no_abort_without_a_transaction_or_behind_an_abort(now: State) -> None:
    of = state(now)
    of.note(abortable(TopicAuthorizationError("t")))
    assert of.now is State.FATAL_ERROR


def test_an_answer_of_a_coordinator() -> None:
    of = state()
    with pytest.raises(ProducerFencedError), of.failing():
        raise ProducerFencedError("by another one")
    assert of.now is State.FATAL_ERROR
