"""Brokers as an idempotent producer meets them: a model of what Kafka checks before it appends, and of its network.

`PartitionModel.append` is ``ProducerStateManager`` and ``ProducerAppendInfo``. It recognises the last five batches of a
producer, refuses an older epoch, and reports a batch that does not follow the last one as out of order. A request
is stored and answered in two steps, so that a test can put anything in between: the connection breaks, the leader
moves, time goes by, the sender dies. Requests of one connection are handled in order, and none outlives its connection.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
import splitting
from kafka.record import MemoryRecords
from senders import HandRun
from splitting import SLOT as SLOT

from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.accumulator.append import record_appender
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.cluster import Node, TopicPartition, broker_of, connection_id
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    KafkaError,
    NetworkError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from shmaccum.sender import sender as sender_module
from shmaccum.sender import sleep

BATCHES_KEPT = 5
LARGEST_SEQUENCE = (1 << 31) - 1
BROKERS = (0, 1)
NODES = {node.id: node for node in (Node(broker).by_connection(number) for number in (0, 1) for broker in BROKERS)}
"""Two connections to each."""
TIMEOUT_MS = 2000
"""Of delivery."""


@dataclass
class ProducerModel:
    """What a partition knows of one producer (``ProducerStateEntry``)."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    """(first sequence, last sequence, base offset) of the last ones."""


@dataclass
class PartitionModel:
    """The log of one partition.

    Attributes:
        values: of all records, by offset.
        producers: by producer id.
        refuse: errors with which the next batches are refused, one each.
        deny: errors with which the next batches are answered although they are stored, one each
            (``NOT_ENOUGH_REPLICAS_AFTER_APPEND``).
        demands_sequence_0: whether a producer that is not known has to begin with 0, as before Kafka 2.5.
    """

    values: list[bytes] = field(default_factory=list)
    producers: dict[int, ProducerModel] = field(default_factory=dict)
    refuse: list[type[KafkaError]] = field(default_factory=list)
    deny: list[type[KafkaError]] = field(default_factory=list)
    demands_sequence_0: bool = False

    def append(self, batch: ProduceBatch, data: bytes) -> int | type[KafkaError]:
        """Store a batch, unless it is here already; return its base offset, or what the answer says instead."""
        if self.refuse:
            return self.refuse.pop(0)
        outcome = self._append(batch, data)
        return self.deny.pop(0) if isinstance(outcome, int) and self.deny else outcome

    def restart(self) -> None:
        """Know of each producer only its last batch, as after an unclean end: more is not in a broker's snapshots."""
        for known in self.producers.values():
            while len(known.batches) > 1:
                known.batches.popleft()

    def _append(self, batch: ProduceBatch, data: bytes) -> int | type[KafkaError]:
        if batch.producer_id < 0:
            return self._store(data)
        first = batch.base_sequence
        last = (first + batch.record_count - 1) % (LARGEST_SEQUENCE + 1)
        known = self.producers.get(batch.producer_id)
        if known is None:
            if self.demands_sequence_0 and first != 0:
                return UnknownProducerIdError
        else:
            if known.epoch == batch.producer_epoch:
                for stored_first, stored_last, offset in known.batches:
                    if (stored_first, stored_last) == (first, last):
                        return offset
            if batch.producer_epoch < known.epoch:
                return InvalidProducerEpochError
            if batch.producer_epoch > known.epoch:
                if first != 0:
                    return OutOfOrderSequenceError
            elif first != (known.batches[-1][1] + 1) % (LARGEST_SEQUENCE + 1):
                return OutOfOrderSequenceError
        if known is None or known.epoch != batch.producer_epoch:
            known = self.producers[batch.producer_id] = ProducerModel(batch.producer_epoch)
        offset = self._store(data)
        known.batches.append((first, last, offset))
        return offset

    def _store(self, data: bytes) -> int:
        offset = len(self.values)
        records = MemoryRecords(data)
        while records.has_next():
            stored = records.next_batch()
            assert stored is not None
            assert stored.validate_crc()
            self.values += [record.value or b"" for record in stored]
        return offset


class ClusterModel:
    """Brokers that survive every sender. Partition p of the one topic is led by broker p % 2 until it moves.

    Attributes:
        partitions: their logs.
        leaders: broker of a partition.
        producer_ids: what `init_producer_id` hands out; an empty iterator hands out none.
        numbers: for the values of records, which show their identity and order.
        first_epoch: with which it hands out producer ids.
        largest: most bytes of a batch; a larger one is refused before its sequence number is looked at.
        is_invalid: says of a record's value whether the record is refused, as is its batch, in the same way.
    """

    first_epoch = 0

    def __init__(self, topic: str, partitions: int) -> None:
        self.topic = topic
        self.producer_ids: Iterator[int] = count(1000)
        self.numbers = count()
        self.largest = sys.maxsize
        self.is_invalid: Callable[[bytes], bool] = lambda value: False
        self.topic_id = 0
        self.snapshot = Cluster()
        self.remake(partitions, seen=True)

    def publish(self) -> None:
        """Let clients see the topic and its leaders as they are."""
        if not self.partitions:
            self.snapshot = Cluster(NODES, topic_errors={self.topic: UnknownTopicOrPartitionError})
            return
        epochs = dict(self.epochs)
        counts, ids = {self.topic: len(self.partitions)}, {self.topic: self.topic_id}
        leaders = {each: connection_id(leader, self._links[each]) for each, leader in self.leaders.items()}
        self.snapshot = Cluster(NODES, counts, leaders, topic_ids=ids, leader_epochs=epochs)

    def remake(self, partitions: int, *, seen: bool = False) -> None:
        """Delete the topic, and create it again with this number of partitions; with 0, only delete it.

        Clients learn of it when they next ask, or at once if it is ``seen``.
        """
        self.topic_id += 1
        self.partitions = {TopicPartition(self.topic, number): PartitionModel() for number in range(partitions)}
        self.leaders = {each: each.partition % 2 for each in self.partitions}
        self._links = dict.fromkeys(self.partitions, 0)
        self.epochs = dict.fromkeys(self.partitions, 0)
        if seen:
            self.publish()

    def grow(self) -> None:
        added = TopicPartition(self.topic, len(self.partitions))
        self.partitions[added] = PartitionModel()
        self.leaders[added] = self._links[added] = 0
        self.epochs[added] = 0
        self.publish()

    def link(self, partition: TopicPartition) -> None:
        """Make the client use its other connection to the leader."""
        self._links[partition] = 1 - self._links[partition]
        self.publish()

    def move(self, partition: TopicPartition) -> None:
        """Make the other broker the leader; clients learn of it when they next ask."""
        self.leaders[partition] = 1 - self.leaders[partition]
        self.epochs[partition] += 1


@dataclass
class Flight:
    batch: ProduceBatch
    data: bytes
    answer: ProduceResponse | None = None


class TransportModel:
    """A client's connections to the cluster; nothing happens on them but what a test makes happen.

    A ``node`` is the id of one. The first one of a broker has the broker's number.

    Attributes:
        sent: all batches, as (partition, epoch, first sequence number).
        updates: topics that were asked for.
        out_of_reach: why nothing can be sent at all.
        reachable: brokers that take requests.
    """

    def __init__(self, cluster: ClusterModel) -> None:
        self.model = cluster
        self.sent: list[tuple[int, int, int]] = []
        self.updates: list[set[str]] = []
        self.out_of_reach: type[KafkaError] | None = None
        self.reachable = set(BROKERS)
        self.asked: list[float] = []
        self._pending: dict[int, list[list[Flight]]] = {node: [] for node in NODES}
        self._answers: list[ProduceResponse] = []

    # --- what a test makes happen ---------------------------------------------------------------------

    def store(self, node: int, requests: int = 1) -> None:
        """Have a broker handle the next requests on its connection; the answers are under way."""
        waiting = [request for request in self._pending[node] if request[0].answer is None]
        for request in waiting[:requests]:
            for flight in request:
                flight.answer = self._handle(node, flight)

    def answer(self, node: int) -> None:
        """Have the oldest request on a connection handled, if it is not yet, and answered."""
        if self._pending[node]:
            if self._pending[node][0][0].answer is None:
                self.store(node)
            self._answers += [flight.answer for flight in self._pending[node].pop(0) if flight.answer is not None]

    def answer_all(self) -> None:
        for node, requests in self._pending.items():
            while requests:
                self.answer(node)

    def drop(self, node: int) -> None:
        """Break a connection: what is not stored is lost, and so are all answers."""
        while self._pending[node]:
            self.lose_answer(node)

    def lose_answer(self, node: int) -> None:
        """Have the oldest request on a connection answered as if that had broken with it alone."""
        request = self._pending[node].pop(0)
        self._answers += [
            ProduceResponse(each.batch, error=NetworkError, message="connection lost") for each in request
        ]

    def in_flight(self, node: int) -> int:
        return len(self._pending[node])

    def _handle(self, node: int, flight: Flight) -> ProduceResponse:
        partition = flight.batch.topic_partition
        if partition not in self.model.partitions:
            return ProduceResponse(flight.batch, error=UnknownTopicOrPartitionError, message=f"{partition} is unknown")
        if self.model.leaders[partition] != broker_of(node):
            return ProduceResponse(flight.batch, error=NotLeaderOrFollowerError, message=f"{partition} has moved")
        if len(flight.data) > self.model.largest:
            return ProduceResponse(flight.batch, error=RecordTooLargeError, message="too large")
        values = [record.value or b"" for batch in MemoryRecords(flight.data) for record in batch]
        invalid = {number: "" for number, value in enumerate(values) if self.model.is_invalid(value)}
        if invalid:
            return ProduceResponse(flight.batch, error=InvalidRecordError, message="no good", invalid_records=invalid)
        outcome = self.model.partitions[partition].append(flight.batch, flight.data)
        if isinstance(outcome, int):
            return ProduceResponse(flight.batch, outcome)
        return ProduceResponse(flight.batch, error=outcome, message=f"refused: {outcome.__name__}")

    # --- Transport ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Do nothing."""

    def init_producer_id(self) -> tuple[int, int] | None:
        producer_id = next(self.model.producer_ids, None)
        return None if producer_id is None else (producer_id, self.model.first_epoch)

    def failure(self) -> type[KafkaError] | None:
        return self.out_of_reach

    def cluster(self) -> Cluster:
        return self.model.snapshot

    def request_update(self, topics: Collection[str]) -> None:
        self.updates.append(set(topics))
        self.model.publish()

    def ready(self, node: Node, now_ms: int) -> bool:
        return node.broker in self.reachable and len(self._pending[node.id]) < 5

    def connection_delay_ms(self, node: Node, now_ms: int) -> float:
        return 10

    def is_busy(self) -> bool:
        return all(broker_of(node) in self.reachable and len(self._pending[node]) >= 5 for node in NODES)

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        assert len({batch.topic_partition for batch in batches}) == len(batches) > 0
        self.sent += [(each.topic_partition.partition, each.producer_epoch, each.base_sequence) for each in batches]
        self._pending[node.id].append([Flight(batch, b"".join(batch.payload)) for batch in batches])

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        self.asked.append(timeout_ms)
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        """Break all connections; no client gets an answer to a request that is in flight."""
        for answer in self._answers:
            answer.batch.release()
        for requests in self._pending.values():
            for flight in (flight for request in requests for flight in request):
                flight.batch.release()
            requests.clear()
        self._answers.clear()


class Clock:
    """Stands for the module ``time`` where a test decides what time it is."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def monotonic(self) -> float:
        """Return the real time: waits for locks are real."""
        return time.monotonic()

    def time(self) -> float:
        return self.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Take no time: what time it is says the test."""


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have batches made and answers handled at the time that the returned clock says."""
    clock = Clock()
    monkeypatch.setattr(record_appender, "time", clock)
    monkeypatch.setattr(sender_module, "time", clock)
    monkeypatch.setattr(sleep, "time", clock)
    return clock


class BrokerRun(HandRun):
    """A sender by hand whose transport is the model's; every sender of a slab has its own connections."""

    def __init__(self, config: ProducerConfig, cluster: ClusterModel, clock: Clock) -> None:
        self.transport: TransportModel
        super().__init__(config, TransportModel(cluster))
        self.cluster = cluster
        self.clock = clock

    def step(self, passes: int = 1, after_ms: int = 0) -> None:
        self.clock.now_ms += after_ms
        for _ in range(passes):
            self.sender.run_once(self.clock.now_ms)

    def run(self, passes: int = 2, after_ms: int = 0) -> None:
        self.step(passes, after_ms)

    def go_on(self) -> None:
        """Let the brokers answer and time go by, until nothing is left."""
        for _ in range(1000):
            if self.slab.undelivered() == (0, 0):
                return
            self.transport.answer_all()
            self.step(after_ms=5)
        raise AssertionError(f"{self.slab.undelivered()} is left")


StartBrokerRun = Callable[..., BrokerRun]


def config_of(slab_name: str, **settings: object) -> ProducerConfig:
    """Return settings under which much happens in a short time: little memory, short waits."""
    waits = {"linger_ms": 0, "retry_backoff_max_ms": 10, "request_timeout_ms": 500, "delivery_timeout_ms": TIMEOUT_MS}
    return splitting.config_of(slab_name, Path("/nowhere"), **(waits | settings))


def sent(run: BrokerRun, partition: TopicPartition) -> list[tuple[int, int]]:
    """Return (epoch, sequence number) of all that was sent to a partition since the last call."""
    found = [(epoch, sequence) for number, epoch, sequence in run.transport.sent if number == partition.partition]
    run.transport.sent.clear()
    return found
