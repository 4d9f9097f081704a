"""Senders that are killed one after the other: the next one goes on, and every record is in the log once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import die
from killpoints import die_in
from producers import wait_until_gone
from senders import HandRun, read_values
from splitting import SLOT, T0, T1, config_of

from shmaccum._core import FutureRecordMetadata, Super
from shmaccum.accumulator.drain.completer import BatchCompleter
from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, PolicyViolationError, ShmaccumError
from shmaccum.sender.process import ensure_sender
from shmaccum.sender.response_handler import ResponseHandler

PARTITIONS = (T0, T1)
HALF = bytes(SLOT // 2)


@pytest.fixture
def config(tmp_path: Path, slab_name: str) -> ProducerConfig:
    return config_of(slab_name, tmp_path / "log", sender_idle_ms=50, linger_ms=0, shmaccum_max_processes=8)


@pytest.fixture
def survivor(config: ProducerConfig) -> Iterator[HandRun]:
    """The producer, which takes over whenever a sender has died."""
    run = HandRun(config)
    run.begin()
    run.topic("t")
    for partition in PARTITIONS:  # what comes after a partition's first batch goes the same way every time
        run.accumulator.append(partition, 0, None, b"0")
    run.run_until(lambda: run.slab.undelivered() == (0, 0))
    run.resign()
    yield run
    run.close()
    wait_until_gone(config.shmaccum_name)


class Scene:
    """Some records, the senders that die over them, and the one that does not."""

    def __init__(self, survivor: HandRun, log_dir: Path) -> None:
        self.survivor = survivor
        self.log_dir = log_dir
        self.expected: dict[TopicPartition, list[bytes]] = {partition: [b"0"] for partition in PARTITIONS}
        self.told: list[int] = []
        self._futures: list[tuple[FutureRecordMetadata, int]] = []

    def append(self) -> None:
        """Append to each partition what becomes three batches."""
        accumulator = self.survivor.accumulator
        for partition in PARTITIONS:
            for filler in (b"", HALF, HALF, b"", HALF):
                value = b"%d" % len(self.expected[partition]) + filler
                future = accumulator.append(partition, 0, None, value, (), self._tell).future
                self._futures.append((future, len(self.expected[partition])))
                self.expected[partition].append(value)

    def _tell(self, error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        assert metadata is not None
        self.told.append(metadata.offset)

    def finish(self) -> None:
        """Have the next sender deliver the rest; the producer hears of every record, once."""
        self.told.clear()
        self.survivor.accumulator.producer.pending.poll()
        successor = HandRun(self.survivor.config)
        successor.begin()
        successor.run_until(lambda: successor.slab.undelivered() == (0, 0))
        successor.accumulator.pool.reclaim()
        assert successor.accumulator.pool.available_memory() == successor.accumulator.pool.total_memory
        successor.close()
        offsets = [offset for _, offset in self._futures]
        assert [future.get(0).offset for future, _ in self._futures] == offsets
        assert sorted(self.told) == sorted(offsets)
        assert not self.survivor.accumulator.producer.pending.incomplete()
        self._futures.clear()

    def check_log(self) -> None:
        """Compare the log with all that was ever appended."""
        for partition in PARTITIONS:
            assert read_values(self.log_dir, *partition) == self.expected[partition]


@pytest.fixture
def scene(survivor: HandRun, tmp_path: Path) -> Scene:
    return Scene(survivor, tmp_path / "log")


def die_over_completing(config: ProducerConfig, refuse: dict[TopicPartition, type[KafkaError]] | None = None) -> None:
    """Be a sender that dies with one batch completed and not freed, others in flight and others queued."""
    run = HandRun(config)
    run.begin()
    run.transport.refuse = refuse or {}
    handle = ResponseHandler.handle
    patch = pytest.MonkeyPatch()
    patch.setattr(ResponseHandler, "handle", lambda self, responses, now_ms: handle(self, responses[:1], now_ms))
    patch.setattr(BatchCompleter, "deallocate", lambda *_: die())
    run.run(2)


def test_series_of_dying_senders_loses_nothing(scene: Scene, config: ProducerConfig) -> None:
    """The same batches over and over: the producer id and the sequence numbers stay those of the first sender."""
    scene.append()
    words = scene.survivor.slab.words
    producer_id = words[Super.PRODUCER_ID]
    for _ in range(4):
        die_in(lambda: die_over_completing(config))
    assert words[Super.PRODUCER_ID] == producer_id
    assert words[Super.SENDER_STARTS] == 1 + 4
    scene.finish()
    scene.check_log()


def test_successor_reports_the_incident_of_a_dead_sender(scene: Scene, config: ProducerConfig) -> None:
    accumulator = scene.survivor.accumulator
    futures = [accumulator.append(partition, 0, None, b"x").future for partition in PARTITIONS]
    die_in(lambda: die_over_completing(config, dict.fromkeys(PARTITIONS, PolicyViolationError)))
    ensure_sender(scene.survivor.slab, config)
    accumulator.producer.flush(20)
    (error,) = [future.exception() for future in futures if future.failed()]
    assert isinstance(error, PolicyViolationError)
    assert str(error).endswith("forbids the request: not on Sundays")
