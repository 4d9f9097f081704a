"""The target ``responses``: responses of brokers, and of other servers.

The first byte of an input selects the request, the second one its version; then comes the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from shmaccum._core import ProduceBatch
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError
from shmaccum.kafka.codec import encode
from shmaccum.kafka.credentials import sasl_mechanism
from shmaccum.kafka.frames import FrameReader
from shmaccum.kafka.handshake import NEWEST_PRODUCE, OLDEST_PRODUCE, Call, Conversation, Handshake, Task, decode_answer
from shmaccum.kafka.masking import Mask
from shmaccum.kafka.schema import ApiMessage
from shmaccum.sender.kafka.cluster_metadata import Metadata
from shmaccum.sender.kafka.kafka_transport import ProducerIds
from shmaccum.sender.kafka.produce_request import by_partition
from shmaccum.sender.kafka.produce_response import decode_answers
from tools.fuzz.decoders import BytesTarget
from tools.support import messages
from tools.support.messages import encoded, metadata, produced, response

_TOPIC: Final = "orders"
_NODE: Final = Node(1, "here", 9092)
_WHERE: Final = tuple(TopicPartition(_TOPIC, number) for number in range(2))
_BATCHES: Final = by_partition(
    ProduceBatch(each, (memoryview(b""),), 3, 2, 7, 0, 0, 1, number) for number, each in enumerate(_WHERE)
)
_CONFIG: Final = ProducerConfig.parse(
    {
        "bootstrap.servers": "here:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": 'ScramLoginModule required username="a" password="b";',
    }
)
_MAX_WORD: Final = (1 << 64) - 1


class ResponsesTarget(BytesTarget):
    """Frames with responses to all requests that the sender sends."""

    def __init__(self) -> None:
        super().__init__(list(_seeds()))

    def decode(self, data: bytes) -> str:
        """Handle a response as a connection does; check that its data fits the slab."""
        if len(data) < 2:
            return "nothing"
        decoder = _DECODERS[data[0] % len(_DECODERS)]
        try:
            decoder(data[1], data[2:])
        except KafkaError as error:
            return f"{decoder.__name__}: {type(error).__name__}"
        return f"{decoder.__name__}: taken"


def _require(condition: bool) -> None:
    """Check a condition, also under ``python -O``."""
    if not condition:
        raise RuntimeError("what was taken over does not fit the slab")


def _produce(version: int, frame: bytes) -> None:
    version = OLDEST_PRODUCE + version % (NEWEST_PRODUCE - OLDEST_PRODUCE + 1)
    answers, hints, throttle_ms = decode_answers(version, frame, _BATCHES, _NODE)
    _require({answer.batch.topic_partition for answer in answers} == set(_WHERE))
    _require(len(answers) == len(_WHERE))
    for answer in answers:
        _require(0 <= answer.base_offset + 1 <= _MAX_WORD)
        _require(0 <= (answer.log_append_time_ms + 1) << 16 <= _MAX_WORD)
        _require(isinstance(answer.message, str))
        _require(all(isinstance(each, int) for each in answer.invalid_records))
    metadata = _metadata_in_use()
    metadata.follow(hints)
    _check_cluster(metadata)
    _require(isinstance(throttle_ms, int))


def _metadata(version: int, frame: bytes) -> None:
    metadata = _metadata_in_use()
    request = metadata.request(0)
    response = decode_answer(_sent(request, version), frame)
    metadata.update(response, 1)
    _check_cluster(metadata)
    _require(int(response.throttle_time_ms) <= _MAX_WORD)


def _metadata_in_use() -> Metadata:
    metadata = Metadata(_CONFIG)
    metadata.request_update([_TOPIC], 0)
    return metadata


def _check_cluster(metadata: Metadata) -> None:
    cluster = metadata.cluster
    for node in cluster.nodes.values():
        _require(node.id >= 0)
        _require(isinstance(node.host, str))
        _require(0 <= node.port < 1 << 16)
    _require(cluster.nodes.keys() >= set(cluster.leaders.values()))
    for where, count in cluster.partition_counts.items():
        _require(where == _TOPIC)
        _require(count >= 0)


def _producer_id(version: int, frame: bytes) -> None:
    ids = ProducerIds(_CONFIG)
    response = decode_answer(_sent(ids.request(0), version), frame)
    ids.update(response, 1)
    answer = ids.take()
    if answer is not None:
        _require(0 <= answer[0] < _MAX_WORD)
        _require(0 <= answer[1] < 1 << 15)


def _handshake(version: int, frames: bytes) -> None:
    """Run a whole conversation; every frame begins with its size."""
    mask = Mask()
    handshake = Handshake(sasl_mechanism(_CONFIG, mask), _CONFIG.sasl_mechanism, "here", mask)
    conversation = handshake.introduce()
    call = _next_call(conversation, None)
    reader, at = FrameReader(), 0
    reader.feed(frames)
    try:
        while (frame := reader.next(1 << 30, int.from_bytes(frames[at + 4 : at + 8], signed=True))) is not None:
            at += 4 + len(frame)
            encode(call.request, call.version, 1, "client")
            call = _next_call(conversation, frame)
    except StopIteration:
        _require(handshake.produce_version >= OLDEST_PRODUCE)
        _require(handshake.session_lifetime_ms * 2 >= 0)


def _next_call(conversation: Conversation, answer: object) -> Call:
    """Return a conversation's next request; run background calls here."""
    step = conversation.send(answer)
    while isinstance(step, Task):
        step = conversation.send(step.call())
    return step


def _log_in(version: int, frames: bytes) -> None:
    """Run the part of a conversation after the versions are known."""
    _handshake(version, _framed(*_answers_of_versions()) + frames)


def _sent(request: ApiMessage, version: int) -> Call:
    """Return a request as sent in a version that we use."""
    kind = request.type.api
    call = Call(request, kind.oldest + version % (kind.newest - kind.oldest + 1))
    encode(call.request, call.version, 1, "client")
    return call


_DECODERS: Final[tuple[Callable[[int, bytes], None], ...]] = (_produce, _metadata, _producer_id, _handshake, _log_in)


# --- valid responses ---------------------------------------------------------------------------------------


def _seeds() -> Iterator[bytes]:
    for version in range(OLDEST_PRODUCE, NEWEST_PRODUCE + 1):
        for error in (0, 6, 87):
            yield bytes([0, version - OLDEST_PRODUCE]) + _frame(_produced(error), version)
    for version in range(14):
        yield bytes([1, version]) + _frame(metadata([(1, 9092)], [(_TOPIC, 2)], epoch=3), version)
    for version in range(6):
        yield bytes([2, version]) + _frame(
            response(messages.INIT_PRODUCER_ID, producer_id=77, producer_epoch=0), version
        )
    handshake = _frame(response(messages.SASL_HANDSHAKE, mechanisms=["SCRAM-SHA-256"]), 1)
    first = response(messages.SASL_AUTHENTICATE, error_message=None, auth_bytes=b"r=abc,s=YWJj,i=4096")
    refused = response(messages.SASL_AUTHENTICATE, error_code=58, error_message="no")
    logins = [_framed(handshake, _frame(each, 2)) for each in (first, refused)]
    yield from (bytes([3, 0]) + _framed(*_answers_of_versions()) + login for login in logins)
    yield from (bytes([4, 0]) + login for login in logins)


def _produced(error: int) -> Any:
    partition: dict[str, Any] = {"base_offset": 7}
    if not error:
        return produced({_TOPIC: [partition | {"index": where.partition} for where in _WHERE]}, throttle_time_ms=5)
    partition |= {
        "error_code": error,
        "error_message": "why",
        "record_errors": [{"batch_index": 1, "batch_index_error_message": "bad"}],
        "current_leader": {"leader_id": 2, "leader_epoch": 5},
    }
    partitions = [partition | {"index": where.partition} for where in _WHERE]
    nodes = [{"node_id": 2, "host": "there", "port": 9093}]
    return produced({_TOPIC: partitions}, throttle_time_ms=5, node_endpoints=nodes)


def _answers_of_versions() -> list[bytes]:
    newest = {messages.PRODUCE: 12, messages.METADATA: 13, messages.SASL_HANDSHAKE: 1, messages.API_VERSIONS: 4}
    newest |= {messages.INIT_PRODUCER_ID: 5, messages.SASL_AUTHENTICATE: 2}
    return [_frame(messages.api_versions({key: (0, version) for key, version in newest.items()}), 3)]


def _frame(response: Any, version: int) -> bytes:
    """Return a response's frame without its size."""
    return encoded(response, version, 1)[4:]


def _framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
