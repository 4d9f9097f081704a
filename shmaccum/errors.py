"""Every error that shmaccum raises, by the name that Kafka's users know it by.

Kafka's ``XxxException`` is ``XxxError`` here. An error that a broker can answer carries the broker's
error code (``code``); one that only a client raises carries a code below -100, so that every error
fits the one word that a completion has for it (see ``shmaccum.accumulator``). ``retriable`` says what
the sender does with a batch that met it.

This module is at the bottom: it imports nothing of the package.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

__all__ = [
    "ApiVersionError",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerNotAvailableError",
    "BufferExhaustedError",
    "ClusterAuthorizationError",
    "ConfigError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptRecordError",
    "DeadOwnerError",
    "DeliveryTimeoutError",
    "DuplicateSequenceNumberError",
    "FencedLeaderEpochError",
    "IllegalSaslStateError",
    "IllegalStateError",
    "InconsistentTopicIdError",
    "InvalidMetadataError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaStorageError",
    "KafkaTimeoutError",
    "LeaderNotAvailableError",
    "ListenerNotFoundError",
    "LockTimeoutError",
    "NetworkError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "OutOfOrderSequenceError",
    "PolicyViolationError",
    "ProducerClosedError",
    "ProducerFencedError",
    "RecordBatchTooLargeError",
    "RecordTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "RetriableError",
    "SaslAuthenticationError",
    "SecurityDisabledError",
    "SenderError",
    "SenderExistsError",
    "SerializationError",
    "ShmaccumError",
    "SlabAbiError",
    "SlabError",
    "SlabFullError",
    "SlabInUseError",
    "SlabMemoryError",
    "SlabNotFoundError",
    "SlabPermissionError",
    "SslAuthenticationError",
    "ThrottlingQuotaExceededError",
    "TopicAuthorizationError",
    "UnknownLeaderEpochError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "error_for_code",
]


_JAVA_NAME: Final = re.compile(r" \(``\w+``\)")


class ShmaccumError(Exception):
    """Base of everything that this package raises on purpose."""

    @classmethod
    def meaning(cls) -> str:
        """Return what is wrong whenever it is this error, where no more is known: its docstring's first line."""
        first_line = (cls.__doc__ or f"{cls.__name__}.").splitlines()[0]
        return _JAVA_NAME.sub("", first_line).replace("``", "").removesuffix(".")


# --- Kafka's own -------------------------------------------------------------------------------


class KafkaError(ShmaccumError):
    """Base of the errors that Kafka has too (``org.apache.kafka.common.KafkaException``)."""

    code: ClassVar[int] = -1
    """Kafka's protocol error code, or one below -100 for an error that only a client raises."""
    retriable: ClassVar[bool] = False
    """Whether the sender tries the batch again (``RetriableException``)."""


class UnknownServerError(KafkaError):
    """The other side failed in a way that it has no name for."""

    code = -1


class RetriableError(KafkaError):
    """Base of the errors after which the same request may succeed (``RetriableException``)."""

    retriable = True
    code = -101


class CorruptRecordError(RetriableError):
    """A record or batch whose bytes do not hold together: bad CRC, bad length, bad varint."""

    code = 2


class InvalidMetadataError(RetriableError):
    """Base of the errors that say that what is known of the cluster is out of date (``InvalidMetadataException``)."""

    code = -110


class UnknownTopicOrPartitionError(InvalidMetadataError):
    """The topic, or that partition of it, is not there."""

    code = 3


class LeaderNotAvailableError(InvalidMetadataError):
    """The partition has no leader at the moment (``LeaderNotAvailableException``)."""

    code = 5


class NotLeaderOrFollowerError(InvalidMetadataError):
    """The broker is not the partition's leader any more (``NotLeaderOrFollowerException``)."""

    code = 6


class RequestTimedOutError(RetriableError):
    """A request was not answered within ``request.timeout.ms``, or the broker's followers were not in time."""

    code = 7


class BrokerNotAvailableError(KafkaError):
    """The broker is not available (``BrokerNotAvailableException``)."""

    code = 8


class ReplicaNotAvailableError(InvalidMetadataError):
    """A copy of the partition is not where it was looked for (``ReplicaNotAvailableException``)."""

    code = 9


class RecordTooLargeError(KafkaError):
    """One record is larger than ``max.request.size``, the slab, or what the broker takes."""

    code = 10


class NetworkError(InvalidMetadataError):
    """The connection broke before the answer came (``NetworkException``)."""

    code = 13


class CoordinatorLoadInProgressError(RetriableError):
    """What gives out producer ids is still starting (``CoordinatorLoadInProgressException``)."""

    code = 14


class CoordinatorNotAvailableError(RetriableError):
    """What gives out producer ids is not there yet (``CoordinatorNotAvailableException``)."""

    code = 15


class NotCoordinatorError(RetriableError):
    """Another broker has to be asked (``NotCoordinatorException``)."""

    code = 16


class InvalidTopicError(KafkaError):
    """A topic name that Kafka does not allow (``InvalidTopicException``)."""

    code = 17


class RecordBatchTooLargeError(KafkaError):
    """The batch is larger than a segment of the log (``RecordBatchTooLargeException``)."""

    code = 18


class NotEnoughReplicasError(RetriableError):
    """The partition has fewer in-sync copies than ``min.insync.replicas``; nothing was stored."""

    code = 19


class NotEnoughReplicasAfterAppendError(RetriableError):
    """The batch was stored, but in fewer in-sync copies than ``min.insync.replicas``."""

    code = 20


class InvalidRequiredAcksError(KafkaError):
    """The broker does not know such ``acks`` (``InvalidRequiredAcksException``)."""

    code = 21


class InvalidTimestampError(KafkaError):
    """The record's timestamp is out of range."""

    code = 32


class UnsupportedVersionError(KafkaError):
    """The broker is too old or too new to be spoken with (``UnsupportedVersionException``)."""

    code = 35


class InvalidRequestError(KafkaError):
    """The broker could not make sense of a request (``InvalidRequestException``)."""

    code = 42


class UnsupportedForMessageFormatError(KafkaError):
    """The chosen ``message.format.version`` has no place for this (headers, sequences)."""

    code = 43


class PolicyViolationError(KafkaError):
    """A policy of the cluster's operators forbids it (``PolicyViolationException``)."""

    code = 44


class OutOfOrderSequenceError(KafkaError):
    """The batch does not follow the last one of its producer in the log (``OutOfOrderSequenceException``)."""

    code = 45


class DuplicateSequenceNumberError(KafkaError):
    """The log holds this batch already; the sender counts it as success."""

    code = 46


class InvalidProducerEpochError(KafkaError):
    """The log has seen a newer epoch of the producer id (``InvalidProducerEpochException``)."""

    code = 47


class KafkaStorageError(InvalidMetadataError):
    """The log could not be written: disk full, I/O error, directory gone."""

    code = 56


class UnknownProducerIdError(OutOfOrderSequenceError):
    """The broker knows nothing of the producer id, and the batch is not its first (``UnknownProducerIdException``)."""

    code = 59


class ListenerNotFoundError(InvalidMetadataError):
    """The partition's leader does not listen where the broker that was asked does (``ListenerNotFoundException``)."""

    code = 72


class FencedLeaderEpochError(InvalidMetadataError):
    """The partition's leader has changed since (``FencedLeaderEpochException``)."""

    code = 74


class UnknownLeaderEpochError(RetriableError):
    """The broker does not know yet that the leader has changed (``UnknownLeaderEpochException``)."""

    code = 75


class UnsupportedCompressionTypeError(KafkaError):
    """No such compression, or not in this message format."""

    code = 76


class InvalidRecordError(KafkaError):
    """The record was refused as such."""

    code = 87


class ThrottlingQuotaExceededError(RetriableError):
    """A quota is used up for now (``ThrottlingQuotaExceededException``)."""

    code = 89


class ProducerFencedError(KafkaError):
    """Somebody else has taken the producer id over (``ProducerFencedException``)."""

    code = 90


class UnknownTopicIdError(InvalidMetadataError):
    """There is no topic of that id (``UnknownTopicIdException``)."""

    code = 100


class InconsistentTopicIdError(InvalidMetadataError):
    """The topic was deleted and made again (``InconsistentTopicIdException``)."""

    code = 103


class AuthenticationError(KafkaError):
    """Base of: who we are could not be settled with the cluster (``AuthenticationException``)."""

    code = -111


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not offer ``sasl.mechanism`` (``UnsupportedSaslMechanismException``)."""

    code = 33


class IllegalSaslStateError(AuthenticationError):
    """The broker expected something else while logging in; has it SASL at all? (``IllegalSaslStateException``)"""

    code = 34


class SaslAuthenticationError(AuthenticationError):
    """The broker refused the credentials (``SaslAuthenticationException``)."""

    code = 58


class SslAuthenticationError(AuthenticationError):
    """One side did not trust the other's certificate (``SslAuthenticationException``)."""

    code = -112


class AuthorizationError(KafkaError):
    """Base of: the cluster knows who we are and does not let us do this (``AuthorizationException``)."""

    code = -113


class TopicAuthorizationError(AuthorizationError):
    """We may not write to the topic (``TopicAuthorizationException``)."""

    code = 29


class ClusterAuthorizationError(AuthorizationError):
    """We may not do this with the cluster (``ClusterAuthorizationException``)."""

    code = 31


class SecurityDisabledError(KafkaError):
    """The broker has no such security feature switched on (``SecurityDisabledException``)."""

    code = 54


class KafkaTimeoutError(KafkaError):
    """Something did not happen within its time (``TimeoutException``)."""

    code = -102


class BufferExhaustedError(KafkaTimeoutError):
    """No memory became free within ``max.block.ms`` (``BufferExhaustedException``)."""

    code = -103


class DeliveryTimeoutError(KafkaTimeoutError):
    """A record was not acknowledged within ``delivery.timeout.ms`` of its batch's creation."""

    code = -104


class ProducerClosedError(KafkaError):
    """The producer, or the accumulator behind it, has been closed."""

    code = -105


class SerializationError(KafkaError):
    """A key, value or header that its serializer cannot turn into bytes, or of the wrong type."""

    code = -106


class IllegalStateError(KafkaError):
    """A call that makes no sense in the state that the object is in (``IllegalStateException``)."""

    code = -107


class ConfigError(KafkaError):
    """A setting that does not exist, has a wrong value, or contradicts another (``ConfigException``)."""

    code = -108


# --- the slab's ---------------------------------------------------------------------------------


class SlabError(ShmaccumError):
    """Base of what can be wrong with the shared memory itself."""


class SlabNotFoundError(SlabError):
    """There is no slab of that name."""


class SlabPermissionError(SlabError):
    """The slab belongs to another user, or others may open it."""


class SlabAbiError(SlabError):
    """The segment is not a slab, is cut short, or was laid out by another version or for other settings."""


class SlabMemoryError(SlabError):
    """/dev/shm cannot hold the slab; says what is needed, what is free and the cure."""


class SlabFullError(SlabError, KafkaError):
    """A table of fixed size (processes, topics, partitions) has no entry left."""

    code = -109


class SlabInUseError(SlabError):
    """The slab, the sender's role or the log directory is in somebody else's hands."""


class SenderExistsError(SlabInUseError):
    """The slab has a living sender already; one is enough."""


class LockTimeoutError(SlabError):
    """A lock was not to be had in time; names the process that is in the way."""


class DeadOwnerError(SlabError):
    """What was to be used belongs to a process that is gone, or to the parent of a forked child."""


class SenderError(ShmaccumError):
    """The sender process could not be started, or refused its settings."""


class ApiVersionError(ShmaccumError):
    """A needed feature is missing from an installed library; says which and what to install."""


def _by_code() -> dict[int, type[KafkaError]]:
    found: dict[int, type[KafkaError]] = {}
    todo: list[type[KafkaError]] = [KafkaError]
    while todo:
        cls = todo.pop()
        todo.extend(cls.__subclasses__())
        if "code" in cls.__dict__ and cls is not KafkaError:
            found[cls.code] = cls
    return found


_BY_CODE: Final = _by_code()


def error_for_code(code: int) -> type[KafkaError]:
    """Return the class for an error code of a completion; an unknown code is `UnknownServerError`."""
    return _BY_CODE.get(code, UnknownServerError)
