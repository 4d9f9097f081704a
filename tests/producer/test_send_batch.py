"""`send_batch`: whole columns, with the same outcome as the records one by one."""

from __future__ import annotations

import datetime
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixture_types import Link, Produce, Settings, Start
from processes import wait_until
from producers import in_the_way, wait_until_stored
from senders import read_partition, read_topic

from shmaccum import Producer, errors
from shmaccum.producer.partitioner import partition_for_key

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_every_row_is_where_its_future_says(producer: Producer, kept_log: Path, topic: str) -> None:
    """In the partition that it names, or that of its key; in the order of the rows, which begin within the buffers."""
    numbers, skipped = range(3000), 13  # no period of the columns below
    keys = [None if number % 3 else b"%d" % (number % 50) for number in numbers]
    partitions = [number % 2 if number % 5 == 0 else None for number in numbers]
    timestamps = [None if number % 7 else number for number in numbers]
    batch = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([f"value {number}" if number % 11 else None for number in numbers]),
            "partition": pa.array(partitions, pa.int32()),
            "headers": pa.array(
                [[{"key": "n", "value": b"%d" % number}] * (number % 3) for number in numbers], HEADERS
            ),
            "timestamp": pa.array(timestamps, pa.int64()),
        }
    )
    found = producer.send_batch(topic, batch.slice(skipped)).get(20)
    stored = {
        (partition, record.offset): record
        for partition, records in read_topic(kept_log, topic).items()
        for record in records
    }
    assert len(stored) == len(numbers) - skipped
    places = zip(found.partitions.tolist(), found.offsets.tolist(), strict=True)
    for number, place in enumerate(places, skipped):
        record, key = stored[place], keys[number]
        assert (record.key, record.value) == (key, b"value %d" % number if number % 11 else None)
        assert record.headers == [("n", b"%d" % number)] * (number % 3)
        if timestamps[number] is None:
            assert record.timestamp > 1_600_000_000_000
        else:
            assert record.timestamp == number
        if partitions[number] is not None:
            assert place[0] == partitions[number]
        elif key is not None:
            assert place[0] == partition_for_key(key, 3)
    for partition in range(3):
        assert (np.diff(found.offsets[found.partitions == partition]) == 1).all()


def test_types_of_keys_and_values(producer: Producer, kept_log: Path, topic: str) -> None:
    texts = ["one", None, "two", "six"]
    raw = [None if text is None else text.encode() for text in texts]
    for_texts = (pa.string(), pa.large_string(), pa.string_view())
    for_bytes = (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3))
    for column in (*(pa.array(texts, kind) for kind in for_texts), *(pa.array(raw, kind) for kind in for_bytes)):
        batch = pa.record_batch({"key": column, "value": column, "partition": pa.array([0] * 4, pa.uint16())})
        producer.send_batch(topic, batch).get(20)
        last = read_partition(kept_log, topic)[-4:]
        assert [(record.key, record.value) for record in last] == [(each, each) for each in raw], column.type


def test_types_of_timestamps(producer: Producer, kept_log: Path, topic: str) -> None:
    moment = datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
    columns = [pa.array([moment.replace(tzinfo=None)], pa.timestamp(unit)) for unit in ("s", "ms", "ns")]
    columns += [pa.array([moment], pa.timestamp("us", "UTC"))]
    columns += [pa.array([86_400_000], kind) for kind in (pa.int64(), pa.uint32())]
    for column in columns:
        batch = pa.record_batch({"value": ["v"], "partition": [0], "timestamp": column})
        producer.send_batch(topic, batch).get(20)
    assert [record.timestamp for record in read_partition(kept_log, topic)] == [86_400_000] * len(columns)


def test_a_null_is_as_if_it_were_not_given(producer: Producer, kept_log: Path, topic: str) -> None:
    """Whatever the type of the column or the lack of one, and whatever lies beneath it."""
    nothing = pa.nulls(3)
    columns = dict.fromkeys(("key", "value", "partition", "headers", "timestamp"), nothing)
    producer.send_batch(topic, pa.record_batch(columns)).get(20)
    records = [record for of_partition in read_topic(kept_log, topic).values() for record in of_partition]
    assert [(record.key, record.value, record.headers) for record in records] == [(None, None, [])] * 3
    buffers = [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([-5, 2], np.int64))]
    hidden = pa.Int64Array.from_buffers(pa.int64(), 2, buffers)
    batch = pa.record_batch({"key": [None, "b"], "value": ["a", "b"], "partition": hidden, "timestamp": hidden})
    producer.send_batch(topic, batch).get(20)
    timestamps = {record.value: record.timestamp for each in read_topic(kept_log, topic).values() for record in each}
    assert timestamps[b"a"] > 1_600_000_000_000
    assert timestamps[b"b"] == 2
    assert read_partition(kept_log, topic, 2)[-1].value == b"b"


def test_an_empty_batch(producer: Producer, topic: str) -> None:
    future = producer.send_batch(topic, pa.record_batch({"value": pa.array([], pa.string())}))
    assert future.is_done
    found = future.get(0)
    assert (len(found.partitions), len(found.offsets)) == (0, 0)
    assert producer.send(topic, b"first", partition=0).get(20).offset == 0


def test_rows_without_key_stick_and_move_on(producer: Producer, kept_log: Path, topic: str) -> None:
    """Each partition gets some batches' worth of rows, in one piece."""
    values = pa.array([b"x" * 1000] * 800, pa.binary())
    found = producer.send_batch(topic, pa.record_batch({"value": values})).get(20)
    switches = np.count_nonzero(np.diff(found.partitions))
    assert switches < len(set(found.partitions.tolist())) == 3
    assert all(len(records) > 10 for records in read_topic(kept_log, topic).values())


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_anything_that_exports_arrow_data_is_sent(producer: Producer, kept_log: Path, topic: str, chunks: int) -> None:
    """Also other libraries' frames, which have nothing else of pyarrow's."""
    batch = pa.record_batch({"value": pa.array(["a", "b"], pa.string_view()), "partition": [0, 0]})
    table = pa.Table.from_batches([batch] * chunks, batch.schema)
    frame = SimpleNamespace(__arrow_c_stream__=table.__arrow_c_stream__)
    array = SimpleNamespace(__arrow_c_array__=batch.__arrow_c_array__)
    for rows, count in ((frame, 2 * chunks), (table, 2 * chunks), (array, 2)):
        assert len(producer.send_batch(topic, rows).get(20).offsets) == count
    assert [record.value for record in read_partition(kept_log, topic)] == [b"a", b"b"] * (2 * chunks + 1)


def test_without_pyarrow_the_error_names_the_extra(
    settings: Settings, make_producer: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "shmaccum.producer.column_path", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(errors.ApiVersionError, match=r"pip install 'shmaccum\[arrow\]'"):
        make_producer(settings()).send_batch("t", SimpleNamespace())


NAMELESS = pa.array([[{"key": key, "value": b""}] * 2 for key in ("a", None, None)], HEADERS)
BEYOND = pa.array([2**63], pa.uint64())
TWICE = pa.RecordBatch.from_arrays([pa.array(["a"])] * 3, names=["value", "value", "key"])
REFUSED: dict[str, tuple[Any, type[errors.ShmaccumError], str]] = {
    "no batch": ([1], errors.SerializationError, r"takes a pyarrow\.RecordBatch or what exports Arrow data, not list"),
    "an array": (pa.array([1]), errors.SerializationError, "cannot read the rows of a Int64Array"),
    "unknown column": ({"value": ["a"], "topic": ["t"]}, errors.SerializationError, "unknown column 'topic'"),
    "twice": (TWICE, errors.SerializationError, "column 'value' occurs more than once"),
    "nothing to send": ({"partition": [1]}, errors.SerializationError, "nothing to send"),
    "value int": ({"value": [1]}, errors.SerializationError, "values must be of binary or string type"),
    "key dictionary": (
        {"key": pa.array(["a"]).dictionary_encode()},
        errors.SerializationError,
        "keys must be of binary or string type, not dictionary",
    ),
    "headers text": ({"value": ["a"], "headers": ["h"]}, errors.SerializationError, "headers must be of type"),
    "header without name": (
        {"value": ["a"] * 3, "headers": NAMELESS},
        errors.SerializationError,
        "headers must all have a name, but row 1 has one that is null or has a null key",
    ),
    "partition text": ({"value": ["a"], "partition": ["0"]}, errors.SerializationError, "must be an integer"),
    "partition float": ({"value": ["a"], "partition": [0.0]}, errors.SerializationError, "must be an integer"),
    "partition unknown": (
        {"key": ["a"], "partition": [3]},
        errors.UnknownTopicOrPartitionError,
        "Partition 3 of topic t",
    ),
    "partition negative": (
        {"value": ["a", "b"], "partition": [0, -1]},
        errors.IllegalArgumentError,
        "Invalid partition: -1",
    ),
    "partition too large": ({"value": ["a"], "partition": BEYOND}, errors.SerializationError, "column 'partition'"),
    "timestamp text": ({"value": ["a"], "timestamp": ["x"]}, errors.SerializationError, "must be a timestamp"),
    "timestamp negative": (
        {"value": ["a", "b"], "timestamp": [0, -5]},
        errors.InvalidTimestampError,
        "timestamp of row 1 must be milliseconds since 1970, not -5",
    ),
    "timestamp less than a millisecond before 1970": (
        {"value": ["a", "b"], "timestamp": pa.array([0, -1], pa.timestamp("us", "Europe/Berlin"))},
        errors.InvalidTimestampError,
        "timestamp of row 1 must be milliseconds since 1970, not -1",
    ),
    "timestamp whose milliseconds are too large": (
        {"value": ["a"], "timestamp": pa.array([1 << 62], pa.timestamp("s"))},
        errors.SerializationError,
        "column 'timestamp': .* out of bounds",
    ),
    "timestamp too large": ({"value": ["a"], "timestamp": BEYOND}, errors.SerializationError, "column 'timestamp'"),
    "row too large": (
        {"value": pa.array([b"", bytes(1 << 20), b""], pa.binary())},
        errors.RecordTooLargeError,
        "Row 1 is .* no row of the batch was sent",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_batch_is_refused(producer: Producer, case: str) -> None:
    """As a whole: no row of it goes anywhere."""
    batch, error, message = REFUSED[case]
    if isinstance(batch, dict):
        batch = pa.record_batch(batch)
    before = producer.metrics()["producer-metrics"]["record-append-total"]
    with pytest.raises(error, match=message) as caught:
        producer.send_batch("t", batch)
    assert caught.value.accepted is None
    assert producer.metrics()["producer-metrics"]["record-append-total"] == before


ROWS = [b"%d" % number + bytes(10_000) for number in range(8)]
"""Twice as much as a slab of four slots holds."""
BATCH = pa.record_batch({"value": pa.array(ROWS, pa.binary()), "partition": [0] * 8})


def test_memory_runs_out(produce: Produce, log_dir: Path) -> None:
    """What was in before is delivered; the caller hears that not all of it was."""
    produce(buffer_memory=64 << 10).partitions_for("t")
    producer = produce(buffer_memory=64 << 10, max_block_ms=300)
    with in_the_way(log_dir / "t-0"), pytest.raises(errors.BufferExhaustedError) as caught:
        producer.send_batch("t", BATCH)
    accepted = caught.value.accepted
    assert accepted is not None
    assert accepted.rows.tolist() == [0, 1, 2, 3]
    stored = accepted.get(20)
    assert stored.partitions.tolist() == [0] * 4 + [-1] * 4
    assert stored.offsets.tolist() == [0, 1, 2, 3] + [-1] * 4
    assert [record.value for record in read_partition(log_dir, "t")] == ROWS[:4]


def test_closed_by_another_thread(produce: Produce, log_dir: Path) -> None:
    """The error says which rows are accepted: they are delivered, although the call fails."""
    produce(buffer_memory=64 << 10).partitions_for("t")
    producer = produce(buffer_memory=64 << 10)
    with in_the_way(log_dir / "t-0"), ThreadPoolExecutor(1) as threads:
        sending = threads.submit(producer.send_batch, "t", BATCH)
        wait_until(lambda: producer.metrics()["producer-metrics"]["waiting-threads"] == 1, "it waits for memory")
        producer.close(0)
        error = sending.exception()
    assert isinstance(error, errors.ProducerClosedError)
    assert error.accepted is not None
    assert error.accepted.rows.tolist() == [0, 1, 2, 3]
    wait_until_stored(log_dir, 4)


def test_an_error_with_accepted_rows_can_be_pickled(producer: Producer, topic: str) -> None:
    """As pools of processes do. The rows belong to their process."""
    future = producer.send_batch(topic, pa.record_batch({"value": [b"v"]}))
    with pytest.raises(errors.BufferExhaustedError) as caught, future.reporting():
        raise errors.BufferExhaustedError("full")
    assert caught.value.accepted is future
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.args, copy.accepted) == (errors.BufferExhaustedError, ("full",), None)


def test_several_processes_into_the_same_partitions(
    settings: Settings, produce: Produce, start: Start, log_dir: Path
) -> None:
    """All rows, exactly once, and in order for each process; single records in between."""
    producer, rows = produce(), 2400

    def send_batches(link: Link, child: int) -> bool:
        with Producer(settings()) as producer:
            producer.partitions_for("t")
            link.send("ready")
            link.recv()
            values = [f"{child}:{number}" for number in range(rows)]
            whole = pa.record_batch({"value": values, "partition": [number % 2 for number in range(rows)]})
            futures = [producer.send_batch("t", whole.slice(first, 200)) for first in range(0, rows, 200)]
            return all(future.get(30) is not None for future in futures)

    children = [start(partial(send_batches, child=child), how="fork").ready() for child in range(2)]
    for child in children:
        child.tell()
    futures = [producer.send("t", f"9:{number}", partition=number % 2) for number in range(600)]
    assert all(child.result() for child in children)
    producer.flush(20)
    assert all(future.succeeded() for future in futures)
    for partition in range(2):
        by_child: dict[int, list[int]] = {0: [], 1: [], 9: []}
        for record in read_partition(log_dir, "t", partition):
            sender, number = map(int, record.value.split(b":"))
            by_child[sender].append(number)
        assert by_child[0] == by_child[1] == list(range(partition, rows, 2))
        assert by_child[9] == list(range(partition, 600, 2))
