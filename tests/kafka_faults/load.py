"""What a producer process does while something breaks: it appends numbered records and keeps account of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from shmaccum import Producer
from shmaccum.errors import KafkaError, KafkaTimeoutError
from tools.stress.accounting import Account, make_value, route_of, topic_of

SIZE = 100
"""Bytes in the value of a record."""
PATIENCE_S = 60.0
"""How long anything may take: far longer than it does."""


class Load(NamedTuple):
    """What all producers do. Each writer appends to one of the topics; one in ``large`` records has `large_size`."""

    settings: Mapping[str, object]
    accounts: Path
    topics: tuple[str, ...]
    partitions: int
    large: int = 0
    large_size: int = 0


def append(link: Connection, load: Load, writer: int) -> None:
    """Append records until told to stop, two thousand a second at most; then hear of all of them, and close."""
    account = Account(load.accounts, writer, create=True)
    with Producer(load.settings) as producer:
        _await_topic(producer, topic_of(writer, load.topics))
        while not link.poll():
            for _ in range(10):
                _append_one(producer, load, account)
            producer.poll()
            time.sleep(0.005)
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
    route = route_of(writer, number, load.partitions)
    is_large = load.large and number % load.large == 0
    value = make_value(writer, number, route.key, load.large_size if is_large else SIZE)
    heard = partial(account.hear, number)
    account.begin(1)
    try:
        producer.send(topic_of(writer, load.topics), value, route.key, partition=route.partition, on_delivery=heard)
    except KafkaError as error:
        account.hear(number, error, None)
    account.end()
