"""The Produce request: the one that is written here rather than by the library, since it carries the batches.

A request is a list of buffers. Between heads of a few bytes are the batches themselves: views of the slab that the
system call reads from. The layout is Kafka's ``ProduceRequest.json``, in the two forms that its versions have: up to
8 with lengths of fixed size, from 9 on with varints and tags (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from shmaccum.sender.kafka.channel import Buffer
from shmaccum.sender.transport import ProduceBatch

API_KEY: Final = 0
OLDEST_VERSION: Final = 7
"""Of Kafka 2.1, the oldest brokers that Kafka 4's own clients speak with (KIP-896): the first with zstd."""
NEWEST_VERSION: Final = 12
"""Version 13 names topics by id."""
FIRST_FLEXIBLE_VERSION: Final = 9

_FRAME_AND_HEADER: Final = struct.Struct(">ihhi")
_FRAME_AND_HEADER_SIZE: Final = _FRAME_AND_HEADER.size
_SIZE_SIZE: Final = 4
"""Bytes of a frame's size, which does not count itself."""
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_NULL_STRING: Final = b"\xff\xff"
_NULL_FLEXIBLE_STRING: Final = b"\x00"
_NO_TAGS: Final = b"\x00"


def _put_int32(head: bytearray, number: int) -> None:
    head.append(number >> 24 & 0xFF)
    head.append(number >> 16 & 0xFF)
    head.append(number >> 8 & 0xFF)
    head.append(number & 0xFF)


def _put_length(head: bytearray, number: int) -> None:
    """Write a length as flexible versions have it: an unsigned varint of one more, since 0 stands for null."""
    number += 1
    while number > 0x7F:
        head.append(number & 0x7F | 0x80)
        number >>= 7
    head.append(number)


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
        self._is_flexible = version >= FIRST_FLEXIBLE_VERSION
        self._topic_heads: dict[str, bytes] = {}
        name = client_id.encode()
        # The client id has a length of fixed size in every version.
        behind_name = _NO_TAGS + _NULL_FLEXIBLE_STRING if self._is_flexible else _NULL_STRING  # there is no transaction
        self._rest_of_head = b"".join(
            (_INT16.pack(len(name)), name, behind_name, _ACKS_AND_TIMEOUT.pack(acks, timeout_ms))
        )

    def _topic_head(self, topic: str) -> bytes:
        """Return a topic's name as requests have it."""
        head = self._topic_heads.get(topic)
        if head is None:
            name = topic.encode()
            length = bytearray()
            if self._is_flexible:
                _put_length(length, len(name))
            else:
                length += _INT16.pack(len(name))
            head = self._topic_heads[topic] = bytes(length) + name
        return head

    def _put_count(self, head: bytearray, number: int) -> None:
        """Write the length of an array, or of a batch."""
        if self._is_flexible:
            _put_length(head, number)
        else:
            _put_int32(head, number)

    def _put_end(self, head: bytearray) -> None:
        """Write what is behind every structure: its tags, of which there are none."""
        if self._is_flexible:
            head.append(0)

    def encode(self, batches: Sequence[ProduceBatch], correlation_id: int) -> list[Buffer]:
        """Return a request's frame in pieces: those of the batches are their payloads themselves."""
        by_topic: dict[str, list[ProduceBatch]] = {}
        for batch in batches:
            topic = batch.topic_partition.topic
            of_topic = by_topic.get(topic)
            if of_topic is None:
                of_topic = by_topic[topic] = []
            of_topic.append(batch)
        buffers: list[Buffer] = [b""]  # for what begins with the size of all that follows
        head = bytearray(self._rest_of_head)
        self._put_count(head, len(by_topic))
        size = _FRAME_AND_HEADER_SIZE - _SIZE_SIZE
        for topic, of_topic in by_topic.items():
            head += self._topic_head(topic)
            self._put_count(head, len(of_topic))
            for batch in of_topic:
                payload_size = len(batch.payload)
                _put_int32(head, batch.topic_partition.partition)
                self._put_count(head, payload_size)
                buffers.append(head)
                buffers.append(batch.payload)
                size += len(head) + payload_size
                head = bytearray()
                self._put_end(head)
            self._put_end(head)
        self._put_end(head)
        buffers.append(head)
        size += len(head)
        buffers[0] = _FRAME_AND_HEADER.pack(size, API_KEY, self._version, correlation_id)
        return buffers
