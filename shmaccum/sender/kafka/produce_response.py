"""Decodes Produce responses.

Most responses hold only the offset of each batch: the core reads those. The codec decodes all others, with errors,
messages or tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from shmaccum import _core
from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.cluster import Node, TopicPartition
from shmaccum.errors import KafkaError, NetworkError, UnknownServerError, error_for_code, printable
from shmaccum.kafka.codec import decode
from shmaccum.kafka.messages import PRODUCE
from shmaccum.sender.kafka.produce_request import FIRST_FLEXIBLE_VERSION, Batches, each_of

_NO_TIME_MS: Final = 1 << 47
"""Milliseconds since the epoch; an append time from here on is refused: a completion has no room for it."""
_LITTLE_BYTES: Final = 64 * 1024
"""Most bytes of current leaders and tags."""
_BATCH_BYTES: Final = 2048
"""Most bytes of a batch: its topic's name, an error message."""
_RECORD_BYTES: Final = 512
"""Most bytes of a record's error: Kafka's longest message for one names its topic."""
_LONGEST_HOST: Final = 255
"""Characters of the longest name that can be looked up."""
_LAST_PORT: Final = (1 << 16) - 1
_END_SIZE: Final = 5
"""The throttle time, and the number of tags."""


class LeaderHint(NamedTuple):
    """The new leader of a partition, from a former one (KIP-951); its node if the address is included."""

    topic_partition: TopicPartition
    leader_id: int
    leader_epoch: int
    node: Node | None


Answers: TypeAlias = tuple[list[ProduceResponse], list[LeaderHint], int]
"""One response for each batch, in any order; new leaders of partitions; how long the broker throttles us."""


def largest_answer(batches: Iterable[ProduceBatch]) -> int:
    """Return the most bytes of the answer to a request: each batch and each record can have an error."""
    size = _LITTLE_BYTES
    for batch in batches:
        size += _BATCH_BYTES + _RECORD_BYTES * batch.record_count
    return size


def decode_answers(
    version: int, frame: bytes, batches: Batches, node: Node, shown: Callable[[str], str] = printable
) -> Answers:
    """Decode the response to a request; ``shown`` hides secrets in the broker's texts.

    Raises NetworkError: the frame is no such response, or leaves out a batch.
    """
    if version >= FIRST_FLEXIBLE_VERSION:
        responses = _core.read_stored(frame, batches)
        if responses is not None:
            return responses, [], int.from_bytes(frame[-_END_SIZE:-1], signed=True)
    return _decode_any(version, frame, batches, node, shown)


def _decode_any(
    version: int, frame: bytes, batches: Batches, node: Node, shown: Callable[[str], str] = printable
) -> Answers:
    response = decode(PRODUCE, version, frame)
    found = {(topic.name, each.index): each for topic in response.responses for each in topic.partition_responses}
    nodes = {each.node_id: node_at(each.node_id, each.host, each.port) for each in response.node_endpoints}
    responses, hints = [], []
    for batch in each_of(batches):
        result = found.get(batch.topic_partition)
        if result is None:
            raise NetworkError(f"broker {node.broker} left a batch for {batch.topic_partition} out of its answer")
        responses.append(_response(batch, result, node, shown))
        leader = result.current_leader
        if leader.leader_id >= 0:
            hints.append(
                LeaderHint(batch.topic_partition, leader.leader_id, leader.leader_epoch, nodes.get(leader.leader_id))
            )
    return responses, hints, response.throttle_time_ms


def _response(batch: ProduceBatch, result: Any, node: Node, shown: Callable[[str], str]) -> ProduceResponse:
    code: int = result.error_code
    if not code:
        if not result.base_offset >= -1 <= result.log_append_time_ms < _NO_TIME_MS:  # -1 means unknown
            raise NetworkError(
                f"broker {node.broker} answered offset {result.base_offset} and append time "
                f"{result.log_append_time_ms} ms for {batch.topic_partition}, which no batch can have"
            )
        return ProduceResponse(batch, result.base_offset, result.log_append_time_ms)
    error = error_for_code(code)
    name = f"error code {code}" if error is UnknownServerError else error.__name__
    words = shown(result.error_message or "")
    said = f": {words}" if words else ""
    if error is UnknownServerError:
        words = name + said
    invalid = {
        each.batch_index: _attributed(node, shown(each.batch_index_error_message or "") or words)
        for each in result.record_errors
    }
    # With one invalid record, its own message replaces the batch's (as in ``Sender.failBatch``).
    (words,) = invalid.values() if len(invalid) == 1 else (_attributed(node, words),)
    return ProduceResponse(
        batch,
        error=error,
        message=f"broker {node.broker} answered {name} for {batch.topic_partition}{said}",
        invalid_records=invalid,
        words=words,
    )


def _attributed(node: Node, words: str) -> str:
    """Return a broker's text with the broker's number in front."""
    return f"broker {node.broker} says: {words}" if words else ""


def node_at(number: int, host: object, port: int) -> Node:
    """Return the node of a broker in an answer. Raises NetworkError: its number, host or port is impossible."""
    # Names reach logs and terminals.
    is_name = isinstance(host, str) and len(host) <= _LONGEST_HOST and host.isprintable() and " " not in host
    if number < 0 or not isinstance(host, str) or not is_name or not 0 <= port <= _LAST_PORT:
        raise NetworkError(f"the broker's answer has an impossible broker: {number}, {str(host)[:300]!r}, port {port}")
    return Node(number, host, port)


def refuse(batches: Iterable[ProduceBatch], error: type[KafkaError], message: str) -> list[ProduceResponse]:
    """Return the same error for every batch."""
    return [ProduceResponse(batch, error=error, message=message, words=message) for batch in batches]
