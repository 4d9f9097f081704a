"""confluent-kafka's KafkaError and KafkaException: its own where it is installed, else classes that look the same.

So ``except KafkaException`` catches what is raised here, wherever a program has imported that name from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from shmaccum import errors
from shmaccum.errors import KafkaError as OurKafkaError

_CODES: Final = """
    NO_ERROR=0 UNKNOWN=-1 OFFSET_OUT_OF_RANGE=1 INVALID_MSG=2 UNKNOWN_TOPIC_OR_PART=3 INVALID_MSG_SIZE=4
    LEADER_NOT_AVAILABLE=5 NOT_LEADER_FOR_PARTITION=6 REQUEST_TIMED_OUT=7 BROKER_NOT_AVAILABLE=8
    REPLICA_NOT_AVAILABLE=9 MSG_SIZE_TOO_LARGE=10 STALE_CTRL_EPOCH=11 OFFSET_METADATA_TOO_LARGE=12
    NETWORK_EXCEPTION=13 COORDINATOR_LOAD_IN_PROGRESS=14 COORDINATOR_NOT_AVAILABLE=15 NOT_COORDINATOR=16
    TOPIC_EXCEPTION=17 RECORD_LIST_TOO_LARGE=18 NOT_ENOUGH_REPLICAS=19 NOT_ENOUGH_REPLICAS_AFTER_APPEND=20
    INVALID_REQUIRED_ACKS=21 ILLEGAL_GENERATION=22 INVALID_GROUP_ID=24 UNKNOWN_MEMBER_ID=25
    TOPIC_AUTHORIZATION_FAILED=29 GROUP_AUTHORIZATION_FAILED=30 CLUSTER_AUTHORIZATION_FAILED=31
    INVALID_TIMESTAMP=32 UNSUPPORTED_SASL_MECHANISM=33 ILLEGAL_SASL_STATE=34 UNSUPPORTED_VERSION=35
    TOPIC_ALREADY_EXISTS=36 INVALID_PARTITIONS=37 INVALID_REPLICATION_FACTOR=38 INVALID_CONFIG=40
    NOT_CONTROLLER=41 INVALID_REQUEST=42 UNSUPPORTED_FOR_MESSAGE_FORMAT=43 POLICY_VIOLATION=44
    OUT_OF_ORDER_SEQUENCE_NUMBER=45 DUPLICATE_SEQUENCE_NUMBER=46 INVALID_PRODUCER_EPOCH=47 INVALID_TXN_STATE=48
    INVALID_PRODUCER_ID_MAPPING=49 INVALID_TRANSACTION_TIMEOUT=50 CONCURRENT_TRANSACTIONS=51
    TRANSACTION_COORDINATOR_FENCED=52 TRANSACTIONAL_ID_AUTHORIZATION_FAILED=53 SECURITY_DISABLED=54
    OPERATION_NOT_ATTEMPTED=55 KAFKA_STORAGE_ERROR=56 LOG_DIR_NOT_FOUND=57 SASL_AUTHENTICATION_FAILED=58
    UNKNOWN_PRODUCER_ID=59 LISTENER_NOT_FOUND=72 TOPIC_DELETION_DISABLED=73 FENCED_LEADER_EPOCH=74
    UNKNOWN_LEADER_EPOCH=75 UNSUPPORTED_COMPRESSION_TYPE=76 FENCED_INSTANCE_ID=82 INVALID_RECORD=87
    UNSTABLE_OFFSET_COMMIT=88 THROTTLING_QUOTA_EXCEEDED=89 PRODUCER_FENCED=90 UNKNOWN_TOPIC_ID=100
    INCONSISTENT_TOPIC_ID=103 TRANSACTION_ABORTABLE=120
    _BAD_MSG=-199 _BAD_COMPRESSION=-198 _DESTROY=-197 _FAIL=-196 _TRANSPORT=-195 _CRIT_SYS_RESOURCE=-194
    _RESOLVE=-193 _MSG_TIMED_OUT=-192 _PARTITION_EOF=-191 _UNKNOWN_PARTITION=-190 _FS=-189 _UNKNOWN_TOPIC=-188
    _ALL_BROKERS_DOWN=-187 _INVALID_ARG=-186 _TIMED_OUT=-185 _QUEUE_FULL=-184 _ISR_INSUFF=-183 _NODE_UPDATE=-182
    _SSL=-181 _WAIT_COORD=-180 _UNKNOWN_GROUP=-179 _IN_PROGRESS=-178 _PREV_IN_PROGRESS=-177
    _EXISTING_SUBSCRIPTION=-176 _ASSIGN_PARTITIONS=-175 _REVOKE_PARTITIONS=-174 _CONFLICT=-173 _STATE=-172
    _UNKNOWN_PROTOCOL=-171 _NOT_IMPLEMENTED=-170 _AUTHENTICATION=-169 _NO_OFFSET=-168 _OUTDATED=-167
    _TIMED_OUT_QUEUE=-166 _UNSUPPORTED_FEATURE=-165 _WAIT_CACHE=-164 _INTR=-163 _KEY_SERIALIZATION=-162
    _VALUE_SERIALIZATION=-161 _KEY_DESERIALIZATION=-160 _VALUE_DESERIALIZATION=-159 _PARTIAL=-158 _READ_ONLY=-157
    _NOENT=-156 _UNDERFLOW=-155 _INVALID_TYPE=-154 _RETRY=-153 _PURGE_QUEUE=-152 _PURGE_INFLIGHT=-151 _FATAL=-150
    _INCONSISTENT=-149 _GAPLESS_GUARANTEE=-148 _MAX_POLL_EXCEEDED=-147 _UNKNOWN_BROKER=-146 _NOT_CONFIGURED=-145
    _FENCED=-144 _APPLICATION=-143 _ASSIGNMENT_LOST=-142 _NOOP=-141 _AUTO_OFFSET_RESET=-140
"""

CODES: Final = {name: int(code) for name, _, code in (each.partition("=") for each in _CODES.split())}
"""librdkafka's names for its own errors, which are negative, and for the brokers'."""

_NAMES: Final = {code: name for name, code in CODES.items()}


class StandInKafkaError:
    """``confluent_kafka.KafkaError``, for programs without confluent-kafka."""

    def __init__(
        self,
        code: int,
        reason: str | None = None,
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = int(code)
        self._reason = reason
        self._fatal, self._retriable, self._txn_requires_abort = fatal, retriable, txn_requires_abort

    def code(self) -> int:
        """Return the code: one of the class's attributes."""
        return self._code

    def name(self) -> str:
        """Return the code's name."""
        return _NAMES.get(self._code, f"ERR_{self._code}?")

    def str(self) -> str:  # the name is theirs
        """Return the error's text."""
        return _phrase(self.name()) if self._reason is None else self._reason

    def fatal(self) -> bool:
        """Return whether the producer can only be closed."""
        return self._fatal

    def retriable(self) -> bool:
        """Return whether the call can be repeated."""
        return self._retriable

    def txn_requires_abort(self) -> bool:
        """Return whether the transaction can only be aborted."""
        return self._txn_requires_abort

    def __bool__(self) -> bool:
        return self._code != 0

    def __hash__(self) -> int:
        return hash(self._code)

    def _other(self, other: object) -> object:
        return other.code() if isinstance(other, StandInKafkaError) else other

    def __eq__(self, other: object) -> bool:
        return self._code == self._other(other)

    def __lt__(self, other: Any) -> Any:
        return self._code < self._other(other)  # type: ignore[operator]

    def __gt__(self, other: Any) -> Any:
        return self._code > self._other(other)  # type: ignore[operator]

    def __repr__(self) -> Any:
        return f'KafkaError{{code={self.name()},val={self._code},str="{self.str()}"}}'


for _name, _code in CODES.items():
    setattr(StandInKafkaError, _name, _code)


class StandInKafkaException(Exception):
    """``confluent_kafka.KafkaException``: its first argument is a KafkaError."""


def _classes() -> tuple[Any, Any]:
    try:
        from confluent_kafka import KafkaError, KafkaException
    except ImportError:
        return StandInKafkaError, StandInKafkaException
    return KafkaError, KafkaException


KafkaError, KafkaException = _classes()


class Kind(NamedTuple):
    """How librdkafka reports an error of ours."""

    name: str
    phrase: str = ""
    """Its own words, which programs look for; ours follow."""
    is_fatal: bool = False


_KINDS: Final[Mapping[type[errors.ShmaccumError], Kind]] = {
    errors.DeliveryTimeoutError: Kind("_MSG_TIMED_OUT", "Local: Message timed out"),
    errors.BufferExhaustedError: Kind("_QUEUE_FULL", "Local: Queue full"),
    errors.LockTimeoutError: Kind("_TIMED_OUT", "Local: Timed out"),
    errors.KafkaTimeoutError: Kind("_TIMED_OUT", "Local: Timed out"),
    errors.TransactionAbortedError: Kind("_PURGE_QUEUE", "Local: Purged in queue"),
    errors.ConfigError: Kind("_INVALID_ARG"),
    errors.IllegalArgumentError: Kind("_INVALID_ARG", "Local: Invalid argument or configuration"),
    errors.SerializationError: Kind("_INVALID_ARG", "Local: Invalid argument or configuration"),
    errors.IllegalStateError: Kind("_STATE", "Local: Erroneous state"),
    errors.ProducerClosedError: Kind("_STATE", "Local: Erroneous state"),
    errors.SslAuthenticationError: Kind("_SSL", "Local: SSL error"),
    errors.AuthenticationError: Kind("_AUTHENTICATION", "Local: Authentication failure"),
    errors.NetworkError: Kind("_TRANSPORT", "Local: Broker transport failure"),
    errors.ProducerFencedError: Kind("_FENCED", "Local: This instance has been fenced by a newer instance", True),
    errors.InvalidProducerEpochError: Kind("_FENCED", "Local: This instance has been fenced by a newer instance", True),
    errors.SenderError: Kind("_CRIT_SYS_RESOURCE", "Local: Critical system resource failure"),
    errors.SlabError: Kind("_CRIT_SYS_RESOURCE", "Local: Critical system resource failure"),
}
_OTHER: Final = Kind("_FAIL", "Local: Communication failure with broker")


def _phrase(name: str) -> str:
    return next((kind.phrase for kind in _KINDS.values() if kind.name == name and kind.phrase), name)


def kafka_error(error: errors.ShmaccumError, *, retriable: bool | None = None, txn_requires_abort: bool = False) -> Any:
    """Return an error of ours as a KafkaError; ``retriable`` by default as its class says.

    At most one of fatal, ``txn_requires_abort`` and ``retriable`` holds, as in librdkafka: programs repeat a call as
    long as its error is retriable.
    """
    kind = next((_KINDS[each] for each in type(error).__mro__ if each in _KINDS), _OTHER)
    code, phrase = CODES[kind.name], kind.phrase
    can_retry = isinstance(error, OurKafkaError) and error.retriable if retriable is None else retriable
    if kind is _OTHER and isinstance(error, OurKafkaError) and error.code > 0:
        code, phrase = error.code, ""
    text = f"{phrase}: {error}" if phrase else str(error)
    must_abort = txn_requires_abort and not kind.is_fatal
    return KafkaError(code, text, kind.is_fatal, can_retry and not (must_abort or kind.is_fatal), must_abort)


def new_error(name: str, text: str, *, retriable: bool = False) -> Any:
    """Return a KafkaError of librdkafka's own."""
    return KafkaError(CODES[name], text, False, retriable)


@contextmanager
def raising_kafka_exceptions() -> Iterator[None]:
    """Turn errors of ours that a block raises into KafkaException; a closed producer's is a RuntimeError, as theirs."""
    try:
        yield
    except errors.ProducerClosedError as error:
        raise RuntimeError("Producer has been closed") from error
    except errors.ShmaccumError as error:
        raise KafkaException(kafka_error(error)) from error
