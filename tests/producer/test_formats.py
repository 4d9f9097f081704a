"""Every message format and every compression, from `send` to what an independent decoder reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from fixture_types import Produce
from kafka.record import MemoryRecords
from producers import wait_until
from senders import read_partition

from shmaccum import Producer

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
OF_ATTRIBUTES = dict(enumerate(COMPRESSIONS))
MAGIC = {"0.10.0": 1, "3.0-IV1": 2}


# zstd came after the old formats; the combination is refused with the configuration.
COMBINATIONS = [(version, each) for version in MAGIC for each in COMPRESSIONS if each != "zstd" or MAGIC[version] == 2]


Pairs = list[tuple[bytes | None, bytes | None]]


def send_and_read(producer: Producer, log_dir: Path, single: Pairs, rows: Pairs) -> None:
    """Send keys and values by `send` and the rows by `send_batch`; find all of them in the log, with their times."""
    for number, (key, value) in enumerate(single):
        producer.send("t", value, key, timestamp_ms=1000 + number)
    columns = {
        "key": pa.array([row[0] for row in rows], pa.binary()),
        "value": pa.array([row[1] for row in rows], pa.binary()),
        "timestamp": pa.array(range(2000, 2000 + len(rows))),
    }
    future = producer.send_batch("t", pa.record_batch(columns))
    assert future.get(30).offsets.tolist() == list(range(len(single), len(single) + len(rows)))
    found = read_partition(log_dir, "t")
    assert [(record.key, record.value) for record in found] == single + rows
    stamps = [*range(1000, 1000 + len(single)), *range(2000, 2000 + len(rows))]
    assert [record.timestamp for record in found] == stamps


@pytest.mark.parametrize(("version", "compression"), COMBINATIONS)
def test_end_to_end(produce: Produce, log_dir: Path, version: str, compression: str) -> None:
    producer = produce(message_format_version=version, compression_type=compression, num_partitions=1)
    single = [(b"key %d" % number, b"value " * (number % 30)) for number in range(300)]
    send_and_read(producer, log_dir, single, [(None, b"row %d" % number * 20) for number in range(300)])

    (segment,) = (log_dir / "t-0").glob("*.log")
    stored = MemoryRecords(segment.read_bytes())
    first = stored.next_batch()
    assert (first.magic, OF_ATTRIBUTES[first.compression_type or 0]) == (MAGIC[version], compression)
    slab = producer.metrics()["slab-metrics"]
    if compression == "none":
        assert slab["compression-rate-avg"] == 1
    else:
        assert slab["compression-rate-avg"] < 0.8
    assert slab["byte-total"] == segment.stat().st_size


@pytest.mark.parametrize(("version", "compression"), COMBINATIONS)
def test_large_records_in_slots_that_are_not_adjacent(
    produce: Produce, log_dir: Path, version: str, compression: str
) -> None:
    producer = produce(
        message_format_version=version,
        compression_type=compression,
        num_partitions=1,
        batch_size=1024,
        shmaccum_slot_size=1024,
        buffer_memory=128 << 10,
        max_block_ms=5000,
    )
    pool = producer._accumulator.state.pool
    held = [pool.allocate(1, 0) for _ in range(128)]
    pool.deallocate(*held[::2])
    single = [
        (b"random", os.urandom(5000)),
        (b"even", b"even" * 5000),
        (None, b"exactly a slot".ljust(1024 - 100)),
        (b"key" * 1000, None),
        (b"small", b"small"),
        (b"half of the memory", os.urandom(60_000)),
    ]
    rows = [(None, os.urandom(size) if size % 2 else b"a" * size) for size in (10, 3000, 4001, 20, 962, 963, 9999)]
    send_and_read(producer, log_dir, single, rows)
    pool.deallocate(*held[1::2])
    wait_until(lambda: pool.available_memory() == pool.total_memory, "all memory is free")


SIZES = (None, 0, 1, 63, 64, 8191, 8192, 20_000)
"""Of keys and values: null, and up to and from where a length takes another byte."""


def test_every_size_and_any_order_of_timestamps(produce: Produce, log_dir: Path) -> None:
    fields = [None if size is None else b"%d" % (size % 10) * size for size in SIZES]
    far = (0, 1 << 62, 5, 1_700_000_000_000, 1_700_000_000_063, 1_699_999_999_936, 1_700_000_008_192, 1)
    sent = [(key, value, stamp) for key in fields for value, stamp in zip(fields, far, strict=True)]
    producer = produce(num_partitions=1)
    for key, value, stamp in sent:
        producer.send("t", value, key, timestamp_ms=stamp)
    before = time.time_ns() // 1_000_000
    for number in range(70):  # so that an offset takes two bytes, too
        producer.send("t", b"%d" % number)
    after = time.time_ns() // 1_000_000
    producer.flush()
    found = [(record.key, record.value, record.timestamp) for record in read_partition(log_dir, "t")]
    assert found[: len(sent)] == sent
    assert [value for _, value, _ in found[len(sent) :]] == [b"%d" % number for number in range(70)]
    assert all(before <= stamp <= after for _, _, stamp in found[len(sent) :])
