"""Every error that shmaccum raises, under Kafka's names.

Kafka's ``XxxException`` is ``XxxError`` here. ``code`` is the broker's error code, or a code below -100 for an error
that only a client raises. So each error fits the one word that a completion has for it (see ``shmaccum.accumulator``).
If an error is ``retriable``, the sender sends its batch again.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

_JAVA_NAME: Final = re.compile(r" \(``\w+``\)")
_BY_CODE: Final[dict[int, type[KafkaError]]] = {}
MESSAGE_BYTES: Final = 448
"""Most bytes of another program's text that we show."""
_CUT: Final = "..."


class ShmaccumError(Exception):
    """Base of all errors that this package raises."""

    accepted: Any = None
    """`FutureColumnsMetadata` of the rows that a ``send_batch`` had accepted before this error; None without any."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without `accepted`, which belongs to its process."""
        return type(self), self.args, {key: value for key, value in vars(self).items() if key != "accepted"}

    @classmethod
    def meaning(cls) -> str:
        """Return the error's general cause: its docstring's first line."""
        first_line = (cls.__doc__ or f"{cls.__name__}.").splitlines()[0]
        return _JAVA_NAME.sub("", first_line).replace("``", "").removesuffix(".")


class KafkaError(ShmaccumError):
    """Base of the errors that Kafka has too (``org.apache.kafka.common.KafkaException``)."""

    code: ClassVar[int] = -1
    """Kafka's protocol error code, or one below -100 for an error that only a client raises."""
    retriable: ClassVar[bool] = False
    """Whether the sender sends the batch again (``RetriableException``)."""
    is_api: ClassVar[bool] = True
    """Whether `Producer.send` calls the callback of a record that it refuses with this error (``ApiException``)."""
    requires_abort: bool = False
    """Of a coordinator's answer: whether an abort leads out of it. Without that, the producer can only be closed."""

    def __init_subclass__(cls, *, code: int | None = None, is_api: bool | None = None) -> None:
        if is_api is not None:
            cls.is_api = is_api
        if code is not None:
            cls.code = code
            _BY_CODE[code] = cls


class RetriableError(KafkaError, code=-101):
    """Base of the errors after which the same request may succeed (``RetriableException``)."""

    retriable = True


class InvalidMetadataError(RetriableError, code=-110):
    """Base of the errors that show that our metadata is out of date (``InvalidMetadataException``)."""


class AuthenticationError(KafkaError, code=-111):
    """The cluster and this client could not authenticate each other (``AuthenticationException``)."""


class AuthorizationError(KafkaError, code=-113):
    """The cluster does not authorize this user for the operation (``AuthorizationException``)."""


# Only a client raises these.


class SslAuthenticationError(AuthenticationError, code=-112):
    """One side did not trust the other's certificate (``SslAuthenticationException``)."""


class KafkaTimeoutError(KafkaError, code=-102):
    """An operation did not finish in time (``TimeoutException``)."""


class ResultTimeoutError(KafkaTimeoutError, TimeoutError, code=-119):
    """A record was not complete within the timeout of its future's method; it is still pending."""


class BufferExhaustedError(KafkaTimeoutError, code=-103):
    """No memory became free within ``max.block.ms`` (``BufferExhaustedException``)."""


class DeliveryTimeoutError(KafkaTimeoutError, code=-104):
    """A record was not acknowledged within ``delivery.timeout.ms`` of its batch's creation."""


class ProducerClosedError(KafkaError, code=-105, is_api=False):
    """The producer, or the accumulator behind it, has been closed."""


class SerializationError(KafkaError, code=-106, is_api=False):
    """A key, value or header has the wrong type, or its serializer cannot turn it into bytes."""


class IllegalStateError(KafkaError, code=-107, is_api=False):
    """A call is not allowed in the object's state (``IllegalStateException``)."""


class IllegalArgumentError(KafkaError, code=-116, is_api=False):
    """An argument's value is not allowed (``IllegalArgumentException``)."""


class ConfigError(KafkaError, code=-108, is_api=False):
    """A setting does not exist, has a wrong value, or contradicts another (``ConfigException``)."""


# Brokers answer these, with the codes of ``org.apache.kafka.common.protocol.Errors``. A class is here if a producer can
# meet its code; every other code is an `UnknownServerError`.


class UnknownServerError(KafkaError, code=-1):
    """The server failed with an error that has no code."""


class CorruptRecordError(RetriableError, code=2):
    """The bytes of a record or batch are not valid: bad CRC, length or varint."""


class UnknownTopicOrPartitionError(InvalidMetadataError, code=3):
    """The topic or partition does not exist."""


class LeaderNotAvailableError(InvalidMetadataError, code=5):
    """The partition has no leader at the moment (``LeaderNotAvailableException``)."""


class NotLeaderOrFollowerError(InvalidMetadataError, code=6):
    """The broker is no longer the partition's leader (``NotLeaderOrFollowerException``)."""


class RequestTimedOutError(RetriableError, code=7):
    """The broker did not answer within ``request.timeout.ms``, or its followers did not replicate in time."""


class BrokerNotAvailableError(KafkaError, code=8):
    """The broker is not available (``BrokerNotAvailableException``)."""


class ReplicaNotAvailableError(InvalidMetadataError, code=9):
    """The broker has no available replica of the partition (``ReplicaNotAvailableException``)."""


class RecordTooLargeError(KafkaError, code=10):
    """The record is larger than ``max.request.size``, the slab, or the topic's ``max.message.bytes``."""


class NetworkError(InvalidMetadataError, code=13):
    """The connection broke before the response came (``NetworkException``)."""


class CoordinatorLoadInProgressError(RetriableError, code=14):
    """The coordinator that gives out producer ids is still loading (``CoordinatorLoadInProgressException``)."""


class CoordinatorNotAvailableError(RetriableError, code=15):
    """The coordinator that gives out producer ids is not available yet (``CoordinatorNotAvailableException``)."""


class NotCoordinatorError(RetriableError, code=16):
    """Another broker is the coordinator (``NotCoordinatorException``)."""


class InvalidTopicError(KafkaError, code=17):
    """Kafka does not allow the topic's name (``InvalidTopicException``)."""


class RecordBatchTooLargeError(KafkaError, code=18):
    """The batch is larger than a segment of the log (``RecordBatchTooLargeException``)."""


class NotEnoughReplicasError(RetriableError, code=19):
    """The partition has fewer in-sync replicas than ``min.insync.replicas``; nothing was stored."""


class NotEnoughReplicasAfterAppendError(RetriableError, code=20):
    """The batch was stored, but in fewer in-sync replicas than ``min.insync.replicas``."""


class InvalidRequiredAcksError(KafkaError, code=21):
    """The broker does not support this value of ``acks`` (``InvalidRequiredAcksException``)."""


class TopicAuthorizationError(AuthorizationError, code=29):
    """The user is not authorized to write to the topic (``TopicAuthorizationException``)."""


class ClusterAuthorizationError(AuthorizationError, code=31):
    """The cluster refuses the user: grant IDEMPOTENT_WRITE on it or, since Kafka 2.8, WRITE on a topic.

    Kafka's ``ClusterAuthorizationException``.
    """


class InvalidTimestampError(KafkaError, code=32):
    """The record's timestamp is out of range."""


class UnsupportedSaslMechanismError(AuthenticationError, code=33):
    """The broker does not offer ``sasl.mechanism`` (``UnsupportedSaslMechanismException``)."""


class IllegalSaslStateError(AuthenticationError, code=34):
    """The broker did not expect this login message; does it support SASL? (``IllegalSaslStateException``)"""


class UnsupportedVersionError(KafkaError, code=35):
    """The broker supports no protocol version that we support (``UnsupportedVersionException``)."""


class TopicExistsError(KafkaError, code=36):
    """There is a topic of this name already (``TopicExistsException``)."""


class NotControllerError(RetriableError, code=41):
    """Another broker is the controller (``NotControllerException``)."""


class InvalidRequestError(KafkaError, code=42):
    """The broker found the request malformed (``InvalidRequestException``)."""


class UnsupportedForMessageFormatError(KafkaError, code=43):
    """The topic's ``message.format.version`` does not support this (headers, sequences)."""


class PolicyViolationError(KafkaError, code=44):
    """A policy of the cluster forbids the request (``PolicyViolationException``)."""


class OutOfOrderSequenceError(KafkaError, code=45):
    """The batch does not follow the last one of its producer in the log (``OutOfOrderSequenceException``)."""


class DuplicateSequenceNumberError(KafkaError, code=46):
    """The log holds this batch already; the sender counts it as success."""


class InvalidProducerEpochError(KafkaError, code=47):
    """The log has seen a newer epoch of the producer id (``InvalidProducerEpochException``)."""


class SecurityDisabledError(KafkaError, code=54):
    """The broker has this security feature switched off (``SecurityDisabledException``)."""


class KafkaStorageError(InvalidMetadataError, code=56):
    """The log could not be written: disk full, I/O error, directory gone."""


class SaslAuthenticationError(AuthenticationError, code=58):
    """The SASL login failed: one side did not accept the other (``SaslAuthenticationException``)."""


class UnknownProducerIdError(OutOfOrderSequenceError, code=59):
    """The broker knows nothing of the producer id, and the batch is not its first (``UnknownProducerIdException``)."""


class FetchSessionIdNotFoundError(RetriableError, code=70):
    """The broker knows no such fetch session (``FetchSessionIdNotFoundException``)."""


class InvalidFetchSessionEpochError(RetriableError, code=71):
    """The fetch session has another epoch (``InvalidFetchSessionEpochException``)."""


class ListenerNotFoundError(InvalidMetadataError, code=72):
    """The partition's leader has no listener that matches the asked broker's (``ListenerNotFoundException``)."""


class FencedLeaderEpochError(InvalidMetadataError, code=74):
    """The partition has a newer leader epoch than the request (``FencedLeaderEpochException``)."""


class UnknownLeaderEpochError(RetriableError, code=75):
    """The request has a newer leader epoch than the broker knows (``UnknownLeaderEpochException``)."""


class UnsupportedCompressionTypeError(KafkaError, code=76):
    """The broker or the message format does not support this compression."""


class OffsetNotAvailableError(RetriableError, code=78):
    """The new leader has not caught up with its followers yet (``OffsetNotAvailableException``)."""


class PreferredLeaderNotAvailableError(InvalidMetadataError, code=80):
    """The partition's preferred leader is not available (``PreferredLeaderNotAvailableException``)."""


class EligibleLeadersNotAvailableError(InvalidMetadataError, code=83):
    """No replica can become the partition's leader now (``EligibleLeadersNotAvailableException``)."""


class ElectionNotNeededError(InvalidMetadataError, code=84):
    """The partition needs no new leader (``ElectionNotNeededException``)."""


class InvalidRecordError(KafkaError, code=87):
    """The broker refused the record as invalid."""


class UnstableOffsetCommitError(RetriableError, code=88):
    """A transaction with offsets of the partition has not ended yet (``UnstableOffsetCommitException``)."""


class ThrottlingQuotaExceededError(RetriableError, code=89):
    """A quota is used up for now (``ThrottlingQuotaExceededException``)."""


class ProducerFencedError(KafkaError, code=90):
    """Another producer has taken over the producer id (``ProducerFencedException``)."""


class UnknownTopicIdError(InvalidMetadataError, code=100):
    """No topic has that id (``UnknownTopicIdException``)."""


class InconsistentTopicIdError(InvalidMetadataError, code=103):
    """The topic was deleted and recreated (``InconsistentTopicIdException``)."""


class FetchSessionTopicIdError(RetriableError, code=106):
    """The fetch session has another id of the topic (``FetchSessionTopicIdException``)."""


class ShareSessionNotFoundError(RetriableError, code=122):
    """The broker knows no such share session (``ShareSessionNotFoundException``)."""


class InvalidShareSessionEpochError(RetriableError, code=123):
    """The share session has another epoch (``InvalidShareSessionEpochException``)."""


class ShareSessionLimitReachedError(RetriableError, code=133):
    """The broker has no room for another share session (``ShareSessionLimitReachedException``)."""


# Of transactions, and of the consumer groups whose offsets they commit.


class TransactionAbortedError(KafkaError, code=-117):
    """The record was dropped with its transaction, which has failed or is aborted (``TransactionAbortedException``)."""


class TransactionLostError(KafkaError, code=-118):
    """The brokers aborted a transaction that was decided to be committed, after ``transaction.timeout.ms``."""


class OffsetMetadataTooLargeError(KafkaError, code=12):
    """The metadata of a committed offset is larger than the broker's ``offset.metadata.max.bytes``."""


class IllegalGenerationError(KafkaError, code=22):
    """The consumer group has a newer generation (``CommitFailedException``, ILLEGAL_GENERATION)."""


class InvalidGroupIdError(KafkaError, code=24):
    """The consumer group's id is not allowed (``InvalidGroupIdException``)."""


class UnknownMemberIdError(KafkaError, code=25):
    """The consumer group has no such member, or no longer (``UnknownMemberIdException``)."""


class GroupAuthorizationError(AuthorizationError, code=30):
    """The user is not authorized for the consumer group (``GroupAuthorizationException``)."""


class InvalidTxnStateError(KafkaError, code=48):
    """The transaction is not in a state that allows this, as after its timeout (``InvalidTxnStateException``)."""


class InvalidPidMappingError(KafkaError, code=49):
    """The coordinator knows another producer id for the transactional id (``InvalidPidMappingException``)."""


class InvalidTxnTimeoutError(KafkaError, code=50):
    """``transaction.timeout.ms`` exceeds the brokers' transaction.max.timeout.ms (``InvalidTxnTimeoutException``)."""


class ConcurrentTransactionsError(RetriableError, code=51):
    """The transactional id's last transaction is still being ended (``ConcurrentTransactionsException``)."""


class TransactionCoordinatorFencedError(KafkaError, code=52):
    """The broker is no longer the transaction's coordinator (``TransactionCoordinatorFencedException``)."""


class TransactionalIdAuthorizationError(AuthorizationError, code=53):
    """The user is not authorized for the transactional id (``TransactionalIdAuthorizationException``)."""


class OperationNotAttemptedError(KafkaError, code=55):
    """The broker did not try it, because another part of the request failed (OPERATION_NOT_ATTEMPTED)."""


class FencedInstanceIdError(KafkaError, code=82):
    """Another consumer has the same ``group.instance.id`` (``FencedInstanceIdException``)."""


class TransactionalIdNotFoundError(KafkaError, code=105):
    """The coordinator knows no such transactional id (``TransactionalIdNotFoundException``)."""


class TransactionAbortableError(KafkaError, code=120):
    """The transaction must be aborted, and the producer can go on after that (``TransactionAbortableException``)."""


# Of the shared memory, its processes, and the installed libraries.


class SlabError(ShmaccumError):
    """Base of the errors of the shared memory."""


class SlabNotFoundError(SlabError):
    """No slab has that name."""


class SlabPermissionError(SlabError):
    """The slab belongs to another user, or other users can open it."""


class SlabAbiError(SlabError):
    """The segment is no slab, is truncated, or was laid out by another version or for other settings."""


class SlabDamagedError(SlabError):
    """A word of the slab has a value that no live code could have written; names it, and the cure."""


class SlabMemoryError(SlabError):
    """/dev/shm cannot hold the slab; names what is needed, what is free and the cure."""


class SlabFullError(SlabError, KafkaError, code=-109):
    """A table of fixed size (processes, topics, partitions) has no entry left."""


class SlabInUseError(SlabError):
    """Another process uses the slab, the sender's role or the log directory."""


class SenderExistsError(SlabInUseError):
    """The slab already has a living sender; it can have only one."""


class LockTimeoutError(SlabError, KafkaTimeoutError, code=-114):
    """A lock could not be acquired in time; names the process that holds it."""


class DeadOwnerError(SlabError):
    """The object belongs to a process that has left, or to the parent of a forked child."""


class SenderError(ShmaccumError):
    """The sender process did not start, or refused its settings."""


class ApiVersionError(ShmaccumError):
    """An installed library lacks a needed feature; names it, and what to install."""


def error_for_code(code: int) -> type[KafkaError]:
    """Return the error class for a completion's code; `UnknownServerError` for an unknown one."""
    return _BY_CODE.get(code, UnknownServerError)


def escaped(text: str) -> str:
    """Return a text with an escape in place of each character that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable(text: str) -> str:
    """Return untrusted text fit to show: one line, no control characters, at most `MESSAGE_BYTES` in UTF-8."""
    text = escaped(text[: MESSAGE_BYTES + 1])
    data = text.encode()
    if len(data) <= MESSAGE_BYTES:
        return text
    return data[: MESSAGE_BYTES - len(_CUT)].decode(errors="ignore") + _CUT


class UnsupportedPlatformError(ShmaccumError, ImportError):
    """This interpreter, or this machine, lacks what the package needs; names it, and what to do."""
