"""What only a client raises, by codes below -100."""

from __future__ import annotations

from shmaccum.errors.base import AuthenticationError, KafkaError


class SslAuthenticationError(AuthenticationError):
    """One side did not trust the other's certificate (``SslAuthenticationException``)."""

    code = -112


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
    is_api = False


class SerializationError(KafkaError):
    """A key, value or header that its serializer cannot turn into bytes, or of the wrong type."""

    code = -106
    is_api = False


class IllegalStateError(KafkaError):
    """A call that makes no sense in the state that the object is in (``IllegalStateException``)."""

    code = -107
    is_api = False


class IllegalArgumentError(KafkaError):
    """An argument of a call has a value that it cannot have (``IllegalArgumentException``)."""

    code = -116
    is_api = False


class ConfigError(KafkaError):
    """A setting that does not exist, has a wrong value, or contradicts another (``ConfigException``)."""

    code = -108
    is_api = False
