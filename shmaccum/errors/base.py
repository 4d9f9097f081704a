"""What the errors have in common: whether to try again, and by which code a completion names them."""

from __future__ import annotations

import re
from typing import ClassVar, Final

_JAVA_NAME: Final = re.compile(r" \(``\w+``\)")


class ShmaccumError(Exception):
    """Base of everything that this package raises on purpose."""

    @classmethod
    def meaning(cls) -> str:
        """Return what is wrong whenever it is this error, where no more is known: its docstring's first line."""
        first_line = (cls.__doc__ or f"{cls.__name__}.").splitlines()[0]
        return _JAVA_NAME.sub("", first_line).replace("``", "").removesuffix(".")


class KafkaError(ShmaccumError):
    """Base of the errors that Kafka has too (``org.apache.kafka.common.KafkaException``)."""

    code: ClassVar[int] = -1
    """Kafka's protocol error code, or one below -100 for an error that only a client raises."""
    retriable: ClassVar[bool] = False
    """Whether the sender tries the batch again (``RetriableException``)."""
    is_api: ClassVar[bool] = True
    """Whether the callback of a record that `Producer.send` refuses for it is called (``ApiException``)."""


class RetriableError(KafkaError):
    """Base of the errors after which the same request may succeed (``RetriableException``)."""

    retriable = True
    code = -101


class InvalidMetadataError(RetriableError):
    """Base of the errors that say that what is known of the cluster is out of date (``InvalidMetadataException``)."""

    code = -110


class AuthenticationError(KafkaError):
    """Base of: who we are could not be settled with the cluster (``AuthenticationException``)."""

    code = -111


class AuthorizationError(KafkaError):
    """Base of: the cluster knows who we are and does not let us do this (``AuthorizationException``)."""

    code = -113
