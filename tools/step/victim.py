"""The victim: a process that begins an operation and is killed during it."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from shmaccum import Producer
from shmaccum.accumulator.state.accumulator_state import attach_for
from shmaccum.config import ProducerConfig
from tools.step.account import Account, Records
from tools.step.sending import HandSender
from tools.step.settings import PARTITIONS, PATIENCE_S, TOPIC, value
from tools.step.steps import Steps
from tools.step.stores import Stores
from tools.support.accumulators import Accumulators
from tools.support.processes import die_with_parent

if TYPE_CHECKING:
    from tools.step.operation import Operation

BOUND_S: Final = 20
"""Limit for any action in a point; after it, the process counts as stuck."""


class Victim:
    """The building blocks of operations, on the victim's side.

    Attributes:
        config: the slab's settings.
        account: tells the survivor what it needs to know.
        refusing: whether the log refuses some batches.
        is_second: whether it runs beside another victim, and is not to wait for long.
    """

    def __init__(self, config: ProducerConfig, account: Account, *, refusing: bool, is_second: bool) -> None:
        self.config = config
        self.account = account
        self.refusing = refusing
        self.is_second = is_second

    def attach(self) -> Accumulators:
        """Attach to the slab, or create it."""
        accumulator = attached(self.config)
        if self.is_second:
            accumulator.slab.lock_timeout_s = PATIENCE_S
        return accumulator

    def producer(self) -> Producer:
        """Return a producer; the survivor or another process is its sender."""
        producer = Producer(self.config)
        if self.is_second:
            producer._slab.lock_timeout_s = PATIENCE_S
        return producer

    def value(self, text: str, size: int = 0) -> str:
        """Return a record's value, which is another one for each victim."""
        return value(f"{text}, second" if self.is_second else text, size)

    def sender(self) -> HandSender:
        """Return a sender that has not begun its work."""
        return HandSender(self.attach(), self.config, refusing=self.refusing)

    def append(self, accumulator: Accumulators, partition: int, text: str, size: int = 0) -> None:
        value = self.value(text, size)
        append = partial(accumulator.append, PARTITIONS[partition], 0, None, value.encode())
        self._appending([(partition, value)], append)

    def send(self, producer: Producer, partition: int, text: str, size: int = 0) -> None:
        value = self.value(text, size)
        send = partial(producer.send, TOPIC, value, partition=partition, timestamp_ms=0)
        self._appending([(partition, value)], send)

    def send_batch(self, producer: Producer, partition: int, texts: list[str], size: int = 0) -> None:
        import pyarrow as pa

        values = [self.value(text, size) for text in texts]
        count = len(values)
        batch = pa.record_batch({"value": values, "partition": [partition] * count, "timestamp": [0] * count})
        self._appending([(partition, each) for each in values], partial(producer.send_batch, TOPIC, batch))

    def _appending(self, records: Records, append: Callable[[], object]) -> None:
        self.account.will_append(records)
        append()
        self.account.has_appended()


def attached(config: ProducerConfig) -> Accumulators:
    """Attach to the slab for some settings."""
    return Accumulators(attach_for(config), config)


def be_victim(operation: Operation, victim: Victim, step: int | Stores, wait: Callable[[], object]) -> NoReturn:
    """Run an operation in this process, to be killed at a step, or at its end.

    Args:
        operation: the operation.
        victim: what it gets.
        step: the number of an instruction; or what ends it at a store.
        wait: returns when the scene is set; when called again, when the operation itself may run.
    """
    die_with_parent()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(BOUND_S)

    def die_there(place: str) -> None:
        victim.account.say(pid=os.getpid(), steps=steps.count, place=place)
        die()

    steps = step if isinstance(step, Stores) else Steps(die_there, step)

    try:
        wait()
        act = operation.begin(victim)
        victim.account.say(is_ready=True)
        wait()
        steps.run(act)
        die_there("the end")
    except BaseException:
        victim.account.say(error=traceback.format_exc())
    os._exit(1)


def die() -> None:
    """Kill this process now."""
    os.kill(os.getpid(), signal.SIGKILL)
