"""The Produce request: the one that is written here rather than by the library, since it carries the batches.

A request is a list of buffers. Between heads of a few bytes are the batches themselves: views of the slab that the
system call reads from. The layout is Kafka's ``ProduceRequest.json``, in the two forms that its versions have: up to
8 with lengths of fixed size, from 9 on with varints and tags (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from shmaccum.sender.kafka.channel import Buffer
from shmaccum.sender.transport import ProduceBatch

API_KEY: Final = 0
OLDEST_VERSION: Final = 7
"""Of Kafka 2.1, the oldest brokers that Kafka 4's own clients speak with (KIP-896): the first with zstd."""
NEWEST_VERSION: Final = 12
"""Version 13 names topics by id."""
FIRST_FLEXIBLE_VERSION: Final = 9

_FRAME_AND_HEADER: Final = struct.Struct(">ihhi")
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL_STRING: Final = b"\xff\xff"


@lru_cache(maxsize=1 << 14)
def _fixed_length(number: int) -> bytes:
    """Return a length, or another number, in four bytes."""
    return _INT32.pack(number)


@lru_cache(maxsize=1 << 14)
def _flexible_length(number: int) -> bytes:
    """Return a length as flexible versions have it: an unsigned varint of one more, since 0 stands for null."""
    number += 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class _Form(NamedTuple):
    """How a version writes what differs between versions."""

    string_length: Callable[[int], bytes]
    length: Callable[[int], bytes]
    """Of an array, or of a batch."""
    no_transaction: bytes
    end: bytes
    """Behind every structure: its tags, of which there are none."""


_FIXED: Final = _Form(_INT16.pack, _fixed_length, _NULL_STRING, b"")
_FLEXIBLE: Final = _Form(_flexible_length, _flexible_length, b"\x00", b"\x00")


class ProduceEncoder:
    """Writes the Produce requests of one connection.

    Args:
        version: from `OLDEST_VERSION` to `NEWEST_VERSION`.
        client_id: our name.
        acks: -1 for all, 0 or 1.
        timeout_ms: how long the broker may wait for its followers.
    """

    def __init__(self, version: int, client_id: str, acks: int, timeout_ms: int) -> None:
        self._version = version
        form = _FLEXIBLE if version >= FIRST_FLEXIBLE_VERSION else _FIXED
        self._string_length = form.string_length
        self._length = form.length
        self._end = form.end
        self._topic_heads: dict[str, bytes] = {}
        name = client_id.encode()
        # The client id has a length of fixed size in every version.
        self._rest_of_head = b"".join(
            (_INT16.pack(len(name)), name, form.end, form.no_transaction, _ACKS_AND_TIMEOUT.pack(acks, timeout_ms))
        )

    def _topic_head(self, topic: str) -> bytes:
        """Return a topic's name as requests have it."""
        head = self._topic_heads.get(topic)
        if head is None:
            name = topic.encode()
            head = self._topic_heads[topic] = self._string_length(len(name)) + name
        return head

    def encode(self, batches: Sequence[ProduceBatch], correlation_id: int) -> list[Buffer]:
        """Return a request's frame in pieces: those of the batches are their payloads themselves."""
        length, end = self._length, self._end
        by_topic: dict[str, list[ProduceBatch]] = {}
        for batch in batches:
            topic = batch.topic_partition.topic
            of_topic = by_topic.get(topic)
            if of_topic is None:
                of_topic = by_topic[topic] = []
            of_topic.append(batch)
        buffers: list[Buffer] = [b""]  # for what begins with the size of all that follows
        head = [self._rest_of_head, length(len(by_topic))]
        size = _FRAME_AND_HEADER.size - _INT32.size
        for topic, of_topic in by_topic.items():
            head.append(self._topic_head(topic))
            head.append(length(len(of_topic)))
            for batch in of_topic:
                payload_size = len(batch.payload)
                head.append(_fixed_length(batch.topic_partition.partition))
                head.append(length(payload_size))
                joined = b"".join(head)
                buffers.append(joined)
                buffers.append(batch.payload)
                size += len(joined) + payload_size
                head = [end]
            head.append(end)
        head.append(end)
        joined = b"".join(head)
        buffers.append(joined)
        size += len(joined)
        buffers[0] = _FRAME_AND_HEADER.pack(size, API_KEY, self._version, correlation_id)
        return buffers
