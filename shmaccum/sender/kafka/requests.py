"""Requests on their way to a broker: each knows its bytes, and what to do with its answer."""

from __future__ import annotations

from collections.abc import Callable

from shmaccum.errors import KafkaError
from shmaccum.sender.kafka.channel import Buffer
from shmaccum.sender.kafka.handshake import Call
from shmaccum.sender.kafka.kafka_python import encode

OnAnswer = Callable[[bytes], int]
"""Takes the frame of an answer, empty where none was asked for; returns for how many milliseconds we are throttled."""
OnFailure = Callable[[type[KafkaError], str], None]
"""Takes why there will be no answer."""


class Request:  # not an ABC: compiled, it is a class of C, which has no metaclass
    """What is to be sent, and what to do when it is answered, or never will be: one of the two, once.

    Attributes:
        correlation_id: the connection's number for it; the connection sets it, and the next one, as it sends it.
        deadline_ms: when it must have been answered.
        largest_answer: bytes that its answer can need; a larger one is refused before it takes memory.
    """

    __slots__ = ("correlation_id", "deadline_ms", "largest_answer")

    correlation_id: int
    deadline_ms: float
    largest_answer: int

    def frame(self, correlation_id: int) -> list[Buffer]:
        """Return its bytes, which are not copied: they have to stay as they are until it is answered."""
        raise NotImplementedError

    def answered(self, frame: bytes) -> int:
        """Take the answer, empty where none was asked for; return for how many milliseconds we are throttled."""
        raise NotImplementedError

    def failed(self, error: type[KafkaError], message: str) -> None:
        """Take why there will be no answer."""
        raise NotImplementedError


class CallRequest(Request):
    """A request of the library's."""

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
