"""Serializes keys and values to bytes, and validates timestamps."""

from __future__ import annotations

import logging
from typing import Any

from shmaccum.accumulator.append.record_appender import check_timestamp
from shmaccum.errors import InvalidTimestampError, SerializationError

logger = logging.getLogger(__name__)


class Serializer:
    """``key.serializer`` or ``value.serializer`` of one producer.

    An object with a method ``serialize`` is called as kafka-python does: ``serialize(topic, data)``. A class of such
    objects is instantiated first, without arguments. Any other callable gets the key or value alone. The producer
    closes the object if it has a method ``close``.

    Args:
        given: the setting; with None, bytes and text are sent as they are.

    Raises SerializationError: the class cannot be instantiated.
    """

    __slots__ = ("_call", "_close", "_takes_topic", "_what")

    def __init__(self, what: str, given: Any) -> None:
        self._what = what
        self._takes_topic = hasattr(given, "serialize")
        if self._takes_topic and isinstance(given, type):
            try:
                given = given()
            except Exception as error:
                raise SerializationError(
                    f"{what}.serializer: {given.__name__}() cannot be instantiated without arguments: {error}; "
                    "set it to an instance"
                ) from error
        self._call = given.serialize if self._takes_topic else given
        self._close = getattr(given, "close", None) if self._takes_topic else None

    def serialize(self, topic: str, data: Any) -> bytes | None:
        """Return a key or value as bytes.

        Raises SerializationError: the serializer failed, or the data is neither bytes nor text.
        """
        call, what = self._call, self._what
        if call is not None:
            try:
                data = call(topic, data) if self._takes_topic else call(data)
            except Exception as error:
                raise SerializationError(f"{what}.serializer cannot serialize {data!r:.60}: {error}") from error
        if data is None or type(data) is bytes:
            return data
        if isinstance(data, str):
            try:
                return data.encode()
            except UnicodeEncodeError as error:
                raise SerializationError(f"{what} {data!r:.60} is not valid Unicode: {error.reason}") from None
        if isinstance(data, (bytes, bytearray, memoryview)):
            try:
                return bytes(data)
            except ValueError as error:
                raise SerializationError(f"{what}: {error}") from error  # a released memoryview
        kind = type(data).__name__
        raise SerializationError(
            f"{what}.serializer must return bytes, str or None, not {kind}"
            if call
            else f"{what} must be bytes, str or None, not {kind}; set {what}.serializer to turn it into bytes"
        )

    def close(self) -> Exception | None:
        """Close the serializer; log an error and return it."""
        close, self._close = self._close, None
        if close is not None:
            try:
                close()
            except Exception as error:
                logger.exception("failed to close %s.serializer %r", self._what, close)
                return error
        return None


class Serializers:
    """Both serializers of one producer; if the second one cannot be made, the first one is closed."""

    def __init__(self, key: Any, value: Any) -> None:
        self.key = Serializer("key", key)
        try:
            self.value = Serializer("value", value)
        except BaseException:
            self.key.close()
            raise

    def close(self) -> Exception | None:
        """Close both, once; return the first error."""
        errors = [self.key.close(), self.value.close()]
        return next((error for error in errors if error is not None), None)


def checked_timestamp(timestamp_ms: object) -> int:
    """Return a record's timestamp, if a record can have it.

    Raises InvalidTimestampError: it is no int, negative, or takes more than 63 bits.
    """
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise InvalidTimestampError(
            f"timestamp_ms must be an int, milliseconds since 1970, not {type(timestamp_ms).__name__}: {timestamp_ms!r}"
        )
    return check_timestamp(timestamp_ms)
