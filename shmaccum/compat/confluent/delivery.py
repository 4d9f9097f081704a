"""Delivery reports as librdkafka has them: kept until the program polls, then passed to callbacks.

A report is due when the record's future resolves, in whichever thread reads the completion. Only `Deliveries.serve`
calls callbacks, so an error that one raises reaches the caller of ``poll`` or ``flush``. All of it is private to the
process; a forked child drops what it inherits, which is its parent's.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from shmaccum._core import FutureRecordMetadata
from shmaccum.cluster import RecordMetadata
from shmaccum.compat.confluent.errors import kafka_error, new_error
from shmaccum.errors import ShmaccumError

Headers = list[tuple[str, bytes | None]]


class DeliveryMessage:
    """A message, as its callback gets it: ``confluent_kafka.Message``, with what a producer knows of it.

    Until it is reported, it is the ``on_delivery`` of its record.

    Attributes:
        began: monotonic seconds of ``produce``.
        thread: that sends it; 0 if none does.
        future: of the record, once it is accepted.
    """

    __slots__ = (
        "_callback",
        "_due",
        "_error",
        "_headers",
        "_key",
        "_metadata",
        "_reported",
        "_topic",
        "_value",
        "began",
        "future",
        "thread",
    )

    OFFSET_INVALID: ClassVar = -1001
    """librdkafka's offset of a message that is not stored."""

    def __init__(
        self,
        due: deque[DeliveryMessage],
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        callback: Any,
    ) -> None:
        self._due = due
        self._topic, self._key, self._value, self._headers = topic, key, value, headers
        self._callback = callback
        self._error: Any = None
        self._metadata: RecordMetadata | None = None
        self._reported = 0.0
        self.began = time.monotonic()
        self.thread = 0
        self.future: FutureRecordMetadata | None = None

    def __call__(self, error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        """Make the report due, when the record is complete.

        `shmaccum.Producer.send` also calls this for a record that it refuses, in the same thread and before it returns.
        Its caller reports such a record, keeps it or raises.
        """
        if error is not None:
            if self.future is None and self.thread == threading.get_ident():
                return
            error = kafka_error(error)
        self.report(error, metadata)

    def report(self, error: Any, metadata: RecordMetadata | None = None) -> None:
        """Make the report due. The first one counts: a message that is purged can be stored later."""
        if not self._reported:
            self._error, self._metadata = error, metadata
            self._reported = time.monotonic()
            self._due.append(self)

    def tell(self, only_errors: bool) -> None:
        """Call the callback."""
        callback = self._callback
        if callback is not None and not (only_errors and self._error is None):
            callback(self._error, self)

    # --- for the callback ---------------------------------------------------------------------------

    def topic(self) -> str:
        """Return the topic."""
        return self._topic

    def partition(self) -> int:
        """Return the partition; -1 if the message was never given one."""
        if self._metadata is not None:
            return self._metadata.partition
        return -1 if self.future is None else self.future.topic_partition.partition

    def offset(self) -> int:
        """Return the offset in the partition; -1001 if it is not stored."""
        return self.OFFSET_INVALID if self._metadata is None else self._metadata.offset

    def key(self) -> bytes | None:
        """Return the key."""
        return self._key

    def value(self) -> bytes | None:
        """Return the value."""
        return self._value

    def headers(self) -> Headers | None:
        """Return the headers; None without."""
        return self._headers or None

    def error(self) -> Any:
        """Return why it is not stored; None if it is."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return (1, milliseconds), or (0, -1) if it is not stored."""
        return (0, -1) if self._metadata is None else (1, self._metadata.timestamp)

    def latency(self) -> float:
        """Return the seconds from `produce` to the acknowledgement."""
        return self._reported - self.began

    def leader_epoch(self) -> int | None:
        """Return None: it is not known here."""
        return None

    def __len__(self) -> int:
        return len(self._value or b"")


class Deliveries:
    """The messages of one producer that are not reported yet.

    Attributes:
        pending: all of them.
        due: the reports of those that are complete. One that is no longer in ``pending`` does not count: it was
            refused or purged.
    """

    def __init__(self, only_errors: bool) -> None:
        self.pending: Final[set[DeliveryMessage]] = set()
        self.due: Final[deque[DeliveryMessage]] = deque()
        self._only_errors = only_errors

    def serve(self) -> int:
        """Call the callbacks of all reports that are due; return how many reports there were.

        An error that a callback raises leaves the others due.
        """
        served = 0
        for _ in range(len(self.due)):
            try:
                message = self.due.popleft()
                self.pending.remove(message)
            except (IndexError, KeyError):
                continue  # another thread was faster; or the message was refused or purged
            served += 1
            message.tell(self._only_errors)
        return served

    def purge(self, queued: Collection[DeliveryMessage], in_flight: bool) -> None:
        """Make the reports of unsent messages due, and those of all others if they are ``in_flight``."""
        in_queue = new_error("_PURGE_QUEUE", "Local: Purged in queue")
        for message in queued:
            message.report(in_queue)
        if in_flight:
            error = new_error("_PURGE_INFLIGHT", "Local: Purged in flight: the record can be stored all the same")
            for message in self.pending - set(queued):
                message.report(error)

    def clear(self) -> None:
        """Drop everything."""
        self.pending.clear()
        self.due.clear()


def header_list(headers: Any) -> Headers:
    """Return headers as consumers get them: pairs of a name and bytes or None.

    Raises:
        TypeError: they are neither a list of pairs nor a dict, or a value is neither bytes, text nor None.
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
    """Return a key, value or header value as bytes.

    Raises:
        TypeError: it is neither bytes, text nor None.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{what} must be bytes, str or None, not {type(value).__name__}")


def check_batch(topic: object, messages: object, partition: object) -> None:
    """Check the arguments of ``produce_batch``.

    Raises:
        TypeError: one has the wrong type, or a message of the list.
        NotImplementedError: a message has a timestamp, as in confluent-kafka.
    """
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
        if not isinstance(message.get("partition", partition), int):
            raise TypeError(f"Message partition at index {index} must be int")
        if "timestamp" in message:
            raise NotImplementedError("Message timestamps are not currently supported in batch mode; use produce")
