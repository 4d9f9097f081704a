"""Which calls the state of a producer's transactions allows, and where errors lead: as in ``TransactionManager``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Final, NoReturn

from shmaccum import errors


class State(Enum):
    """States of ``TransactionManager``."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    IN_TRANSACTION = "IN_TRANSACTION"
    COMMITTING_TRANSACTION = "COMMITTING_TRANSACTION"
    ABORTING_TRANSACTION = "ABORTING_TRANSACTION"
    ABORTABLE_ERROR = "ABORTABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"


_S = State
_FROM: Final[Mapping[State, frozenset[State]]] = {
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.INITIALIZING}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.COMMITTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION}),
    _S.ABORTING_TRANSACTION: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR, _S.ABORTING_TRANSACTION}),
}
"""From which states a call leads to each."""

_FATAL: Final = (
    errors.ClusterAuthorizationError,
    errors.InvalidPidMappingError,
    errors.ProducerFencedError,
    errors.TransactionalIdAuthorizationError,
    errors.UnsupportedVersionError,
)
"""Errors of a batch after which the producer can only be closed (``maybeTransitionToErrorState``)."""


class TransactionState:
    """The state of one producer's transactions. Its user guards it by a lock.

    Args:
        on_error: called whenever the state becomes one of the two errors.
    """

    def __init__(self, transactional_id: str, on_error: Callable[[], object]) -> None:
        self.transactional_id = transactional_id
        self.now = State.UNINITIALIZED
        self._error: errors.KafkaError | None = None
        """Why the state is one of the two errors."""
        self._on_error = on_error
        self._pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that the transactions belong to."""
        return self._pid != os.getpid()

    def allows(self, to: State) -> bool:
        """Return whether a call can lead from here to a state."""
        return self.now in _FROM[to]

    def enter(self, to: State, what: str) -> None:
        """Change to a state by a call, which the error names.

        Raises:
            IllegalStateError: the present state does not allow the call, or the process is a forked child.
            KafkaError: the present state is an error; this one is of the same class, and says what to do.
        """
        self._check_process()
        if not self.allows(to):
            self._refuse(what, to)
        self.now = to

    def check(self, state: State, what: str) -> None:
        """Check that the state is one that a call needs; raises as `enter`."""
        self._check_process()
        if self.now is not state:
            self._refuse(what, state)

    def succeed(self, to: State) -> None:
        """Change to the state in which a call ends; it leaves an error behind."""
        self.now, self._error = to, None

    def note(self, error: errors.KafkaError, *, of_batch: bool = False) -> None:
        """Note an error after which the transaction can only be aborted, or the producer only be closed.

        ``of_batch``: a record or a batch failed by it, and not a request to a coordinator.
        """
        if of_batch:
            is_final = isinstance(error, _FATAL)
        else:  # there is nothing to abort yet, or an abort would be answered by another one
            is_final = not error.requires_abort or self.now in (State.INITIALIZING, State.ABORTING_TRANSACTION)
        self.now, self._error = State.FATAL_ERROR if is_final else State.ABORTABLE_ERROR, error
        self._on_error()

    def fail(self, error: errors.KafkaError, *, of_batch: bool = False) -> NoReturn:
        """Raise an error, and note it."""
        self.note(error, of_batch=of_batch)
        raise error

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Note the errors of coordinators in the block; not a timeout, so that the call can be repeated."""
        try:
            yield
        except (errors.KafkaTimeoutError, errors.IllegalStateError):
            raise
        except errors.KafkaError as error:
            self.note(error)
            raise

    def impossible(self, what: str, why: str) -> errors.IllegalStateError:
        """Return the error for a call that is not possible now."""
        return errors.IllegalStateError(f"transactional.id {self.transactional_id!r}: {what} is not possible: {why}")

    def _check_process(self) -> None:
        if self.is_forked:
            raise errors.IllegalStateError(
                f"transactional.id {self.transactional_id!r}: the transactions belong to process {self._pid}, which "
                "this one was forked from; make another producer here, with another transactional.id"
            )

    def _refuse(self, what: str, to: State) -> NoReturn:
        if self.now in (State.ABORTABLE_ERROR, State.FATAL_ERROR) and self._error is not None:
            advice = "abort the transaction" if self.now is State.ABORTABLE_ERROR else "close the producer"
            raise type(self._error)(
                f"Cannot execute transactional method because we are in an error state; {advice}: {self._error}"
            ) from self._error
        is_initialized = self.now not in (State.UNINITIALIZED, State.INITIALIZING)
        advice = "" if is_initialized else "; call init_transactions first"
        raise self.impossible(
            what, f"Invalid transition attempted from state {self.now.value} to state {to.value}{advice}"
        )
