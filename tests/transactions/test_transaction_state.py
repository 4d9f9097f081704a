"""Which call each state allows, and where errors lead; what the calls then do is tested with the whole producer."""

from __future__ import annotations

import pytest

from shmaccum.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationError,
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
