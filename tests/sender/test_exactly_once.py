"""Exactly once: whatever happens, each record is stored once and in order, or its future has the error.

What happens is drawn: requests and answers lost, brokers that refuse, leaders that move, time that runs out, senders
that die between any two lines. The brokers are models that check sequence numbers as Kafka's do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Final, TypeVar

import pytest
from broker_model import NODES, SLOT, TIMEOUT_MS, BrokerRun, Clock, ClusterModel, config_of
from killpoints import interrupt_before, lines_here
from scenes import PARTITIONS, UNKNOWN_OFFSET, Scene

from shmaccum.accumulator.drain import batch_drainer, completer, expirer, sequence_doubt
from shmaccum.accumulator.state import partition_queue
from shmaccum.config import ProducerConfig
from shmaccum.errors import DeliveryTimeoutError, InvalidRecordError, KafkaStorageError, NetworkError
from shmaccum.sender import response_handler, sealer, sender
from shmaccum.shm.validation import MAX_EPOCH

T = TypeVar("T")


class RefusingScene(Scene):
    """Brokers that refuse batches, deny that they stored them, and come back knowing less."""

    lines = (
        batch_drainer,
        completer,
        expirer,
        partition_queue,
        response_handler,
        sealer,
        sender,
        sequence_doubt,
    )
    errors = (DeliveryTimeoutError, InvalidRecordError, KafkaStorageError)

    def value(self, number: int) -> bytes:
        """Return a third of a slot: two of them fill a batch."""
        return b"%d" % number + bytes(SLOT // 3)

    def happen(self, what: str) -> None:
        model = self.cluster.partitions[self.draw.choice(PARTITIONS)]
        match what:
            case "restart":  # of both brokers, with some of the requests in flight
                for each in NODES:
                    self.run.transport.store(each.id, self.draw.randint(0, 5))
                    self.run.transport.drop(each.id)
                for model in self.cluster.partitions.values():
                    model.restart()
            case "refuse":
                model.refuse.append(self.draw.choice([KafkaStorageError, KafkaStorageError, InvalidRecordError]))
            case "deny":
                model.deny.append(NetworkError)
            case _:
                super().happen(what)

    def check_acknowledged(self, number: int, offset: int, stored: list[int]) -> None:
        if offset == UNKNOWN_OFFSET:
            assert number in stored
        else:
            super().check_acknowledged(number, offset, stored)


def play(happenings: Mapping[str, int], seed: int, config: ProducerConfig, clock: Clock) -> None:
    """Have many things happen, and look at what came out of it."""
    scene = RefusingScene(config, clock, seed)
    try:
        for what in scene.draw.choices(list(happenings), list(happenings.values()), k=600):
            scene.happen(what)
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
    return config_of(slab_name, buffer_memory=24 * SLOT, retry_backoff_ms=2)


@pytest.mark.parametrize("seed", range(10))
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
    play(happenings, seed, config, clock)


@pytest.mark.parametrize("seed", range(8))
def test_epochs_that_run_out(config: ProducerConfig, clock: Clock, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterModel, "first_epoch", MAX_EPOCH)
    play(QUIET | TROUBLE | DEATH, seed, config, clock)


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
        scene = RefusingScene(config, clock)
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
        with_scene(lambda action, line=line: interrupt_before(line, action, *modules))
