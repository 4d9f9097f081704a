"""Encodes Produce requests without copying the batches.

A request is a list of buffers: heads of a few bytes, and between them the batches, as views of the slab that the system
call reads from. The codec would copy them. The layout is Kafka's ``ProduceRequest.json``: up to version 8 with
lengths of fixed size, from 9 on with varints and tags (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, TypeAlias

from shmaccum import _core
from shmaccum._core import ProduceBatch
from shmaccum.kafka.channel import Buffer
from shmaccum.kafka.codec import write_varint
from shmaccum.kafka.handshake import PRODUCE

Batches: TypeAlias = dict[str, dict[int, ProduceBatch]]
"""The batches of a request: topic -> partition -> its only batch."""

NEWEST_BEFORE_KIP_890: Final = 11
"""The newest version in transactions of protocol version 1; a later one adds partitions to the transaction itself."""
FIRST_FLEXIBLE_VERSION: Final = 9

_FRAME_AND_HEADER: Final = struct.Struct(">ihhi")
_FRAME_AND_HEADER_SIZE: Final = _FRAME_AND_HEADER.size
_SIZE_SIZE: Final = 4
"""Bytes of the frame's size, which does not count itself."""
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL_STRING: Final = b"\xff\xff"
_NULL_FLEXIBLE_STRING: Final = b"\x00"
_NO_TAGS: Final = b"\x00"


def by_partition(batches: Iterable[ProduceBatch]) -> Batches:
    """Return the batches of a request in the order of the wire; no two are of the same partition."""
    found: Batches = {}
    for batch in batches:
        topic, partition = batch.topic_partition
        of_topic = found.get(topic)
        if of_topic is None:
            of_topic = found[topic] = {}
        of_topic[partition] = batch
    return found


def each_of(batches: Batches) -> Iterator[ProduceBatch]:
    """Yield the batches of a request."""
    return chain.from_iterable(of_topic.values() for of_topic in batches.values())


def _length(number: int) -> bytes:
    """Encode a length for flexible versions: an unsigned varint of length + 1, since 0 means null."""
    if number < 0x7F:
        return bytes((number + 1,))
    varint = bytearray()
    write_varint(varint, number + 1)
    return bytes(varint)


class ProduceEncoder:
    """Encodes Produce requests of one version, with ``acks`` -1 for all."""

    def __init__(self, version: int, client_id: str, acks: int, timeout_ms: int) -> None:
        self._version = version
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self._end = _NO_TAGS if self._is_flexible else b""
        """Ends every structure."""
        self._count: Callable[[int], bytes] = _length if self._is_flexible else _INT32.pack
        """Encodes the length of an array, or of a batch."""
        self._topic_heads: dict[str, bytes] = {}
        """Names in bytes: most requests have the topics of the one before."""
        name = client_id.encode()
        # The client id has a length of fixed size in every version. Behind it: the transactional id.
        self._client = _INT16.pack(len(name)) + name + (_NO_TAGS if self._is_flexible else b"")
        self._behind_id = _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
        self._without_id = (
            self._client + (_NULL_FLEXIBLE_STRING if self._is_flexible else _NULL_STRING) + self._behind_id
        )

    def _text(self, text: str) -> bytes:
        encoded = text.encode()
        return (_length(len(encoded)) if self._is_flexible else _INT16.pack(len(encoded))) + encoded

    def encode(self, batches: Batches, correlation_id: int, transactional_id: str | None = None) -> list[Buffer]:
        """Return a request's frame as buffers; those of the batches are the views of their payloads."""
        buffers: list[Buffer] = [b""]  # placeholder of the head, which holds the total size
        if transactional_id is None:
            head = self._without_id
        else:
            head = self._client + self._text(transactional_id) + self._behind_id
        head += self._count(len(batches))
        size = _FRAME_AND_HEADER_SIZE - _SIZE_SIZE
        for topic, of_topic in batches.items():
            head += self._topic_heads.get(topic) or self._topic_heads.setdefault(topic, self._text(topic))
            head += self._count(len(of_topic))
            head, added = _core.add_buffers(buffers, head, of_topic, self._is_flexible)
            size += added
            head += self._end
        head += self._end
        buffers.append(head)
        size += len(head)
        buffers[0] = _FRAME_AND_HEADER.pack(size, PRODUCE, self._version, correlation_id)
        return buffers
