"""Base classes of the errors, with their codes and retriability."""

from __future__ import annotations

import re
from typing import ClassVar, Final

_JAVA_NAME: Final = re.compile(r" \(``\w+``\)")


class ShmaccumError(Exception):
    """Base of all errors that this package raises."""

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


class RetriableError(KafkaError):
    """Base of the errors after which the same request may succeed (``RetriableException``)."""

    retriable = True
    code = -101


class InvalidMetadataError(RetriableError):
    """Base of the errors that show that our metadata is out of date (``InvalidMetadataException``)."""

    code = -110


class AuthenticationError(KafkaError):
    """The cluster and this client could not authenticate each other (``AuthenticationException``)."""

    code = -111


class AuthorizationError(KafkaError):
    """The cluster does not authorize this user for the operation (``AuthorizationException``)."""

    code = -113
