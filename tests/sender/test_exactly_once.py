"""Whatever happens between a sender and its brokers: each record is stored once, in order, or its producer is told.

What happens is drawn: requests and answers lost, brokers that refuse, leaders that move, time that runs out, senders
that die between any two lines. The brokers are models that check sequence numbers as Kafka's do.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

import pytest
from brokers import NODES, BrokerRun, Clock, ClusterModel, stop_the_clock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killpoints import interrupt_after

from shmaccum.accumulator import batch_drainer, completer, completion, expirer, partition_queue, sequences
from shmaccum.accumulator.futures import FutureRecordMetadata
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaError,
    KafkaStorageError,
)
from shmaccum.sender import sender

SLOT: Final = 1024
TIMEOUT_MS: Final = 2000
PARTITIONS: Final = [TopicPartition("t", 0), TopicPartition("t", 1)]
LINES: Final = (batch_drainer, completer, completion, expirer, partition_queue, sequences, sender)
"""A sender dies before any line of these."""

_names = count()


class Scene:
    """Producers, the senders that follow each other, and the brokers."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.cluster = ClusterModel("t", len(PARTITIONS))
        self.runs: list[BrokerRun] = []
        self._next_sender()
        self.run.begin()
        self.run.topic("t")
        self.futures: dict[TopicPartition, dict[int, FutureRecordMetadata]] = {each: {} for each in PARTITIONS}

    # --- what can happen ----------------------------------------------------------------------------

    def append(self, partition: TopicPartition, records: int) -> None:
        """Have a producer append records, two of which fill a batch."""
        for _ in range(records):
            number = next(self.cluster.numbers)
            try:
                self.futures[partition][number] = self.run.send(partition, b"%d" % number + bytes(SLOT // 3))
            except BufferExhaustedError:
                return

    def step(self, after_ms: int) -> None:
        """Have the sender make a pass."""
        self.run.step(after_ms=after_ms)

    def answer(self, node: int, requests: int) -> None:
        """Have a broker answer requests; the sender sees that in the next pass."""
        for _ in range(requests):
            self.run.transport.answer(node)

    def drop(self, node: int, stored: int) -> None:
        """Break a connection, after some of the requests on it have been stored."""
        self.run.transport.store(node, stored)
        self.run.transport.drop(node)

    def store(self, node: int, requests: int) -> None:
        """Have a broker store requests and be slow with its answers."""
        self.run.transport.store(node, requests)

    def refuse(self, partition: TopicPartition, error: type[KafkaError]) -> None:
        """Have a broker refuse a batch."""
        self.cluster.partitions[partition].refuse.append(error)

    def move(self, partition: TopicPartition) -> None:
        """Have the other broker lead a partition."""
        self.cluster.move(partition)

    def die(self, lines: int, stored: int) -> None:
        """Kill the sender in a pass; its brokers may have got what it had just sent."""
        interrupt_after(lines, self.run.step, *LINES)
        for node in NODES:
            self.run.transport.store(node.id, stored)
        self.run.resign()
        self._next_sender()
        self.run.begin()

    def die_twice(self, lines: int, again: int) -> None:
        """Kill the sender, and its successor as well while that picks up what was left."""
        interrupt_after(lines, self.run.step, *LINES)
        self.run.resign()
        self._next_sender()
        interrupt_after(again, self.run.begin, *LINES)
        self.run.resign()
        self._next_sender()
        self.run.begin()

    def _next_sender(self) -> None:
        self.run = BrokerRun(self.config, self.cluster, self.clock)
        self.runs.append(self.run)

    # --- what comes out of it -----------------------------------------------------------------------

    def finish(self) -> None:
        """Have everything go well from now on, and compare what was promised with what is stored."""
        for model in self.cluster.partitions.values():
            model.refuse.clear()
        self.run.go_on()
        assert self.run.accumulator.pool.available_memory() == self.run.accumulator.pool.total_memory
        for partition, futures in self.futures.items():
            stored = [int(value.rstrip(b"\0")) for value in self.cluster.partitions[partition].values]
            assert stored == sorted(set(stored)), "stored twice, or not in the order of append"
            assert set(stored) <= set(futures)
            for number, future in futures.items():
                outcome = _outcome(future)
                if isinstance(outcome, int):
                    assert stored[outcome] == number
                else:
                    assert outcome in (DeliveryTimeoutError, InvalidRecordError, KafkaStorageError)

    def close(self) -> None:
        for run in self.runs:
            run.close()


def _outcome(future: FutureRecordMetadata) -> int | type[KafkaError]:
    """Return the offset of a record, or the error that it met."""
    try:
        return future.get(0).offset
    except KafkaError as error:
        return type(error)


partitions = st.sampled_from(PARTITIONS)
nodes = st.sampled_from([node.id for node in NODES])
few = st.integers(1, 5)


def happening(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.tuples(st.just(name), *arguments)


quiet = st.one_of(
    happening("append", partitions, st.integers(1, 6)),
    happening("step", st.sampled_from([0, 1, 20])),
    happening("answer", nodes, few),
)
troubles = st.one_of(
    happening("drop", nodes, st.integers(0, 5)),
    happening("store", nodes, few),
    happening("refuse", partitions, st.sampled_from([KafkaStorageError, KafkaStorageError, InvalidRecordError])),
    happening("move", partitions),
    happening("step", st.sampled_from([TIMEOUT_MS // 2, TIMEOUT_MS])),
)
deaths = st.one_of(
    happening("die", st.integers(0, 400), st.integers(0, 5)),
    happening("die_twice", st.integers(0, 400), st.integers(0, 300)),
)


def runs_of(*happenings: st.SearchStrategy[tuple[object, ...]]) -> st.SearchStrategy[list[tuple[object, ...]]]:
    return st.lists(st.one_of(quiet, quiet, *happenings), min_size=10, max_size=60)


def play(happenings: list[tuple[object, ...]], slab_name: str, clock: Clock) -> None:
    scene = Scene(
        ProducerConfig.parse(
            {
                "shmaccum.name": f"{slab_name}-{next(_names)}",
                "log.dir": "/nowhere",
                "batch.size": SLOT,
                "buffer.memory": 24 * SLOT,
                "linger.ms": 0,
                "retry.backoff.ms": 2,
                "retry.backoff.max.ms": 10,
                "request.timeout.ms": 500,
                "delivery.timeout.ms": TIMEOUT_MS,
                "shmaccum.max.processes": 4,
                "shmaccum.max.topics": 1,
                "shmaccum.max.partitions": 2,
            }
        ),
        clock,
    )
    try:
        for name, *arguments in happenings:
            act: Callable[..., None] = getattr(scene, str(name))
            act(*arguments)
        scene.finish()
    finally:
        scene.close()


SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@SETTINGS
@given(happenings=runs_of(troubles))
def test_brokers_in_trouble(happenings: list[tuple[object, ...]], slab_name: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        play(happenings, slab_name, stop_the_clock(monkeypatch))


@SETTINGS
@given(happenings=runs_of(troubles, deaths))
def test_senders_that_die(happenings: list[tuple[object, ...]], slab_name: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        play(happenings, slab_name, stop_the_clock(monkeypatch))


@SETTINGS
@given(happenings=runs_of(troubles, deaths))
def test_epochs_that_run_out(happenings: list[tuple[object, ...]], slab_name: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sequences, "MAX_EPOCH", 1)
        play(happenings, slab_name, stop_the_clock(monkeypatch))
