"""The survivor: sets the scene for the victim, and continues after its death."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from shmaccum._core import Buffer, FutureRecordMetadata
from shmaccum.config import ProducerConfig
from shmaccum.shm.lifecycle import detach
from shmaccum.shm.slab import Slab
from tools.step.sending import HandSender
from tools.step.settings import PARTITIONS, TOPIC, value
from tools.step.victim import attached, die
from tools.support.accumulators import Accumulators

PATIENCE_MS: Final = 5_000
"""Limit for steps that need no waiting; the machine can be busy."""


class Stage(Enum):
    """When the survivor appends."""

    BEFORE = auto()
    """The operation begins later."""
    BESIDE = auto()
    """The victim is stopped."""
    AFTER = auto()
    """It is dead."""


@dataclass(frozen=True)
class Appended:
    """A record that the survivor has appended."""

    stage: Stage
    partition: int
    value: str
    future: FutureRecordMetadata


class Survivor:
    """The process that continues, as a producer and as the sender.

    Attributes:
        config: the slab's settings.
        refusing: whether the log refuses some batches.
        stage: now.
        own: the records that it has appended.
        held: memory that it has allocated and not freed.
        victim_lives: whether the victim lives, as far as is known.
        sender: its sender, while it is one.
    """

    def __init__(self, config: ProducerConfig, *, refusing: bool = False) -> None:
        self.config = config
        self.refusing = refusing
        self.stage = Stage.BEFORE
        self.own: list[Appended] = []
        self.held: list[Buffer] = []
        self.victim_lives = True
        self.sender: HandSender | None = None
        self._accumulator: Accumulators | None = None

    @property
    def accumulator(self) -> Accumulators:
        """The slab's; attaches on first use."""
        if self._accumulator is None:
            self._accumulator = attached(self.config)
        return self._accumulator

    @property
    def is_attached(self) -> bool:
        return self._accumulator is not None

    @property
    def slab(self) -> Slab:
        return self.accumulator.slab

    # --- the scene ----------------------------------------------------------------------------------

    def settle_in(self) -> None:
        """Become a producer and the sender; make the topic known; deliver its first batches, which take other paths."""
        self.serve()
        self.know_topic()
        for partition in range(len(PARTITIONS)):
            self.append(partition, "first")
        self.deliver()

    def serve(self) -> None:
        """Become the sender, if it is not, and continue where the last one died."""
        if self.sender is None:
            self.sender = HandSender(self.accumulator, self.config, refusing=self.refusing)
            self.accumulator.pool.while_waiting = self.run_once
            self.accumulator.sender.recover()

    def resign(self) -> None:
        """Leave the sender's role to the victim."""
        assert self.sender is not None
        self.sender.resign()
        self.sender = None
        self.accumulator.pool.while_waiting = lambda: None

    def run_once(self) -> None:
        """Run one pass of the sender."""
        assert self.sender is not None
        self.sender.run_once()

    def know_topic(self) -> None:
        """Make the topic known, whichever process requested it."""
        if self.accumulator.map.topic(TOPIC) is None:
            self.accumulator.map.request(TOPIC)
        self._until(lambda: PARTITIONS[-1] in self.accumulator.map.queues)

    def deliver(self) -> None:
        self._until(lambda: self.slab.undelivered() == (0, 0))
        self.accumulator.producer.pending.poll()

    def _until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the sender has not delivered everything in {PATIENCE_MS} ms")
            self.run_once()

    def append(self, partition: int, text: str, size: int = 0, max_block_ms: float = PATIENCE_MS) -> None:
        of = value(text, size)
        result = self.accumulator.append(PARTITIONS[partition], 0, None, of.encode(), max_block_ms=max_block_ms)
        self.own.append(Appended(self.stage, partition, of, result.future))

    def take(self, slots: int = 1) -> None:
        size = slots * self.slab.geometry.slot_size
        self.held.append(self.accumulator.pool.allocate(size, PATIENCE_MS))

    def scatter(self) -> None:
        """Allocate every other free slot, so that no two free slots are adjacent."""
        pool = self.accumulator.pool
        taken: list[Buffer] = []
        while pool.available_memory():
            taken.append(pool.allocate(1, 0))
        pool.deallocate(*taken[::2])
        self.held += taken[1::2]

    def give_one_back(self) -> None:
        """Free the memory that was allocated first, if any is left."""
        if self.held:
            self.accumulator.pool.deallocate(self.held[0])
            del self.held[0]

    def have_died(self, act: Callable[[Accumulators], object]) -> None:
        """Run ``act`` in another process of the slab, which then dies."""
        pid = os.fork()
        if not pid:
            try:
                act(self.accumulator)
            except BaseException:
                traceback.print_exc()
            die()
        os.waitpid(pid, 0)

    def leave(self) -> None:
        if self.sender is not None:
            self.resign()
        detach(self.slab)
        self._accumulator = None
