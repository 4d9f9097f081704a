"""Errors that brokers answer, with Kafka's codes (``org.apache.kafka.common.protocol.Errors``).

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
    """The server failed with an error that has no code of its own."""

    code = -1


class CorruptRecordError(RetriableError):
    """The bytes of a record or batch are not valid: bad CRC, length or varint."""

    code = 2


class UnknownTopicOrPartitionError(InvalidMetadataError):
    """The topic or partition does not exist."""

    code = 3


class LeaderNotAvailableError(InvalidMetadataError):
    """The partition has no leader at the moment (``LeaderNotAvailableException``)."""

    code = 5


class NotLeaderOrFollowerError(InvalidMetadataError):
    """The broker is no longer the partition's leader (``NotLeaderOrFollowerException``)."""

    code = 6


class RequestTimedOutError(RetriableError):
    """The broker did not answer within ``request.timeout.ms``, or its followers did not replicate in time."""

    code = 7


class BrokerNotAvailableError(KafkaError):
    """The broker is not available (``BrokerNotAvailableException``)."""

    code = 8


class ReplicaNotAvailableError(InvalidMetadataError):
    """The broker has no available replica of the partition (``ReplicaNotAvailableException``)."""

    code = 9


class RecordTooLargeError(KafkaError):
    """The record is larger than ``max.request.size``, the slab, or the broker's limit."""

    code = 10


class NetworkError(InvalidMetadataError):
    """The connection broke before the response came (``NetworkException``)."""

    code = 13


class CoordinatorLoadInProgressError(RetriableError):
    """The coordinator that gives out producer ids is still loading (``CoordinatorLoadInProgressException``)."""

    code = 14


class CoordinatorNotAvailableError(RetriableError):
    """The coordinator that gives out producer ids is not available yet (``CoordinatorNotAvailableException``)."""

    code = 15


class NotCoordinatorError(RetriableError):
    """Another broker is the coordinator (``NotCoordinatorException``)."""

    code = 16


class InvalidTopicError(KafkaError):
    """Kafka does not allow the topic's name (``InvalidTopicException``)."""

    code = 17


class RecordBatchTooLargeError(KafkaError):
    """The batch is larger than a segment of the log (``RecordBatchTooLargeException``)."""

    code = 18


class NotEnoughReplicasError(RetriableError):
    """The partition has fewer in-sync replicas than ``min.insync.replicas``; nothing was stored."""

    code = 19


class NotEnoughReplicasAfterAppendError(RetriableError):
    """The batch was stored, but in fewer in-sync replicas than ``min.insync.replicas``."""

    code = 20


class InvalidRequiredAcksError(KafkaError):
    """The broker does not support this value of ``acks`` (``InvalidRequiredAcksException``)."""

    code = 21


class TopicAuthorizationError(AuthorizationError):
    """The user is not authorized to write to the topic (``TopicAuthorizationException``)."""

    code = 29


class ClusterAuthorizationError(AuthorizationError):
    """The user is not authorized for this operation on the cluster (``ClusterAuthorizationException``)."""

    code = 31


class InvalidTimestampError(KafkaError):
    """The record's timestamp is out of range."""

    code = 32


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not offer ``sasl.mechanism`` (``UnsupportedSaslMechanismException``)."""

    code = 33


class IllegalSaslStateError(AuthenticationError):
    """The broker did not expect this login message; does it support SASL? (``IllegalSaslStateException``)"""

    code = 34


class UnsupportedVersionError(KafkaError):
    """The broker supports no protocol version that we support (``UnsupportedVersionException``)."""

    code = 35


class InvalidRequestError(KafkaError):
    """The broker found the request malformed (``InvalidRequestException``)."""

    code = 42


class UnsupportedForMessageFormatError(KafkaError):
    """The topic's ``message.format.version`` does not support this (headers, sequences)."""

    code = 43


class PolicyViolationError(KafkaError):
    """A policy of the cluster forbids the request (``PolicyViolationException``)."""

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
    """The broker has this security feature switched off (``SecurityDisabledException``)."""

    code = 54


class KafkaStorageError(InvalidMetadataError):
    """The log could not be written: disk full, I/O error, directory gone."""

    code = 56


class SaslAuthenticationError(AuthenticationError):
    """The SASL login failed: one side did not accept the other (``SaslAuthenticationException``)."""

    code = 58


class UnknownProducerIdError(OutOfOrderSequenceError):
    """The broker knows nothing of the producer id, and the batch is not its first (``UnknownProducerIdException``)."""

    code = 59


class ListenerNotFoundError(InvalidMetadataError):
    """The partition's leader has no listener that matches the asked broker's (``ListenerNotFoundException``)."""

    code = 72


class FencedLeaderEpochError(InvalidMetadataError):
    """The partition has a newer leader epoch than the request (``FencedLeaderEpochException``)."""

    code = 74


class UnknownLeaderEpochError(RetriableError):
    """The request has a newer leader epoch than the broker knows (``UnknownLeaderEpochException``)."""

    code = 75


class UnsupportedCompressionTypeError(KafkaError):
    """The broker or the message format does not support this compression."""

    code = 76


class InvalidRecordError(KafkaError):
    """The broker refused the record as invalid."""

    code = 87


class ThrottlingQuotaExceededError(RetriableError):
    """A quota is used up for now (``ThrottlingQuotaExceededException``)."""

    code = 89


class ProducerFencedError(KafkaError):
    """Another producer has taken over the producer id (``ProducerFencedException``)."""

    code = 90


class UnknownTopicIdError(InvalidMetadataError):
    """No topic has that id (``UnknownTopicIdException``)."""

    code = 100


class InconsistentTopicIdError(InvalidMetadataError):
    """The topic was deleted and recreated (``InconsistentTopicIdException``)."""

    code = 103
