"""A sender that is killed between the pieces of a batch: the next one goes on with the same piece, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from killpoints import die_before, lines_of
from producers import wait_until_gone
from senders import HandRun, read_values

from shmaccum.accumulator import completer, completion, record_batch
from shmaccum.accumulator.futures import FutureRecordMetadata
from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import ShmaccumError
from shmaccum.sender import pieces, sender

T0 = TopicPartition("t", 0)
SLOT = 1024
LARGEST = 300
INVALID = b"invalid"
TOO_LARGE = b"too large".ljust(LARGEST)


@pytest.fixture
def config(tmp_path: Path, slab_name: str) -> ProducerConfig:
    return ProducerConfig.parse(
        {
            "shmaccum.name": slab_name,
            "sender.idle.ms": 50,
            "transport": "log",
            "log.dir": str(tmp_path / "log"),
            "num.partitions": 1,
            "batch.size": SLOT,
            "buffer.memory": 8 * SLOT,
            "shmaccum.max.processes": 8,
            "shmaccum.max.topics": 2,
            "shmaccum.max.partitions": 4,
        }
    )


def begin(config: ProducerConfig) -> HandRun:
    """Be the sender, over a broker that does not take everything."""
    run = HandRun(config)
    run.transport.largest = LARGEST
    run.transport.is_invalid = lambda value: value == INVALID
    run.transport.strict = True
    run.begin()
    return run


def be_sender(config: ProducerConfig) -> None:
    run = begin(config)
    run.run_until(lambda: run.slab.undelivered() == (0, 0))


@pytest.fixture
def producer(config: ProducerConfig) -> Iterator[HandRun]:
    run = HandRun(config)
    run.begin()
    run.topic("t")
    run.resign()
    yield run
    run.close()
    wait_until_gone(config.shmaccum_name)


class Scene:
    """Records of which some are no good, and what is told of them."""

    def __init__(self, producer: HandRun, log_dir: Path) -> None:
        self._producer = producer
        self._log_dir = log_dir
        self._stored: list[bytes] = []
        self._told: list[bytes] = []
        self._sent: list[tuple[bytes, FutureRecordMetadata]] = []

    def append(self) -> None:
        """Append what becomes two batches."""
        count = len(self._stored)
        good = [b"%d" % number for number in range(count, count + 20)]
        first = [*good[:6], INVALID, INVALID, *good[6:9], TOO_LARGE, *good[9:14], INVALID]
        for value in first:
            self._append(value)
        queue = self._producer.accumulator.map.queues[T0]
        with queue.lock:
            queue.close_open()
        for value in good[14:]:
            self._append(value)
        self._stored += good

    def _append(self, value: bytes) -> None:
        def tell(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
            self._told.append(value)

        future = self._producer.accumulator.append(T0, 0, None, value, (), tell).future
        self._sent.append((value, future))

    def finish(self, why: str, *, look_before: bool) -> None:
        """Have the next sender deliver the rest; the producer hears of every record, once and the truth.

        Args:
            why: what has happened before.
            look_before: whether the producer reads what the dead sender told before the next one tells it anything.
        """
        if look_before:
            self._producer.accumulator.acks.poll()
        successor = begin(self._producer.config)
        successor.run_until(lambda: successor.slab.undelivered() == (0, 0))
        successor.accumulator.pool.reclaim()
        assert successor.accumulator.pool.available_memory() == successor.accumulator.pool.total_memory, why
        successor.close()
        self._producer.accumulator.acks.poll()
        assert self._told == [value for value, _ in self._sent], why
        stored = read_values(self._log_dir, *T0)
        for value, future in self._sent:
            if future.failed():
                assert value in (INVALID, TOO_LARGE), why
            else:
                assert stored[future.get(0).offset] == value, why
        assert not self._producer.accumulator.acks.incomplete()
        self._told.clear()
        self._sent.clear()
        assert stored == self._stored, why


@pytest.mark.parametrize(
    ("modules", "hits"),
    [
        pytest.param((sender, pieces), 1, id="sender"),
        pytest.param((completer, completion), 2, id="accumulator"),
        pytest.param((record_batch,), 2, id="header"),
    ],
)
def test_killed_at_any_line(
    producer: HandRun, config: ProducerConfig, tmp_path: Path, modules: tuple[ModuleType, ...], hits: int
) -> None:
    scene = Scene(producer, tmp_path / "log")
    scene.append()
    scene.finish("what is sent to a partition for the first time goes other ways", look_before=True)
    scene.append()
    lines = lines_of(lambda: be_sender(config), *modules, hits=hits)
    scene.finish("nothing happened", look_before=True)
    for number, line in enumerate(lines):
        scene.append()
        die_before(line, lambda: be_sender(config), *modules)
        scene.finish(str(line), look_before=number % 2 == 0)
