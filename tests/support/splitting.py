"""What the tests of batches that are sent in pieces share: records, their delivery by hand, and a look at the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from columns import append_columns
from senders import HandRun

from shmaccum._core import FutureRecordMetadata
from shmaccum.accumulator.append.futures import FutureColumnsMetadata
from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import ShmaccumError
from shmaccum.record.format import Batch, iter_batches

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SLOT = 1024
SLOTS = 16

StartRun = Callable[..., HandRun]


def config_of(name: str, log_dir: Path, **settings: object) -> ProducerConfig:
    defaults: dict[str, object] = {
        "shmaccum.name": name,
        "transport": "log",
        "log.dir": str(log_dir),
        "num.partitions": 2,
        "batch.size": SLOT,
        "shmaccum.slot.size": SLOT,
        "buffer.memory": SLOTS * SLOT,
        "linger.ms": 5,
        "retry.backoff.ms": 10,
        "request.timeout.ms": 100,
        "delivery.timeout.ms": 60_000,
        "shmaccum.max.processes": 4,
        "shmaccum.max.topics": 4,
        "shmaccum.max.partitions": 6,
    }
    return ProducerConfig.parse(defaults | {name.replace("_", "."): value for name, value in settings.items()})


def send_columns(run: HandRun, values: list[bytes], max_block_ms: int = 0) -> FutureColumnsMetadata:
    return append_columns(run.accumulator, T0, values, max_block_ms)


class Told:
    """Callbacks that keep their arguments, in order."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def of(self, value: bytes) -> Callable[[ShmaccumError | None, RecordMetadata | None], None]:
        return lambda error, metadata: self.values.append(value)


def send(
    run: HandRun, values: list[bytes], to: TopicPartition = T0, told: Told | None = None
) -> list[FutureRecordMetadata]:
    """Append records, all to one batch."""
    callbacks = [told.of(value) if told else None for value in values]
    results = [
        run.accumulator.append(to, 0, None, value, (), callback)
        for value, callback in zip(values, callbacks, strict=True)
    ]
    assert sum(result.new_batch_created for result in results) <= 1
    return [result.future for result in results]


def numbered(count: int, size: int = 20) -> list[bytes]:
    return [(b"%d " % number).ljust(size) for number in range(count)]


def offsets_of(futures: list[FutureRecordMetadata]) -> list[int]:
    return [future.get(0).offset for future in futures]


def deliver(run: HandRun) -> None:
    """Make passes until nothing is left in the slab, and hear of it."""
    run.run_until(lambda: run.slab.undelivered() == (0, 0))
    run.accumulator.producer.pending.poll()


def batches_of(log_dir: Path, partition: TopicPartition = T0) -> list[Batch]:
    (segment,) = (log_dir / f"{partition.topic}-{partition.partition}").glob("*.log")
    return list(iter_batches(segment.read_bytes()))


def check_sequences(log_dir: Path) -> None:
    """Every batch in the log continues the one before it, as a broker demands."""
    expected = 0
    for batch in batches_of(log_dir):
        assert (batch.producer_epoch, batch.base_sequence) == (0, expected)
        expected += batch.record_count


def assert_all_free(run: HandRun) -> None:
    assert run.slab.undelivered() == (0, 0)
    assert run.accumulator.pool.available_memory() == run.accumulator.pool.total_memory
    assert not run.accumulator.producer.pending.incomplete()
