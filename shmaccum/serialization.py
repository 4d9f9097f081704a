"""What a producer makes of what it is given: keys and values are to be bytes, timestamps whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmaccum.accumulator.record_appender import check_timestamp
from shmaccum.errors import InvalidTimestampError, SerializationError


def serialize(what: str, serializer: Callable[..., Any] | None, value: Any) -> bytes | None:
    """Turn a key or value into bytes.

    Args:
        what: "key" or "value".
        serializer: the one that is set, or None.
        value: what was given to `send`.

    Raises:
        SerializationError: the serializer failed, or what is to be sent is neither bytes nor text.
    """
    if serializer is not None:
        try:
            value = serializer(value)
        except Exception as error:
            raise SerializationError(f"{what}.serializer cannot serialize {value!r}: {error}") from error
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(f"{what} {value!r:.60} is not valid Unicode: {error.reason}") from None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise SerializationError(
        f"{what} must be bytes, str or None{' after its serializer' if serializer else ''}, not "
        f"{type(value).__name__}; set {what}.serializer to turn it into bytes"
    )


def checked_timestamp(timestamp_ms: object) -> int:
    """Return a record's timestamp, if it is one.

    Raises:
        InvalidTimestampError: it is no int, or none that a record can have.
    """
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise InvalidTimestampError(
            f"timestamp_ms must be an int, milliseconds since 1970, not {type(timestamp_ms).__name__}: {timestamp_ms!r}"
        )
    return check_timestamp(timestamp_ms)
