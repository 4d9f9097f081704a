"""The task of a write, and the writers that Spark calls, in this process."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fixture_types import LogCapture
from hypothesis import given
from hypothesis import strategies as st
from spark_writes import stored

from shmaccum import ProducerConfig
from shmaccum.errors import ConfigError, RecordBatchTooLargeError, SerializationError
from shmaccum.spark import producer
from shmaccum.spark.delivery import group_by_topic, parts_of
from shmaccum.spark.worker import acknowledge_at_once
from shmaccum.spark.writers import BatchWriter, StreamWriter, TaskCommit, WriteTask

Configure = Callable[..., ProducerConfig]

ONLY_FULL_BATCHES = {"segment_bytes": 16_384, "num_partitions": 1}
"""A log whose segments take full batches, but not one of a record that is larger than a batch."""


def task(config: ProducerConfig, topic: str | None = "t", columns: tuple[str, ...] = ("value",)) -> WriteTask:
    return WriteTask(config, topic, dict.fromkeys(columns, "binary"))


def test_a_task_ends_when_all_its_rows_are_stored(configure: Configure) -> None:
    config = configure(linger_ms=20_000)  # far longer than the test may last
    values = [b"%05d" % i for i in range(20_000)]
    batches = [pa.record_batch({"value": values[start : start + 5_000]}) for start in range(0, 20_000, 5_000)]
    commit = pickle.loads(pickle.dumps(task(config))).write(batches)
    assert (commit.records, commit.bytes) == (20_000, 100_000)
    found = stored(Path(config.log_dir), "t")
    assert sorted(record.value for record in found) == values


def test_rows_without_keys_and_values(config: ProducerConfig) -> None:
    nothing = pa.array([None, None], pa.binary())
    commit = task(config, columns=("key", "value")).write([pa.record_batch({"key": nothing, "value": nothing})])
    assert (commit.records, commit.bytes) == (2, 0)
    assert [(record.key, record.value) for record in stored(Path(config.log_dir), "t")] == [(None, None)] * 2


def test_a_failed_delivery_raises_with_reason_partition_and_rows(configure: Configure) -> None:
    config = configure(**ONLY_FULL_BATCHES)
    good = pa.record_batch({"value": [b"good"] * 5})
    with pytest.raises(RecordBatchTooLargeError, match=r"^t-0: .*[^.]\. Up to 1 of the 6 rows .* failed") as caught:
        task(config).write([good, pa.record_batch({"value": [b"x" * 20_000]})])
    assert isinstance(caught.value.__cause__, RecordBatchTooLargeError)
    assert [record.value for record in stored(Path(config.log_dir), "t")] == [b"good"] * 5


def test_a_task_stops_at_the_first_failure_that_it_hears_of(configure: Configure) -> None:
    batches = iter([pa.record_batch({"value": [b"x" * 20_000]})] * 5_000)
    with pytest.raises(RecordBatchTooLargeError):
        task(configure(**ONLY_FULL_BATCHES)).write(batches)
    assert next(batches, None) is not None


def test_a_null_topic_raises_before_its_batch_is_sent(config: ProducerConfig) -> None:
    batch = pa.record_batch({"topic": ["a", None, None], "value": [b"1", b"2", b"3"]})
    with pytest.raises(SerializationError, match="null topic present in the data, in 2 of 3 rows; set one"):
        task(config, None, ("topic", "value")).write([batch])
    assert not list(Path(config.log_dir).glob("a-*"))


@given(st.lists(st.sampled_from(["a", "b", "c", "d"])))
def test_groups_are_the_rows_of_a_topic_in_their_order(topics: list[str]) -> None:
    batch = pa.record_batch({"topic": pa.array(topics, pa.string()), "value": pa.array(range(len(topics)), pa.int64())})
    groups = [(topic, rows.to_pydict()) for topic, rows in group_by_topic(batch)]
    expected: dict[str, list[int]] = {}
    for number, topic in enumerate(topics):
        expected.setdefault(topic, []).append(number)
    assert groups == [(topic, {"value": numbers}) for topic, numbers in expected.items()]


@given(st.lists(st.binary(max_size=300)), st.integers(1, 2_000))
def test_parts_are_all_the_rows_in_their_order_and_not_too_many_at_once(values: list[bytes], limit: int) -> None:
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    parts = list(parts_of(batch, limit))
    assert [value for part in parts for value in part.column("value").to_pylist()] == values
    most = max(1, len(values) * limit // max(1, batch.nbytes))
    assert all(0 < part.num_rows <= most for part in parts)


# --- the writers that Spark calls ---------------------------------------------------------------------


@pytest.mark.parametrize("batch_id", [(), (7,)], ids=["batch", "stream"])
def test_the_driver_says_how_much_was_written(
    batch_id: tuple[int, ...], config: ProducerConfig, caplog: LogCapture
) -> None:
    task = WriteTask(config, "t", {})
    writer: Any = StreamWriter(task) if batch_id else BatchWriter(task, None)
    caplog.set_level(logging.INFO)
    writer.commit([TaskCommit(3, 30), TaskCommit(4, 40)], *batch_id)
    writer.abort([TaskCommit(3, 30), None], *batch_id)
    committed, aborted = caplog.messages
    assert "2 of 2 tasks finished, with 7 records of 70 bytes" in committed
    assert "failed: 1 of 2 tasks finished, with 3 records of 30 bytes; these stay in Kafka" in aborted


def test_an_epoch_that_no_task_wrote_is_not_committed_and_its_end_is_not_warned_of(
    config: ProducerConfig, caplog: LogCapture
) -> None:
    writer = StreamWriter(WriteTask(config, "t", {}))
    writer.abort([None, None], 4)
    writer.abort([TaskCommit(0, 0), None], 4)
    assert not caplog.messages
    with pytest.raises(ConfigError, match=r"epoch 7 is not committed: 1 of 2 tasks wrote .*trigger\(processingTime="):
        writer.commit([TaskCommit(1, 1), None], 7)


# --- the producer that a worker keeps -----------------------------------------------------------------

PROGRAM = """
import os, signal
from shmaccum.spark import producer
for number in range(1000):
    producer({settings!r}).send("t", b"%d" % number, partition=0)
{end}
"""


def test_a_process_has_one_producer_for_a_configuration_until_it_is_closed(config: ProducerConfig) -> None:
    """Garbage collection of a process that is no worker stays as it is."""
    explicit, frozen = {name: config[name] for name in config.explicit}, gc.get_freeze_count()
    with producer(config) as first:
        assert first is producer(config)
        assert first is producer(dict(reversed(explicit.items())))
        with producer(explicit | {"max.block.ms": "7"}) as other:
            assert other is not first
        first.send("t", b"1")
    second = producer(config)
    assert second is not first
    first.close()
    assert producer(config) is second
    assert second.send("t", b"2").get(10).topic == "t"
    assert gc.get_freeze_count() == frozen


class Unhashable(list[bytes]):
    def serialize(self, topic: str, data: object) -> bytes:
        return b"".join(self)


def test_a_serializer_can_be_unhashable(configure: Configure) -> None:
    config, equal = (configure(value_serializer=Unhashable([b"1"])) for _ in range(2))
    with producer(config) as first, producer(equal) as other:
        assert first is producer(config)
        assert other is not first
        assert first.send("t", 1).get(10).topic == "t"


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"], ids=["exits", "is killed"])
def test_what_a_worker_has_sent_is_delivered_when_it(
    end: str, configure: Callable[..., ProducerConfig], until_gone: Callable[..., None]
) -> None:
    config = configure(linger_ms=2_000)
    settings = {name: config[name] for name in config.explicit}
    subprocess.run([sys.executable, "-c", PROGRAM.format(settings=settings, end=end)], check=not end, timeout=60)
    if end:
        until_gone(config.slab_name(os.geteuid()))
    # A process that exits has waited for it.
    assert [record.value for record in stored(Path(config.log_dir), "t")] == [b"%d" % i for i in range(1000)]


# --- connections of Spark's own that put off their acknowledgements ---------------------------------------


Ends = tuple[socket.socket, socket.socket]


def puts_off(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0


def take_turns(asking: socket.socket, answering: socket.socket) -> None:
    """Let them, until the kernel takes it that an answer follows soon."""
    while not puts_off(answering):
        asking.sendall(b"a row")
        answering.recv(100)
        answering.sendall(b"an answer")
        asking.recv(100)


@pytest.fixture
def ends() -> Iterator[Ends]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as asking,
        listening.accept()[0] as answering,
    ):
        yield asking, answering


def test_every_task_acknowledges_at_once_after_turns(ends: Ends) -> None:
    for _ in range(2):
        take_turns(*ends)
        acknowledge_at_once()
        assert not puts_off(ends[1])


def test_connections_stay_as_they_are_otherwise(ends: Ends) -> None:
    beside, other = socket.socketpair()
    with beside, other:
        open_before = os.listdir("/proc/self/fd")
        acknowledge_at_once()
        assert os.listdir("/proc/self/fd") == open_before
        for one, another in (ends, (beside, other)):
            one.sendall(b"rows")
            assert another.recv(100) == b"rows"
