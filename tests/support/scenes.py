"""Producers, senders that follow each other, and brokers, to which anything happens; then all promises are checked."""

from __future__ import annotations

import random
from functools import partial
from types import ModuleType
from typing import ClassVar

from broker_model import NODES, TIMEOUT_MS, BrokerRun, Clock, ClusterModel
from killpoints import interrupt_after

from shmaccum._core import FutureRecordMetadata
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import BufferExhaustedError, KafkaError

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
UNKNOWN_OFFSET = -1
"""Of records that a broker has, as an answer for others shows (``ProduceResponse.INVALID_OFFSET``)."""


class Scene:
    """A cluster, the senders that follow each other, and what their producers have appended.

    Attributes:
        lines: modules; a sender dies before any line of these.
        errors: with which a record may be given up.
        at_once: Most records that a producer appends in a row.
        lines_of_a_pass, lines_of_recovery: The last ones before which a sender dies.
        makes_run: Starts a sender.
    """

    lines: ClassVar[tuple[ModuleType, ...]]
    errors: ClassVar[tuple[type[KafkaError], ...]]
    at_once = 5
    lines_of_a_pass, lines_of_recovery = 400, 300
    makes_run: ClassVar[type[BrokerRun]] = BrokerRun

    def __init__(self, config: ProducerConfig, clock: Clock, seed: int = 0) -> None:
        self.config = config
        self.clock = clock
        self.draw = random.Random(seed)
        self.cluster = ClusterModel("t", len(PARTITIONS))
        self.run = self.makes_run(config, self.cluster, clock)
        self.runs = [self.run]
        self.run.begin()
        self.run.topic("t")
        self.futures: dict[TopicPartition, dict[int, FutureRecordMetadata]] = {each: {} for each in PARTITIONS}

    # --- what can happen ----------------------------------------------------------------------------

    def happen(self, what: str) -> None:
        """Have something happen, the details of which are drawn."""
        draw, transport = self.draw, self.run.transport
        partition, node, few = draw.choice(PARTITIONS), draw.choice(list(NODES)), draw.randint(1, 5)
        match what:
            case "append":
                self.append(partition, draw.randint(1, self.at_once))
            case "step":
                self.run.step(after_ms=draw.choice([0, 0, 1, 20]))
            case "wait":
                self.run.step(after_ms=draw.choice([TIMEOUT_MS // 3, TIMEOUT_MS // 3, TIMEOUT_MS]))
            case "answer":
                for _ in range(few):
                    transport.answer(node)
            case "store":  # and be slow with the answers
                transport.store(node, few)
            case "drop":  # with some of the requests in flight
                transport.store(node, few - 1)
                transport.drop(node)
            case "link":
                self.cluster.link(partition)
            case "move":
                self.cluster.move(partition)
            case "die":
                self.die(draw.randint(0, self.lines_of_a_pass), few - 1)
            case "die_twice":
                self.die(draw.randint(0, self.lines_of_a_pass), few - 1, draw.randint(0, self.lines_of_recovery))
            case _:
                raise ValueError(what)

    def value(self, number: int) -> bytes:
        """Return the value of a record: its number, and what fills it up."""
        raise NotImplementedError

    def append(self, partition: TopicPartition, records: int) -> None:
        for _ in range(records):
            number = next(self.cluster.numbers)
            try:
                self.futures[partition][number] = self.run.send(partition, self.value(number))
            except BufferExhaustedError:
                return

    def die(self, lines: int, stored: int, again: int | None = None) -> None:
        """Kill the sender before a line of a pass; its brokers may have got what it had just sent.

        ``stored``: requests on its connections that are stored nevertheless. ``again``: the line before which its
        successor dies, while it picks up what was left.
        """
        interrupt_after(lines, self.run.step, *self.lines)
        for node in NODES:
            self.run.transport.store(node, stored)
        self._next_sender()
        if again is not None:
            interrupt_after(again, self.run.begin, *self.lines)
            self._next_sender()
        self.run.begin()

    def _next_sender(self) -> None:
        for lock in self.run.slab.locks:  # as the next holder does where a process is really dead
            lock.run(partial(self.run.slab.rebuild, lock.number))
        self.run.resign()
        self.run = self.makes_run(self.config, self.cluster, self.clock)
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
            stored = [int(value.rstrip(b"\0.")) for value in self.cluster.partitions[partition].values]
            assert stored == sorted(set(stored)), "stored twice, or not in the order of append"
            assert set(stored) <= set(futures)
            for number, future in futures.items():
                outcome = _outcome(future)
                if isinstance(outcome, int):
                    self.check_acknowledged(number, outcome, stored)
                else:
                    assert outcome in self.errors

    def check_acknowledged(self, number: int, offset: int, stored: list[int]) -> None:
        assert offset >= 0
        assert stored[offset] == number

    def close(self) -> None:
        for run in self.runs:
            run.close()


def _outcome(future: FutureRecordMetadata) -> int | type[KafkaError]:
    try:
        return future.get(0).offset
    except KafkaError as error:
        return type(error)
