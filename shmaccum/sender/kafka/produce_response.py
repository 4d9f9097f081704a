"""What brokers answer to Produce requests.

Most answers say no more than where each batch was stored. Those are read here, in a fifth of the time that the
library takes; all others, with errors or anything else to tell, are left to it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from shmaccum.cluster import Node, TopicPartition
from shmaccum.errors import KafkaError, NetworkError, UnknownServerError, error_for_code
from shmaccum.sender.kafka.kafka_python import ProduceResponse as LibraryResponse
from shmaccum.sender.kafka.kafka_python import decode
from shmaccum.sender.kafka.produce_request import FIRST_FLEXIBLE_VERSION
from shmaccum.sender.transport import ProduceBatch, ProduceResponse

_CORRELATION_ID_SIZE: Final = 4
_FEW_BITS: Final = 28
"""A length has at most so many and seven more."""
_PARTITION: Final = struct.Struct(">ihqq8x3s")
"""Number, error code, base offset, append time, where the log starts; and what else there is to say."""
_PARTITION_SIZE: Final = _PARTITION.size
_NOTHING_MORE: Final = b"\x01\x00\x00"
"""No errors of single records, no message, no tags."""
_NO_TIME_MS: Final = 1 << 47
"""Milliseconds since the epoch that no batch was stored at: a completion has no room for them."""
_LAST_PORT: Final = (1 << 16) - 1
_END: Final = struct.Struct(">i?")
"""The time that we are throttled for, and whether there are tags."""


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """Who leads a partition instead of the broker that was asked (KIP-951); the node where its address is said."""

    topic_partition: TopicPartition
    leader_id: int
    leader_epoch: int
    node: Node | None


class ProduceAnswers:
    """What a Produce response says.

    Attributes:
        responses: of each batch, in the order of the request.
        hints: who leads a partition instead.
        throttle_time_ms: for how long the broker wants to be left alone.
    """

    __slots__ = ("hints", "responses", "throttle_time_ms")

    def __init__(self, responses: list[ProduceResponse], hints: list[LeaderHint], throttle_time_ms: int) -> None:
        self.responses = responses
        self.hints = hints
        self.throttle_time_ms = throttle_time_ms


def decode_answers(version: int, frame: bytes, batches: Sequence[ProduceBatch], node: Node) -> ProduceAnswers:
    """Return what a response says of the batches of its request.

    Raises:
        NetworkError: the frame holds no such response, or none to some of the batches.
    """
    plain = _read_plain(frame) if version >= FIRST_FLEXIBLE_VERSION else None
    if plain is None:
        return _decode_any(version, frame, batches, node)
    stored, throttle_time_ms = plain
    responses = []
    for batch in batches:
        place = stored.get(batch.topic_partition)
        if place is None:
            return _decode_any(version, frame, batches, node)
        base_offset, append_time_ms = place
        responses.append(ProduceResponse(batch, base_offset, append_time_ms))
    return ProduceAnswers(responses, [], throttle_time_ms)


def _read_plain(frame: bytes) -> tuple[dict[tuple[str, int], tuple[int, int]], int] | None:
    """Read an answer of a flexible version that says no more than that all is stored.

    Returns:
        Topic and partition -> base offset and append time; and the time that we are throttled for. None if there is
        more in it.
    """
    stored = {}
    try:
        if frame[_CORRELATION_ID_SIZE]:  # tags of the header
            return None
        topics, position = _read_length(frame, _CORRELATION_ID_SIZE + 1)
        for _ in range(topics):
            length, position = _read_length(frame, position)
            topic = frame[position : position + length].decode()
            partitions, position = _read_length(frame, position + length)
            begin, position = position, position + max(0, partitions) * _PARTITION_SIZE
            for each in _PARTITION.iter_unpack(frame[begin:position]):
                partition, error_code, base_offset, append_time_ms, more = each
                if error_code or more != _NOTHING_MORE or not _is_place(base_offset, append_time_ms):
                    return None
                stored[topic, partition] = base_offset, append_time_ms
            if frame[position]:  # tags of the topic
                return None
            position += 1
        throttle_time_ms, tags = _END.unpack_from(frame, position)
    except (IndexError, OverflowError, ValueError, struct.error):
        return None
    return None if tags else (stored, throttle_time_ms)


def _is_place(base_offset: int, append_time_ms: int) -> bool:
    """Say whether these can be where and when a batch was stored, -1 where that is not known."""
    return base_offset >= -1 <= append_time_ms < _NO_TIME_MS


def _read_length(frame: bytes, position: int) -> tuple[int, int]:
    """Return a length, which is written as an unsigned varint of one more, and the position behind it."""
    number = shift = 0
    while shift <= _FEW_BITS:
        byte = frame[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number - 1, position
        shift += 7
    raise ValueError("a length of more than 35 bits")


def _decode_any(version: int, frame: bytes, batches: Sequence[ProduceBatch], node: Node) -> ProduceAnswers:
    response = decode(LibraryResponse[version], frame)
    found = {(topic.name, each.index): each for topic in response.responses for each in topic.partition_responses}
    nodes = {each.node_id: node_at(each.node_id, each.host, each.port) for each in response.node_endpoints}
    responses, hints = [], []
    for batch in batches:
        result = found.get(batch.topic_partition)
        if result is None:
            raise NetworkError(f"broker {node.id} did not say what became of a batch for {batch.topic_partition}")
        responses.append(_response(batch, result, node))
        leader = result.current_leader
        if leader is not None and leader.leader_id >= 0:
            hints.append(
                LeaderHint(batch.topic_partition, leader.leader_id, leader.leader_epoch, nodes.get(leader.leader_id))
            )
    return ProduceAnswers(responses, hints, response.throttle_time_ms)


def _response(batch: ProduceBatch, result: Any, node: Node) -> ProduceResponse:
    code: int = result.error_code
    if not code:
        if not _is_place(result.base_offset, result.log_append_time_ms):
            raise NetworkError(
                f"broker {node.id} says that a batch for {batch.topic_partition} is at offset {result.base_offset}, "
                f"of time {result.log_append_time_ms}"
            )
        return ProduceResponse(batch, result.base_offset, result.log_append_time_ms)
    error = error_for_code(code)
    name = f"error code {code}" if error is UnknownServerError else error.__name__
    said = f": {result.error_message}" if result.error_message else ""
    return ProduceResponse(
        batch,
        error=error,
        message=f"broker {node.id} answered {name} for {batch.topic_partition}{said}",
        invalid_records=tuple(each.batch_index for each in result.record_errors),
    )


def node_at(number: int, host: object, port: int) -> Node:
    """Return a broker that an answer describes.

    Raises:
        NetworkError: there can be no such broker.
    """
    if number < 0 or not isinstance(host, str) or not 0 <= port <= _LAST_PORT:
        raise NetworkError(f"the cluster is said to have a broker {number} at {host!r}, port {port}")
    return Node(number, host, port)


def refuse(batches: Sequence[ProduceBatch], error: type[KafkaError], message: str) -> list[ProduceResponse]:
    """Return the same answer for every batch."""
    return [ProduceResponse(batch, error=error, message=message) for batch in batches]
