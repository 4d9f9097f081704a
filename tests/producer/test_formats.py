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

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their numbers."""
MAGIC = {"0.10.0": 1, "3.0-IV1": 2}
# zstd came after the old formats; the combination is refused with the configuration.
COMBINATIONS = [(version, each) for version in MAGIC for each in COMPRESSIONS if each != "zstd" or MAGIC[version] == 2]


@pytest.mark.parametrize(("version", "compression"), COMBINATIONS)
def test_end_to_end(produce: Produce, log_dir: Path, version: str, compression: str) -> None:
    """Small records, and large ones in slots that are not adjacent: the first of these waits for no memory."""
    changes = {"message_format_version": version, "compression_type": compression, "num_partitions": 1}
    producer = produce(**changes, batch_size=1024, shmaccum_slot_size=1024, buffer_memory=128 << 10, max_block_ms=5000)
    pool = producer._accumulator.state.pool
    held = [pool.allocate(1, 0) for _ in range(128)]
    pool.deallocate(*held[::2])
    producer.send("t", large := os.urandom(60_000), b"half of the memory", timestamp_ms=999)
    assert producer.metrics()["producer-metrics"]["bufferpool-wait-time-ns-total"] == 0
    single = [
        (b"random", os.urandom(5000)),
        (b"even", b"even" * 5000),
        *((None, b"about a slot".ljust(size)) for size in range(1024 - 100, 1024)),
        (b"key" * 1000, None),
        *((b"key %d" % number, b"value " * (number % 30)) for number in range(300)),
    ]
    for number, (key, value) in enumerate(single):
        producer.send("t", value, key, timestamp_ms=1000 + number)
    sizes = (10, 3000, 4001, 20, 962, 963, 9999)
    rows = [(None, os.urandom(size) if size % 2 else b"a" * size) for size in sizes]
    rows += [(b"key" if number % 3 else None, b"row %d" % number * 20) for number in range(300)]
    columns = {
        "key": pa.array([key for key, _ in rows], pa.binary()),
        "value": pa.array([value for _, value in rows], pa.binary()),
        "timestamp": pa.array(range(2000, 2000 + len(rows))),
    }
    future, first = producer.send_batch("t", pa.record_batch(columns)), 1 + len(single)
    assert future.get(30).offsets.tolist() == list(range(first, first + len(rows)))

    found = read_partition(log_dir, "t")
    assert [(record.key, record.value) for record in found] == [(b"half of the memory", large), *single, *rows]
    assert [record.timestamp for record in found] == [*range(999, 1000 + len(single)), *range(2000, 2000 + len(rows))]
    (segment,) = (log_dir / "t-0").glob("*.log")
    batches, used = MemoryRecords(segment.read_bytes()), set()
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.magic == MAGIC[version]
        used.add(COMPRESSIONS[batch.compression_type or 0])
    assert used - {"none"} == {compression} - {"none"}, "random bytes are not compressed"
    slab = producer.metrics()["slab-metrics"]
    assert slab["compression-rate-avg"] == 1 if compression == "none" else slab["compression-rate-avg"] < 0.9
    assert slab["byte-total"] == segment.stat().st_size
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
