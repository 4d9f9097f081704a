"""Senders that are killed one after the other: the next one goes on, and every record is in the log once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import die
from killpoints import die_in
from producers import wait_until_gone
from senders import HandRun, read_values
from splitting import SLOT, T0, T1, config_of, offsets_of

from shmaccum._core import Super
from shmaccum.accumulator.drain.completer import BatchCompleter
from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, PolicyViolationError, ShmaccumError
from shmaccum.sender.process import ensure_sender
from shmaccum.sender.response_handler import ResponseHandler

PARTITIONS = (T0, T1)
HALF = bytes(SLOT // 2)


@pytest.fixture
def config(log_dir: Path, slab_name: str) -> ProducerConfig:
    return config_of(slab_name, log_dir, sender_idle_ms=50, linger_ms=0, shmaccum_max_processes=8)


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


def test_series_of_dying_senders_loses_nothing(survivor: HandRun, config: ProducerConfig, log_dir: Path) -> None:
    """The same batches over and over: the producer id and the sequence numbers stay those of the first sender."""
    accumulator, words, producer_id = survivor.accumulator, survivor.slab.words, survivor.slab.words[Super.PRODUCER_ID]
    told: list[int] = []

    def tell(error: ShmaccumError | None, metadata: RecordMetadata | None) -> None:
        assert metadata is not None
        told.append(metadata.offset)

    values = [b"%d" % number + filler for number, filler in enumerate((b"", HALF, HALF, b"", HALF), 1)]
    futures = [
        accumulator.append(partition, 0, None, value, (), tell).future for partition in PARTITIONS for value in values
    ]
    for _ in range(4):
        die_in(lambda: die_over_completing(config))
    assert words[Super.PRODUCER_ID] == producer_id
    assert words[Super.SENDER_STARTS] == 1 + 4
    accumulator.producer.pending.poll()
    successor = HandRun(config)
    successor.begin()
    successor.run_until(lambda: successor.slab.undelivered() == (0, 0))
    successor.accumulator.pool.reclaim()
    assert successor.accumulator.pool.available_memory() == successor.accumulator.pool.total_memory
    successor.close()
    assert offsets_of(futures) == [1, 2, 3, 4, 5] * 2
    assert sorted(told) == sorted(offsets_of(futures))
    assert not accumulator.producer.pending.incomplete()
    assert read_values(log_dir, "t", 0) == read_values(log_dir, "t", 1) == [b"0", *values]


def test_successor_reports_the_incident_of_a_dead_sender(survivor: HandRun, config: ProducerConfig) -> None:
    accumulator = survivor.accumulator
    futures = [accumulator.append(partition, 0, None, b"x").future for partition in PARTITIONS]
    die_in(lambda: die_over_completing(config, dict.fromkeys(PARTITIONS, PolicyViolationError)))
    ensure_sender(survivor.slab, config)
    accumulator.producer.flush(20)
    (error,) = [future.exception() for future in futures if future.failed()]
    assert isinstance(error, PolicyViolationError)
    assert str(error).endswith("forbids the request: not on Sundays")
