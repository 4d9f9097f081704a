"""The transport for machines without a broker: batches go into Kafka's log format on disk.

What leaves here as stored is in the file, as far as ``write`` says so, and on disk where ``flush.messages``
is 1. A batch that a sender wrote before it died is known again when the next one resends it, so delivery is
exactly once over the sender's death.

Writing is done in `send`; `poll` only hands out the answers, syncs what ``flush.ms`` asks for, and waits.
"""

from __future__ import annotations

import logging
import math
import secrets
import select
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from shmaccum.cluster import Cluster, Node, TopicPartition, check_topic
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, KafkaStorageError, UnknownTopicOrPartitionError
from shmaccum.sender.log.directory import LogDirectory
from shmaccum.sender.log.files import OpenFiles
from shmaccum.sender.log.partition_log import LogConfig, PartitionLog
from shmaccum.sender.transport import ProduceBatch, ProduceResponse

logger = logging.getLogger(__name__)

NODE: Final = Node(0)
"""What stands for a broker: the log directory."""

_LONGEST_WAIT_MS: Final = 2.0**31 - 1  # what poll(2) takes


class LogTransport:
    """Writes batches into ``log_dir``; see `shmaccum.sender.transport.Transport` for the methods.

    Args:
        log_dir: ``log.dir``; made by `start` where it is missing.
        num_partitions: ``num.partitions``, of a topic that is not in the log yet.
        segment_bytes: ``segment.bytes``.
        flush_messages: ``flush.messages``.
        flush_ms: ``flush.ms``.
        magic: of all the batches that will come.
    """

    def __init__(
        self, log_dir: Path, num_partitions: int, segment_bytes: int, flush_messages: int, flush_ms: int, magic: int
    ) -> None:
        self._directory = LogDirectory(log_dir)
        self._num_partitions = num_partitions
        self._config = LogConfig(segment_bytes, flush_messages, magic)
        self._flush_ms = flush_ms
        self._files = OpenFiles()
        self._changes: dict[str, int] = {}
        self._cluster = Cluster(nodes={NODE.id: NODE}, changes=self._changes)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._flush_at: dict[PartitionLog, float] = {}
        """When the logs that hold unflushed records are to be flushed, the earliest first."""
        self._answers: list[ProduceResponse] = []
        self._doorbell = -1
        self._poller = select.poll()

    def start(self) -> None:
        """Make the directory where it is missing, and lock it.

        Raises:
            KafkaStorageError: the directory cannot be made or written.
            SlabInUseError: another sender writes to it.
        """
        self._directory.open()

    def init_producer_id(self) -> tuple[int, int]:
        """Return a new producer id, unique by its 63 random bits, and epoch 0."""
        return secrets.randbits(63), 0

    def failure(self) -> None:
        """Return None: what is in the way of one partition is not in the way of all."""

    def cluster(self) -> Cluster:
        """Return the topics asked for so far, as they were when last asked for."""
        return self._cluster

    def request_update(self, topics: Collection[str]) -> None:
        """Look for the topics on disk, and make those that are not there. What was known stays if that fails."""
        known = self._cluster
        counts, leaders, errors = dict(known.partition_counts), dict(known.leaders), dict(known.topic_errors)
        changed = []
        for topic in topics:
            before = counts.get(topic, 0), errors.pop(topic, None)
            try:
                counts[topic] = self._find_or_create(check_topic(topic))
            except KafkaError as error:
                if topic not in counts:
                    errors[topic] = type(error)
                    logger.warning("no metadata of topic %r: %s", topic, error)
            count = counts.get(topic, 0)
            if before != (count, errors.get(topic)):
                changed.append(topic)
                for number in range(before[0], count):
                    leaders[TopicPartition(topic, number)] = NODE.id
                for number in range(count, before[0]):
                    del leaders[TopicPartition(topic, number)]
        if changed:
            version = known.version + 1
            for topic in changed:
                self._changes.pop(topic, None)
                self._changes[topic] = version
            self._cluster = Cluster(known.nodes, counts, leaders, errors, changes=self._changes, version=version)

    def ready(self, node: Node, now_ms: int) -> bool:
        """Return True: a directory needs no connection."""
        return True

    def connection_delay_ms(self, node: Node, now_ms: int) -> float:
        """Return 0: a directory needs no connection."""
        return 0.0

    def is_busy(self) -> bool:
        """Say that the log is never busy: it has stored what it was sent."""
        return False

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        """Write the batches. What one of them meets does not keep the others from being written."""
        self._answers.extend([self._store(batch, now_ms) for batch in batches])

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        """Return the answers to all that was sent; without any, wait for the doorbell."""
        end = _monotonic_ms() + timeout_ms
        while True:
            self._flush_due(_monotonic_ms())
            now = _monotonic_ms()
            if self._answers or now >= end:
                answers, self._answers = self._answers, []
                return answers
            next_flush = next(iter(self._flush_at.values()), math.inf)
            if self._wait(max(0.0, min(end, next_flush) - now), doorbell):
                return []

    def apply(self, config: ProducerConfig) -> None:
        """Begin segments by another size, and topics with another number of partitions, from now on."""
        self._num_partitions = config.num_partitions
        self._config.segment_bytes = config.segment_bytes

    def close(self) -> None:
        """Flush and close all files, and unlock the directory."""
        for log in list(self._flush_at):
            self._flush(log)
        self._files.close_all()
        self._logs.clear()
        self._directory.close()

    def _find_or_create(self, topic: str) -> int:
        """Return how many partitions the topic has."""
        count = self._directory.count_partitions(topic)
        if count == 0:
            self._forget(topic)
            self._directory.create_topic(topic, self._num_partitions)
            count = self._directory.count_partitions(topic)
        return count

    def _forget(self, topic: str) -> None:
        """Close the logs of a topic whose directories somebody removed: their files are nowhere any more."""
        for topic_partition in [each for each in self._logs if each.topic == topic]:
            log = self._logs.pop(topic_partition)
            log.close()
            self._flush_at.pop(log, None)

    def _store(self, batch: ProduceBatch, now_ms: int) -> ProduceResponse:
        try:
            log = self._log_of(batch.topic_partition)
            try:
                return ProduceResponse(batch, log.append(batch))
            finally:
                self._plan_flush(log, now_ms)
        except KafkaError as error:
            return ProduceResponse(batch, error=type(error), message=str(error), words=str(error))

    def _plan_flush(self, log: PartitionLog, now_ms: int) -> None:
        if log.is_flushed:
            self._flush_at.pop(log, None)
        elif log not in self._flush_at:
            self._flush_at[log] = now_ms + self._flush_ms

    def _log_of(self, topic_partition: TopicPartition) -> PartitionLog:
        log = self._logs.get(topic_partition)
        if log is None:
            if topic_partition not in self._cluster.leaders:
                raise UnknownTopicOrPartitionError(
                    f"{topic_partition} is not in log.dir {self._directory.path}: make its directory, or use a "
                    f"partition that the topic has"
                )
            path = self._directory.partition_path(topic_partition)
            log = self._logs[topic_partition] = PartitionLog(path, self._config, self._files)
        return log

    def _flush_due(self, now_ms: float) -> None:
        while self._flush_at:
            log, due_ms = next(iter(self._flush_at.items()))
            if due_ms > now_ms:
                return
            self._flush(log)

    def _flush(self, log: PartitionLog) -> None:
        """Flush a log whose records are acknowledged already: an error can only be told to the operator."""
        del self._flush_at[log]
        try:
            log.flush()
        except KafkaStorageError as error:
            logger.error("acknowledged records may not be on disk: %s", error)

    def _wait(self, timeout_ms: float, doorbell: int) -> bool:
        """Wait, and say whether the doorbell rang. Reading from it is for the sender."""
        if doorbell != self._doorbell:
            self._poller = select.poll()
            self._poller.register(doorbell, select.POLLIN)
            self._doorbell = doorbell
        return bool(self._poller.poll(min(timeout_ms, _LONGEST_WAIT_MS)))


def _monotonic_ms() -> float:
    return time.monotonic_ns() / 1_000_000
