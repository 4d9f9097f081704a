"""Brokers that take neither large batches nor every record, whatever else happens to them and to the senders.

What happens is drawn from a seed: requests and answers lost, leaders that move, time that runs out, senders that die
between any two lines. Each record is stored once and in order, or its future has the error; and the brokers
check sequence numbers as Kafka's do.
"""

from __future__ import annotations

import random
from typing import Final

import pytest
from broker_model import NODES, BrokerRun, Clock, ClusterModel, Flight, TransportModel, troubled_config
from kafka.record import MemoryRecords
from killpoints import interrupt_after
from senders import HandRun

from shmaccum.accumulator.append.futures import FutureRecordMetadata
from shmaccum.accumulator.drain import batch_drainer, completer, expirer, sequences
from shmaccum.accumulator.state import completion_ring, partition_map, record_batch
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaError,
    RecordTooLargeError,
)
from shmaccum.sender import batch_splitter, response_handler, sealer, sender
from shmaccum.sender.transport import ProduceResponse
from shmaccum.shm.layout import Process

SLOT: Final = 1024
TIMEOUT_MS: Final = 2000
LARGEST: Final = 260
"""Bytes of a batch that the brokers take: several of the small records, and none of the large ones."""
SMALL: Final = 40
LARGE: Final = LARGEST
PARTITIONS: Final = [TopicPartition("t", 0), TopicPartition("t", 1)]
LINES: Final = (
    batch_drainer,
    completer,
    completion_ring,
    expirer,
    partition_map,
    batch_splitter,
    record_batch,
    response_handler,
    sealer,
    sequences,
    sender,
)
"""A sender dies before any line of these."""


def is_invalid(value: bytes) -> bool:
    return int(value.rstrip(b".")) % 7 == 3


class PickyTransport(TransportModel):
    """Connections to brokers that look at what they get before they look at its sequence number."""

    def _handle(self, node: int, flight: Flight) -> ProduceResponse:
        if len(flight.data) > LARGEST:
            return ProduceResponse(flight.batch, error=RecordTooLargeError, message="too large")
        values = [record.value or b"" for batch in MemoryRecords(flight.data) for record in batch]
        invalid = tuple(number for number, value in enumerate(values) if is_invalid(value))
        if invalid:
            named = dict.fromkeys(invalid, "")
            return ProduceResponse(flight.batch, error=InvalidRecordError, message="no good", invalid_records=named)
        return super()._handle(node, flight)


class PickyRun(BrokerRun):
    """A sender of such brokers."""

    def __init__(self, config: ProducerConfig, cluster: ClusterModel, clock: Clock) -> None:
        HandRun.__init__(self, config, PickyTransport(cluster))
        self.cluster = cluster
        self.clock = clock

    def survive(self) -> None:
        """Do what is done about the locks of a process that is really dead."""
        for lock in self.slab.locks:
            with lock:
                pass


class Scene:
    """Producers, the senders that follow each other, and the brokers."""

    def __init__(self, config: ProducerConfig, clock: Clock, seed: int) -> None:
        self.config = config
        self.clock = clock
        self.draw = random.Random(seed)
        self.cluster = ClusterModel("t", len(PARTITIONS))
        self.run = PickyRun(config, self.cluster, clock)
        self.runs = [self.run]
        self.run.begin()
        self.run.topic("t")
        self.futures: dict[TopicPartition, dict[int, FutureRecordMetadata]] = {each: {} for each in PARTITIONS}

    def happen(self, what: str) -> None:
        """Have something happen."""
        draw, transport = self.draw, self.run.transport
        partition, node, few = draw.choice(PARTITIONS), draw.choice(NODES).id, draw.randint(1, 5)
        match what:
            case "append":
                self.append(partition, draw.randint(1, 30))
            case "step":
                self.run.step(after_ms=draw.choice([0, 0, 1, 20]))
            case "wait":
                self.run.step(after_ms=draw.choice([TIMEOUT_MS // 3, TIMEOUT_MS // 3, TIMEOUT_MS]))
            case "answer":
                for _ in range(few):
                    transport.answer(node)
            case "store":
                transport.store(node, few)
            case "drop":
                transport.store(node, few - 1)
                transport.drop(node)
            case "move":
                self.cluster.move(partition)
            case "die":
                self.die(few - 1)

    def check_ring(self) -> None:
        """Nothing that the producers have not read yet is overwritten."""
        slab = self.run.slab
        at = slab.geometry.process(slab.me)
        assert slab.words[at + Process.RING_TAIL] - slab.words[at + Process.RING_HEAD] <= slab.geometry.ring_length

    def append(self, partition: TopicPartition, records: int) -> None:
        """Have a producer append records, most of which are small."""
        for _ in range(records):
            number = next(self.cluster.numbers)
            size = LARGE if self.draw.random() < 0.05 else self.draw.randint(0, SMALL)
            try:
                self.futures[partition][number] = self.run.send(partition, b"%d" % number + b"." * size)
            except BufferExhaustedError:
                return

    def die(self, stored: int) -> None:
        """Kill the sender in a pass, and perhaps the next one as well while that picks up what was left."""
        interrupt_after(self.draw.randint(0, 600), self.run.step, *LINES)
        for node in NODES:
            self.run.transport.store(node.id, stored)
        self._next_sender()
        if self.draw.random() < 0.3:
            interrupt_after(self.draw.randint(0, 400), self.run.begin, *LINES)
            self._next_sender()
        self.run.begin()

    def _next_sender(self) -> None:
        self.run.survive()
        self.run.resign()
        self.run = PickyRun(self.config, self.cluster, self.clock)
        self.runs.append(self.run)

    def finish(self) -> None:
        """Have everything go well from now on, and compare what was promised with what is stored."""
        self.run.go_on()
        assert self.run.accumulator.pool.available_memory() == self.run.accumulator.pool.total_memory
        for partition, futures in self.futures.items():
            values = self.cluster.partitions[partition].values
            stored = [int(value.rstrip(b".")) for value in values]
            assert stored == sorted(set(stored)), "stored twice, or not in the order of append"
            assert not any(map(is_invalid, values))
            for number, future in futures.items():
                outcome = _outcome(future)
                if isinstance(outcome, int):
                    assert stored[outcome] == number
                else:
                    assert outcome in (DeliveryTimeoutError, InvalidRecordError, RecordTooLargeError)

    def close(self) -> None:
        for run in self.runs:
            run.close()


def _outcome(future: FutureRecordMetadata) -> int | type[KafkaError]:
    """Return the offset of a record, or the error that it met."""
    try:
        return future.get(0).offset
    except KafkaError as error:
        return type(error)


QUIET: Final = {"append": 30, "step": 160, "answer": 120, "store": 20}
TROUBLE: Final = {"drop": 10, "move": 6, "wait": 2}
DEATH: Final = {"die": 8}
"""What happens, and how often compared with the rest."""


@pytest.fixture
def config(slab_name: str) -> ProducerConfig:
    return troubled_config(slab_name, SLOT, TIMEOUT_MS)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("happenings", [QUIET, QUIET | TROUBLE, QUIET | TROUBLE | DEATH], ids=["", "trouble", "death"])
def test_exactly_once(config: ProducerConfig, clock: Clock, happenings: dict[str, int], seed: int) -> None:
    scene = Scene(config, clock, seed)
    try:
        for what in scene.draw.choices(list(happenings), list(happenings.values()), k=400):
            scene.happen(what)
            scene.check_ring()
        scene.finish()
    finally:
        scene.close()
    if happenings is QUIET:
        for future in (future for futures in scene.futures.values() for future in futures.values()):
            assert future.is_done
