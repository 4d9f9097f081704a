"""What the tests of the sender share: a sender that is run by hand, and a log read by an independent decoder."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kafka.record import MemoryRecords

from shmaccum._core import FutureRecordMetadata, ProduceBatch, ProduceResponse
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.accumulator.state.accumulator_state import attach_for
from shmaccum.cluster import Node, TopicPartition
from shmaccum.config import ProducerConfig
from shmaccum.errors import InvalidRecordError, KafkaError, RecordTooLargeError
from shmaccum.record.format import iter_batches
from shmaccum.sender.process import make_transport
from shmaccum.sender.sender import Sender
from shmaccum.shm.lifecycle import detach
from tools.support.accumulators import Accumulators

NAP_MS = 2
"""Longest sleep of `Hand.poll`, however long it is to sleep."""


class LogRecord(NamedTuple):
    """A record of the log as kafka-python decodes it."""

    offset: int
    timestamp: int | None
    """None in message format 0, which has none."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def decode_batches(data: bytes) -> tuple[list[LogRecord], int]:
    """Return the records of whole batches, each with a right checksum, and how many bytes these batches have."""
    found = []
    stored = MemoryRecords(data)
    while stored.has_next():
        batch = stored.next_batch()
        assert batch is not None
        assert batch.validate_crc()
        found += [LogRecord(each.offset, each.timestamp, each.key, each.value, each.headers or []) for each in batch]
    return found, stored.valid_bytes()


def read_partition(log_dir: Path, topic: str, partition: int = 0, *, while_written: bool = False) -> list[LogRecord]:
    """Return all records of a partition; every batch's checksum is right, and nothing else is in the files.

    ``while_written``: a sender is at work on it, and what is not whole yet is left out.
    """
    found = []
    for segment in sorted((log_dir / f"{topic}-{partition}").glob("*.log")):
        data = segment.read_bytes()
        records, size = decode_batches(data)
        found += records
        assert while_written or size == len(data)
    assert [record.offset for record in found] == list(range(len(found)))
    return found


def read_values(log_dir: Path, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in read_partition(log_dir, topic, partition)]


def read_topic(log_dir: Path, topic: str) -> dict[int, list[LogRecord]]:
    numbers = sorted(int(path.name.rpartition("-")[2]) for path in log_dir.glob(f"{topic}-*"))
    return {number: read_partition(log_dir, topic, number) for number in numbers}


class Hand:
    """The log transport under the test's control: it hardly sleeps, and the test decides when and what it answers.

    Attributes:
        asked: the times that `poll` was to sleep.
        held: whether answers are kept back for now.
        busy: whether no node takes another request before it has answered one.
        refuse: what happens to batches of a partition instead of being stored.
        largest: most bytes of a batch; a larger one is refused as too large.
        is_invalid: says of a record's value whether the record is invalid; its batch is refused, naming such records.
        no_leader: partitions whose leader is unknown.
        sent: all batches that came, as (partition, first sequence number).
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._log = make_transport(config)
        self.asked: list[float] = []
        self.held = False
        self.busy = False
        self.refuse: dict[TopicPartition, type[KafkaError]] = {}
        self.largest = sys.maxsize
        self.is_invalid: Callable[[bytes | None], bool] = lambda value: False
        self.no_leader: frozenset[TopicPartition] = frozenset()
        self.sent: list[tuple[TopicPartition, int]] = []
        self.updates: list[set[str]] = []
        self._answers: list[ProduceResponse] = []
        self._cluster: tuple[Cluster, frozenset[TopicPartition], Cluster] | None = None

    def __getattr__(self, name: str) -> Any:
        """Leave all else to the log's transport."""
        return getattr(self._log, name)

    def cluster(self) -> Cluster:
        real = self._log.cluster()
        if not self.no_leader:
            return real
        if self._cluster is None or self._cluster[:2] != (real, self.no_leader):
            leaders = {each: node for each, node in real.leaders.items() if each not in self.no_leader}
            shown = Cluster(real.nodes, real.partition_counts, leaders, real.topic_errors)
            self._cluster = (real, self.no_leader, shown)
        return self._cluster[2]

    def request_update(self, topics: Collection[str]) -> None:
        self.updates.append(set(topics))
        self._log.request_update(topics)

    def is_busy(self) -> bool:
        return self.busy

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        for batch in batches:
            self.sent.append((batch.topic_partition, batch.base_sequence))
            refusal = self._refusal(batch)
            if refusal is None:
                self._log.send(node, [batch], now_ms)
                self._answers += self._log.poll(0, -1)
            else:
                self._answers.append(refusal)

    def _refusal(self, batch: ProduceBatch) -> ProduceResponse | None:
        error = self.refuse.get(batch.topic_partition)
        if batch.size > self.largest:
            error = RecordTooLargeError
        if error is not None:
            return ProduceResponse(batch, error=error, message="refused by the test", words="not on Sundays")
        records = [record for entry in iter_batches(b"".join(batch.payload)) for record in entry.records()]
        invalid = tuple(number for number, record in enumerate(records) if self.is_invalid(record.value))
        if invalid:
            named = {number: f"record {number} is no good" for number in invalid}
            return ProduceResponse(batch, error=InvalidRecordError, message="no good", invalid_records=named)
        return None

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        self.asked.append(timeout_ms)
        if self.held or not self._answers:
            if timeout_ms > 0:  # else a test that waits for something would spin
                select.select([doorbell], [], [], min(timeout_ms, NAP_MS) / 1000)
            return []
        answers, self._answers = self._answers, []
        return answers


class HandRun:
    """A slab, its one sender, and a producer's half, all of them in this process and by hand.

    Without a transport the sender writes a log, by hand.
    """

    def __init__(self, config: ProducerConfig, transport: Any = None) -> None:
        self.config = config
        self.slab = attach_for(config)
        self.accumulator = Accumulators(self.slab, config)
        self.doorbell = self.slab.become_sender()
        self.transport = transport or Hand(config)
        self.transport.start()
        self.sender = Sender(self.accumulator.sender, self.transport, self.doorbell, config)
        self._resigned = False

    def begin(self) -> None:
        """Do what `Sender.run` does before its loop."""
        self.accumulator.sender.recover()
        self.accumulator.sender.ahead.start(self.doorbell.ring)

    def topic(self, name: str) -> None:
        self.accumulator.map.request(name)
        self.run(1)

    def send(self, to: TopicPartition, value: bytes = b"value") -> FutureRecordMetadata:
        """Append a record; there must be room for it."""
        return self.accumulator.append(to, 0, None, value, max_block_ms=0).future

    def run(self, passes: int = 2, after_ms: int = 1_000) -> None:
        """Make passes of the loop, at a time when nothing lingers any more."""
        for _ in range(passes):
            self.sender.run_once(time.monotonic_ns() // 1_000_000 + after_ms)

    def run_until(self, condition: Callable[[], object], after_ms: int = 1_000) -> None:
        """Make passes until a condition holds."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            self.run(1, after_ms)

    def resign(self) -> None:
        """Stop being the sender, if it is the sender still; what is not delivered is the next one's."""
        if self._resigned:
            return
        self.accumulator.sender.ahead.stop()
        self.transport.close()
        self.slab.resign_as_sender(self.doorbell)
        self._resigned = True

    def close(self) -> None:
        """Leave the slab; the last one drops what is not delivered."""
        self.resign()
        if self.slab.users == 1 and not self.slab.has_sender():
            self.accumulator.sender.recover()
            self.accumulator.sender.abort_incomplete_batches(KafkaError)
            self.slab.reap_dead()
        detach(self.slab)


def counter(run: HandRun, word: int) -> int:
    return int(run.slab.words[word])


def of_partition(run: HandRun, partition: TopicPartition, word: int) -> int:
    entry = run.accumulator.map.queues[partition].entry
    return int(run.slab.words[run.slab.geometry.partition(entry) + word])
