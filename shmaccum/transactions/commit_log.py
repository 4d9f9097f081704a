"""The topic that holds what writers of many transactions have decided: for each, by its key, the last state.

It is compacted, and shared by writers. A writer writes its state in a transaction of its id, so the brokers refuse
one that has been replaced. And it reads its state after it has taken the id over: then all transactions in which the
state was written have their end markers in the log. So reading needs no ``read_committed``, by which another writer's
open transaction would hide what comes behind it: the marker of a transaction tells whether its record counts.

Others can write under a writer's key. Brokers from Kafka 3.6 on check that a transactional batch has the producer id of
a transactional id which its client is allowed to use. So what counts is the producer id in the batch's header.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from shmaccum import errors
from shmaccum._core import murmur2
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.kafka.messages import CREATE_TOPICS, DESCRIBE_CONFIGS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from shmaccum.kafka.schema import ApiMessage
from shmaccum.record.compression import CompressionType
from shmaccum.record.fields import BatchFields, whole_entries
from shmaccum.record.format import Batch, iter_batches
from shmaccum.record.v2 import CONTROL, MAGIC, TRANSACTIONAL, compressed_batch, encode_body, encode_record
from shmaccum.transactions.broker_client import BrokerClient, back_off, call, check, only
from shmaccum.transactions.coordinator import IMPLICIT, Identity

TOPIC: Final = "__shmaccum_commits"
"""The usual name."""
_PARTITIONS: Final = 16
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),  # small: only what is no longer appended to is compacted
    "compression.type": "producer",
}
_CHECKED: Final = ("cleanup.policy", "compression.type")
_AS_WRITTEN: Final = ("producer", "uncompressed")
"""Values of ``compression.type`` that leave a batch without compression as it is."""
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

_PRESENT: Final = b"-"
"""Stands for a value that does not count."""

_Result = TypeVar("_Result")


class Found:
    """A key's last committed value that counts, found as batches are read in their order.

    A batch of a producer id that does not count is neither unpacked nor kept. So no one else can make this take more
    than a fetched part of the log.

    Attributes:
        producer_id: that wrote the value; None if there is none that counts.
        value: empty if it was deleted.
        others: producer ids whose committed records behind it were skipped; of all records, if there is no value.
    """

    def __init__(self, key: bytes, by: int | None, counts: Callable[[bytes], bool]) -> None:
        self._key = key
        self._by = by
        self._counts = counts
        self._open: dict[int, bytes] = {}
        """Producer id -> value in its transaction, which has no marker yet."""
        self.producer_id: int | None = None
        self.value = b""
        self.others: set[int] = set()

    def at(self, batch: Batch) -> None:
        """Read a transactional batch."""
        producer_id = batch.producer_id
        if batch.attributes & CONTROL:
            value = self._open.pop(producer_id, None)
            if value is None or all(record.key != _COMMIT for record in batch.records()):
                return
            if self._by not in (None, producer_id):
                self.others.add(producer_id)
            elif not value or self._counts(value):
                self.producer_id, self.value = producer_id, value
                self.others.clear()
        elif producer_id == self._by:
            for record in batch.records():
                if record.key == self._key:
                    self._open[producer_id] = record.value or b""
        else:
            with suppress(errors.CorruptRecordError):  # by whomever it is, it is none of ours
                if batch.compression is not CompressionType.NONE:
                    return  # a writer compresses the value only
                for record in batch.records():
                    if record.key == self._key:
                        self._open[producer_id] = (record.value or b"") if self._by is None else _PRESENT


class CommitLog:
    """The topic, as one process sees it."""

    def __init__(self, client: BrokerClient, topic: str, config: ProducerConfig) -> None:
        self.topic: Final = topic
        self._client = client
        self._backoff_ms = config.retry_backoff_ms
        self._timeout_ms = config.request_timeout_ms
        self._leaders: dict[int, Node] = {}
        self._is_checked = False

    def open(self, deadline_ms: float) -> None:
        """Create the topic if there is none, and check that it is compacted.

        Raises ConfigError: it is not; KafkaError: it cannot be created or read.
        """
        if not self._is_checked:
            if not self._until(self._exists, deadline_ms, finds_leaders=True):
                self._create(deadline_ms)
                self._until(self._find_leaders, deadline_ms, finds_leaders=True)
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

        ``sequence`` is the number of the record under this epoch.

        Raises KafkaError: it is not stored, or that is not known.
        """
        now_ms = int(time.time() * 1000)
        batch = compressed_batch(
            memoryview(encode_record(0, now_ms, now_ms, encode_body(key, value, ()))),
            CompressionType.NONE,
            BatchFields(1, now_ms, now_ms, me.producer_id, me.epoch, sequence),
            flags=TRANSACTIONAL,
        )
        partition = self.partition_of(key)
        request = PRODUCE.of(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=self._timeout_ms,
            topic_data=[{"name": self.topic, "partition_data": [{"index": partition, "records": batch}]}],
        )
        newest = PRODUCE.api.newest if version >= IMPLICIT else _NEWEST_PRODUCE_EXPLICIT

        def read(answer: Any) -> None:
            found = only(only(answer.responses, "topics").partition_responses, "partitions")
            if found.error_code != errors.DuplicateSequenceNumberError.code:  # else an earlier attempt stored it
                check(found.error_code, f"topic {self.topic} does not take the state of {transactional_id!r}")

        self._ask(partition, request, read, deadline_ms, newest=newest)

    def read(self, key: bytes, by: int | None, counts: Callable[[bytes], bool], deadline_ms: float) -> Found:
        """Return the last committed value of a key that ``counts``, by a producer id, or by any (None).

        All transactions in which it was written have ended.

        Raises KafkaError: the topic cannot be read.
        """
        partition = self.partition_of(key)
        first, end = self._offset(partition, _EARLIEST, deadline_ms), self._offset(partition, _LATEST, deadline_ms)
        span = _FIRST_LOOK
        while True:
            start = max(first, end - span)
            found = Found(key, by, counts)
            self._look(found, partition, start, end, deadline_ms)
            if found.producer_id is not None or start == first:
                return found
            span *= _FURTHER

    def _look(self, into: Found, partition: int, start: int, end: int, deadline_ms: float) -> None:
        while start < end:
            log = whole_entries(memoryview(self._fetch(partition, start, deadline_ms)))
            if not log:
                break  # compaction has left nothing up to the end
            where = f"topic {self.topic}: what partition {partition} has at offset {start} makes no sense"
            try:
                for batch in iter_batches(log):
                    start = max(start, batch.last_offset + 1)
                    if batch.magic >= MAGIC and batch.attributes & TRANSACTIONAL:  # else it is no writer's
                        into.at(batch)
            except errors.CorruptRecordError as error:
                raise errors.CorruptRecordError(f"{where}: {error}") from error

    def _fetch(self, partition: int, offset: int, deadline_ms: float) -> bytes:
        part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": _LARGEST}
        topics = [{"topic": self.topic, "partitions": [part]}]
        request = FETCH.of(max_wait_ms=0, min_bytes=0, max_bytes=_LARGEST, topics=topics)

        def read(answer: Any) -> bytes:
            check(answer.error_code, f"topic {self.topic} cannot be read")
            found = only(only(answer.responses, "topics").partitions, "partitions")
            check(found.error_code, f"topic {self.topic} cannot be read")
            return found.records or b""

        return self._ask(partition, request, read, deadline_ms, largest_answer=2 * _LARGEST)

    def _offset(self, partition: int, which: int, deadline_ms: float) -> int:
        part = {"partition_index": partition, "timestamp": which}
        request = LIST_OFFSETS.of(topics=[{"name": self.topic, "partitions": [part]}])

        def read(answer: Any) -> int:
            found = only(only(answer.topics, "topics").partitions, "partitions")
            check(found.error_code, f"topic {self.topic} cannot be read")
            return int(found.offset)

        return self._ask(partition, request, read, deadline_ms)

    # --- the topic itself ---------------------------------------------------------------------------

    def _exists(self, deadline_ms: float) -> bool:
        try:
            self._find_leaders(deadline_ms)
        except errors.UnknownTopicOrPartitionError:
            return False
        return True

    def _find_leaders(self, deadline_ms: float) -> None:
        request = METADATA.of(topics=[{"name": self.topic}], allow_auto_topic_creation=False)
        answer = self._client.ask(None, partial(call, request, oldest=4, newest=_NEWEST_METADATA), deadline_ms)
        brokers = {each.node_id: Node(each.node_id, each.host, each.port) for each in answer.brokers}
        for node in brokers.values():
            self._client.learn(node)
        topic = only(answer.topics, "topics")
        check(topic.error_code, f"topic {self.topic}")
        for each in topic.partitions:
            check(each.error_code, f"partition {self.topic}-{each.partition_index}")
        leaders = {each.partition_index: brokers.get(each.leader_id) for each in topic.partitions}
        known = {number: node for number, node in leaders.items() if node is not None}
        if not known or set(known) != set(range(len(leaders))):
            raise errors.NetworkError(f"topic {self.topic}: the broker's answer makes no sense: leaders {leaders}")
        self._leaders = known

    def _create(self, deadline_ms: float) -> None:
        topic = {
            "name": self.topic,
            "num_partitions": _PARTITIONS,
            "replication_factor": -1,
            "configs": [{"name": name, "value": value} for name, value in _SETTINGS.items()],
        }
        request = CREATE_TOPICS.of(topics=[topic], timeout_ms=self._timeout_ms)
        answer = self._client.ask(None, partial(call, request), deadline_ms)
        found = only(answer.topics, "topics")
        if found.error_code != errors.TopicExistsError.code:
            check(found.error_code, f"topic {self.topic} cannot be created: {found.error_message}")

    def _check_policy(self, deadline_ms: float) -> None:
        resource = {"resource_type": _TOPIC_KIND, "resource_name": self.topic, "configuration_keys": list(_CHECKED)}
        request = DESCRIBE_CONFIGS.of(resources=[resource])
        answer = self._client.ask(None, partial(call, request), deadline_ms)
        found = only(answer.results, "resources")
        if found.error_code == errors.TopicAuthorizationError.code:
            raise errors.TopicAuthorizationError(
                f"topic {self.topic}: DESCRIBE_CONFIGS is needed, to see that it is compacted"
            )
        check(found.error_code, f"topic {self.topic}: its settings cannot be read")
        settings = {each.name: each.value for each in found.configs}
        if missing := sorted(set(_CHECKED) - settings.keys()):
            raise errors.NetworkError(f"topic {self.topic}: the broker's answer makes no sense: it has no {missing[0]}")
        if settings["cleanup.policy"] != "compact":
            raise errors.ConfigError(
                f"topic {self.topic} has cleanup.policy={settings['cleanup.policy']}, and would lose the states of "
                "writers: set compact"
            )
        if settings["compression.type"] not in _AS_WRITTEN:
            raise errors.ConfigError(
                f"topic {self.topic} has compression.type={settings['compression.type']}. What others write there is "
                "not unpacked, since a few bytes can become very many: set producer"
            )

    # --- until it is answered -----------------------------------------------------------------------

    def _ask(
        self, partition: int, request: ApiMessage, read: Callable[[Any], _Result], deadline_ms: float, **limits: int
    ) -> _Result:
        """Ask the leader of a partition; return what ``read`` makes of its answer. ``limits``: see `call`."""

        def attempt(deadline_ms: float) -> _Result:
            leader = self._leaders[partition]
            return read(self._client.ask(leader, lambda connection: call(request, connection, **limits), deadline_ms))

        return self._until(attempt, deadline_ms)

    def _until(
        self, attempt: Callable[[float], _Result], deadline_ms: float, *, finds_leaders: bool = False
    ) -> _Result:
        """Repeat an attempt after retriable errors until the deadline.

        Unless it ``finds_leaders`` itself, that is done before a repetition.
        """
        is_first = True
        while True:
            try:
                if not is_first and not finds_leaders:
                    self._find_leaders(deadline_ms)
                return attempt(deadline_ms)
            except errors.KafkaTimeoutError:
                raise
            except errors.RetriableError as error:
                if not back_off(self._backoff_ms, deadline_ms):
                    raise errors.KafkaTimeoutError(
                        f"topic {self.topic}: no answer within max.block.ms: {error}"
                    ) from error
                is_first = False
