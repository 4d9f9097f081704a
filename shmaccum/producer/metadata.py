"""Topic metadata that a producer waits for before it chooses a partition.

``KafkaProducer.waitOnMetadata``. The producer adds the topic to the slab's topic table, under the tables' lock, and
wakes the sender. The sender stores the partition count, which every producer of the host then reads. A request
outlives the producer: if that dies, the sender still answers.
"""

from __future__ import annotations

import time
from typing import Final

from shmaccum import errors
from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.accumulator.append.waits import Pause, Until, Waits
from shmaccum.accumulator.state.partition_map import TopicEntry
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.cluster import check_topic
from shmaccum.config import ProducerConfig
from shmaccum.observe.kafka_metrics import CALLS, CallTimes
from shmaccum.shm.slab import Slab


class ProducerMetadata:
    """Topic metadata as a producer needs it.

    A call waits at most ``max.block.ms``, counted from its argument ``started``. After a retriable error, the next
    request follows ``retry.backoff.ms`` later.
    """

    def __init__(self, accumulator: RecordAccumulator, config: ProducerConfig) -> None:
        self._slab = accumulator.state.slab
        self._map = accumulator.state.map
        self._pending = accumulator.pending
        self._config = config
        self._max_block_s = config.max_block_ms / 1000
        self._retry_backoff_s = config.retry_backoff_ms / 1000
        self.times: Final = CallTimes(CALLS)
        """Of this producer's calls."""

    def topic(self, name: str, started: float) -> Waits[tuple[TopicEntry, tuple[PartitionQueue, ...]]]:
        """Return a topic and its deques, at least one, for a call that began at the monotonic second ``started``.

        They are read once, because another thread can find that the topic is gone.

        Raises:
            InvalidTopicError: the name is no text.
            KafkaTimeoutError: there was no metadata in time.
            KafkaError: why there never will be any.
        """
        if type(name) is not str:
            check_topic(name)
        self._map.refresh()
        entry = self._map.topic(name)
        while entry is None or not (queues := entry.queues):
            with self.times.call("metadata-wait"):
                entry = yield from self._asking(name, started + self._max_block_s)
        return entry, queues

    def queues_with(self, entry: TopicEntry, partition: object, started: float) -> Waits[tuple[PartitionQueue, ...]]:
        """Return a topic's deques; if a partition is not among them, ask the sender again.

        Raises:
            SerializationError: the partition is no int.
            IllegalArgumentError: it is negative.
            UnknownTopicOrPartitionError: there is no such partition.
            KafkaTimeoutError: there was no metadata in time.
            KafkaError: why there never will be any.
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
        while True:
            entry = yield from self._asking_once(name, deadline_s)
            error = entry.error
            if error is None:
                return entry
            if error is errors.SlabFullError:
                raise self._map.no_room(entry)
            if not error.retriable:
                raise error(f"no metadata of topic {name!r}: {explain(error, self._config, self._slab)}")
            if time.monotonic() + self._retry_backoff_s > deadline_s:
                raise self.timed_out(name, self._config.max_block_ms)
            yield Pause(self._retry_backoff_s)

    def _asking_once(self, name: str, deadline_s: float) -> Waits[TopicEntry]:
        """Ask the sender, and wait for an answer of any kind.

        It compares the count of answers, because another producer can set the topic's state to REQUESTED again.
        """
        known = self._map.topic(name)
        answers = known.answers if known is not None else 0
        entry = self._map.request(name)

        def is_answered() -> bool:
            self._map.refresh()
            return entry.answers != answers

        if not (yield Until(is_answered, deadline_s - time.monotonic(), topic=name)):
            raise self.timed_out(name, self._config.max_block_ms)
        return entry

    def timed_out(self, name: str, waited_ms: float) -> errors.KafkaTimeoutError:
        """Return the error for a topic that stayed unknown, with the known causes; 0 ms if the call does not wait."""
        entry = self._map.topic(name)
        error = entry.error if entry is not None else None
        reason = self._slab.trouble()
        if error is not None:
            reason = f": {error.__name__}: {explain(error, self._config, self._slab)}"
        if not waited_ms:
            reason += "; max.block.ms = 0 does not wait for the answer: the topic is requested; try again, or raise it"
        timeout = errors.KafkaTimeoutError(f"Topic {name} not present in metadata after {waited_ms:.0f} ms{reason}")
        timeout.__cause__ = error() if error is not None else None
        return timeout


_NO_BROKER: Final = "no broker reachable, or none supports a protocol version we support"

_SETTINGS_TO_LOOK_AT: Final[dict[type[errors.KafkaError], tuple[str, ...]]] = {
    errors.NetworkError: ("bootstrap.servers", "security.protocol"),
    errors.SslAuthenticationError: ("security.protocol", "ssl.truststore.location", "ssl.keystore.location"),
    errors.SaslAuthenticationError: ("sasl.mechanism", "sasl.username"),
    errors.UnsupportedSaslMechanismError: ("sasl.mechanism",),
    errors.IllegalSaslStateError: ("security.protocol",),
}
_SETTINGS_OF_KERBEROS: Final = ("sasl.mechanism", "sasl.kerberos.service.name", "sasl.kerberos.principal")


def explain(error: type[errors.KafkaError], config: ProducerConfig, slab: Slab) -> str:
    """Return why the cluster's metadata is not available, in words."""
    meaning = _NO_BROKER if error is errors.NetworkError else error.meaning()
    names = _SETTINGS_TO_LOOK_AT.get(error, ())
    if error is errors.SaslAuthenticationError and config.sasl_mechanism == "GSSAPI":
        names = _SETTINGS_OF_KERBEROS
    if not names:
        return meaning
    settings = ", ".join(f"{name} = {_shown(config[name])!r}" for name in names)
    return f"{meaning} ({settings}){slab.trouble()}; log of the sender: {slab.incidents.log()}"


def _shown(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value
