"""What a client asks before it produces: versions, metadata, a producer id. They are few: kafka-python's codec does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from tools.sink import produce

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 10, 18, 22
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
        self._known: dict[int, tuple[Any, Callable[[Any], Any]]] = {
            API_VERSIONS: (ApiVersionsRequest, self._api_versions),
            METADATA: (MetadataRequest, self._metadata),
            INIT_PRODUCER_ID: (InitProducerIdRequest, self._producer_id),
        }

    def answer(self, api_key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
        """Return the answer to a request, size in front.

        Raises:
            EOFError: it is of a kind that is not answered.
        """
        if api_key not in self._known:
            raise EOFError(f"a request of kind {api_key} is not answered")
        if api_key == API_VERSIONS and version > VERSIONS[API_VERSIONS][1]:
            version = 0
            response = ApiVersionsResponse(
                version=0, error_code=_UNSUPPORTED_VERSION, api_keys=_versions(0), throttle_time_ms=0
            )
        else:
            Request, respond = self._known[api_key]
            response = respond(Request[version].decode(frame, header=True, framed=True))
        response.API_VERSION = version
        response.with_header(correlation_id=correlation_id)
        return bytes(response.encode(header=True, framed=True))

    def _api_versions(self, request: Any) -> Any:
        version = request.API_VERSION
        return ApiVersionsResponse(version=version, error_code=0, api_keys=_versions(version), throttle_time_ms=0)

    def _metadata(self, request: Any) -> Any:
        version = request.API_VERSION
        asked = list(self._partitions) if request.topics is None else [topic.name for topic in request.topics]
        Broker = MetadataResponse.MetadataResponseBroker
        return MetadataResponse(
            version=version,
            throttle_time_ms=0,
            brokers=[Broker(version=version, node_id=1, host="127.0.0.1", port=self._port, rack=None)],
            cluster_id="sink",
            controller_id=1,
            topics=[self._topic(version, topic) for topic in asked],
        )

    def _topic(self, version: int, topic: str) -> Any:
        Topic = MetadataResponse.MetadataResponseTopic
        partitions = [
            Topic.MetadataResponsePartition(
                version=version,
                error_code=0,
                partition_index=number,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for number in range(self._partitions.get(topic, self._otherwise))
        ]
        error = 0 if partitions else _UNKNOWN_TOPIC
        return Topic(version=version, error_code=error, name=topic, is_internal=False, partitions=partitions)

    def _producer_id(self, request: Any) -> Any:
        return InitProducerIdResponse(
            version=request.API_VERSION,
            throttle_time_ms=0,
            error_code=0,
            producer_id=int.from_bytes(os.urandom(4)),
            producer_epoch=0,
        )


def _versions(version: int) -> list[Any]:
    Known = ApiVersionsResponse.ApiVersion
    return [
        Known(version=version, api_key=key, min_version=low, max_version=high) for key, (low, high) in VERSIONS.items()
    ]
