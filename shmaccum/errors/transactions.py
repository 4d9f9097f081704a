"""Errors of transactions, and of the consumer groups whose offsets they commit, with Kafka's codes."""

from __future__ import annotations

from shmaccum.errors.base import AuthorizationError, KafkaError, RetriableError


class IllegalGenerationError(KafkaError):
    """The consumer group has a newer generation (``CommitFailedException``, ILLEGAL_GENERATION)."""

    code = 22


class InvalidGroupIdError(KafkaError):
    """The consumer group's id is not allowed (``InvalidGroupIdException``)."""

    code = 24


class UnknownMemberIdError(KafkaError):
    """The consumer group has no such member, or no longer (``UnknownMemberIdException``)."""

    code = 25


class GroupAuthorizationError(AuthorizationError):
    """The user is not authorized for the consumer group (``GroupAuthorizationException``)."""

    code = 30


class InvalidTxnStateError(KafkaError):
    """The transaction is not in a state that allows this, as after its timeout (``InvalidTxnStateException``)."""

    code = 48


class InvalidPidMappingError(KafkaError):
    """The coordinator knows another producer id for the transactional id (``InvalidPidMappingException``)."""

    code = 49


class InvalidTxnTimeoutError(KafkaError):
    """``transaction.timeout.ms`` exceeds the brokers' transaction.max.timeout.ms (``InvalidTxnTimeoutException``)."""

    code = 50


class ConcurrentTransactionsError(RetriableError):
    """The transactional id's last transaction is still being ended (``ConcurrentTransactionsException``)."""

    code = 51


class TransactionCoordinatorFencedError(KafkaError):
    """The broker is no longer the transaction's coordinator (``TransactionCoordinatorFencedException``)."""

    code = 52


class TransactionalIdAuthorizationError(AuthorizationError):
    """The user is not authorized for the transactional id (``TransactionalIdAuthorizationException``)."""

    code = 53


class OperationNotAttemptedError(KafkaError):
    """The broker did not try it, because another part of the request failed (OPERATION_NOT_ATTEMPTED)."""

    code = 55


class FencedInstanceIdError(KafkaError):
    """Another consumer has the same ``group.instance.id`` (``FencedInstanceIdException``)."""

    code = 82


class TransactionalIdNotFoundError(KafkaError):
    """The coordinator knows no such transactional id (``TransactionalIdNotFoundException``)."""

    code = 105


class TransactionAbortableError(KafkaError):
    """The transaction must be aborted, and the producer can go on after that (``TransactionAbortableException``)."""

    code = 120


class TransactionAbortedError(KafkaError):
    """The record was not sent, because its transaction is aborted (``TransactionAbortedException``)."""

    code = -117
