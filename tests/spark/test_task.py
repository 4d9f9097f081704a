from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_writes import stored

from shmaccum import ProducerConfig
from shmaccum.errors import RecordBatchTooLargeError, RecordTooLargeError, SerializationError
from shmaccum.spark.delivery import group_by_topic, parts_of
from shmaccum.spark.task import WriteTask

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


def test_a_batch_may_be_many_times_larger_than_the_slab(configure: Configure) -> None:
    config = configure(buffer_memory=65_536)
    values = [bytes([i % 256]) * 5_000 for i in range(400)]
    task(config).write([pa.record_batch({"value": values})])
    assert sorted(record.value for record in stored(Path(config.log_dir), "t")) == sorted(values)


def test_a_failed_delivery_raises_with_reason_partition_and_rows(configure: Configure) -> None:
    config = configure(**ONLY_FULL_BATCHES)
    good = pa.record_batch({"value": [b"good"] * 5})
    with pytest.raises(RecordBatchTooLargeError, match=r"^t-0: .* Up to 1 of the 6 rows .* failed") as caught:
        task(config).write([good, pa.record_batch({"value": [b"x" * 20_000]})])
    assert isinstance(caught.value.__cause__, RecordBatchTooLargeError)
    assert [record.value for record in stored(Path(config.log_dir), "t")] == [b"good"] * 5


def test_a_task_stops_at_the_first_failure_that_it_hears_of(configure: Configure) -> None:
    batches = iter([pa.record_batch({"value": [b"x" * 20_000]})] * 5_000)
    with pytest.raises(RecordBatchTooLargeError):
        task(configure(**ONLY_FULL_BATCHES)).write(batches)
    assert next(batches, None) is not None


def test_a_row_that_is_not_taken_raises(config: ProducerConfig) -> None:
    with pytest.raises(RecordTooLargeError, match="is 2097158 bytes when serialized which is larger than"):
        task(config).write([pa.record_batch({"value": [b"", b"x" * (2 << 20)]})])


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
