"""What the tests of transactions against a fake broker share: producers in one slab, and the steps of a transaction."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from processes import wait_until
from producers import kafka_settings
from transaction_broker import TransactionBroker

from shmaccum import ConsumerGroupMetadata, FutureRecordMetadata, OffsetAndMetadata, Producer, TopicPartition
from shmaccum._core import Buffer
from shmaccum.errors import KafkaError

Error = type[KafkaError]

_numbers = itertools.count()


class Scene:
    """A fake broker, and a slab whose sender stays for all tests of a module.

    Attributes:
        broker: the broker.
        name: of the slab.
    """

    def __init__(self, broker: TransactionBroker, name: str, **more: object) -> None:
        self.broker = broker
        self.name = name
        self._more = more

    @property
    def version(self) -> int:
        return self.broker.version

    def settings(self, **more: object) -> dict[str, object]:
        """Return settings of a producer in the slab; ``_`` stands for Kafka's ``.``."""
        waits = ("retry_backoff_ms", "retry_backoff_max_ms", "reconnect_backoff_ms", "reconnect_backoff_max_ms")
        quick = {"linger_ms": 0} | dict.fromkeys(waits, 10)
        return kafka_settings(self.broker.servers, self.name, **quick | self._more | more)

    @contextmanager
    def producer(self, **more: object) -> Iterator[Producer]:
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
    def begun(self, **more: object) -> Iterator[Producer]:
        """Have a producer that has begun a transaction."""
        with self.ready(**more) as producer:
            producer.begin_transaction()
            yield producer

    def epochs(self, api_key: int) -> list[int]:
        return [request.asked.producer_epoch for request in self.broker.seen if request.api_key == api_key]


@contextmanager
def impatient(producer: Producer) -> Iterator[None]:
    """Let the calls of transactions end with KafkaTimeoutError after 100 ms in the block."""
    producer.transactions.max_block_ms, patience_ms = 100, producer.transactions.max_block_ms
    try:
        yield
    finally:
        producer.transactions.max_block_ms = patience_ms


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


@contextmanager
def waiting_for_memory(producer: Producer, call: Callable[[], object]) -> Iterator[Future[object]]:
    """Begin a call that waits for memory, all of which is taken until the block ends."""
    pool, taken = producer._accumulator.state.pool, list[Buffer]()
    while pool.available_memory():
        taken.append(pool.allocate(pool.poolable_size, 1000))
    with ThreadPoolExecutor(1) as threads:
        try:
            outcome = threads.submit(call)
            wait_until(lambda: producer.metrics()["producer-metrics"]["waiting-threads"] == 1, "the call waits")
            yield outcome
        finally:
            pool.deallocate(*taken)


Step = Callable[[Producer], Any]


def init(producer: Producer) -> None:
    producer.init_transactions()
    producer.begin_transaction()


def send_one(producer: Producer, partition: int = 0) -> FutureRecordMetadata:
    return producer.send("t", b"value", partition=partition)


def send(producer: Producer) -> None:
    for partition in (0, 1):
        send_one(producer, partition)


def store(producer: Producer) -> None:
    send(producer)
    producer.flush()


def rows_for(*partitions: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"v"] * len(partitions), pa.binary()), "partition": [*partitions]})


def send_offsets(producer: Producer) -> None:
    offsets = {TopicPartition("t", partition): OffsetAndMetadata(5) for partition in (0, 1)}
    producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("readers"))


def commit(producer: Producer) -> None:
    producer.commit_transaction()


STEPS: dict[str, Step] = {"init": init, "send": store, "offsets": send_offsets, "commit": commit}
"""The steps of one whole transaction, in their order."""


def run_before(producer: Producer, step: str) -> None:
    for name in list(STEPS)[: list(STEPS).index(step)]:
        STEPS[name](producer)


def run_from(producer: Producer, step: str) -> None:
    for name in list(STEPS)[list(STEPS).index(step) :]:
        STEPS[name](producer)


def run_another(producer: Producer) -> None:
    producer.begin_transaction()
    run_from(producer, "send")


def run_aborted(producer: Producer) -> None:
    """Do a whole transaction whose records are stored, and abort it."""
    producer.begin_transaction()
    send(producer)
    producer.flush()
    producer.abort_transaction()


def check_only_abort_helps(producer: Producer, error: Error) -> None:
    """Check that a transaction has failed by an error after which another one can follow."""
    for call in (producer.commit_transaction, producer.begin_transaction, lambda: send(producer)):
        with pytest.raises(error, match="abort the transaction"):
            call()


def check_only_close_helps(producer: Producer, error: Error) -> None:
    """Check that a producer has failed by an error after which it can do nothing."""
    for call in (
        producer.init_transactions,
        producer.begin_transaction,
        lambda: send(producer),
        lambda: send_offsets(producer),
        producer.commit_transaction,
        producer.abort_transaction,
    ):
        with pytest.raises(error, match="close the producer"):
            call()
