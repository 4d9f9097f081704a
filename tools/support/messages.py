"""Messages of Kafka's protocol in kafka-python's codec, for brokers that are not Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafka.protocol import metadata as _metadata
from kafka.protocol import producer as _producer
from kafka.protocol import sasl as _sasl
from kafka.protocol.api_key import ApiKey

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 10, 17, 18, 22
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT, SASL_AUTHENTICATE = 24, 25, 26, 28, 36

_KINDS: Final = vars(_metadata) | vars(_producer) | vars(_sasl)


def response(api_key: int, **fields: Any) -> Any:
    """Return a response; dicts among its fields, also in lists, become structures. A field left out has its default."""
    return _filled(_KINDS[f"{ApiKey(api_key).name}Response"], fields)


def _filled(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_filled(kind, each) for each in value]
    if isinstance(value, dict):
        return kind(**{name: _filled(getattr(kind.fields[name], "data_class", None), value[name]) for name in value})
    return value


def encoded(response: Any, version: int, correlation_id: int) -> bytes:
    """Return a response as it goes over the wire, size in front."""
    response.API_VERSION = version
    response.with_header(correlation_id=correlation_id)
    return bytes(response.encode(header=True, framed=True))


def decoded(frame: bytes) -> Any:
    """Return the request of a frame, size in front."""
    api_key, version = int.from_bytes(frame[4:6]), int.from_bytes(frame[6:8])
    return _KINDS[f"{ApiKey(api_key).name}Request"][version].decode(frame, header=True, framed=True)


def api_versions(versions: Mapping[int, tuple[int, int]], **fields: Any) -> Any:
    """Return the response of a broker that knows these versions: API key -> oldest and newest."""
    known = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in versions.items()]
    return response(API_VERSIONS, api_keys=known, **fields)


def metadata(
    brokers: Iterable[tuple[int, int]],
    topics: Iterable[tuple[str, int]],
    *,
    leader: int = 1,
    epoch: int = 0,
    **of_all: Any,
) -> Any:
    """Return the response of a cluster on loopback; ``of_all`` are more fields of all topics.

    Brokers have numbers and ports; topics a name and so many partitions, all with the same leader and its epoch.
    """
    partition = {"leader_id": leader, "leader_epoch": epoch, "replica_nodes": [1], "isr_nodes": [1]}
    return response(
        METADATA,
        brokers=[{"node_id": number, "host": "127.0.0.1", "port": port} for number, port in brokers],
        cluster_id="fake",
        controller_id=1,
        topics=[
            {"name": name, "partitions": [partition | {"partition_index": number} for number in range(count)]} | of_all
            for name, count in topics
        ],
    )


def produced(topics: Mapping[str, Iterable[dict[str, Any]]], **fields: Any) -> Any:
    """Return the response to a Produce request: topic -> of each partition the fields that are not as after success."""
    stored = {"log_start_offset": 0}
    answers = [
        {"name": name, "partition_responses": [stored | partition for partition in partitions]}
        for name, partitions in topics.items()
    ]
    return response(PRODUCE, responses=answers, **fields)
