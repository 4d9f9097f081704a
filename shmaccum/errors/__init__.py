"""Every error that shmaccum raises, under Kafka's names.

Kafka's ``XxxException`` is ``XxxError`` here. ``code`` is the broker's error code, or a code below -100 for an error
that only a client raises. So each error fits the one word that a completion has for it (see ``shmaccum.accumulator``).
If an error is ``retriable``, the sender sends its batch again.

The package is at the bottom: it imports no other package of ours.
"""

from __future__ import annotations

from typing import Final

from shmaccum.errors.base import (
    AuthenticationError,
    AuthorizationError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
    ShmaccumError,
)
from shmaccum.errors.clients import (
    BufferExhaustedError,
    ConfigError,
    DeliveryTimeoutError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
    SerializationError,
    SslAuthenticationError,
)
from shmaccum.errors.protocol import (
    BrokerNotAvailableError,
    ClusterAuthorizationError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    DuplicateSequenceNumberError,
    FencedLeaderEpochError,
    IllegalSaslStateError,
    InconsistentTopicIdError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaStorageError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    NetworkError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    ProducerFencedError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
    SaslAuthenticationError,
    SecurityDisabledError,
    ThrottlingQuotaExceededError,
    TopicAuthorizationError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from shmaccum.errors.slab import (
    ApiVersionError,
    DeadOwnerError,
    LockTimeoutError,
    SenderError,
    SenderExistsError,
    SlabAbiError,
    SlabDamagedError,
    SlabError,
    SlabFullError,
    SlabInUseError,
    SlabMemoryError,
    SlabNotFoundError,
    SlabPermissionError,
)
from shmaccum.errors.transactions import (
    ConcurrentTransactionsError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidPidMappingError,
    InvalidTxnStateError,
    InvalidTxnTimeoutError,
    OperationNotAttemptedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
    TransactionalIdNotFoundError,
    TransactionCoordinatorFencedError,
    UnknownMemberIdError,
)

__all__ = [
    "ApiVersionError",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerNotAvailableError",
    "BufferExhaustedError",
    "ClusterAuthorizationError",
    "ConcurrentTransactionsError",
    "ConfigError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptRecordError",
    "DeadOwnerError",
    "DeliveryTimeoutError",
    "DuplicateSequenceNumberError",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "GroupAuthorizationError",
    "IllegalArgumentError",
    "IllegalGenerationError",
    "IllegalSaslStateError",
    "IllegalStateError",
    "InconsistentTopicIdError",
    "InvalidGroupIdError",
    "InvalidMetadataError",
    "InvalidPidMappingError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTxnStateError",
    "InvalidTxnTimeoutError",
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
    "OperationNotAttemptedError",
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
    "SlabDamagedError",
    "SlabError",
    "SlabFullError",
    "SlabInUseError",
    "SlabMemoryError",
    "SlabNotFoundError",
    "SlabPermissionError",
    "SslAuthenticationError",
    "ThrottlingQuotaExceededError",
    "TopicAuthorizationError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionCoordinatorFencedError",
    "TransactionalIdAuthorizationError",
    "TransactionalIdNotFoundError",
    "UnknownLeaderEpochError",
    "UnknownMemberIdError",
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
    """Return the error class for a completion's code; `UnknownServerError` for an unknown one."""
    return _BY_CODE.get(code, UnknownServerError)


# A traceback shows the name that users import, not that of the submodule.
for _name in __all__:
    globals()[_name].__module__ = __name__
