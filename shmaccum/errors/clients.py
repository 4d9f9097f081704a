"""Errors that only a client raises, with codes below -100."""

from __future__ import annotations

from shmaccum.errors.base import AuthenticationError, KafkaError


class SslAuthenticationError(AuthenticationError):
    """One side did not trust the other's certificate (``SslAuthenticationException``)."""

    code = -112


class KafkaTimeoutError(KafkaError):
    """An operation did not finish in time (``TimeoutException``)."""

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
    """A key, value or header has the wrong type, or its serializer cannot turn it into bytes."""

    code = -106
    is_api = False


class IllegalStateError(KafkaError):
    """A call is not allowed in the object's state (``IllegalStateException``)."""

    code = -107
    is_api = False


class IllegalArgumentError(KafkaError):
    """An argument's value is not allowed (``IllegalArgumentException``)."""

    code = -116
    is_api = False


class ConfigError(KafkaError):
    """A setting does not exist, has a wrong value, or contradicts another (``ConfigException``)."""

    code = -108
    is_api = False
