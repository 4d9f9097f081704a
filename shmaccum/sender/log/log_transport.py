"""The transport without brokers: writes batches in Kafka's log format.

A batch answered as stored is written to the file, and synced if ``flush.messages`` is 1. If a sender dies after a
write, its successor resends the batch and the log recognises it: delivery is exactly once over the sender's death.

`send` writes; `poll` returns the answers, syncs what ``flush.ms`` makes due, and waits.
"""

from __future__ import annotations

import logging
import math
import os
import select
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from shmaccum._core import ProduceBatch, ProduceResponse
from shmaccum.accumulator.drain.ready_check import Cluster
from shmaccum.cluster import Node, TopicPartition, check_topic
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError, KafkaStorageError, UnknownTopicOrPartitionError
from shmaccum.sender.log.directory import LogDirectory
from shmaccum.sender.log.files import OpenFiles
from shmaccum.sender.log.partition_log import LogConfig, PartitionLog
from shmaccum.sender.transport import Transport

logger = logging.getLogger(__name__)

NODE: Final = Node(0)
"""The log directory, in the place of a broker."""

_LONGEST_WAIT_MS: Final = 2.0**31 - 1  # what poll(2) takes


class LogTransport(Transport):
    """Writes batches into ``log_dir``: all of them, when `send` returns. A failure of one partition is its own."""

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
        """Log with unsynced records -> when to sync it, the earliest first."""
        self._answers: list[ProduceResponse] = []

    def start(self) -> None:
        """Lock the directory; create it if it is missing.

        Raises:
            KafkaStorageError: the directory cannot be created or written.
            SlabInUseError: another sender writes to it.
        """
        self._directory.open()

    def init_producer_id(self) -> tuple[int, int]:
        """Return a new producer id of 63 random bits, and epoch 0."""
        return int.from_bytes(os.urandom(8), "little") >> 1, 0

    def cluster(self) -> Cluster:
        """Return the topics requested so far, as of their last request."""
        return self._cluster

    def request_update(self, topics: Collection[str]) -> None:
        """Look the topics up on disk, and create missing ones. If that fails, the old metadata stays."""
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
                    logger.warning("topic %r cannot be used: %s", topic, error, extra={"seldom": ("topic", topic)})
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

    def send(self, node: Node, batches: Sequence[ProduceBatch], now_ms: int) -> None:
        """Write the batches. One that fails does not affect the others."""
        self._answers.extend([self._store(batch, now_ms) for batch in batches])

    def poll(self, timeout_ms: float, doorbell: int) -> list[ProduceResponse]:
        """Return the answers to all batches sent; without any, wait for the doorbell."""
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
        """Use another ``segment.bytes`` and ``num.partitions``, for new segments and topics."""
        self._num_partitions = config.num_partitions
        self._config.segment_bytes = config.segment_bytes

    def close(self) -> None:
        """Sync and close all files, and unlock the directory."""
        for log in list(self._flush_at):
            self._flush(log)
        self._files.close_all()
        self._logs.clear()
        self._directory.close()

    def _find_or_create(self, topic: str) -> int:
        """Return how many partitions the topic has; create it if it does not exist."""
        count = self._directory.count_partitions(topic)
        if count == 0:
            self._forget(topic)
            self._directory.create_topic(topic, self._num_partitions)
            count = self._directory.count_partitions(topic)
        return count

    def _forget(self, topic: str) -> None:
        """Close the logs of a topic whose directories were removed from outside."""
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
                if log.is_flushed:
                    self._flush_at.pop(log, None)
                else:
                    self._flush_at.setdefault(log, now_ms + self._flush_ms)
        except KafkaError as error:
            return ProduceResponse(batch, error=type(error), message=str(error), words=str(error))

    def _log_of(self, topic_partition: TopicPartition) -> PartitionLog:
        log = self._logs.get(topic_partition)
        if log is None:
            if topic_partition not in self._cluster.leaders:
                raise UnknownTopicOrPartitionError(
                    f"{topic_partition} is not in log.dir {self._directory.path}: create its directory, or use a "
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
        """Sync a log whose records are acknowledged already: an error can only be logged."""
        del self._flush_at[log]
        try:
            log.flush()
        except KafkaStorageError as error:
            logger.error("acknowledged records may not be on disk: %s", error)

    def _wait(self, timeout_ms: float, doorbell: int) -> bool:
        """Wait; return whether the doorbell was pressed. The sender reads from it."""
        poller = select.poll()
        poller.register(doorbell, select.POLLIN)
        return bool(poller.poll(min(timeout_ms, _LONGEST_WAIT_MS)))


def _monotonic_ms() -> float:
    return time.monotonic_ns() / 1_000_000
