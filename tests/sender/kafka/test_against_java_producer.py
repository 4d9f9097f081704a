"""Compares the segments of Kafka's Java producer and of ours, for the same records.

Both are idempotent, with the same batches and settings. Uncompressed, the batches are equal byte for byte, except the
producer id and the checksum that covers it. Base sequences and producer epochs are equal, and so are the base offset
and leader epoch that the broker fills in.

Compressed, the headers are equal except for these two and the length, and so are the decompressed records. The
compressed bytes differ, and each side reads the other's. What differs:

======  ==============================================================================================================
gzip    the same level, 6, but another deflate: it chooses other matches, and stores a block that it cannot make smaller
snappy  the same frame of blocks of 32 KiB (xerial's); in them, another Snappy chooses other matches
lz4     both write independent blocks of 64 KiB; ours have a checksum each (4 bytes), which Kafka's reader checks
zstd    the same level, 3; ours says in its header how long the content is, Java's does not
======  ==============================================================================================================
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple

import pytest
from brokers import consume
from crc32c import crc32c
from java_producer import Do, java_producer, producer_line
from producers import sender_pid, settings_of, stop_sender, wait_until, wait_until_gone

from shmaccum import Producer
from shmaccum.errors import UnknownTopicOrPartitionError
from shmaccum.record.compression import CompressionType, decompress
from tools.kafka import KafkaCluster, dump_batches, segments

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

NOW = 1_700_000_000_000
BATCH_SIZE = 1 << 20
"""Large enough that Java's producer, which estimates compression, closes no batch before a flush."""
LENGTH = slice(8, 12)
CRC = slice(17, 21)
ATTRIBUTES = slice(21, 23)
PRODUCER_ID = slice(43, 51)
HEADER_SIZE = 61


class Sample(NamedTuple):
    """A record to be sent by both."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = NOW
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def line(self, topic: str, partition: str = "0") -> str:
        """Return the record as `ProduceRecords` reads it."""
        headers = (f"{name.encode().hex()}={_hex(value)}" for name, value in self.headers)
        fields = ["record", topic, partition, str(self.timestamp), _hex(self.key), _hex(self.value), *headers]
        return "\t".join(fields)


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def _drawn(count: int) -> Iterator[Sample]:
    """Yield records of all sizes, in words that can be compressed."""
    draw = random.Random(3)
    words = [draw.randbytes(draw.randrange(1, 12)) for _ in range(50)]
    for number in range(count):
        value = b" ".join(draw.choices(words, k=draw.choice([0, 1, 10, 100])))
        key = draw.choice([None, b"", b"key %d" % number, draw.randbytes(draw.randrange(200))])
        headers = tuple((f"header {i}", draw.choice([None, b"", draw.choice(words)])) for i in range(draw.randrange(4)))
        yield Sample(draw.choice([value, value, None]), key, NOW + draw.randrange(-(10**9), 10**9), headers)


BATCHES: list[list[Sample]] = [
    [Sample(b"value", b"key")],
    [Sample(b"no key"), Sample(None, b"tombstone"), Sample(None), Sample(b"", b""), Sample(b"\0\xff" * 40, b"\0")],
    [
        Sample(b"v", headers=(("name", b"value"), ("null", None), ("empty", b""))),
        Sample(b"v", headers=(("twice", b"1"), ("twice", b"2"), ("twice", b"1"))),
        Sample(b"v", headers=(("", b"no name"), ("größe \N{SNOWMAN}", b"\xe2\x98\x83"))),
        Sample(None, headers=tuple((str(number), b"x" * number) for number in range(100))),
    ],
    [Sample(b"%d" % number, timestamp=NOW - 3_600_000 * number) for number in range(20)],
    [Sample(b"first", timestamp=0), Sample(b"then", timestamp=NOW), Sample(b"last", timestamp=1)],
    [Sample(b"0123456789 abcdef " * 5690, b"100 KiB")],
    [Sample(random.Random(1).randbytes(100 << 10), b"100 KiB that cannot be compressed"), Sample(b"and one more")],
    list(_drawn(300)),
]


class Stored(NamedTuple):
    """What the broker has of both with one codec."""

    ours: list[bytes]
    javas: list[bytes]


def java_settings(cluster: KafkaCluster, codec: str = "none") -> str:
    """Return the line that makes a producer which sends nothing before a flush."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "compression.type": codec,
        "batch.size": BATCH_SIZE,
        "linger.ms": 60_000,
    }
    return producer_line(settings)


def our_settings(cluster: KafkaCluster, slab: str, codec: str = "none") -> dict[str, object]:
    settings = settings_of(slab, "", batch_size=BATCH_SIZE, buffer_memory=8 << 20, linger_ms=60_000)
    return settings | {
        "transport": "kafka",
        "bootstrap.servers": cluster.bootstrap_servers,
        "log.dir": "",
        "compression.type": codec,
    }


@pytest.fixture(scope="module")
def java(kafka: KafkaCluster) -> Iterator[Do]:
    """Return a function that has Kafka's producer do what lines say: one process of Java's for all tests."""
    with java_producer() as do:
        yield do


@pytest.fixture(scope="module")
def stored(kafka: KafkaCluster, java: Do) -> dict[str, Stored]:
    """Send the batches by both producers, with one codec after the other."""
    for topic in ("ours", "javas"):
        kafka.admin.create_topic(topic, settings={"retention.ms": -1})  # the records are from all times
    lines = []
    for codec in CODECS:
        lines.append(java_settings(kafka, codec))
        for batch in BATCHES:
            lines += [*(sample.line("javas") for sample in batch), "flush"]
        send_batches(kafka, codec)
    java(lines)
    ours, javas = read_batches(kafka, "ours"), read_batches(kafka, "javas")
    assert len(ours) == len(javas) == len(CODECS) * len(BATCHES)
    begins = range(0, len(ours), len(BATCHES))
    parts = (Stored(*(each[begin : begin + len(BATCHES)] for each in (ours, javas))) for begin in begins)
    return dict(zip(CODECS, parts, strict=True))


def send_batches(cluster: KafkaCluster, codec: str) -> None:
    slab = f"java-{os.getpid()}-{codec}"
    with Producer(our_settings(cluster, slab, codec)) as producer:
        for batch in BATCHES:
            futures = [
                producer.send("ours", value, key, headers, partition=0, timestamp_ms=timestamp)
                for value, key, timestamp, headers in batch
            ]
            producer.flush(30)
            assert all(future.succeeded() for future in futures)
    wait_until_gone(slab)


def read_batches(cluster: KafkaCluster, topic: str, partition: int = 0) -> list[bytes]:
    """Return the batches as they are in the segments of one of the topic's partitions."""
    data = b"".join(segment.read_bytes() for segment in segments(cluster.nodes[1].data, topic, partition))
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] :][LENGTH]))
    return [data[start:end] for start, end in pairwise(starts)]


def with_producer_id(batch: bytes, producer_id: bytes) -> bytes:
    """Return the batch as it would be with another producer id."""
    changed = bytearray(batch)
    changed[PRODUCER_ID] = producer_id
    changed[CRC] = crc32c(changed[ATTRIBUTES.start :]).to_bytes(4)
    return bytes(changed)


def test_uncompressed_batches_are_equal(stored: dict[str, Stored]) -> None:
    for our, java in zip(*stored["none"], strict=True):
        assert our[PRODUCER_ID] != java[PRODUCER_ID]
        assert with_producer_id(our, java[PRODUCER_ID]) == java


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressed_batches_are_equal_but_for_the_compressing(stored: dict[str, Stored], codec: str) -> None:
    for our, java in zip(*stored[codec], strict=True):
        assert codec_of(our) is codec_of(java) is CompressionType.for_name(codec)
        assert header_of(our) == header_of(java)
        assert section_of(our) == section_of(java)


def codec_of(batch: bytes) -> CompressionType:
    return CompressionType.for_attributes(int.from_bytes(batch[ATTRIBUTES]))


def header_of(batch: bytes) -> bytes:
    """Return the header without what is to differ."""
    header = bytearray(batch[:HEADER_SIZE])
    for field in (LENGTH, CRC, PRODUCER_ID):
        header[field] = bytes(field.stop - field.start)
    return bytes(header)


def section_of(batch: bytes) -> bytes:
    """Return the records, not compressed any more."""
    return decompress(codec_of(batch), batch[HEADER_SIZE:], 2)


def test_kafkas_dump_tool_on_ours(stored: dict[str, Stored], kafka: KafkaCluster) -> None:
    dumped = dump_batches(kafka.nodes[1].data, "ours")
    assert [(batch.compression, batch.count) for batch in dumped] == [
        (codec, len(batch)) for codec in CODECS for batch in BATCHES
    ]
    assert [batch.size for batch in dumped] == [len(batch) for of_codec in stored.values() for batch in of_codec.ours]
    assert all(batch.valid and batch.magic == 2 for batch in dumped)
    assert all(batch.producer_id >= 0 and batch.producer_epoch == 0 for batch in dumped)
    of_a_codec = sum(map(len, BATCHES))
    assert [batch.base_sequence for batch in dumped] == [batch.base_offset % of_a_codec for batch in dumped]


def test_records_without_keys_fill_as_few_batches(kafka: KafkaCluster, java: Do, topic: str, slab_name: str) -> None:
    """Where the partition of the moment changes, Java's producer leaves no fractional batch, and neither do ours.

    Ours share one slab, so that two of them may fill one batch. Their sender is stopped meanwhile: like Kafka's, it
    sends open batches along with full ones to the same broker, and how many depends on the moment.
    """
    javas, producers, partitions, count = f"{topic}-java", 3, 12, 4000
    for name in (topic, javas):
        kafka.admin.create_topic(name, partitions=partitions)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "batch.size": 4096, "linger.ms": 60_000}
    # Java's producer can wait for ever for a partition whose leader is not ready for its first batch.
    consume({"bootstrap.servers": kafka.bootstrap_servers}, javas)
    java([producer_line(settings), *[Sample(bytes(100)).line(javas, "-")] * count] * producers)
    with ExitStack() as closing:
        own = settings_of(slab_name, "", transport="kafka", buffer_memory=8 << 20)
        made = [closing.enter_context(Producer(own | settings)) for _ in range(producers)]
        made[0].partitions_for(topic)
        stop_sender(made[0])
        try:
            for _ in range(count):
                for producer in made:
                    producer.send(topic, bytes(100), timestamp_ms=NOW)
        finally:
            os.kill(sender_pid(made[0]), signal.SIGCONT)
    wait_until_gone(slab_name)
    ours, theirs = (
        sum(len(read_batches(kafka, name, number)) for number in range(partitions)) for name in (topic, javas)
    )
    assert ours <= theirs


def test_a_topic_made_again_with_fewer_partitions(kafka: KafkaCluster, java: Do, topic: str, slab_name: str) -> None:
    """Both notice with their next refresh, and send the same keys to the same partitions as before and after."""
    keys = [b"key %d" % number for number in range(60)]
    ours, javas = f"{topic}-ours", f"{topic}-javas"
    for each in (ours, javas):
        kafka.admin.create_topic(each, partitions=6)
    lines = [Sample(b"v", key).line(javas, "-") for key in keys]
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "metadata.max.age.ms": 200}
    with Producer(settings | {"shmaccum.name": slab_name, "sender.idle.ms": 100}) as producer:

        def send() -> list[int]:
            futures = [producer.send(ours, b"v", key) for key in keys]
            producer.flush(30)
            return [future.get().partition for future in futures]

        partitions = [partition for partition, _ in java([producer_line(settings), *lines])]
        assert send() == partitions
        assert set(partitions) == set(range(6))
        for each in (ours, javas):
            kafka.admin.delete_topic(each)
            kafka.admin.create_topic(each, partitions=2)
        wait_until(lambda: producer.partitions_for(ours) == {0, 1}, "we have noticed")
        time.sleep(1)  # five times what Java may take to notice
        partitions = [partition for partition, _ in java(lines)]
        assert send() == partitions
        assert set(partitions) == {0, 1}
        unkeyed = [producer.send(ours, b"v") for _ in range(10)]
        producer.flush(30)
        assert all(future.succeeded() for future in unkeyed)
        with pytest.raises(UnknownTopicOrPartitionError, match="partition count 2"):
            producer.send(ours, b"nowhere", partition=4)
    for each, count in ((ours, 70), (javas, 60)):
        assert sum(map(len, consume({"bootstrap.servers": kafka.bootstrap_servers}, each).values())) == count
    wait_until_gone(slab_name)
