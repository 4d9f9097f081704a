"""Batches that are sent in pieces: each record where its future says, in order, and no harm done to its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from processes import Child
from senders import HandRun, read_partition, read_values

from shmaccum.accumulator.column_appender import PartitionRows
from shmaccum.accumulator.futures import FutureColumnsMetadata, FutureRecordMetadata
from shmaccum.accumulator.record_accumulator import RecordAccumulator, slab_geometry
from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaTimeoutError,
    NetworkError,
    RecordTooLargeError,
    ShmaccumError,
)
from shmaccum.record.columns import encode_columns
from shmaccum.record.compression import CompressionType
from shmaccum.record.reader import Batch, iter_batches
from shmaccum.shm.layout import PIECES_IN_FLIGHT, Partition, Process, Super
from shmaccum.shm.lifecycle import attach, detach

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SLOT = 1024
SLOTS = 16

StartRun = Callable[..., HandRun]
Start = Callable[..., Child]


def config_of(name: str, log_dir: Path, **settings: object) -> ProducerConfig:
    defaults: dict[str, object] = {
        "shmaccum.name": name,
        "log.dir": str(log_dir),
        "num.partitions": 2,
        "batch.size": SLOT,
        "buffer.memory": SLOTS * SLOT,
        "linger.ms": 5,
        "retry.backoff.ms": 10,
        "request.timeout.ms": 1000,
        "delivery.timeout.ms": 20_000,
        "shmaccum.max.processes": 4,
        "shmaccum.max.topics": 4,
        "shmaccum.max.partitions": 6,
    }
    return ProducerConfig.parse(defaults | {name.replace("_", "."): value for name, value in settings.items()})


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def start_run(log_dir: Path, slab_name: str) -> Iterator[StartRun]:
    """Return a function that starts a sender by hand, which knows topic "t", with the settings given.

    The broker of a second one is as that of the first.
    """
    runs: list[HandRun] = []

    def start(**settings: object) -> HandRun:
        runs.append(HandRun(config_of(slab_name, log_dir, **settings)))
        runs[-1].transport.is_invalid = runs[0].transport.is_invalid
        runs[-1].transport.strict = True
        runs[-1].begin()
        runs[-1].topic("t")
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@pytest.fixture
def run(start_run: StartRun) -> HandRun:
    return start_run()


class Told:
    """Callbacks that note what they are told, in what order."""

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
    run.accumulator.acks.poll()


def batches_of(log_dir: Path, partition: TopicPartition = T0) -> list[Batch]:
    (segment,) = (log_dir / f"{partition.topic}-{partition.partition}").glob("*.log")
    return list(iter_batches(segment.read_bytes()))


def check_sequences(log_dir: Path) -> None:
    """Every batch in the log continues the one before it, as a broker demands."""
    expected = 0
    for batch in batches_of(log_dir):
        assert (batch.producer_epoch, batch.base_sequence) == (0, expected)
        expected += batch.record_count


def counter(run: HandRun, word: int) -> int:
    return int(run.slab.words[word])


def assert_all_free(run: HandRun) -> None:
    assert run.slab.undelivered() == (0, 0)
    assert run.accumulator.pool.available_memory() == run.accumulator.pool.total_memory
    assert not run.accumulator.acks.incomplete()


# --- too large ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("largest", [500, 250, 130])
def test_a_batch_that_is_too_large(start_run: StartRun, log_dir: Path, largest: int, compression: str) -> None:
    run = start_run(compression_type=compression)
    run.transport.largest = 100 if compression == "gzip" else largest
    told = Told()
    values = numbered(25)
    futures = send(run, values, told=told)
    deliver(run)
    assert offsets_of(futures) == list(range(25))
    assert told.values == values
    assert read_values(log_dir, "t") == values
    assert max(batch.size for batch in batches_of(log_dir)) <= run.transport.largest
    check_sequences(log_dir)
    assert counter(run, Super.BATCHES_SENT) == 1
    assert counter(run, Super.RECORDS_SENT) == 25
    assert_all_free(run)


def test_a_batch_that_its_producer_has_compressed(start_run: StartRun, log_dir: Path) -> None:
    run = start_run(compression_type="gzip")
    values = [b"%x" % (number**40) for number in range(80)]
    futures = [run.accumulator.append(T0, 0, None, value).future for value in values]
    run.accumulator.acks.poll()
    first = run.accumulator.map.queues[T0].first()
    assert first is not None
    assert first.compression is CompressionType.GZIP
    run.transport.largest = first.stored_size // 3
    deliver(run)
    assert offsets_of(futures) == list(range(80))
    assert read_values(log_dir, "t") == values
    assert {batch.compression for batch in batches_of(log_dir)} == {CompressionType.GZIP}
    check_sequences(log_dir)


def test_records_keep_what_they_have(run: HandRun, log_dir: Path) -> None:
    run.transport.largest = 200
    sent = [
        (1_700_000_000_000 - number * 1000, b"key" if number % 2 else None, b"%d" % number, [("h", b"%d" % number)])
        for number in range(20)
    ]
    futures = [run.accumulator.append(T0, *record).future for record in sent]
    deliver(run)
    found = read_partition(log_dir, "t")
    assert [(record.timestamp, record.key, record.value, record.headers) for record in found] == sent
    assert [future.get(0).timestamp for future in futures] == [record[0] for record in sent]
    assert len(batches_of(log_dir)) > 2


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_old_formats(start_run: StartRun, log_dir: Path, version: str) -> None:
    run = start_run(message_format_version=version, enable_idempotence=False)
    run.transport.largest = 300
    values = numbered(15)
    futures = send(run, values)
    deliver(run)
    assert offsets_of(futures) == list(range(15))
    assert read_values(log_dir, "t") == values


def test_one_record_that_is_too_large_is_given_up_alone(run: HandRun, log_dir: Path) -> None:
    run.transport.largest = 300
    values = [*numbered(5), b"x" * 400, *numbered(5)]
    futures = send(run, values)
    other = send(run, [b"other"], T1)
    deliver(run)
    with pytest.raises(RecordTooLargeError, match="t-0"):
        futures.pop(5).get(0)
    assert offsets_of(futures) == list(range(10))
    assert offsets_of(other) == [0]
    assert read_values(log_dir, "t") == [*numbered(5), *numbered(5)]
    assert (counter(run, Super.RECORDS_SENT), counter(run, Super.RECORDS_FAILED)) == (11, 1)
    # The broker has never heard of the record: there is no gap where it was, nor behind the batch.
    again = send(run, [b"again"])
    deliver(run)
    assert offsets_of(again) == [10]
    check_sequences(log_dir)


@pytest.mark.parametrize("at", [0, 4])
def test_at_either_end(run: HandRun, log_dir: Path, at: int) -> None:
    run.transport.largest = 300
    values = numbered(4)
    values.insert(at, b"x" * 400)
    futures = send(run, values)
    deliver(run)
    assert futures.pop(at).failed()
    assert offsets_of(futures) == list(range(4))
    send(run, [b"again"])
    deliver(run)
    check_sequences(log_dir)


def test_a_batch_of_one_record(run: HandRun) -> None:
    run.transport.largest = 300
    (future,) = send(run, [b"x" * 400])
    deliver(run)
    with pytest.raises(RecordTooLargeError):
        future.get(0)
    assert len(run.transport.sent) == 1


def test_every_record_is_too_large(run: HandRun, log_dir: Path) -> None:
    run.transport.largest = 70
    futures = send(run, numbered(10))
    deliver(run)
    assert all(isinstance(future.exception, RecordTooLargeError) for future in futures)
    assert counter(run, Super.RECORDS_FAILED) == 10
    run.transport.largest = 1000
    again = send(run, [b"again"])
    deliver(run)
    assert offsets_of(again) == [0]
    check_sequences(log_dir)


def test_what_the_broker_takes_is_remembered(run: HandRun) -> None:
    """The second batch that is too large is not cut by trial and error."""
    run.transport.largest = 150
    send(run, numbered(25))
    deliver(run)
    first = len(run.transport.sent)
    send(run, numbered(25))
    deliver(run)
    assert len(run.transport.sent) - first < first - 1


# --- order ----------------------------------------------------------------------------------------------


def test_nothing_overtakes_a_batch_in_pieces(run: HandRun, log_dir: Path) -> None:
    run.transport.largest = 200
    first, second = numbered(40), [b"later %d" % number for number in range(40)]
    futures = [run.accumulator.append(T0, 0, None, value).future for value in [*first, *second]]
    deliver(run)
    assert offsets_of(futures) == list(range(80))
    assert read_values(log_dir, "t") == [*first, *second]
    check_sequences(log_dir)


def test_others_write_in_between(run: HandRun, log_dir: Path) -> None:
    """The pieces of a batch need not follow each other in the log: each has an offset of its own."""
    run.transport.largest = 200
    futures = send(run, numbered(20))
    while run.slab.undelivered() != (0, 0):
        run.run(1)
        run.transport.write_as_another(T0)
    found = read_partition(log_dir, "t")
    mine = [record.offset for record in found if record.value != b"another's"]
    assert offsets_of(futures) == mine
    assert mine[-1] > 20


def test_a_partition_is_muted_only_while_a_piece_is_in_flight(run: HandRun) -> None:
    def muted() -> int:
        entry = run.accumulator.map.queues[T0].entry
        return int(run.slab.words[run.slab.geometry.partition(entry) + Partition.MUTED])

    run.transport.largest = 200
    send(run, numbered(20))
    run.run(1)
    assert not muted()
    run.transport.held = True
    run.run(1)
    sent = len(run.transport.sent)
    send(run, [b"behind"])
    send(run, [b"elsewhere"], T1)
    run.run(3)
    assert muted()
    assert [partition for partition, _ in run.transport.sent[sent:]] == [T1]
    run.transport.held = False
    deliver(run)
    assert not muted()


def test_a_piece_that_fails_and_is_tried_again(run: HandRun, log_dir: Path) -> None:
    """It is the same piece that is sent again; the next one has all its attempts before it."""
    run.transport.largest = 200
    futures = send(run, numbered(20))
    run.run_until(lambda: futures[0].is_done or run.accumulator.acks.poll())
    run.transport.refuse[T0] = NetworkError
    retried = counter(run, Super.BATCHES_RETRIED)
    sent = len(run.transport.sent)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED) == retried + 3)
    assert len(set(run.transport.sent[sent:])) == 1
    run.transport.refuse.clear()
    deliver(run)
    assert offsets_of(futures) == list(range(20))
    check_sequences(log_dir)


def test_every_piece_has_its_own_attempts(start_run: StartRun) -> None:
    run = start_run(retries=1)
    run.transport.largest = 200
    futures = send(run, numbered(20))
    for _ in range(3):
        told = sum(future.is_done for future in futures)
        run.run_until(lambda told=told: run.accumulator.acks.poll() or sum(each.is_done for each in futures) > told)
        run.transport.refuse[T0] = NetworkError
        retried = counter(run, Super.BATCHES_RETRIED)
        run.run_until(lambda retried=retried: counter(run, Super.BATCHES_RETRIED) > retried)
        run.transport.refuse.clear()
    deliver(run)
    assert offsets_of(futures) == list(range(20))


# --- invalid records ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{0}, {9}, {4}, {0, 1, 2}, {8, 9}, {3, 4, 6}, {0, 9}, set(range(10)), {0, 2, 4, 6, 8}])
def test_invalid_records_are_given_up_alone(run: HandRun, log_dir: Path, bad: set[int]) -> None:
    """They are named by the broker; the batch's other records are none the worse for them."""
    run.transport.is_invalid = lambda value: value in {numbered(10)[number] for number in bad}
    told = Told()
    futures = send(run, numbered(10), told=told)
    deliver(run)
    assert told.values == numbered(10)
    for number in bad:
        with pytest.raises(InvalidRecordError, match="t-0"):
            futures[number].get(0)
    good = [number for number in range(10) if number not in bad]
    assert [futures[number].get(0).offset for number in good] == list(range(len(good)))
    run.transport.is_invalid = lambda value: False
    again = send(run, [b"again"])
    deliver(run)
    assert offsets_of(again) == [len(good)]
    assert read_values(log_dir, "t") == [*(numbered(10)[number] for number in good), b"again"]
    check_sequences(log_dir)
    assert_all_free(run)


def test_invalid_and_too_large(run: HandRun, log_dir: Path) -> None:
    run.transport.largest = 250
    run.transport.is_invalid = lambda value: value in (numbered(20)[3], numbered(20)[17])
    futures = send(run, numbered(20))
    deliver(run)
    assert [future.failed() for future in futures] == [number in (3, 17) for number in range(20)]
    assert read_values(log_dir, "t") == [value for value in numbered(20) if not run.transport.is_invalid(value)]
    check_sequences(log_dir)


def test_invalid_records_that_are_not_named(run: HandRun) -> None:
    run.transport.refuse[T0] = InvalidRecordError
    futures = send(run, numbered(3))
    deliver(run)
    assert all(isinstance(future.exception, InvalidRecordError) for future in futures)
    assert len(run.transport.sent) == 1


def test_a_piece_that_fails_for_good_takes_no_other_with_it(run: HandRun, log_dir: Path) -> None:
    run.transport.largest = 200
    futures = send(run, numbered(20))
    run.run_until(lambda: run.accumulator.acks.poll() or futures[0].is_done)
    run.transport.refuse[T0] = InvalidRecordError
    run.run_until(lambda: run.accumulator.acks.poll() or any(future.failed() for future in futures))
    run.transport.refuse.clear()
    deliver(run)
    failed = [future.failed() for future in futures]
    assert 0 < sum(failed) < 10
    stored = [value for value, bad in zip(numbered(20), failed, strict=True) if not bad]
    assert read_values(log_dir, "t") == stored
    check_sequences(log_dir)


@pytest.fixture
def invalid_comes_next(run: HandRun) -> HandRun:
    """A batch of three records, of which the first is stored; the next to be sent is invalid."""
    run.transport.is_invalid = lambda value: value == b"invalid"
    futures = send(run, [b"a", b"invalid", b"c"])
    run.run_until(lambda: run.accumulator.acks.poll() or futures[0].is_done)
    return run


def test_a_record_that_was_never_stored_takes_no_number(invalid_comes_next: HandRun, log_dir: Path) -> None:
    deliver(invalid_comes_next)
    assert [batch.base_sequence for batch in batches_of(log_dir)] == [0, 1]


def test_one_that_may_have_been_stored_does(invalid_comes_next: HandRun, log_dir: Path) -> None:
    """Else the number could be that of what is in the log, and a broker would take what comes next for that.

    If it is not in the log, the broker complains of the gap, and the partition goes on under a new epoch.
    """
    run = invalid_comes_next
    run.transport.refuse[T0] = NetworkError
    retried = counter(run, Super.BATCHES_RETRIED)
    run.run_until(lambda: counter(run, Super.BATCHES_RETRIED) > retried)
    run.transport.refuse.clear()
    sent = len(run.transport.sent)
    deliver(run)
    assert [sequence for _, sequence in run.transport.sent[sent:]] == [1, 2, 0]
    assert [(batch.producer_epoch, batch.base_sequence) for batch in batches_of(log_dir)] == [(0, 0), (1, 0)]


def test_one_that_a_dead_sender_may_have_sent_does(
    invalid_comes_next: HandRun, start_run: StartRun, log_dir: Path
) -> None:
    run = invalid_comes_next
    run.transport.held = True
    run.run(1)
    run.resign()
    deliver(start_run())
    assert [(batch.producer_epoch, batch.base_sequence) for batch in batches_of(log_dir)] == [(0, 0), (1, 0)]


def test_batches_behind_that_have_their_numbers_already(run: HandRun, log_dir: Path) -> None:
    """They were sent before it was known that one before them is no good: they come after it all the same."""
    run.transport.is_invalid = lambda value: value == b"invalid"
    futures = send(run, [b"first"])
    deliver(run)
    run.transport.held = True
    for number in range(4):
        futures += send(run, [b"%d" % number, b"invalid" if number == 1 else b"-", b"%d'" % number])
        run.run(1)
    assert [sequence for _, sequence in run.transport.sent] == [0, 1, 4, 7, 10]
    run.transport.held = False
    deliver(run)
    (invalid,) = [future for future in futures if future.failed()]
    assert isinstance(invalid.exception, InvalidRecordError)
    futures.remove(invalid)
    assert offsets_of(futures) == list(range(12))
    stored = read_values(log_dir, "t")
    assert stored == [b"first", b"0", b"-", b"0'", b"1", b"1'", b"2", b"-", b"2'", b"3", b"-", b"3'"]
    assert counter(run, Super.EPOCH_BUMPS) == 1


# --- who is told ----------------------------------------------------------------------------------------


def append_some(link: Connection, name: str, log_dir: str, numbers: list[int]) -> list[object]:
    """Append records with these numbers, one each time that the test says so; return what became of them."""
    config = config_of(name, Path(log_dir))
    slab = attach(config.shmaccum_name, slab_geometry(config), config.slab_digest())
    accumulator = RecordAccumulator(slab, config)
    futures = []
    for number in numbers:
        link.recv()
        futures.append(accumulator.append(T0, 0, None, numbered(20)[number]).future)
        link.send("appended")
    accumulator.begin_flush()
    accumulator.await_flush_completion(30)
    outcomes: list[object] = [type(each.exception) if each.failed() else each.get(0).offset for each in futures]
    detach(slab)
    return outcomes


def test_several_processes_share_the_batch(run: HandRun, log_dir: Path, slab_name: str, start: Start) -> None:
    """Each hears of its own records, whatever becomes of those of the others."""
    run.transport.largest = 250
    run.transport.is_invalid = lambda value: value in (numbered(20)[4], numbered(20)[10])
    children = [start(append_some, slab_name, str(log_dir), list(range(first, 20, 3))) for first in range(3)]
    for number in range(20):
        children[number % 3].tell()
        assert children[number % 3].hear() == "appended"
    deliver(run)
    offsets = {value: offset for offset, value in enumerate(read_values(log_dir, "t"))}
    assert len(offsets) == 18
    for first, child in enumerate(children):
        expected = [offsets.get(numbered(20)[number], InvalidRecordError) for number in range(first, 20, 3)]
        assert child.result() == expected
    assert len(run.transport.sent) > 5
    assert_all_free(run)


def test_columns(run: HandRun, log_dir: Path) -> None:
    """Rows of one call, in several batches, some of which are sent in pieces and some of whose rows are given up."""
    values = numbered(120, 25)
    future = FutureColumnsMetadata(len(values), run.accumulator.acks)
    bodies = encode_columns(run.accumulator.format, None, pa.array(values, pa.binary()), None)
    rows = PartitionRows(bodies, np.zeros(len(values), np.int64), np.arange(len(values)))
    send(run, [b"first"])
    run.accumulator.append_columns(T0, rows, future, 1000)
    run.transport.largest = 300
    run.run_until(lambda: len(run.transport.sent) > 8)
    with pytest.raises(KafkaTimeoutError, match=rf"{run.slab.undelivered()[1]} of 120 rows"):
        future.get(0)
    deliver(run)
    found = future.get(0)
    assert found.offsets.tolist() == list(range(1, 121))
    assert read_values(log_dir, "t") == [b"first", *values]


def test_columns_with_rows_that_are_given_up(run: HandRun) -> None:
    values = numbered(10)
    run.transport.is_invalid = lambda value: value == values[7]
    future = FutureColumnsMetadata(len(values), run.accumulator.acks)
    bodies = encode_columns(run.accumulator.format, None, pa.array(values, pa.binary()), None)
    rows = PartitionRows(bodies, np.zeros(len(values), np.int64), np.arange(len(values)))
    run.accumulator.append_columns(T0, rows, future, 1000)
    deliver(run)
    with pytest.raises(InvalidRecordError):
        future.get(0)
    assert future.is_done


def test_a_future_is_done_with_its_own_piece(run: HandRun) -> None:
    run.transport.largest = 200
    told = Told()
    futures = send(run, numbered(20), told=told)
    late: list[RecordMetadata] = []
    run.run_until(lambda: run.accumulator.acks.poll() or futures[0].is_done)
    assert not futures[-1].is_done
    assert told.values == numbered(20)[: len(told.values)]
    assert [future.is_done for future in futures] == [number < len(told.values) for number in range(20)]
    for future in futures:
        future.add_callback(late.append)
    assert len(late) == len(told.values)
    with pytest.raises(KafkaTimeoutError):
        futures[-1].get(0)
    run.accumulator.begin_flush()
    with pytest.raises(KafkaTimeoutError):
        run.accumulator.await_flush_completion(0)
    deliver(run)
    assert offsets_of(futures) == list(range(20))
    assert told.values == numbered(20)
    assert [metadata.offset for metadata in late] == list(range(20))


# --- the completion rings -------------------------------------------------------------------------------


def test_a_producer_that_does_not_look(run: HandRun, log_dir: Path) -> None:
    """Its ring never overflows: when there is no room for more, the next pieces wait until it has read."""
    room = SLOTS + PIECES_IN_FLIGHT
    ring = run.slab.geometry.process(run.slab.me)
    futures: list[FutureRecordMetadata] = []
    run.transport.largest = 75  # one record
    for _ in range(4):
        futures += send(run, [b"%d" % (number % 10) for number in range(100)])
        run.accumulator.map.queues[T0].close_open()
    unread: list[int] = []

    def look() -> bool:
        unread.append(counter(run, ring + Process.RING_TAIL) - counter(run, ring + Process.RING_HEAD))
        return unread[-20:] == [unread[-1]] * 20

    run.run_until(look)
    assert room - SLOTS <= max(unread) <= room
    assert not futures[-1].is_done
    run.run_until(lambda: run.accumulator.acks.poll() or run.slab.undelivered() == (0, 0))
    assert offsets_of(futures) == list(range(400))
    check_sequences(log_dir)
    assert_all_free(run)


def test_a_producer_that_died_is_not_waited_for(run: HandRun, log_dir: Path, slab_name: str, start: Start) -> None:
    child = start(append_some, slab_name, str(log_dir), [0])
    child.tell()
    assert child.hear() == "appended"
    futures = send(run, [b"%d" % (number % 10) for number in range(99)])
    child.kill()
    run.transport.largest = 90
    run.run_until(lambda: run.accumulator.acks.poll() or run.slab.undelivered() == (0, 0))
    assert offsets_of(futures) == list(range(1, 100))


def test_what_is_left_expires(start_run: StartRun, log_dir: Path) -> None:
    """Records that were told of stay so; the others of the batch get the error."""
    run = start_run(delivery_timeout_ms=2000)
    run.transport.largest = 200
    futures = send(run, numbered(20))
    run.run_until(lambda: run.accumulator.acks.poll() or futures[0].is_done, after_ms=100)
    run.transport.no_leader = frozenset({T0})
    run.run(2, after_ms=5000)
    run.accumulator.acks.poll()
    stored = read_values(log_dir, "t")
    assert stored == numbered(20)[: len(stored)]
    assert offsets_of(futures[: len(stored)]) == list(range(len(stored)))
    assert all(isinstance(future.exception, DeliveryTimeoutError) for future in futures[len(stored) :])
    assert counter(run, Super.BATCHES_FAILED) == 1
    assert_all_free(run)


@pytest.mark.parametrize("stored", [True, False])
def test_what_is_left_expires_while_a_piece_is_in_flight(start_run: StartRun, log_dir: Path, stored: bool) -> None:
    """The slot, from which nothing is sent any more, is free once that is answered, and the partition goes on."""
    run = start_run(delivery_timeout_ms=2000)
    run.transport.largest = 200
    futures = send(run, numbered(20))
    run.run_until(lambda: run.accumulator.acks.poll() or futures[0].is_done, after_ms=100)
    done = sum(future.is_done for future in futures)
    run.transport.held = True
    if not stored:
        run.transport.refuse[T0] = NetworkError
    run.run(1, after_ms=100)
    run.run(1, after_ms=5000)
    run.accumulator.acks.poll()
    assert offsets_of(futures[:done]) == list(range(done))
    assert all(isinstance(future.exception, DeliveryTimeoutError) for future in futures[done:])
    assert run.accumulator.pool.available_memory() < run.accumulator.pool.total_memory
    run.transport.held = False
    run.transport.refuse.clear()
    run.run(1, after_ms=100)
    assert_all_free(run)
    again = send(run, [b"again"])
    deliver(run)
    assert again[0].succeeded()
    assert read_values(log_dir, "t") == [*numbered(20)[: done * 2 if stored else done], b"again"]
