"""Large batches are compressed on threads before they are drained; whatever becomes of them, no record is lost."""

from __future__ import annotations

import threading

import pytest
from accumulators import CLUSTER, TP0, TP1, Log, add, created_ms, drain, first, queued
from faults import stopped_with
from fixture_types import OpenAccumulator

from shmaccum._core import COMMIT_SIZE_SHIFT, Slot
from shmaccum.accumulator.drain import compression_ahead, deferral
from shmaccum.accumulator.drain.compression_ahead import AHEAD_SIZE
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.record.compression import CompressionType, decompress
from shmaccum.record.v2 import HEADER_SIZE
from shmaccum.shm.layout import SlotState
from tools.support.accumulators import Accumulators

NONE, GZIP, SNAPPY, LZ4, ZSTD = CompressionType
VALUE = b"all work and no play " * 1000


class Ahead:
    """An accumulator whose sender compresses ahead; its batches hold two values."""

    def __init__(self, accumulator: Accumulators) -> None:
        self.accumulator = accumulator
        self.sender = accumulator.sender
        self.woken = threading.Semaphore(0)
        self.sender.ahead.start(self.woken.release)

    def look(self, after_ms: int = 10_000) -> set[int]:
        """Return the nodes that something can be sent to, when nothing lingers any more."""
        nodes, self.delay_ms, _ = self.sender.ready(CLUSTER, created_ms(self.accumulator, TP0) + after_ms)
        return {node.id for node in nodes}

    def compress(self) -> None:
        """Begin with the first batch of each partition, and wait for one of them."""
        assert drain(self.accumulator) == []
        self.wait()

    def wait(self) -> None:
        assert self.woken.acquire(timeout=60)

    def drain(self) -> list[RecordBatch]:
        """Drain what is compressed."""
        self.look()
        return drain(self.accumulator)


@pytest.fixture
def ahead(accumulate: OpenAccumulator) -> Ahead:
    return start(accumulate)


def start(accumulate: OpenAccumulator, **settings: object) -> Ahead:
    settings = {"compression_type": "zstd", "batch_size": 44_000, "buffer_memory": 10 * 44_000} | settings
    return Ahead(accumulate(**settings))


def fill(accumulator: Accumulators, batches: int = 1, value: bytes = VALUE) -> None:
    for _ in range(2 * batches):
        add(accumulator, TP0, value)


def raw(batch: RecordBatch) -> bytes:
    return b"".join(batch.memory())[HEADER_SIZE:]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=str)
def test_a_batch_waits_until_it_is_compressed(accumulate: OpenAccumulator, codec: CompressionType) -> None:
    ahead = start(accumulate, compression_type=str(codec))
    fill(ahead.accumulator, 2)
    assert ahead.look() == {0}
    assert drain(ahead.accumulator) == []
    ahead.wait()
    assert ahead.look() == {0}
    (batch,) = drain(ahead.accumulator)
    section = ahead.sender.ahead.take(batch)
    assert section is not None
    assert decompress(codec, section, 2) == raw(batch)
    assert ahead.sender.ahead.take(batch) is None, "it is of use once"
    assert queued(ahead.accumulator, TP0) == 1


def test_an_open_batch_is_closed_for_it(ahead: Ahead) -> None:
    fill(ahead.accumulator)
    ahead.compress()
    add(ahead.accumulator, TP0)
    assert queued(ahead.accumulator, TP0) == 2
    (batch,) = ahead.drain()
    assert batch.record_count == 2
    assert ahead.sender.ahead.take(batch) is not None


def test_a_batch_that_expires_leaves_nothing(ahead: Ahead) -> None:
    fill(ahead.accumulator)
    ahead.compress()
    ahead.look()
    assert len(ahead.sender.abort_expired_batches(created_ms(ahead.accumulator, TP0) + 60_000)) == 1
    fill(ahead.accumulator, value=VALUE[::-1])
    batch = first(ahead.accumulator, TP0)
    assert batch.slot == 0, "the same slot"
    ahead.compress()
    (batch,) = ahead.drain()
    section = ahead.sender.ahead.take(batch)
    assert section is not None
    assert decompress(ZSTD, section, 2) == raw(batch)


@pytest.mark.parametrize("word", [Slot.COMMIT, Slot.GENERATION])
def test_bytes_of_another_batch_are_not_sent(ahead: Ahead, word: int) -> None:
    """A damaged slab is no reason to send records that no process has appended."""
    fill(ahead.accumulator)
    ahead.compress()
    (batch,) = ahead.drain()
    ahead.accumulator.slab.words[ahead.accumulator.slab.geometry.header(batch.slot) + word] += 2
    assert ahead.sender.ahead.take(batch) is None


@pytest.mark.parametrize(
    ("word", "value"),
    [(Slot.LINGER, 7), (Slot.SLOTS, 0), (Slot.COMMIT, 1 << 50 | 2), (Slot.COMMIT, AHEAD_SIZE << COMMIT_SIZE_SHIFT)],
)
def test_a_damaged_batch_is_the_sealers(ahead: Ahead, word: int, value: int) -> None:
    fill(ahead.accumulator)
    at = ahead.accumulator.slab.geometry.header(0) + word
    before, ahead.accumulator.slab.words[at] = ahead.accumulator.slab.words[at], value
    assert drain(ahead.accumulator) == []
    (batch,) = drain(ahead.accumulator)
    assert ahead.sender.ahead.take(batch) is None
    ahead.accumulator.slab.words[at] = before


def test_a_stopped_process_delays_its_own_partitions_only(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferral, "RETRY_MS", 0)
    for partition in (TP0, TP1):
        for _ in range(2):
            add(ahead.accumulator, partition, VALUE)
    with stopped_with(ahead.accumulator.map.queues[TP0].lock):
        ahead.compress()
        ahead.look()
        (batch,) = drain(ahead.accumulator)
        assert ahead.accumulator.map.by_entry[batch.partition].topic_partition == TP1
    blocked = first(ahead.accumulator, TP0)
    assert blocked.state == SlotState.OPEN


def test_a_sender_that_leaves_forgets_all(ahead: Ahead) -> None:
    fill(ahead.accumulator)
    assert drain(ahead.accumulator) == []
    ahead.sender.ahead.stop()
    (batch,) = drain(ahead.accumulator)
    assert ahead.sender.ahead.take(batch) is None
    log = Log(ahead.accumulator)
    log.take([batch])
    assert log.values(TP0) == [VALUE] * 2


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [(compression_ahead, "compress", MemoryError()), (threading.Thread, "start", RuntimeError("no new thread"))],
)
def test_an_error_leaves_it_to_the_sealer(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(owner, name, fail)
    fill(ahead.accumulator)
    assert drain(ahead.accumulator) == []
    if owner is compression_ahead:
        ahead.wait()
    (batch,) = ahead.drain()
    assert ahead.sender.ahead.take(batch) is None
