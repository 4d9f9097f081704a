"""The topic that holds what writers of many transactions have decided: for each, by its key, the last state.

It is compacted, and shared by all writers. A writer writes its state in a transaction of its own id, so the brokers
refuse one that has been replaced. And it reads its state after it has taken the id over: then all transactions in which
the state was written have their end markers in the log. So reading needs no ``read_committed``, by which another
writer's open transaction would hide what comes behind it: the marker of a transaction tells whether its record counts.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    ConfigError,
    CorruptRecordError,
    DuplicateSequenceNumberError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
    TopicAuthorizationError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from shmaccum.kafka.messages import CREATE_TOPICS, DESCRIBE_CONFIGS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from shmaccum.record.compression import CompressionType
from shmaccum.record.framing import whole_entries
from shmaccum.record.murmur2 import murmur2
from shmaccum.record.reader import iter_batches
from shmaccum.record.v2.records import CONTROL, MAGIC, TRANSACTIONAL, compressed_batch, encode_body, encode_record
from shmaccum.sender.kafka.connection import Connection
from shmaccum.sender.kafka.handshake import Call
from shmaccum.sender.kafka.timing import monotonic_ms
from shmaccum.shm import native
from shmaccum.transactions.broker_client import BrokerClient, call
from shmaccum.transactions.coordinator import IMPLICIT, Identity

TOPIC: Final = "__shmaccum_commits"
"""The usual name."""
_PARTITIONS: Final = 16
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),  # small: only what is no longer appended to is compacted
    "compression.type": "producer",
}
_LARGEST: Final = 8 << 20
"""Most bytes of a fetched part of the log."""
_FIRST_LOOK: Final = 64
"""Offsets at the end of the log that are read first; mostly they have the key."""
_FURTHER: Final = 16
"""Factor by which each further look goes back."""
_COMMIT: Final = struct.pack(">hh", 0, 1)
"""Key of the record that ends a transaction with a commit: version and kind (``EndTransactionMarker``)."""
_LATEST: Final = -1
_EARLIEST: Final = -2
_TOPIC_KIND: Final = 2
"""Of a resource in DescribeConfigs."""
_NEWEST_PRODUCE_EXPLICIT: Final = 11
"""In protocol version 1: from the next one on, brokers add partitions to the transaction themselves."""
_NEWEST_METADATA: Final = 12
"""Later versions name a topic by its id."""
_ALL: Final = -1
"""``acks``."""

_Result = TypeVar("_Result")


class CommitLog:
    """The topic, as one process sees it.

    Args:
        client: connects to brokers.
        topic: its name.
        config: the settings: ``retry.backoff.ms``, ``request.timeout.ms``.
    """

    def __init__(self, client: BrokerClient, topic: str, config: ProducerConfig) -> None:
        self.topic: Final = topic
        self._client = client
        self._backoff_ms = config.retry_backoff_ms
        self._timeout_ms = config.request_timeout_ms
        self._leaders: dict[int, Node] = {}
        self._is_checked = False

    def open(self, deadline_ms: float) -> None:
        """Create the topic if there is none, and check that it is compacted.

        Args:
            deadline_ms: monotonic milliseconds.

        Raises:
            ConfigError: it is not compacted.
            KafkaError: it cannot be created or read.
        """
        if not self._is_checked:
            try:
                self._find_leaders(deadline_ms)
            except UnknownTopicOrPartitionError:
                self._create(deadline_ms)
                self._until(self._find_leaders, deadline_ms)
            self._check_policy(deadline_ms)
            self._is_checked = True

    def partition_of(self, key: bytes) -> int:
        """Return the partition that has a key, as Kafka's default partitioner chooses it."""
        return (murmur2(key) & 0x7FFFFFFF) % len(self._leaders)

    def append(
        self,
        transactional_id: str,
        me: Identity,
        version: int,
        sequence: int,
        key: bytes,
        value: bytes | None,
        deadline_ms: float,
    ) -> None:
        """Store a state in an open transaction, or delete it (None); a repetition with the same number is stored once.

        Args:
            transactional_id: the writer's.
            me: the transaction's producer id and epoch.
            version: of the transaction protocol.
            sequence: number of the record under this epoch.
            key: the writer's.
            value: its state.
            deadline_ms: monotonic milliseconds.

        Raises:
            KafkaError: it is not stored, or that is not known.
        """
        stored = None if value is None else zlib.compress(value)
        now_ms = int(time.time() * 1000)
        batch = compressed_batch(
            memoryview(encode_record(0, now_ms, now_ms, encode_body(key, stored, ()))),
            CompressionType.NONE,
            flags=TRANSACTIONAL,
            record_count=1,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            producer_id=me.producer_id,
            producer_epoch=me.epoch,
            base_sequence=sequence,
        )
        partition = self.partition_of(key)
        request = PRODUCE.of(
            transactional_id=transactional_id,
            acks=_ALL,
            timeout_ms=self._timeout_ms,
            topic_data=[{"name": self.topic, "partition_data": [{"index": partition, "records": batch}]}],
        )
        newest = PRODUCE.newest if version >= IMPLICIT else _NEWEST_PRODUCE_EXPLICIT

        def send(deadline_ms: float) -> None:
            answer = self._ask(partition, lambda connection: call(request, connection, newest=newest), deadline_ms)
            found = answer.responses[0].partition_responses[0]
            if found.error_code != DuplicateSequenceNumberError.code:  # which means that an earlier attempt stored it
                _check(found.error_code, f"topic {self.topic} does not take the state of {transactional_id!r}")

        self._until(send, deadline_ms)

    def read(self, key: bytes, deadline_ms: float) -> bytes | None:
        """Return a key's last state that was committed; None if there is none.

        All transactions in which it was written have ended.

        Raises:
            KafkaError: the topic cannot be read.
        """
        partition = self.partition_of(key)
        first, end = self._offset(partition, _EARLIEST, deadline_ms), self._offset(partition, _LATEST, deadline_ms)
        span = _FIRST_LOOK
        while True:
            start = max(first, end - span)
            value = self._last_between(partition, key, start, end, deadline_ms)
            if value is not None or start == first:
                break
            span *= _FURTHER
        if not value:
            return None
        try:
            return zlib.decompress(value)
        except zlib.error as error:
            raise CorruptRecordError(f"topic {self.topic}: the state of {key!r} is damaged: {error}") from error

    def _last_between(self, partition: int, key: bytes, start: int, end: int, deadline_ms: float) -> bytes | None:
        """Return a key's last committed value between two offsets."""
        found: bytes | None = None
        open_values: dict[int, bytes] = {}
        """Producer id -> value in its transaction, which has no marker yet."""
        while start < end:
            log = whole_entries(memoryview(self._fetch(partition, start, deadline_ms)))
            if not log:
                break  # compaction has left nothing up to the end
            where = f"topic {self.topic}: what partition {partition} has at offset {start} makes no sense"
            try:
                for batch in iter_batches(log):
                    start = max(start, batch.last_offset + 1)
                    if batch.magic < MAGIC or not batch.attributes & TRANSACTIONAL:
                        continue  # no writer's
                    if batch.attributes & CONTROL:
                        value = open_values.pop(batch.producer_id, None)
                        if value is not None and any(record.key == _COMMIT for record in batch.records()):
                            found = value
                    else:
                        for record in batch.records():
                            if record.key == key:
                                open_values[batch.producer_id] = record.value or b""
            except CorruptRecordError as error:
                raise CorruptRecordError(f"{where}: {error}") from error
        return found

    def _fetch(self, partition: int, offset: int, deadline_ms: float) -> bytes:
        part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": _LARGEST}
        topics = [{"topic": self.topic, "partitions": [part]}]
        request = FETCH.of(max_wait_ms=0, min_bytes=0, max_bytes=_LARGEST, topics=topics)

        def make(connection: Connection) -> Call:
            return call(request, connection, largest_answer=2 * _LARGEST)

        def fetch(deadline_ms: float) -> bytes:
            answer = self._ask(partition, make, deadline_ms)
            _check(answer.error_code, f"topic {self.topic} cannot be read")
            found = answer.responses[0].partitions[0]
            _check(found.error_code, f"topic {self.topic} cannot be read")
            records: bytes = found.records or b""
            return records

        return self._until(fetch, deadline_ms)

    def _offset(self, partition: int, which: int, deadline_ms: float) -> int:
        part = {"partition_index": partition, "timestamp": which}
        request = LIST_OFFSETS.of(topics=[{"name": self.topic, "partitions": [part]}])

        def ask(deadline_ms: float) -> int:
            answer = self._ask(partition, lambda connection: call(request, connection), deadline_ms)
            found = answer.topics[0].partitions[0]
            _check(found.error_code, f"topic {self.topic} cannot be read")
            return int(found.offset)

        return self._until(ask, deadline_ms)

    # --- the topic itself ---------------------------------------------------------------------------

    def _find_leaders(self, deadline_ms: float) -> None:
        request = METADATA.of(topics=[{"name": self.topic}], allow_auto_topic_creation=False)
        answer = self._client.ask(
            None, lambda connection: call(request, connection, oldest=4, newest=_NEWEST_METADATA), deadline_ms
        )
        brokers = {each.node_id: Node(each.node_id, each.host, each.port) for each in answer.brokers}
        for node in brokers.values():
            self._client.learn(node)
        topic = answer.topics[0]
        _check(topic.error_code, f"topic {self.topic}")
        for each in topic.partitions:
            _check(each.error_code, f"partition {self.topic}-{each.partition_index}")
        self._leaders = {each.partition_index: brokers[each.leader_id] for each in topic.partitions}

    def _create(self, deadline_ms: float) -> None:
        topic = {
            "name": self.topic,
            "num_partitions": _PARTITIONS,
            "replication_factor": -1,
            "configs": [{"name": name, "value": value} for name, value in _SETTINGS.items()],
        }
        request = CREATE_TOPICS.of(topics=[topic], timeout_ms=self._timeout_ms)
        answer = self._client.ask(None, lambda connection: call(request, connection), deadline_ms)
        found = answer.topics[0]
        if found.error_code != TopicExistsError.code:
            _check(found.error_code, f"topic {self.topic} cannot be created: {found.error_message}")

    def _check_policy(self, deadline_ms: float) -> None:
        resource = {
            "resource_type": _TOPIC_KIND,
            "resource_name": self.topic,
            "configuration_keys": ["cleanup.policy"],
        }
        request = DESCRIBE_CONFIGS.of(resources=[resource])
        answer = self._client.ask(None, lambda connection: call(request, connection), deadline_ms)
        found = answer.results[0]
        if found.error_code == TopicAuthorizationError.code:
            raise TopicAuthorizationError(
                f"topic {self.topic}: DESCRIBE_CONFIGS is needed, to see that it is compacted"
            )
        _check(found.error_code, f"topic {self.topic}: its settings cannot be read")
        policy = found.configs[0].value
        if policy != "compact":
            raise ConfigError(
                f"topic {self.topic} has cleanup.policy={policy}, and would lose the states of writers: set compact"
            )

    # --- until it is answered -----------------------------------------------------------------------

    def _ask(self, partition: int, make: Callable[[Connection], Call], deadline_ms: float) -> Any:
        """Ask the leader of a partition."""
        return self._client.ask(self._leaders[partition], make, deadline_ms)

    def _until(self, attempt: Callable[[float], _Result], deadline_ms: float) -> _Result:
        """Repeat an attempt after retriable errors, with the leaders of then, until the deadline."""
        leaders_are_known = True
        while True:
            try:
                if not leaders_are_known:
                    self._find_leaders(deadline_ms)
                return attempt(deadline_ms)
            except KafkaTimeoutError:
                raise
            except RetriableError as error:
                if monotonic_ms() + self._backoff_ms > deadline_ms:
                    raise KafkaTimeoutError(f"topic {self.topic}: no answer within max.block.ms: {error}") from error
                native.pause(self._backoff_ms / 1000)
                leaders_are_known = False


def _check(code: int, what: str) -> None:
    if code:
        error: type[KafkaError] = error_for_code(code)
        raise error(f"{what}: {error.meaning()}")
