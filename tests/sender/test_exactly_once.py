"""Exactly once: whatever happens, each record is stored once and in order, or its future has the error.

What happens is drawn: requests and answers lost, brokers that refuse, leaders that move, time that runs out, senders
that die between any two lines. The brokers are models that check sequence numbers as Kafka's do.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Final

import pytest
from broker_model import NODES, BrokerRun, Clock, ClusterModel, troubled_config
from killpoints import interrupt_after

from shmaccum.accumulator.append.futures import FutureRecordMetadata
from shmaccum.accumulator.drain import batch_drainer, completer, expirer, sequence_doubt, sequences
from shmaccum.accumulator.state import completion_ring, partition_queue
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaError,
    KafkaStorageError,
    NetworkError,
)
from shmaccum.sender import response_handler, sealer, sender

SLOT: Final = 1024
TIMEOUT_MS: Final = 2000
PARTITIONS: Final = [TopicPartition("t", 0), TopicPartition("t", 1)]
UNKNOWN_OFFSET: Final = -1
"""Of records that a broker has, as an answer for others shows (``ProduceResponse.INVALID_OFFSET``)."""
LINES: Final = (
    batch_drainer,
    completer,
    completion_ring,
    expirer,
    partition_queue,
    response_handler,
    sealer,
    sender,
    sequence_doubt,
    sequences,
)
"""A sender dies before any line of these."""


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

    def happen(self, what: str, draw: random.Random) -> None:
        """Have something happen, the details of which are drawn."""
        partition, node, few = draw.choice(PARTITIONS), draw.choice(NODES).id, draw.randint(1, 5)
        match what:
            case "append":
                self.append(partition, few)
            case "step":
                self.run.step(after_ms=draw.choice([0, 0, 1, 20]))
            case "wait":
                self.run.step(after_ms=draw.choice([TIMEOUT_MS // 3, TIMEOUT_MS // 3, TIMEOUT_MS]))
            case "answer":
                for _ in range(few):
                    self.run.transport.answer(node)
            case "store":  # and be slow with the answers
                self.run.transport.store(node, few)
            case "drop":  # with some of the requests in flight
                self.run.transport.store(node, few - 1)
                self.run.transport.drop(node)
            case "restart":  # of both brokers, with some of the requests in flight
                for each in NODES:
                    self.run.transport.store(each.id, draw.randint(0, 5))
                    self.run.transport.drop(each.id)
                for model in self.cluster.partitions.values():
                    model.restart()
            case "refuse":
                error = draw.choice([KafkaStorageError, KafkaStorageError, InvalidRecordError])
                self.cluster.partitions[partition].refuse.append(error)
            case "deny":
                self.cluster.partitions[partition].deny.append(NetworkError)
            case "move":
                self.cluster.move(partition)
            case "die":
                self.die(draw.randint(0, 400), few - 1)
            case "die_twice":
                self.die(draw.randint(0, 400), few - 1, draw.randint(0, 300))

    def append(self, partition: TopicPartition, records: int) -> None:
        """Have a producer append records, two of which fill a batch."""
        for _ in range(records):
            number = next(self.cluster.numbers)
            try:
                self.futures[partition][number] = self.run.send(partition, b"%d" % number + bytes(SLOT // 3))
            except BufferExhaustedError:
                return

    def die(self, lines: int, stored: int, again: int | None = None) -> None:
        """Kill the sender in a pass; its brokers may have got what it had just sent.

        Args:
            lines: The line of the pass before which it dies.
            stored: Requests on its connections that are stored all the same.
            again: The line before which its successor dies, while it picks up what was left.
        """
        interrupt_after(lines, self.run.step, *LINES)
        for node in NODES:
            self.run.transport.store(node.id, stored)
        self.run.resign()
        self._next_sender()
        if again is not None:
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
            model.deny.clear()
        self.run.go_on()
        assert self.run.accumulator.pool.available_memory() == self.run.accumulator.pool.total_memory
        for partition, futures in self.futures.items():
            stored = [int(value.rstrip(b"\0")) for value in self.cluster.partitions[partition].values]
            assert stored == sorted(set(stored)), "stored twice, or not in the order of append"
            assert set(stored) <= set(futures)
            for number, future in futures.items():
                outcome = _outcome(future)
                if outcome == UNKNOWN_OFFSET:
                    assert number in stored
                elif isinstance(outcome, int):
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


def play(happenings: Mapping[str, int], seed: int, config: ProducerConfig, clock: Clock) -> None:
    """Have many things happen, and look at what came out of it."""
    draw = random.Random(seed)
    scene = Scene(config, clock)
    try:
        for what in draw.choices(list(happenings), list(happenings.values()), k=600):
            scene.happen(what, draw)
        scene.finish()
    finally:
        scene.close()


QUIET: Final = {"append": 80, "step": 160, "answer": 80, "store": 20}
TROUBLE: Final = {"refuse": 6, "deny": 10, "drop": 10, "move": 6, "wait": 3}
RESTARTS: Final = {"restart": 8, "drop": 10, "move": 6}
DEATH: Final = {"die": 6, "die_twice": 2}
"""What happens, and how often compared with the rest."""


@pytest.fixture
def config(slab_name: str) -> ProducerConfig:
    return troubled_config(slab_name, SLOT, TIMEOUT_MS)


@pytest.mark.parametrize("seed", range(20))
def test_brokers_in_trouble(config: ProducerConfig, clock: Clock, seed: int) -> None:
    play(QUIET | TROUBLE, seed, config, clock)


@pytest.mark.parametrize("seed", range(20))
def test_senders_that_die(config: ProducerConfig, clock: Clock, seed: int) -> None:
    play(QUIET | TROUBLE | DEATH, seed, config, clock)


@pytest.mark.parametrize("seed", range(20))
def test_brokers_that_come_back_knowing_less(config: ProducerConfig, clock: Clock, seed: int) -> None:
    play(QUIET | RESTARTS, seed, config, clock)


@pytest.mark.parametrize("seed", range(20))
def test_brokers_that_come_back_and_senders_that_die(config: ProducerConfig, clock: Clock, seed: int) -> None:
    play(QUIET | RESTARTS | DEATH, seed, config, clock)


@pytest.mark.parametrize("seed", range(20))
def test_epochs_that_run_out(config: ProducerConfig, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "MAX_EPOCH", 0)
    play(QUIET | TROUBLE | DEATH, seed, config, clock)


@pytest.mark.plain  # the sender dies before a line
@pytest.mark.parametrize(
    ("modules", "times"),
    [
        pytest.param((sequences, sequence_doubt), [20] * 5, id="a batch is refused for good"),
        pytest.param((completer, expirer), [20, 20, TIMEOUT_MS, 20], id="batches expire in flight and in the queue"),
    ],
)
def test_a_death_before_any_line(
    config: ProducerConfig, clock: Clock, modules: tuple[ModuleType, ...], times: list[int]
) -> None:
    """With batches stored and not, answered and not, and others behind a gap."""

    def go_on(run: BrokerRun) -> None:
        for number, after_ms in enumerate(times):
            run.step(after_ms=after_ms)
            run.transport.answer(number % 2)

    def dies_before(line: int) -> bool:
        scene = Scene(config, clock)
        try:
            for partition, model in scene.cluster.partitions.items():
                scene.append(partition, 7)
                model.refuse = [KafkaStorageError, InvalidRecordError]
            died = interrupt_after(line, partial(go_on, scene.run), *modules)
            scene.die(0, 0)
            scene.finish()
            return died
        finally:
            scene.close()

    line = 0
    while dies_before(line):
        line += 1
    assert line > 100
