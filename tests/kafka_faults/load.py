"""What a producer process does while something breaks: it appends numbered records and keeps account of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from shmaccum import Producer
from shmaccum.errors import KafkaError, KafkaTimeoutError
from tools.stress.accounting import Account, make_value, route_of, topic_of

SIZE = 100
"""Bytes in the value of a record."""
PATIENCE_S = 60.0
"""How long anything may take: far longer than it does."""

_BURST = 10
_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class Load:
    """What all producers do.

    Attributes:
        settings: Of the producer.
        accounts: Directory of the accounts.
        topics: Each writer appends to one of them, in turn.
        partitions: Of each topic.
        large: One in this many records has `large_size` bytes; 0 for none.
        large_size: Bytes of a large record.
    """

    settings: Mapping[str, object]
    accounts: Path
    topics: tuple[str, ...]
    partitions: int
    large: int = 0
    large_size: int = 0

    def size_of(self, number: int) -> int:
        """Return how many bytes the value of a record has."""
        return self.large_size if self.large and number % self.large == 0 else SIZE


def append(link: Connection, load: Load, writer: int) -> None:
    """Append records until told to stop, two thousand a second at most; then hear of all of them, and close."""
    account = Account(load.accounts, writer, create=True)
    with Producer(load.settings) as producer:
        _await_topic(producer, topic_of(writer, load.topics))
        while not link.poll():
            for _ in range(_BURST):
                _append_one(producer, load, account)
            producer.poll()
            time.sleep(_PAUSE_S)
        producer.flush(PATIENCE_S)
    account.note_closed()


def _await_topic(producer: Producer, topic: str) -> None:
    """Wait for the sender to have come and to know the topic: that can take longer than a trial's ``max.block.ms``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            producer.partitions_for(topic)
        except KafkaTimeoutError:
            if time.monotonic() > deadline:
                raise
        except KafkaError:
            return  # what the trial is about: each record tells
        else:
            return


def _append_one(producer: Producer, load: Load, account: Account) -> None:
    """Append the next record. One that is refused at once is done with, like one that is given up later."""
    writer, number = account.writer, account.begun
    topic = topic_of(writer, load.topics)
    route = route_of(writer, number, load.partitions)
    value = make_value(writer, number, route.key, load.size_of(number))
    account.begin(1)
    try:
        producer.send(topic, value, route.key, partition=route.partition, on_delivery=partial(account.hear, number))
    except KafkaError as error:
        account.hear(number, error, None)
    account.end()
