"""The operations whose instructions are counted. Each prepares a call, again and again."""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Final

import pyarrow as pa

from shmaccum import AsyncProducer, Producer
from shmaccum._core import Super
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import Node, TopicPartition
from tools.sink import running_sink
from tools.support.own_slab import OwnSlab, now_ms

TOPIC: Final = "counted"
PARTITIONS: Final = 8
VALUE: Final = bytes(100)
ROWS: Final = 100

Calls = Generator[Callable[[], object]]
"""The calls to count; each is prepared when it is asked for."""


# --- of a producer --------------------------------------------------------------------------------


@contextmanager
def _settings(**changes: object) -> Iterator[dict[str, object]]:
    """Yield the settings of a producer whose sender writes a log, in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        defaults: dict[str, object] = {
            "transport": "log",
            "log.dir": directory,
            "flush.messages": 1 << 40,
            "shmaccum.name": f"instructions-{os.getpid()}",
            "num.partitions": 64,
            "linger.ms": 100_000,
            "delivery.timeout.ms": 1_000_000,
            "sender.idle.ms": 0,
        }
        yield defaults | {name.replace("_", "."): value for name, value in changes.items()}


@contextmanager
def _producer(**changes: object) -> Iterator[Producer]:
    with _settings(**changes) as settings, Producer(settings) as producer:
        producer.partitions_for(TOPIC)
        yield producer


def _sending(call: Callable[[Producer, int], Callable[[], object]], **changes: object) -> Calls:
    """Send a record into an open batch, again and again; ``call`` prepares it, given its number."""
    with _producer(**changes) as producer:
        for number in itertools.count(1):
            yield call(producer, number)


def _send_text(producer: Producer, number: int) -> Callable[[], object]:
    headers: dict[str, bytes | str | None] = {"trace": b"0123456789abcdef", "kind": "text"}
    return partial(producer.send, TOPIC, VALUE.decode(), f"{number:06}", headers)


def send_first() -> Calls:
    """Send a record for which a batch begins."""
    with _producer() as producer:
        while True:
            producer.flush()
            for partition in range(64):
                yield partial(producer.send, TOPIC, VALUE, partition=partition)


def send_async() -> Calls:
    """Send a record without a key, into an open batch, in an event loop."""
    with _settings() as settings, asyncio.Runner() as runner:
        producer = AsyncProducer(settings)

        async def send() -> None:
            await producer.send(TOPIC, VALUE)

        runner.run(producer.start())
        try:
            runner.run(producer.partitions_for(TOPIC))
            while True:
                yield partial(next, send().__await__(), None)
        finally:
            runner.run(producer.close())


def send_batch() -> Calls:
    rows = pa.RecordBatch.from_pydict({"value": [VALUE] * ROWS})
    with _producer() as producer:
        while True:
            yield partial(producer.send_batch, TOPIC, rows)
            producer.flush()


# --- of the sender --------------------------------------------------------------------------------


class _Slab(OwnSlab):
    """A slab whose batches are due at once."""

    def __init__(self, servers: str = "127.0.0.1:1") -> None:
        super().__init__({"bootstrap.servers": servers, "shmaccum.name": f"instructions-{os.getpid()}", "linger.ms": 0})

    def fill(self) -> None:
        for number in range(PARTITIONS):
            self.accumulator.append(TopicPartition(TOPIC, number), 0, None, VALUE, max_block_ms=0)


@contextmanager
def _alone() -> Iterator[tuple[_Slab, Callable[[], list[RecordBatch]], Callable[[list[RecordBatch]], None]]]:
    """Yield a slab, and what takes and what completes a batch of each partition."""
    topic_partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    cluster = Cluster({0: Node(0)}, {TOPIC: PARTITIONS}, dict.fromkeys(topic_partitions, 0))
    with closing(_Slab()) as slab:
        accumulator = slab.accumulator
        accumulator.map.request(TOPIC)
        accumulator.map.update(TOPIC, PARTITIONS, None)
        accumulator.sender.sequences.use_producer_id(1, 0)

        def take() -> list[RecordBatch]:
            now = now_ms() + 1
            (node,) = accumulator.sender.ready(cluster, now).ready_nodes
            return accumulator.sender.drain(cluster, node, slab.config.max_request_size, now)

        def complete(drained: list[RecordBatch]) -> None:
            accumulator.sender.complete([BatchOutcome(batch, 0) for batch in drained])

        yield slab, take, complete


def drain() -> Calls:
    with _alone() as (slab, take, complete):
        drained: list[RecordBatch] = []

        def counted() -> None:
            drained[:] = take()

        while True:
            slab.fill()
            yield counted
            assert len(drained) == PARTITIONS
            complete(drained)


def complete() -> Calls:
    with _alone() as (slab, take, finish):
        while True:
            slab.fill()
            yield partial(finish, take())


def sender_passes() -> Calls:
    """Send a batch of each of 8 partitions in one request, and complete them: passes of the sender's loop."""
    with running_sink(PARTITIONS) as servers, closing(_Slab(servers)) as slab:
        words = slab.slab.words
        with slab.sending(TOPIC, PARTITIONS) as (sender, doorbell):

            def passes(at_ms: int, batches: int) -> None:
                end = words[Super.BATCHES_SENT] + batches
                while words[Super.BATCHES_SENT] < end:
                    sender.run_once(at_ms)

            while True:
                doorbell.ring()  # so that the pass does not wait
                sender.run_once(now_ms())
                slab.fill()
                # The clock stands still during the call: it takes so long that each pass would look for dead processes.
                yield partial(passes, now_ms() + 1, PARTITIONS)


OPERATIONS: Final[dict[str, Callable[[], Calls]]] = {
    "send": lambda: _sending(lambda producer, _: partial(producer.send, TOPIC, VALUE)),
    "send, keyed": lambda: _sending(lambda producer, number: partial(producer.send, TOPIC, VALUE, b"%06d" % number)),
    "send, text, two headers": lambda: _sending(_send_text),
    # What a serializer that does nothing returns.
    "send, serializer": lambda: _sending(
        lambda producer, _: partial(producer.send, TOPIC, VALUE), value_serializer=bytes
    ),
    "send, asyncio": send_async,
    "send, new batch": send_first,
    "send_batch, 100 rows": send_batch,
    "drain 8 batches": drain,
    "complete 8 batches": complete,
    "sender, 8 batches": sender_passes,
}
