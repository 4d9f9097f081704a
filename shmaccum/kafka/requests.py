"""Requests in flight: each encodes itself and handles its answer."""

from __future__ import annotations

from collections.abc import Callable

from shmaccum.errors import KafkaError
from shmaccum.kafka.channel import Buffer
from shmaccum.kafka.codec import encode
from shmaccum.kafka.handshake import Call

OnAnswer = Callable[[bytes], int]
"""Handles the frame of an answer, empty with ``acks=0``; returns the milliseconds that we are throttled for."""
OnFailure = Callable[[type[KafkaError], str], None]
"""Handles the reason why no answer will come."""


class Request:
    """A request; the connection calls either `answered` or `failed`, once.

    Attributes:
        correlation_id: The connection's number for it; set when sent.
        sent_ms: When it was sent.
        deadline_ms: When it times out; set when sent.
        end: The connection's count of sent bytes once all of it is sent.
        largest_answer: Most bytes of its answer; a larger one is refused before it takes memory.
    """

    __slots__ = ("correlation_id", "deadline_ms", "end", "largest_answer", "sent_ms")

    correlation_id: int
    sent_ms: float
    deadline_ms: float
    end: int
    largest_answer: int

    def frame(self, correlation_id: int) -> list[Buffer]:
        """Return its bytes, which are not copied: they must not change until it is answered."""
        raise NotImplementedError

    def answered(self, frame: bytes) -> int:
        """Handle the answer, empty with ``acks=0``; return the milliseconds that we are throttled for."""
        raise NotImplementedError

    def failed(self, error: type[KafkaError], message: str) -> None:
        """Handle the reason why no answer will come."""
        raise NotImplementedError


class CallRequest(Request):
    """A request that is encoded by its schema."""

    __slots__ = ("_call", "_client_id", "_on_answer", "_on_failure")

    def __init__(self, call: Call, client_id: str, on_answer: OnAnswer, on_failure: OnFailure) -> None:
        self._call = call
        self._client_id = client_id
        self._on_answer = on_answer
        self._on_failure = on_failure
        self.largest_answer = call.largest_answer

    def frame(self, correlation_id: int) -> list[Buffer]:
        """See `Request`."""
        return [encode(self._call.request, self._call.version, correlation_id, self._client_id)]

    def answered(self, frame: bytes) -> int:
        """See `Request`."""
        return self._on_answer(frame)

    def failed(self, error: type[KafkaError], message: str) -> None:
        """See `Request`."""
        self._on_failure(error, message)
