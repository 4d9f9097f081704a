"""Waits for a topic's metadata in a producer that waits for nothing else.

``max.block.ms`` bounds the waits for metadata and for memory together. Two kinds of programs want only one of them: a
log handler that drops records rather than wait for memory, and librdkafka's programs, which expect a BufferError at
once. Their producers have ``max.block.ms`` 0 and wait for topics here.
"""

from __future__ import annotations

import time
from typing import Final

from shmaccum.errors import KafkaTimeoutError
from shmaccum.producer.producer import Producer
from shmaccum.shm import native

_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05


def is_metadata_timeout(error: BaseException) -> bool:
    """Return whether a call failed because a topic's metadata is missing: not memory, not a lock."""
    return type(error) is KafkaTimeoutError  # its subclasses are about memory and locks


def still_unknown(producer: Producer, topic: str, waited_s: float) -> KafkaTimeoutError:
    """Return the error for a topic that stayed unknown for ``waited_s`` seconds."""
    return producer._destinations.metadata.timed_out(topic, waited_s * 1000)


def wait_for_topic(producer: Producer, topic: str, timeout_s: float) -> set[int]:
    """Return the numbers of a topic's partitions; wait for its metadata, however small ``max.block.ms`` is.

    Raises:
        KafkaTimeoutError: there was no metadata in time.
        KafkaError: why there never will be any.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return producer.partitions_for(topic)
        except KafkaTimeoutError as error:
            if not is_metadata_timeout(error):
                raise
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise still_unknown(producer, topic, timeout_s) from error.__cause__
        native.pause(min(pause_s, remaining))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
