"""The survivor: sets the scene for the victim, and goes on when that is dead."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shmaccum.accumulator.append.futures import FutureRecordMetadata
from shmaccum.config import ProducerConfig
from shmaccum.pool.slots import Buffer
from shmaccum.shm.lifecycle import detach
from shmaccum.shm.slab import Slab
from tools.crashpoints.sending import HandSender
from tools.crashpoints.settings import PARTITIONS, TOPIC, value
from tools.crashpoints.victim import attached, die
from tools.support.accumulators import Accumulators

PATIENCE_MS: Final = 5_000
"""How long anything that is to be had at once may take; the machine may be busy."""


@dataclass(frozen=True)
class Appended:
    """A record of the survivor's own."""

    partition: int
    value: str
    future: FutureRecordMetadata


class Survivor:
    """The process that goes on, as a producer and as the sender.

    Attributes:
        config: the slab's settings.
        refusing: whether the log refuses some batches.
        own: the records that it has appended.
        held: memory that it has taken and not given back.
        victim_lives: whether it does, as far as is known.
        sender: the sender that it is, if it is.
    """

    def __init__(self, config: ProducerConfig, *, refusing: bool = False) -> None:
        self.config = config
        self.refusing = refusing
        self.own: list[Appended] = []
        self.held: list[Buffer] = []
        self.victim_lives = True
        self.sender: HandSender | None = None
        self._accumulator: Accumulators | None = None

    @property
    def accumulator(self) -> Accumulators:
        """The slab's; attaches when it is first asked for."""
        if self._accumulator is None:
            self._accumulator = attached(self.config)
        return self._accumulator

    @property
    def slab(self) -> Slab:
        """The slab."""
        return self.accumulator.slab

    # --- the scene ----------------------------------------------------------------------------------

    def settle_in(self) -> None:
        """Be there, and the sender; the topic is known, and its first batches, which go other ways, are delivered."""
        self.serve()
        self.know_topic()
        for partition in range(len(PARTITIONS)):
            self.append(partition, "first")
        self.deliver()

    def serve(self) -> None:
        """Be the sender, unless it is that already: go on where the last one died."""
        if self.sender is None:
            self.sender = HandSender(self.accumulator, self.config, refusing=self.refusing)
            self.accumulator.pool.while_waiting = self.run_once
            self.accumulator.sender.recover()

    def resign(self) -> None:
        """Leave the sender's role to the victim."""
        assert self.sender is not None
        self.sender.resign()
        self.sender = None
        self.accumulator.pool.while_waiting = _do_nothing

    def run_once(self) -> None:
        """Make a pass of the sender's loop."""
        assert self.sender is not None
        self.sender.run_once()

    def know_topic(self) -> None:
        """Have the topic known, whoever has asked for it."""
        if self.accumulator.map.topic(TOPIC) is None:
            self.accumulator.map.request(TOPIC)
        self._until(lambda: PARTITIONS[-1] in self.accumulator.map.queues)

    def deliver(self) -> None:
        """Deliver all that there is."""
        self._until(lambda: self.slab.undelivered() == (0, 0))
        self.accumulator.producer.pending.poll()

    def _until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("the sender does not get on")
            self.run_once()

    def append(self, partition: int, text: str, size: int = 0) -> None:
        """Append a record."""
        of = value(text, size)
        result = self.accumulator.append(PARTITIONS[partition], 0, None, of.encode(), max_block_ms=PATIENCE_MS)
        self.own.append(Appended(partition, of, result.future))

    def take(self, slots: int = 1) -> None:
        """Take memory."""
        size = slots * self.slab.geometry.slot_size
        self.held.append(self.accumulator.pool.allocate(size, PATIENCE_MS))

    def scatter(self) -> None:
        """Take every other slot of those that are free: no two that are left are adjacent."""
        pool = self.accumulator.pool
        taken: list[Buffer] = []
        while pool.available_memory():
            taken.append(pool.allocate(1, 0))
        pool.deallocate(*taken[::2])
        self.held += taken[1::2]

    def give_one_back(self) -> None:
        """Give the memory back that was taken first, if any is left."""
        if self.held:
            self.accumulator.pool.deallocate(self.held.pop(0))

    def have_died(self, act: Callable[[Accumulators], object]) -> None:
        """Have another process of the slab do something and die over it, or behind it."""
        pid = os.fork()
        if not pid:
            try:
                act(self.accumulator)
            except BaseException:
                traceback.print_exc()
            die()
        os.waitpid(pid, 0)

    def leave(self) -> None:
        """Leave the slab."""
        if self.sender is not None:
            self.resign()
        detach(self.slab)
        self._accumulator = None


def _do_nothing() -> None:
    pass
