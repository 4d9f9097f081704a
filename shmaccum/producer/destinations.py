"""Where one producer's records can go: topics with their partitions' deques, sticky partitioners, and limits.

The paths of records and of columns share it, so both come to a partition's deque in the same way. What it keeps is
private to the process.

It waits for metadata as ``KafkaProducer.waitOnMetadata``. The producer adds the topic to the slab's topic table, under
the tables' lock, and wakes the sender. The sender stores the partition count, which every producer of the host then
reads. A request outlives the producer: if that dies, the sender still answers.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from shmaccum import errors
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.append.waits import Pause, Until, Waits
from shmaccum.accumulator.state.partition_map import TopicEntry
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import check_topic
from shmaccum.config import ProducerConfig
from shmaccum.observe.kafka_metrics import CALLS, CallTimes
from shmaccum.producer.partitioner import PartitionLoads, StickyPartitioner
from shmaccum.shm import native

if TYPE_CHECKING:
    from shmaccum.producer.producer import Producer

logger = logging.getLogger(__name__)

_WARN_AFTER_S: Final = 2.0
_WARN_EVERY_S: Final = 60.0
"""When a call that waits for metadata in vain says so, and how often a producer does at most."""
_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05
"""Of `wait_for_topic`, between two looks."""
_NO_BROKER: Final = "no broker reachable, or none supports a protocol version we support"
_SETTINGS_TO_LOOK_AT: Final[dict[type[errors.KafkaError], tuple[str, ...]]] = {
    errors.NetworkError: ("bootstrap.servers", "security.protocol"),
    errors.SslAuthenticationError: ("security.protocol", "ssl.truststore.location", "ssl.keystore.location"),
    errors.SaslAuthenticationError: ("sasl.mechanism", "sasl.username"),
    errors.UnsupportedSaslMechanismError: ("sasl.mechanism",),
    errors.IllegalSaslStateError: ("security.protocol",),
    errors.UnsupportedVersionError: ("bootstrap.servers",),
}
_SETTINGS_OF_KERBEROS: Final = ("sasl.mechanism", "sasl.kerberos.service.name", "sasl.kerberos.principal")


class Destinations:
    """The topics that one producer sends to. Threads may share it.

    A call waits for metadata at most ``max.block.ms``, counted from its argument ``started``. After a retriable error,
    the next request follows ``retry.backoff.ms`` later.

    Attributes:
        sticky: the sticky partitioners by topic, of those topics that needed one.
        max_body_size: most bytes of a record's body.
        times: of this producer's calls.
    """

    def __init__(self, accumulator: RecordAccumulator, config: ProducerConfig) -> None:
        state = accumulator.state
        self.map: Final = state.map
        self.sticky: Final[dict[str, StickyPartitioner]] = {}
        self.ignore_keys: Final = config.partitioner_ignore_keys
        self.max_block_ms: Final = config.max_block_ms
        self.times: Final = CallTimes(CALLS)
        self._config = config
        self._slab = state.slab
        self._pending = accumulator.pending
        self._max_block_s = config.max_block_ms / 1000
        self._retry_backoff_s = config.retry_backoff_ms / 1000
        self._max_record_size = min(config.max_request_size, state.pool.total_memory)
        self._overhead = state.format.header_size + state.format.record_overhead_max
        self.max_body_size: Final = self._max_record_size - self._overhead
        self._warns_from_s = 0.0

    def sticky_partitioner(self, topic: TopicEntry) -> StickyPartitioner:
        """Return a topic's sticky partitioner, created on first use."""
        sticky = self.sticky.get(topic.name)
        if sticky is None:
            loads = PartitionLoads(
                self._slab,
                topic,
                adaptive=self._config.partitioner_adaptive_partitioning_enable,
                availability_timeout_ms=self._config.partitioner_availability_timeout_ms,
            )
            new = StickyPartitioner(topic, max(1, self._config.batch_size), loads.choose)
            sticky = self.sticky.setdefault(topic.name, new)
        return sticky

    def too_large(self, topic: str, body_size: int) -> errors.RecordTooLargeError:
        """Return Kafka's error (``KafkaProducer.ensureValidRecordSize``), with the same upper bound of the size."""
        what = "max.request.size" if self._max_record_size == self._config.max_request_size else "buffer.memory"
        return errors.RecordTooLargeError(
            f"The record for topic {topic!r} is {body_size + self._overhead} bytes when serialized which is larger "
            f"than {self._max_record_size}, which is the value of {what}"
        )

    # --- metadata -----------------------------------------------------------------------------------

    def topic(self, name: str, started: float) -> Waits[tuple[TopicEntry, tuple[PartitionQueue, ...]]]:
        """Return a topic and its deques, at least one, for a call that began at the monotonic second ``started``.

        They are read once, because another thread can find that the topic is gone.

        Raises KafkaError: the name is no text; there was no metadata in time, or there never will be any.
        """
        if type(name) is not str:
            check_topic(name)
        self.map.refresh()
        entry = self.map.topic(name)
        while entry is None or not (queues := entry.queues):
            with self.times.call("metadata-wait"):
                entry = yield from self._asking(name, started + self._max_block_s)
        return entry, queues

    def queues_with(self, entry: TopicEntry, partition: object, started: float) -> Waits[tuple[PartitionQueue, ...]]:
        """Return a topic's deques; if a partition is not among them, ask the sender again.

        Raises KafkaError: the partition is no int, is negative, or does not exist; or as `topic`.
        """
        if not isinstance(partition, int) or isinstance(partition, bool):
            raise errors.SerializationError(f"partition must be an int, not {type(partition).__name__}: {partition!r}")
        if partition < 0:
            raise errors.IllegalArgumentError(
                f"Invalid partition: {partition}. Partition number should always be non-negative or null (None)."
            )
        if partition >= len(entry.queues):
            with self.times.call("metadata-wait"):
                entry = yield from self._asking(entry.name, started + self._max_block_s)
        queues = entry.queues
        if partition >= len(queues):
            raise errors.UnknownTopicOrPartitionError(
                f"Partition {partition} of topic {entry.name} with partition count {len(queues)} does not exist"
            )
        return queues

    def _asking(self, name: str, deadline_s: float) -> Waits[TopicEntry]:
        """Ask the sender for a topic's metadata until it has some."""
        self._pending.check_process()
        begun_s = time.monotonic()
        while True:
            entry = yield from self._asking_once(name, deadline_s)
            error = entry.error
            if error is None:
                return entry
            if error is errors.SlabFullError:
                raise self.map.no_room(entry)
            if not error.retriable:
                raise error(f"no metadata of topic {name!r}: {self._explain(error)}")
            if time.monotonic() + self._retry_backoff_s > deadline_s:
                raise self.timed_out(name, self._config.max_block_ms)
            self._warn(name, error, begun_s)
            yield Pause(self._retry_backoff_s)

    def _warn(self, name: str, error: type[errors.KafkaError], begun_s: float) -> None:
        """Say why a call waits: with a wrong address, a program would stand still for a minute and show nothing."""
        now_s = time.monotonic()
        if now_s - begun_s >= _WARN_AFTER_S and now_s >= self._warns_from_s:
            self._warns_from_s = now_s + _WARN_EVERY_S
            logger.warning(
                "no metadata of topic %r after %.0f s; waiting for it up to max.block.ms = %d: %s: %s",
                name,
                now_s - begun_s,
                self._config.max_block_ms,
                error.__name__,
                self._explain(error),
            )

    def _asking_once(self, name: str, deadline_s: float) -> Waits[TopicEntry]:
        """Ask the sender, and wait for an answer of any kind.

        It compares the count of answers, because another producer can set the topic's state to REQUESTED again.
        """
        known = self.map.topic(name)
        answers = known.answers if known is not None else 0
        entry = self.map.request(name)

        def is_answered() -> bool:
            self.map.refresh()
            return entry.answers != answers

        if not (yield Until(is_answered, deadline_s - time.monotonic(), topic=name)):
            raise self.timed_out(name, self._config.max_block_ms)
        return entry

    def timed_out(self, name: str, waited_ms: float) -> errors.KafkaTimeoutError:
        """Return the error for a topic that stayed unknown, with the known causes; 0 ms if the call does not wait."""
        entry = self.map.topic(name)
        error = entry.error if entry is not None else None
        reason = self._slab.trouble()
        if error is not None:
            reason = f": {error.__name__}: {self._explain(error)}"
        if not waited_ms:
            reason += "; max.block.ms = 0 does not wait for the answer: the topic is requested; try again, or raise it"
        timeout = errors.KafkaTimeoutError(f"Topic {name} not present in metadata after {waited_ms:.0f} ms{reason}")
        timeout.__cause__ = error() if error is not None else None
        return timeout

    def _explain(self, error: type[errors.KafkaError]) -> str:
        """Return why the cluster's metadata is not available, in words."""
        meaning = _NO_BROKER if error is errors.NetworkError else error.meaning()
        names = _SETTINGS_TO_LOOK_AT.get(error, ())
        if error is errors.SaslAuthenticationError and self._config.sasl_mechanism == "GSSAPI":
            names = _SETTINGS_OF_KERBEROS
        if not names:
            return meaning
        settings = ", ".join(f"{name} = {_shown(self._config[name])!r}" for name in names)
        return f"{meaning} ({settings}){self._slab.trouble()}; log of the sender: {self._slab.incidents.log()}"


def _shown(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


# --- where ``max.block.ms`` is 0 ---------------------------------------------------------------------

# It bounds the waits for metadata and for memory together. Two kinds of programs want only one of them: a log handler
# that drops records rather than wait for memory, and librdkafka's programs, which expect a BufferError at once. Their
# producers wait for topics here.


def is_metadata_timeout(error: BaseException) -> bool:
    """Return whether a call failed because a topic's metadata is missing: not memory, not a lock."""
    return type(error) is errors.KafkaTimeoutError  # its subclasses are about memory and locks


def wait_for_topic(producer: Producer, topic: str, timeout_s: float) -> set[int]:
    """Return the numbers of a topic's partitions; wait for its metadata, however small ``max.block.ms`` is.

    Raises KafkaError: as `Destinations.topic`.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return producer.partitions_for(topic)
        except errors.KafkaTimeoutError as error:
            if not is_metadata_timeout(error):
                raise
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise producer._destinations.timed_out(topic, timeout_s * 1000) from error.__cause__
        native.pause(min(pause_s, remaining))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
