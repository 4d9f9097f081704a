"""`send_batch`: whole columns, with the same outcome as the records one by one."""

from __future__ import annotations

import datetime
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixture_types import Link, Produce, Settings, Start
from processes import wait_until
from producers import in_the_way, settings_of, wait_until_gone, wait_until_stored
from senders import LogRecord, read_partition, read_topic

from shmaccum import Producer
from shmaccum.errors import (
    BufferExhaustedError,
    IllegalArgumentError,
    InvalidTimestampError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
    ShmaccumError,
    UnknownTopicOrPartitionError,
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the records of `producer` go."""
    return tmp_path_factory.mktemp("batches") / "log"


@pytest.fixture(scope="module")
def producer(log: Path) -> Iterator[Producer]:
    """One producer for all tests that only need a topic of their own."""
    name = f"batches-{os.getpid()}"
    with Producer(settings_of(name, log, shmaccum_max_topics=100)) as producer:
        yield producer
    wait_until_gone(name)


def rows_of(topic: dict[int, list[LogRecord]]) -> dict[tuple[int, int], LogRecord]:
    """Return records by partition and offset."""
    return {(number, record.offset): record for number, records in topic.items() for record in records}


def test_every_row_is_where_its_future_says(producer: Producer, log: Path) -> None:
    rows = 3000
    batch = pa.record_batch(
        {
            "key": pa.array([None if number % 3 else b"%d" % (number % 50) for number in range(rows)], pa.binary()),
            "value": pa.array([f"value {number}" for number in range(rows)]),
            "partition": pa.array([number % 2 if number % 5 == 0 else None for number in range(rows)], pa.int32()),
            "headers": pa.array(
                [[{"key": "n", "value": b"%d" % number}] * (number % 3) for number in range(rows)], HEADERS
            ),
            "timestamp": pa.array([None if number % 7 else number for number in range(rows)], pa.int64()),
        }
    )
    found = producer.send_batch("everything", batch).get(20)
    stored = rows_of(read_topic(log, "everything"))
    assert len(stored) == rows
    for number, (partition, offset) in enumerate(zip(found.partitions.tolist(), found.offsets.tolist(), strict=True)):
        record = stored[partition, offset]
        assert record.value == b"value %d" % number
        assert record.key == (None if number % 3 else b"%d" % (number % 50))
        assert record.headers == [("n", b"%d" % number)] * (number % 3)
        if number % 7 == 0:
            assert record.timestamp == number
        else:
            assert record.timestamp > 1_600_000_000_000
        if number % 5 == 0:
            assert partition == number % 2
    # Order of the rows within each partition.
    for partition in range(3):
        offsets = found.offsets[found.partitions == partition]
        assert (np.diff(offsets) == 1).all()


def test_the_same_as_one_by_one(producer: Producer, log: Path) -> None:
    """Keys, values, headers, timestamps and partitions: a program may change from one to the other."""
    rows: list[dict[str, Any]] = [
        {"key": key, "value": value, "headers": headers, "timestamp": number}
        for number, (key, value, headers) in enumerate(
            [(None, b"", []), (b"", None, []), (b"k", b"v", [("h", b"x"), ("h", None)]), (b"long" * 90, b"v" * 500, [])]
            * 40
        )
    ]
    for row in rows:
        if row["key"] is not None:
            producer.send("scalar", row["value"], row["key"], row["headers"], timestamp_ms=row["timestamp"])
        else:
            producer.send("scalar", row["value"], None, row["headers"], 2, row["timestamp"])
    producer.flush(20)
    batch = pa.record_batch(
        {
            "key": pa.array([row["key"] for row in rows], pa.binary()),
            "value": pa.array([row["value"] for row in rows], pa.binary()),
            "headers": pa.array([[{"key": k, "value": v} for k, v in row["headers"]] for row in rows], HEADERS),
            "timestamp": pa.array([row["timestamp"] for row in rows]),
            "partition": pa.array([None if row["key"] is not None else 2 for row in rows], pa.int8()),
        }
    )
    producer.send_batch("columns", batch).get(20)
    assert read_topic(log, "scalar") == read_topic(log, "columns")


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.string_view(),
        pa.binary_view(),
        pa.binary(3),
    ],
    ids=str,
)
def test_types_of_keys_and_values(producer: Producer, log: Path, kind: pa.DataType) -> None:
    topic = f"type.{str(kind).replace('[', '-').replace(']', '')}"
    texts = ["one", None, "two", "six"]
    raw = [None if text is None else text.encode() for text in texts]
    column = pa.array(texts if "string" in str(kind) else raw, kind)
    batch = pa.record_batch({"key": column, "value": column, "partition": pa.array([0] * 4, pa.uint16())})
    producer.send_batch(topic, batch).get(20)
    assert [(record.key, record.value) for record in read_partition(log, topic)] == [(each, each) for each in raw]


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.int64(), pa.uint32()],
)
def test_types_of_timestamps(producer: Producer, log: Path, kind: pa.DataType) -> None:
    topic = f"time.{str(kind)[:12].replace('[', '-').replace(']', '').replace(',', '')}"
    moment = datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)
    if pa.types.is_timestamp(kind):
        column = pa.array([moment if kind.tz else moment.replace(tzinfo=None)], kind)
    else:
        column = pa.array([86_400_000], kind)
    producer.send_batch(topic, pa.record_batch({"value": ["v"], "partition": [0], "timestamp": column})).get(20)
    assert [record.timestamp for record in read_partition(log, topic)] == [86_400_000]


def test_columns_of_nothing_but_nulls(producer: Producer, log: Path) -> None:
    """A null is as if it were not given, whatever the type of the column or the lack of one."""
    nothing = pa.nulls(3)
    batch = pa.record_batch(
        {"key": nothing, "value": nothing, "partition": nothing, "headers": nothing, "timestamp": nothing}
    )
    producer.send_batch("nulls", batch).get(20)
    records = [record for of_partition in read_topic(log, "nulls").values() for record in of_partition]
    assert [(record.key, record.value, record.headers) for record in records] == [(None, None, [])] * 3


def test_an_empty_batch(producer: Producer, log: Path) -> None:
    future = producer.send_batch("empty", pa.record_batch({"value": pa.array([], pa.string())}))
    assert future.is_done
    found = future.get(0)
    assert (len(found.partitions), len(found.offsets)) == (0, 0)
    assert not any(read_topic(log, "empty").values())


def test_a_slice_of_a_batch(producer: Producer, log: Path) -> None:
    """Offsets into buffers that begin elsewhere."""
    whole = pa.record_batch(
        {
            "key": [f"k{number}" for number in range(10)],
            "value": pa.array([None if number == 4 else f"v{number}" for number in range(10)]),
            "partition": [1] * 10,
            "headers": pa.array([[{"key": "h", "value": b"%d" % number}] for number in range(10)], HEADERS),
        }
    )
    producer.send_batch("slice", whole.slice(3, 4)).get(20)
    assert [(r.key, r.value, r.headers) for r in read_partition(log, "slice", 1)] == [
        (b"k%d" % number, None if number == 4 else b"v%d" % number, [("h", b"%d" % number)]) for number in range(3, 7)
    ]


def test_rows_without_key_stick_and_move_on(producer: Producer, log: Path) -> None:
    """Each partition gets some batches' worth of rows, in one piece."""
    values = pa.array([b"x" * 1000] * 800, pa.binary())
    found = producer.send_batch("sticky", pa.record_batch({"value": values})).get(20)
    switches = np.count_nonzero(np.diff(found.partitions))
    assert switches < len(set(found.partitions.tolist())) == 3
    assert all(len(records) > 10 for records in read_topic(log, "sticky").values())


class Frame:
    """Exports its rows as other libraries' frames do, and has nothing else of pyarrow's."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


class Batch:
    """Exports its rows as one array."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self._rows.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_anything_that_exports_arrow_data_is_sent(producer: Producer, log: Path, chunks: int) -> None:
    topic = f"exported-{chunks}"
    batch = pa.record_batch({"value": pa.array(["a", "b"], pa.string_view()), "partition": [0, 0]})
    table = pa.Table.from_batches([batch] * chunks, batch.schema)
    for rows, count in ((Frame(table), 2 * chunks), (table, 2 * chunks), (Batch(batch), 2)):
        assert len(producer.send_batch(topic, rows).get(20).offsets) == count
    assert [record.value for record in read_topic(log, topic)[0]] == [b"a", b"b"] * (2 * chunks + 1)


REFUSED: dict[str, tuple[Any, type[ShmaccumError], str]] = {
    "no batch": ([1], SerializationError, r"takes a pyarrow\.RecordBatch or what exports Arrow data, not list"),
    "an array": (pa.array([1]), SerializationError, "cannot read the rows of a Int64Array"),
    "unknown column": ({"value": ["a"], "topic": ["t"]}, SerializationError, "unknown column 'topic'"),
    "twice": (
        pa.RecordBatch.from_arrays([pa.array(["a"])] * 3, names=["value", "value", "key"]),
        SerializationError,
        "column 'value' occurs more than once",
    ),
    "nothing to send": ({"partition": [1]}, SerializationError, "nothing to send"),
    "value int": ({"value": [1]}, SerializationError, "values must be of binary or string type"),
    "key dictionary": (
        {"key": pa.array(["a"]).dictionary_encode()},
        SerializationError,
        "keys must be of binary or string type, not dictionary",
    ),
    "headers text": ({"value": ["a"], "headers": ["h"]}, SerializationError, "headers must be of type"),
    "header without name": (
        {
            "value": ["a"] * 3,
            "headers": pa.array([[{"key": key, "value": b""}] * 2 for key in ("a", None, None)], HEADERS),
        },
        SerializationError,
        "headers must all have a name, but row 1 has one that is null or has a null key",
    ),
    "partition text": ({"value": ["a"], "partition": ["0"]}, SerializationError, "must be an integer"),
    "partition float": ({"value": ["a"], "partition": [0.0]}, SerializationError, "must be an integer"),
    "partition unknown": (
        {"value": ["a", "b"], "partition": [0, 3]},
        UnknownTopicOrPartitionError,
        "Partition 3 of topic t",
    ),
    "partition negative": ({"value": ["a", "b"], "partition": [0, -1]}, IllegalArgumentError, "Invalid partition: -1"),
    "partition too large": (
        {"value": ["a"], "partition": pa.array([2**63], pa.uint64())},
        SerializationError,
        "column 'partition'",
    ),
    "timestamp text": ({"value": ["a"], "timestamp": ["x"]}, SerializationError, "must be a timestamp"),
    "timestamp negative": (
        {"value": ["a", "b"], "timestamp": [0, -5]},
        InvalidTimestampError,
        "timestamp of row 1 must be milliseconds since 1970, not -5",
    ),
    "timestamp too large": (
        {"value": ["a"], "timestamp": pa.array([2**63], pa.uint64())},
        SerializationError,
        "column 'timestamp'",
    ),
    "row too large": (
        {"value": pa.array([b"", bytes(1 << 20), b""], pa.binary())},
        RecordTooLargeError,
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
    with pytest.raises(error, match=message):
        producer.send_batch("t", batch)
    assert producer.metrics()["producer-metrics"]["record-append-total"] == before


def test_with_serializers(produce: Produce) -> None:
    producer = produce(value_serializer=str.encode)
    with pytest.raises(SerializationError, match=r"value\.serializer or interceptor\.classes"):
        producer.send_batch("t", pa.record_batch({"value": ["a"]}))


def test_memory_runs_out(produce: Produce, log_dir: Path) -> None:
    """What was in before is delivered; the caller hears that not all of it was."""
    produce(buffer_memory=64 << 10).partitions_for("t")
    producer = produce(buffer_memory=64 << 10, max_block_ms=300)
    rows = [b"%d" % number + bytes(10_000) for number in range(8)]
    with in_the_way(log_dir / "t-0"), pytest.raises(BufferExhaustedError) as caught:
        producer.send_batch("t", pa.record_batch({"value": pa.array(rows, pa.binary()), "partition": [0] * 8}))
    check_first_four(caught.value)
    assert [record.value for record in read_partition(log_dir, "t")] == rows[:4]


def check_first_four(error: ShmaccumError) -> None:
    """Check which of eight rows of partition 0 are accepted by an error, and that they are stored."""
    accepted = error.accepted
    assert accepted is not None
    assert accepted.rows.tolist() == [0, 1, 2, 3]
    stored = accepted.get(20)
    assert stored.partitions.tolist() == [0] * 4 + [-1] * 4
    assert stored.offsets.tolist() == [0, 1, 2, 3] + [-1] * 4


def test_closed_by_another_thread(produce: Produce, log_dir: Path) -> None:
    """The error says which rows are accepted: they are delivered, although the call fails."""
    produce(buffer_memory=64 << 10).partitions_for("t")
    producer = produce(buffer_memory=64 << 10)
    rows = [b"%d" % number + bytes(10_000) for number in range(8)]
    batch = pa.record_batch({"value": pa.array(rows, pa.binary()), "partition": [0] * 8})
    with in_the_way(log_dir / "t-0"), ThreadPoolExecutor(1) as threads:
        sending = threads.submit(producer.send_batch, "t", batch)
        wait_until(lambda: producer.metrics()["producer-metrics"]["waiting-threads"] == 1, "it waits for memory")
        producer.close(0)
        error = sending.exception()
    assert isinstance(error, ProducerClosedError)
    assert error.accepted is not None
    assert error.accepted.rows.tolist() == [0, 1, 2, 3]
    wait_until_stored(log_dir, 4)


def test_an_error_before_the_first_row_has_accepted_none(producer: Producer) -> None:
    with pytest.raises(SerializationError) as caught:
        producer.send_batch("t", pa.record_batch({"other": [1]}))
    assert caught.value.accepted is None


def test_an_error_with_accepted_rows_can_be_pickled(producer: Producer) -> None:
    """As pools of processes do. The rows belong to their process."""
    future = producer.send_batch("pickled", pa.record_batch({"value": [b"v"]}))
    with pytest.raises(BufferExhaustedError) as caught, future.reporting():
        raise BufferExhaustedError("full")
    assert caught.value.accepted is future
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.args, copy.accepted) == (BufferExhaustedError, ("full",), None)


def send_batches(link: Link, settings: dict[str, object], child: int, batches: int, rows: int) -> bool:
    with Producer(settings) as producer:
        producer.partitions_for("t")
        link.send("ready")
        link.recv()
        futures = [
            producer.send_batch(
                "t",
                pa.record_batch(
                    {
                        "value": [f"{child}:{number * rows + row}" for row in range(rows)],
                        "partition": pa.array([row % 2 for row in range(rows)]),
                    }
                ),
            )
            for number in range(batches)
        ]
        return all(future.get(30) is not None for future in futures)


def test_several_processes_into_the_same_partitions(
    settings: Settings, produce: Produce, start: Start, log_dir: Path
) -> None:
    """All rows, exactly once, and in order for each process; single records in between."""
    producer = produce()
    children = [start(send_batches, settings(), child, 12, 200) for child in range(2)]
    for child in children:
        assert child.hear() == "ready"
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
        assert by_child[0] == by_child[1] == list(range(partition, 2400, 2))
        assert by_child[9] == list(range(partition, 600, 2))
