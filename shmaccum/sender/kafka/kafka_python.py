"""The one door to kafka-python: what is used of it, and that it is there.

Used are its parts that do no input or output: the requests and responses, generated from Kafka's own definitions. Its
connections are not used, so nothing of it runs in the background and nothing of it logs what is sent, which its parser
would do at level DEBUG, passwords and all.
"""

from __future__ import annotations

import io
import re
import struct
from typing import Any, Final

from shmaccum.errors import ApiVersionError, NetworkError
from shmaccum.shm.incidents import printable

try:
    from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
    from kafka.protocol.producer import InitProducerIdRequest, ProduceResponse
    from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
except ImportError as error:
    raise ApiVersionError(
        f"transport kafka needs kafka-python 3.0: pip install 'kafka-python>=3.0,<3.1' ({error})"
    ) from error

__all__ = [
    "LONG_TEXT",
    "MISUNDERSTANDINGS",
    "SHORT_TEXT",
    "ApiVersionsRequest",
    "InitProducerIdRequest",
    "MetadataRequest",
    "ProduceResponse",
    "SaslAuthenticateRequest",
    "SaslHandshakeRequest",
    "decode",
    "encode",
    "misunderstood",
    "understanding",
]

MISUNDERSTANDINGS: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    struct.error,
)
"""What comes of an answer that lacks what every answer has: the library takes a null for any list or text, and checks
by assertions."""

SHORT_TEXT: Final = 1024
"""Bytes of a text without a single ASCII character, in answers that have only names."""
LONG_TEXT: Final = 40_960
"""The same in answers that have words: more than Kafka's longest text, of 32,767 bytes."""


def encode(request: Any, api_version: int, correlation_id: int, client_id: str) -> bytes:
    """Return a request's frame, its size in front.

    Args:
        request: an object of one of the library's request classes.
        api_version: in which version to encode it.
        correlation_id: what the response will have, too.
        client_id: our name.
    """
    request.API_VERSION = api_version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(framed=True, header=True))


def decode(response: Any, frame: bytes, longest_text: int = SHORT_TEXT) -> Any:
    """Return the response in a frame, without its size.

    Args:
        response: the library's class for it, of the right version: ``request.header.get_response_class()``.
        frame: what came.
        longest_text: bytes beyond ASCII that can follow each other in it. The library takes them for one number where
            it expects a length, in time that grows with their square.

    Raises:
        NetworkError: it is no such response.
    """
    if re.search(rb"[\x80-\xff]{%d}" % longest_text, frame):
        raise NetworkError(f"{len(frame)} bytes came that are no {response.__name__}: a number in them has no end")
    buffer = io.BytesIO(frame)
    with understanding(f"{len(frame)} bytes came that are no {response.__name__}"):
        response.parse_header(buffer)
        return response.decode(buffer)


class understanding:  # it reads as the statement that it is part of
    """Take over what an answer says in a block: one that lacks what every answer has is none, and no end of the sender.

    Args:
        otherwise: the error's message.

    Raises:
        NetworkError: it cannot be understood.
    """

    __slots__ = ("_otherwise",)

    def __init__(self, otherwise: str) -> None:
        self._otherwise = otherwise

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MISUNDERSTANDINGS):
            raise misunderstood(self._otherwise, error) from error


def misunderstood(what: str, error: BaseException) -> NetworkError:
    """Return the error for an answer that cannot be understood."""
    return NetworkError(printable(f"{what} ({type(error).__name__}: {error})"))
