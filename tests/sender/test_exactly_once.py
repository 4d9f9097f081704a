"""Exactly once: whatever happens, each record is stored once and in order, or its future has the error.

What happens is drawn: requests and answers lost, brokers that refuse, that take neither large batches nor every record,
leaders that move, time that runs out, senders that die between any two lines. The brokers are models that check
sequence numbers as Kafka's do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from types import ModuleType
from typing import ClassVar, Final, TypeVar

import pytest
from broker_model import NODES, SLOT, TIMEOUT_MS, BrokerRun, Clock, ClusterModel, config_of
from killpoints import interrupt_before, lines_here

from shmaccum._core import FutureRecordMetadata, Process
from shmaccum.accumulator.drain import batch_drainer, completer, expirer, sequence_doubt
from shmaccum.accumulator.state import partition_map, partition_queue, record_batch
from shmaccum.cluster import TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaError,
    KafkaStorageError,
    NetworkError,
    RecordTooLargeError,
)
from shmaccum.sender import batch_splitter, response_handler, sealer, sender
from shmaccum.shm.validation import MAX_EPOCH

T = TypeVar("T")


PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
UNKNOWN_OFFSET = -1
"""Of records that a broker has, as an answer for others shows (``ProduceResponse.INVALID_OFFSET``)."""
ANOTHERS = b"-1"
"""The value of records that another producer writes in between."""


class Scene:
    """A cluster, the senders that follow each other, and what their producers have appended.

    Attributes:
        lines: modules; a sender dies before any line of these.
        errors: with which a record may be given up.
        at_once: Most records that a producer appends in a row.
        lines_of_a_pass, lines_of_recovery: The last ones before which a sender dies.
    """

    lines: ClassVar[tuple[ModuleType, ...]] = (
        *(batch_drainer, completer, expirer, partition_queue, response_handler, sealer, sender, sequence_doubt),
    )
    errors: ClassVar[tuple[type[KafkaError], ...]] = (DeliveryTimeoutError, InvalidRecordError, KafkaStorageError)
    at_once = 5
    lines_of_a_pass, lines_of_recovery = 400, 300

    def __init__(self, config: ProducerConfig, clock: Clock, seed: int = 0) -> None:
        self.config = config
        self.clock = clock
        self.draw = random.Random(seed)
        self.cluster = ClusterModel("t", len(PARTITIONS))
        self.run = BrokerRun(config, self.cluster, clock)
        self.runs = [self.run]
        self.run.begin()
        self.run.topic("t")
        self.futures: dict[TopicPartition, dict[int, FutureRecordMetadata]] = {each: {} for each in PARTITIONS}

    # --- what can happen ----------------------------------------------------------------------------

    def happen(self, what: str) -> None:
        """Have something happen, the details of which are drawn."""
        draw, transport = self.draw, self.run.transport
        partition, node, few = draw.choice(PARTITIONS), draw.choice(list(NODES)), draw.randint(1, 5)
        model = self.cluster.partitions[partition]
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
            case "restart":  # of both brokers, which come back knowing less
                for each in NODES:
                    transport.store(each, draw.randint(0, 5))
                    transport.drop(each)
                for restarted in self.cluster.partitions.values():
                    restarted.restart()
            case "refuse":
                model.refuse.append(draw.choice([KafkaStorageError, KafkaStorageError, InvalidRecordError]))
            case "deny":
                model.deny.append(NetworkError)
            case "another":  # producer writes
                model.values.append(ANOTHERS)
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
        """Return the value of a record: its number, and what fills it up. Two of these fill a batch."""
        return b"%d" % number + bytes(SLOT // 3)

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
        interrupt_before(lines, self.run.step, *self.lines)
        for node in NODES:
            self.run.transport.store(node, stored)
        self._next_sender()
        if again is not None:
            interrupt_before(again, self.run.begin, *self.lines)
            self._next_sender()
        self.run.begin()

    def _next_sender(self) -> None:
        for lock in self.run.slab.locks:  # as the next holder does where a process is really dead
            lock.run(partial(self.run.slab.rebuild, lock.number))
        self.run.resign()
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
            stored = [int(value.rstrip(b"\0.")) for value in self.cluster.partitions[partition].values]
            own = [number for number in stored if number != int(ANOTHERS)]
            assert own == sorted(set(own)), "stored twice, or not in the order of append"
            assert set(own) <= set(futures)
            for number, future in futures.items():
                error = future.exception(0)
                if error is not None:
                    assert type(error) in self.errors
                elif (offset := future.get(0).offset) == UNKNOWN_OFFSET:
                    assert number in stored
                else:
                    assert stored[offset] == number

    def close(self) -> None:
        for run in self.runs:
            run.close()


LARGEST: Final = 260
"""Bytes of a batch that the brokers take: several of the small records, and none of the large ones."""
SMALL: Final = 40
LARGE: Final = LARGEST


def is_invalid(value: bytes) -> bool:
    return int(value.rstrip(b".")) % 7 == 3


class PickyScene(Scene):
    """Brokers that take neither large batches nor every record."""

    lines = (
        batch_drainer,
        completer,
        expirer,
        partition_map,
        batch_splitter,
        record_batch,
        response_handler,
        sealer,
        sender,
    )
    errors = (DeliveryTimeoutError, InvalidRecordError, RecordTooLargeError)
    at_once = 30
    lines_of_a_pass, lines_of_recovery = 600, 400

    def __init__(self, config: ProducerConfig, clock: Clock, seed: int) -> None:
        super().__init__(config, clock, seed)
        self.cluster.largest, self.cluster.is_invalid = LARGEST, is_invalid

    def value(self, number: int) -> bytes:
        """Return a value that is small most of the time."""
        return b"%d" % number + b"." * (LARGE if self.draw.random() < 0.05 else self.draw.randint(0, SMALL))

    def happen(self, what: str) -> None:
        super().happen(what)
        slab = self.run.slab
        at = slab.geometry.process(slab.me)
        in_ring = slab.words[at + Process.RING_TAIL] - slab.words[at + Process.RING_HEAD]
        assert in_ring <= slab.geometry.ring_length, "what the producers have not read yet is overwritten"

    def finish(self) -> None:
        super().finish()
        assert not any(is_invalid(value) for model in self.cluster.partitions.values() for value in model.values)


def play(scene: Scene, happenings: Mapping[str, int], count: int = 600) -> None:
    """Have many things happen, and look at what came out of it."""
    try:
        for what in scene.draw.choices(list(happenings), list(happenings.values()), k=count):
            scene.happen(what)
        scene.finish()
    finally:
        scene.close()


QUIET: Final = {"append": 80, "step": 160, "answer": 80, "store": 20, "link": 5, "another": 10}
TROUBLE: Final = {"refuse": 6, "deny": 10, "drop": 10, "move": 6, "wait": 3}
RESTARTS: Final = {"restart": 8, "drop": 10, "move": 6, "wait": 3}
DEATH: Final = {"die": 6, "die_twice": 2}
"""What happens, and how often compared with the rest."""


@pytest.fixture
def config(slab_name: str) -> ProducerConfig:
    return config_of(slab_name, buffer_memory=24 * SLOT, retry_backoff_ms=2)


TODAY: Final = date.today().toordinal()
SEEDS: Final = [*range(4), *range(2 * TODAY, 2 * TODAY + 2)]
"""Of what is drawn: four that stay, and two of the day."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "happenings",
    [
        pytest.param(QUIET | TROUBLE, id="brokers in trouble"),
        pytest.param(QUIET | TROUBLE | DEATH, id="and senders that die"),
        pytest.param(QUIET | RESTARTS, id="brokers that come back knowing less"),
        pytest.param(QUIET | RESTARTS | DEATH, id="that, and senders that die"),
    ],
)
def test_exactly_once(config: ProducerConfig, clock: Clock, happenings: Mapping[str, int], seed: int) -> None:
    play(Scene(config, clock, seed), happenings)


@pytest.mark.parametrize("seed", SEEDS[2:])
def test_order_without_idempotence(slab_name: str, clock: Clock, seed: int) -> None:
    """As long as nothing is lost, whichever connection a partition has."""
    config = config_of(slab_name, buffer_memory=24 * SLOT, enable_idempotence=False)
    play(Scene(config, clock, seed), QUIET)


@pytest.mark.parametrize("seed", SEEDS[2:])
def test_epochs_that_run_out(config: ProducerConfig, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterModel, "first_epoch", MAX_EPOCH)
    play(Scene(config, clock, seed), QUIET | TROUBLE | DEATH)


PICKY_QUIET: Final = {"append": 30, "step": 160, "answer": 120, "store": 20, "link": 5, "another": 20}
PICKY_TROUBLE: Final = {"refuse": 3, "drop": 10, "move": 6, "wait": 2}


@pytest.mark.parametrize(
    ("happenings", "seed"),
    [
        *((PICKY_QUIET, seed) for seed in SEEDS[3:5]),
        *((PICKY_QUIET | PICKY_TROUBLE, seed) for seed in SEEDS[2:5]),
        *((PICKY_QUIET | PICKY_TROUBLE | DEATH, seed) for seed in SEEDS),
    ],
)
def test_exactly_once_in_parts(config: ProducerConfig, clock: Clock, happenings: dict[str, int], seed: int) -> None:
    scene = PickyScene(config, clock, seed)
    play(scene, happenings, 400)
    if happenings == PICKY_QUIET:
        assert all(future.is_done for futures in scene.futures.values() for future in futures.values())


@pytest.mark.parametrize(
    ("modules", "times"),
    [
        pytest.param((batch_drainer, sequence_doubt), [20] * 5, id="a batch is refused for good"),
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

    def with_scene(act: Callable[[Callable[[], None]], T]) -> T:
        scene = Scene(config, clock)
        try:
            for partition, model in scene.cluster.partitions.items():
                scene.append(partition, 7)
                model.refuse = [KafkaStorageError, InvalidRecordError]
            found = act(partial(go_on, scene.run))
            scene.die(0, 0)
            scene.finish()
            return found
        finally:
            scene.close()

    # Each line once for every pass; more often it finds what it found before.
    lines = with_scene(lambda action: lines_here(action, *modules, hits=len(times)))
    assert len(lines) > 80
    for line in lines:
        assert with_scene(lambda action, line=line: interrupt_before(line, action, *modules))
