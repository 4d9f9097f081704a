"""What `shmaccum.compat.confluent.Producer` makes of the arguments of its calls, and why it refuses some."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

Headers = list[tuple[str, bytes | None]]

DeliveryCallback = Callable[[Any, Any], Any]
"""Called with (KafkaError, message) or (None, message)."""


def header_list(headers: Any) -> Headers:
    """Return headers as consumers get them: pairs of a name and bytes or None.

    Raises TypeError: they are neither a list of pairs nor a dict, or a value is neither bytes, text nor None.
    """
    if headers is None:
        return []
    if isinstance(headers, Mapping):
        headers = list(headers.items())
    if not isinstance(headers, list):
        raise TypeError(f"expected headers to be dict or list of (key, value) tuples, not {type(headers).__name__}")
    pairs = []
    for pair in headers:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"headers must be (key, value) tuples with a str as key, not {pair!r}")
        pairs.append((pair[0], as_bytes("header value", pair[1])))
    return pairs


def as_bytes(what: str, value: Any) -> bytes | None:
    """Return a key, value or header value as bytes. Raises TypeError: it is neither bytes, text nor None."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{what} must be bytes, str or None, not {type(value).__name__}")


def as_int(what: str, value: Any) -> Any:
    """Return a partition or timestamp as an int, as of numpy's; None as it is. Raises TypeError: it is no integer."""
    if value is None or type(value) is int:
        return value
    try:
        return int(operator.index(value))
    except TypeError:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}: {value!r:.60}") from None


def check_batch(topic: object, messages: object, partition: object) -> None:
    """Check the arguments of ``produce_batch`` (see there for what it raises)."""
    if not isinstance(topic, str):
        raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
    if not isinstance(messages, list):
        raise TypeError("messages must be a list")
    if not isinstance(partition, int):
        raise TypeError(f"partition must be int, not {type(partition).__name__}")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise TypeError(f"Message at index {index} must be a dict")
        for name in ("value", "key"):
            if not isinstance(message.get(name), bytes | str | None):
                raise TypeError(f"Message {name} at index {index} must be bytes or str")
        if not isinstance(message.get("partition"), int | None):
            raise TypeError(f"Message partition at index {index} must be int")
        if message.get("timestamp") is not None:
            raise NotImplementedError("Message timestamps are not currently supported in batch mode; use produce")
        try:
            header_list(message.get("headers"))
        except TypeError as error:
            raise ValueError(f"Invalid headers at index {index}: {error}") from error
