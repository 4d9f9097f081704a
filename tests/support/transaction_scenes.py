"""What the tests of transactions against a fake broker share: producers in one slab, and the steps of a transaction."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transaction_broker import TransactionBroker

from shmaccum import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition

_numbers = itertools.count()


class Scene:
    """A fake broker, and a slab whose sender stays for all tests of a module.

    Attributes:
        broker: the broker.
        name: of the slab.
    """

    def __init__(self, broker: TransactionBroker, name: str) -> None:
        self.broker = broker
        self.name = name

    @property
    def version(self) -> int:
        """Of the transaction protocol."""
        return self.broker.version

    def settings(self, **more: object) -> dict[str, object]:
        """Return settings of a producer in the slab; ``_`` stands for Kafka's ``.``."""
        return {
            "bootstrap.servers": self.broker.servers,
            "shmaccum.name": self.name,
            "buffer.memory": 1 << 20,
            "sender.idle.ms": 100,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 10,
            "max.block.ms": 20_000,
        } | {key.replace("_", "."): value for key, value in more.items()}

    @contextmanager
    def producer(self, **more: object) -> Iterator[Producer]:
        """Have a producer with a new transactional id."""
        with Producer(self.settings(**{"transactional_id": f"id-{next(_numbers)}"} | more)) as producer:
            yield producer

    @contextmanager
    def ready(self, **more: object) -> Iterator[Producer]:
        """Have a producer that is ready to begin; the broker has forgotten how it got ready."""
        with self.producer(**more) as producer:
            producer.init_transactions()
            self.broker.seen.clear()
            yield producer


@contextmanager
def impatient(producer: Producer) -> Iterator[None]:
    """Let the calls of transactions end with KafkaTimeoutError after 100 ms in the block."""
    producer.transactions.max_block_ms, patience_ms = 100, producer.transactions.max_block_ms
    try:
        yield
    finally:
        producer.transactions.max_block_ms = patience_ms


Step = Callable[[Producer], Any]


def init(producer: Producer) -> None:
    producer.init_transactions()
    producer.begin_transaction()


def send(producer: Producer) -> None:
    for partition in (0, 1):
        producer.send("t", b"value", partition=partition)


def send_offsets(producer: Producer) -> None:
    offsets = {TopicPartition("t", partition): OffsetAndMetadata(5) for partition in (0, 1)}
    producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("readers"))


def commit(producer: Producer) -> None:
    producer.commit_transaction()


STEPS: dict[str, Step] = {"init": init, "send": send, "offsets": send_offsets, "commit": commit}
"""The steps of one whole transaction, in their order."""


def run_before(producer: Producer, step: str) -> None:
    """Do the steps of a transaction before one of them."""
    for name in list(STEPS)[: list(STEPS).index(step)]:
        STEPS[name](producer)


def run_from(producer: Producer, step: str) -> None:
    """Do a step of a transaction, and those after it."""
    for name in list(STEPS)[list(STEPS).index(step) :]:
        STEPS[name](producer)


def run_another(producer: Producer) -> None:
    """Do a whole transaction with a producer that is ready."""
    producer.begin_transaction()
    run_from(producer, "send")
