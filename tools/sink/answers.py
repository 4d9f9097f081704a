"""What a client asks before it produces: versions, metadata, a producer id. They are few: kafka-python's codec does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from tools.sink import produce
from tools.support.messages import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    api_versions,
    decoded,
    encoded,
    metadata,
    response,
)

VERSIONS: Final = {
    PRODUCE: produce.VERSIONS,
    METADATA: (1, 8),
    API_VERSIONS: (0, 3),
    INIT_PRODUCER_ID: (0, 1),
    # Consumers' requests are not answered, but librdkafka tells by them which formats of records a broker takes.
    FETCH: (0, 11),
    FIND_COORDINATOR: (0, 2),
}
_UNSUPPORTED_VERSION: Final = 35
_UNKNOWN_TOPIC: Final = 3


class Answers:
    """Answers whatever is not Produce.

    Args:
        port: of the broker, on loopback.
        partitions: topic -> how many it has.
        otherwise: how many all other topics have; 0 means that there are none.
    """

    def __init__(self, port: int, partitions: Mapping[str, int], otherwise: int) -> None:
        self._port = port
        self._partitions = partitions
        self._otherwise = otherwise
        self._known: dict[int, Callable[[bytes], Any]] = {
            API_VERSIONS: lambda frame: api_versions(VERSIONS),
            METADATA: self._metadata,
            INIT_PRODUCER_ID: lambda frame: response(
                INIT_PRODUCER_ID, producer_id=int.from_bytes(os.urandom(4)), producer_epoch=0
            ),
        }

    def answer(self, api_key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        """Return the answer to a request, size in front.

        Raises:
            EOFError: it is of a kind that is not answered.
        """
        if api_key not in self._known:
            raise EOFError(f"a request of kind {api_key} is not answered")
        if api_key == API_VERSIONS and version > VERSIONS[API_VERSIONS][1]:
            return encoded(api_versions(VERSIONS, error_code=_UNSUPPORTED_VERSION), 0, correlation_id)
        return encoded(self._known[api_key](frame), version, correlation_id)

    def _metadata(self, frame: bytes) -> Any:
        asked = decoded(frame).topics
        names = list(self._partitions) if asked is None else [topic.name for topic in asked]
        answer = metadata([(1, self._port)], [(name, self._partitions.get(name, self._otherwise)) for name in names])
        for topic in answer.topics:
            topic.error_code = 0 if topic.partitions else _UNKNOWN_TOPIC
        return answer
