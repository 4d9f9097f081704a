"""What brokers answer, by the number that they answer (``org.apache.kafka.common.protocol.Errors``).

A class is here if a producer can meet its code; every other code is an `UnknownServerError`.
"""

from __future__ import annotations

from shmaccum.errors.base import (
    AuthenticationError,
    AuthorizationError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
)


class UnknownServerError(KafkaError):
    """The other side failed in a way that it has no name for."""

    code = -1


class CorruptRecordError(RetriableError):
    """A record or batch whose bytes do not hold together: bad CRC, bad length, bad varint."""

    code = 2


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


class TopicAuthorizationError(AuthorizationError):
    """We may not write to the topic (``TopicAuthorizationException``)."""

    code = 29


class ClusterAuthorizationError(AuthorizationError):
    """We may not do this with the cluster (``ClusterAuthorizationException``)."""

    code = 31


class InvalidTimestampError(KafkaError):
    """The record's timestamp is out of range."""

    code = 32


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not offer ``sasl.mechanism`` (``UnsupportedSaslMechanismException``)."""

    code = 33


class IllegalSaslStateError(AuthenticationError):
    """The broker expected something else while logging in; has it SASL at all? (``IllegalSaslStateException``)"""

    code = 34


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


class SecurityDisabledError(KafkaError):
    """The broker has no such security feature switched on (``SecurityDisabledException``)."""

    code = 54


class KafkaStorageError(InvalidMetadataError):
    """The log could not be written: disk full, I/O error, directory gone."""

    code = 56


class SaslAuthenticationError(AuthenticationError):
    """The login by SASL failed: one side did not accept the other (``SaslAuthenticationException``)."""

    code = 58


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
