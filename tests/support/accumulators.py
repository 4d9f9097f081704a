"""What the tests of the accumulator share: an accumulator of one topic, drained by hand, and an independent decoder.

The cluster is that of Kafka's own ``RecordAccumulatorTest``: partitions 0 and 1 are led by node 0, the others by
node 1. Time is never slept away: what takes a time is given one, counted from a batch's own creation.
"""

from __future__ import annotations

from collections.abc import Iterable

from senders import LogRecord as Sent
from senders import decode_batches

from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.accumulator.state.accumulator_state import attach_for
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields
from tools.support.accumulators import Accumulators

TOPIC = "test"
TP0, TP1, TP2, TP3 = (TopicPartition(TOPIC, number) for number in range(4))
NODE0, NODE1 = Node(0), Node(1)
BATCH_SIZE = 1088
"""Bytes of a slot: 1025 of records, as in Kafka's test, behind the header of a v2 batch, in whole words."""
KEY, VALUE = b"key", b"value"
HALF = bytes(BATCH_SIZE // 2)
"""A value of which one fits a batch, and two do not."""
UNLIMITED = 1 << 31


def cluster_of(*leaders: int | None, topic: str = TOPIC) -> Cluster:
    """Return a cluster in which the topic's partitions are led by these nodes."""
    led = {TopicPartition(topic, number): node for number, node in enumerate(leaders) if node is not None}
    return Cluster({0: NODE0, 1: NODE1}, {topic: len(leaders)}, led)


CLUSTER = cluster_of(0, 0, 1, 1)


def config_of(name: str, **settings: object) -> ProducerConfig:
    """Return a configuration; settings are named with ``_`` for Kafka's ``.``."""
    defaults: dict[str, object] = {
        "shmaccum.name": name,
        "transport": "log",
        "log.dir": "/nowhere",
        "batch.size": BATCH_SIZE,
        "shmaccum.slot.size": BATCH_SIZE,
        "buffer.memory": 10 * BATCH_SIZE,
        "linger.ms": 10,
        "request.timeout.ms": 1000,
        "delivery.timeout.ms": 3200,
        "enable.idempotence": False,
        "shmaccum.max.processes": 16,
        "shmaccum.max.topics": 8,
        "shmaccum.max.partitions": 32,
    }
    return ProducerConfig.parse(defaults | {name.replace("_", "."): value for name, value in settings.items()})


def open_accumulator(config: ProducerConfig) -> Accumulators:
    """Attach to the slab and make the topic known; the caller detaches ``accumulator.slab``."""
    slab = attach_for(config)
    accumulator = Accumulators(slab, config)
    if accumulator.map.topic(TOPIC) is None:
        accumulator.map.request(TOPIC)
        accumulator.map.update(TOPIC, 4, None)
    return accumulator


def add(accumulator: Accumulators, to: TopicPartition, value: bytes = VALUE, timestamp: int = 0) -> None:
    """Append a record whose future is of no interest."""
    accumulator.append(to, timestamp, KEY, value, max_block_ms=1000)


def created_ms(accumulator: Accumulators, of: TopicPartition) -> int:
    batch = first(accumulator, of)
    assert batch is not None
    return batch.created_ms


def first(accumulator: Accumulators, of: TopicPartition) -> RecordBatch | None:
    return accumulator.map.queues[of].first()


def queued(accumulator: Accumulators, of: TopicPartition) -> int:
    return len(accumulator.map.queues[of])


def partition_of(accumulator: Accumulators, batch: RecordBatch) -> TopicPartition:
    return accumulator.map.by_entry[batch.partition].topic_partition


def drain(
    accumulator: Accumulators, now_ms: int = 0, *, cluster: Cluster = CLUSTER, max_size: int = UNLIMITED
) -> list[RecordBatch]:
    """Take one batch of every partition that has one, ready or not."""
    return [batch for node in (NODE0, NODE1) for batch in accumulator.sender.drain(cluster, node, max_size, now_ms)]


def as_sent(accumulator: Accumulators, batch: RecordBatch, base_offset: int = 0) -> bytes:
    """Seal a copy of a batch as the sender would, without compression."""
    sealed = accumulator.format.seal(
        memoryview(bytearray().join(batch.memory())),
        BatchFields(*batch.contents(), *batch.identity()),
        CompressionType.NONE,
    )
    accumulator.format.set_base_offset(sealed, batch.record_count, base_offset)
    return bytes(sealed)


def decode(accumulator: Accumulators, batch: RecordBatch, base_offset: int = 0) -> list[Sent]:
    """Have kafka-python read a batch as it would be sent."""
    found, _ = decode_batches(as_sent(accumulator, batch, base_offset))
    assert len(found) == batch.record_count
    if accumulator.format.magic > 0:
        assert max(each.timestamp or 0 for each in found) == batch.max_timestamp
    return found


def values_of(accumulator: Accumulators, batches: Iterable[RecordBatch]) -> list[bytes | None]:
    return [record.value for batch in batches for record in decode(accumulator, batch)]


class Log:
    """Stands for what is behind the sender: takes all that is sent, and says under which offset."""

    def __init__(self, accumulator: Accumulators) -> None:
        self._accumulator = accumulator
        self.partitions: dict[TopicPartition, list[Sent]] = {}

    def take(self, batches: Iterable[RecordBatch]) -> int:
        """Store the records of drained batches, and complete them; return how many batches there were."""
        outcomes = []
        for batch in batches:
            stored = self.partitions.setdefault(partition_of(self._accumulator, batch), [])
            outcomes.append(BatchOutcome(batch, len(stored)))
            stored += decode(self._accumulator, batch, len(stored))
        self._accumulator.sender.complete(outcomes)
        return len(outcomes)

    def take_all(self, now_ms: int = 0) -> None:
        while self.take(drain(self._accumulator, now_ms)):
            pass

    def values(self, of: TopicPartition) -> list[bytes | None]:
        return [record.value for record in self.partitions.get(of, [])]


def assert_empty(accumulator: Accumulators) -> None:
    """Nothing is queued or in anybody's hands, and the pool says so in all its ways."""
    pool = accumulator.pool
    assert accumulator.slab.undelivered() == (0, 0)
    assert pool.available_memory() == pool.total_memory
    whole = pool.allocate(pool.total_memory, 0)  # the bitmap, too, has every slot
    pool.deallocate(whole)
    for queue in accumulator.map.by_entry:
        assert (queue.first(), len(queue)) == (None, 0)
