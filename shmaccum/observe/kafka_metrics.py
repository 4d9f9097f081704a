"""Metrics by Kafka's names: the slab's counters and histograms, and the times of one producer's calls.

Counters are words of shared memory that only grow. Each has one writer: a process counts in its table entry, the
sender in the superblock, in the tables of partitions and brokers, and in histograms. Readers take no lock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from shmaccum._core import KEY_TOPIC_SHIFT, WORD, Geometry, Histogram, Partition, Process, Super, Topic
from shmaccum.shm import distribution
from shmaccum.shm.distribution import Distribution
from shmaccum.shm.layout import KEY_TOPIC_MASK, BrokerState, OfProcess, OfSender, Refusal, column_of

if TYPE_CHECKING:
    from shmaccum.shm.broker_table import BrokerInfo

Metrics = dict[str, float]
Groups = dict[str, Metrics]

_WINDOW_S: Final = 30.0
"""``metrics.sample.window.ms`` of Kafka, which has two samples by default."""
_THOUSANDTHS: Final = 1000
_RATES: Final = {
    f"{name}-total": f"{name}-rate"
    for name in (
        "batch-retry",
        "batch-split",
        "buffer-exhausted",
        "byte",
        "byte-append",
        "connection-close",
        "connection-creation",
        "failed-authentication",
        "incoming-byte",
        "network-io",
        "outgoing-byte",
        "record-append",
        "record-error",
        "record-retry",
        "record-send",
        "request",
        "response",
        "successful-authentication",
        "successful-reauthentication",
    )
}


def slab_metrics(words: memoryview, geometry: Geometry) -> Metrics:
    """Return the metrics of a slab: its memory, and what its senders have sent and brokers have acknowledged.

    ``shmaccum status`` prints them. They keep their meaning, where Kafka's metric of the same name has another.
    """
    slot_size = geometry.slot_size
    batches, records = words[Super.BATCHES_SENT], words[Super.RECORDS_SENT]
    requests = words[Super.REQUESTS_SENT]
    filled, capacity = words[Super.FILL_BYTES], words[Super.CAPACITY_BYTES]
    from shmaccum.shm.broker_table import brokers

    found = brokers(words, geometry)
    latency = sum((each.latency for each in found), Distribution())
    throttles = sum(each.throttles for each in found)
    bases = [geometry.process(entry) for entry in range(geometry.max_processes)]
    appended, bytes_appended, opened, compressed, exhausted = (
        sum(words[base + word] for base in bases)
        for word in (Process.RECORDS, Process.BYTES, Process.BATCHES, Process.COMPRESSED, Process.EXHAUSTED)
    )
    places = [geometry.process_histogram(entry, OfProcess.RECORD_SIZE) for entry in range(geometry.max_processes)]
    return {
        "record-append-total": appended,
        "byte-append-total": bytes_appended,
        "batch-create-total": opened,
        "batch-compress-total": compressed,
        "buffer-exhausted-total": exhausted,
        "buffer-total-bytes": geometry.slot_count * slot_size,
        "buffer-available-bytes": words[Super.FREE_SLOTS] * slot_size,
        "buffer-peak-bytes": words[Super.PEAK_SLOTS] * slot_size,
        "record-send-total": records,
        "record-error-total": words[Super.RECORDS_FAILED],
        "record-lost-total": words[Super.RECORDS_LOST],
        "batch-send-total": batches,
        "batch-error-total": words[Super.BATCHES_FAILED],
        "batch-retry-total": words[Super.BATCHES_RETRIED],
        "batch-expired-total": words[Super.BATCHES_EXPIRED],
        "producer-epoch-bump-total": words[Super.EPOCH_BUMPS],
        "byte-total": words[Super.BYTES_SENT],
        "request-total": requests,
        "records-per-batch-avg": records / batches if batches else 0.0,
        "records-per-request-avg": records / requests if requests else 0.0,
        "batch-size-avg": filled / batches if batches else 0.0,
        "batch-fill-ratio": filled / capacity if capacity else 0.0,
        "compression-rate-avg": words[Super.BYTES_SENT] / filled if batches and filled else 0.0,
        **_times("record-queue-time", distribution.read(words, geometry.sender_histogram(OfSender.QUEUE_TIME))),
        **_times("record-delivery-time", distribution.read(words, geometry.sender_histogram(OfSender.DELIVERY_TIME))),
        **_times("request-latency", latency),
        "record-size-avg": bytes_appended / appended if appended else 0.0,
        "record-size-max": max(words[at + Histogram.LARGEST] for at in places),
        "requests-in-flight": sum(each.in_flight for each in found),
        "produce-throttle-time-avg": sum(each.throttle_ms for each in found) / throttles if throttles else 0.0,
        "produce-throttle-time-max": max((each.longest_throttle_ms for each in found), default=0),
        "connection-count": sum(each.state is BrokerState.READY for each in found),
        "connection-creation-total": sum(each.connections for each in found),
        "sender-start-total": words[Super.SENDER_STARTS],
        "reclaimed-slots-total": words[Super.RECLAIMED_SLOTS],
        "rebuild-total": words[Super.REBUILDS],
    }


def kafkas_of_slab(words: memoryview, geometry: Geometry) -> Metrics:
    """Return the metrics of a slab that Kafka has in ``producer-metrics``, with Kafka's meaning."""
    from shmaccum.shm.broker_table import brokers

    partitions = min(words[Super.PARTITION_COUNT], geometry.max_partitions)
    first = geometry.partition(0)
    drained, records, size, ratios, retried = (
        sum(column_of(words, first + word, partitions, Partition.length))
        for word in (
            Partition.BATCHES_DRAINED,
            Partition.RECORDS_DRAINED,
            Partition.BYTES_DRAINED,
            Partition.COMPRESSION_DRAINED,
            Partition.RECORDS_RETRIED,
        )
    )
    topics = range(min(words[Super.TOPIC_COUNT], geometry.max_topics))
    refused = words[Super.REFUSALS] + sum(
        words[geometry.topic(entry) + Topic.REFUSALS + reason] for entry in topics for reason in Refusal
    )
    found = brokers(words, geometry)
    bases = [geometry.process(entry) for entry in range(geometry.max_processes)]
    appended, bytes_appended = (sum(words[base + word] for base in bases) for word in (Process.RECORDS, Process.BYTES))
    places = [geometry.process_histogram(entry, OfProcess.RECORD_SIZE) for entry in range(geometry.max_processes)]
    return {
        "batch-size-avg": _mean(size, drained),
        "batch-size-max": words[Super.LARGEST_BATCH],
        "batch-split-total": words[Super.BATCHES_SPLIT],
        "buffer-available-bytes": words[Super.FREE_SLOTS] * geometry.slot_size,
        "buffer-total-bytes": geometry.slot_count * geometry.slot_size,
        "compression-rate-avg": _mean(ratios, drained) / _THOUSANDTHS,
        "connection-close-total": sum(each.closed for each in found),
        "connection-count": sum(each.state is BrokerState.READY for each in found),
        "failed-authentication-total": sum(each.refused for each in found),
        "metadata-age": (time.monotonic() - words[Super.METADATA_MS] / 1000) if words[Super.METADATA_MS] else 0.0,
        "network-io-total": sum(each.requests + each.answers for each in found),
        "record-error-total": words[Super.RECORDS_FAILED] + refused,
        **_times("record-queue-time", distribution.read(words, geometry.sender_histogram(OfSender.QUEUE_TIME))),
        "record-retry-total": retried,
        "record-send-total": records,
        "record-size-avg": _mean(bytes_appended, appended),
        "record-size-max": max(words[at + Histogram.LARGEST] for at in places),
        "records-per-request-avg": _mean(records, words[Super.REQUESTS_SENT]),
        "successful-reauthentication-total": sum(each.logins_again for each in found),
        **_requests(found),
    }


def _requests(brokers: Sequence[BrokerInfo]) -> Metrics:
    """Return the metrics of the requests to some brokers, and of the connections to them."""
    requests, answers = sum(each.requests for each in brokers), sum(each.answers for each in brokers)
    return {
        **_times("request-latency", sum((each.latency for each in brokers), Distribution())),
        "request-total": requests,
        "request-size-avg": _mean(sum(each.bytes_out for each in brokers), requests),
        "request-size-max": max((each.largest_request for each in brokers), default=0),
        "response-total": answers,
        "outgoing-byte-total": sum(each.bytes_out for each in brokers),
        "incoming-byte-total": sum(each.bytes_in for each in brokers),
        "requests-in-flight": sum(each.in_flight for each in brokers),
        "connection-creation-total": sum(each.connections for each in brokers),
        "produce-throttle-time-avg": _mean(sum(each.throttle_ms for each in brokers), answers),
        "produce-throttle-time-max": max((each.longest_throttle_ms for each in brokers), default=0),
    }


def node_metrics(words: memoryview, geometry: Geometry) -> Groups:
    """Return the metrics of each broker that is known by its id, by groups such as ``producer-node-metrics.node-1``."""
    from shmaccum.shm.broker_table import brokers

    return {
        f"producer-node-metrics.node-{each.node}": _requests([each])
        for each in brokers(words, geometry)
        if each.node >= 0
    }


def topic_metrics(words: memoryview, geometry: Geometry) -> Groups:
    """Return the metrics of each topic, by groups such as ``producer-topic-metrics.orders``."""
    topics = min(words[Super.TOPIC_COUNT], geometry.max_topics)
    found: list[Metrics] = [dict.fromkeys(_OF_TOPIC, 0) for _ in range(topics)]
    batches, ratios = [0] * topics, [0] * topics
    for entry in range(min(words[Super.PARTITION_COUNT], geometry.max_partitions)):
        at = geometry.partition(entry)
        topic = (words[at + Partition.KEY] >> KEY_TOPIC_SHIFT & KEY_TOPIC_MASK) - 1
        if 0 <= topic < topics:
            for name, word in _OF_TOPIC.items():
                found[topic][name] += words[at + word]
            batches[topic] += words[at + Partition.BATCHES_DRAINED]
            ratios[topic] += words[at + Partition.COMPRESSION_DRAINED]
    for topic, metrics in enumerate(found):
        metrics["compression-rate"] = _mean(ratios[topic], batches[topic]) / _THOUSANDTHS
    return {f"producer-topic-metrics.{_topic(words, geometry, each)}": found[each] for each in range(topics)}


_OF_TOPIC: Final = {
    "record-send-total": Partition.RECORDS_DRAINED,
    "byte-total": Partition.BYTES_DRAINED,
    "record-error-total": Partition.RECORDS_FAILED,
    "record-retry-total": Partition.RECORDS_RETRIED,
    "batch-retry-total": Partition.BATCHES_RETRIED,
}


def process_metrics(words: memoryview, geometry: Geometry, entry: int) -> Metrics:
    """Return the metrics of the process of an entry."""
    at = geometry.process(entry)

    def counter(word: int) -> int:
        return max(0, words[at + word] - words[at + Process.BEFORE + word - Process.RECORDS])

    return {
        "record-append-total": counter(Process.RECORDS),
        "byte-append-total": counter(Process.BYTES),
        "batch-create-total": counter(Process.BATCHES),
        "bufferpool-wait-time-ns-total": counter(Process.WAIT_NS),
        "buffer-exhausted-total": counter(Process.EXHAUSTED),
    }


def _topic(words: memoryview, geometry: Geometry, entry: int) -> str:
    at = geometry.topic(entry) + Topic.NAME
    length = words[geometry.topic(entry) + Topic.NAME_LENGTH]
    return words[at : at + -(-length // WORD)].tobytes()[:length].decode("ascii", "replace")


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0


def _times(name: str, microseconds: Distribution) -> Metrics:
    """Return the mean and the largest of some times, in milliseconds."""
    return {f"{name}-avg": microseconds.mean / 1000, f"{name}-max": microseconds.largest / 1000}


class Rates:
    """Totals a second, over the last 30 to 60 seconds, as Kafka computes them by default.

    Args:
        groups: metrics of now; groups that come later have begun with 0. Until there are older samples, rates are those
            since this.
    """

    def __init__(self, groups: Groups) -> None:
        self._older = self._newer = (time.monotonic(), groups)

    def added_to(self, groups: Groups) -> Groups:
        """Return metrics with the rates of their totals."""
        now = time.monotonic()
        if now - self._newer[0] >= _WINDOW_S:
            self._older, self._newer = self._newer, (now, groups)
        then, before = self._older
        elapsed_s = max(now - then, 0.001)
        return {
            group: {
                **metrics,
                **{
                    rate: max(0.0, metrics[total] - before.get(group, {}).get(total, 0.0)) / elapsed_s
                    for total, rate in _RATES.items()
                    if total in metrics
                },
            }
            for group, metrics in groups.items()
        }


class CallTimes:
    """Nanoseconds that a producer's calls have taken, by Kafka's names (``KafkaProducerMetrics``).

    As in Kafka, a call that failed does not count. Threads that make the same call at once can lose a time.

    Args:
        names: of the calls.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._totals = dict.fromkeys(names, 0)

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Measure a call."""
        began_ns = time.monotonic_ns()
        yield
        self._totals[name] += time.monotonic_ns() - began_ns

    def metrics(self) -> Mapping[str, float]:
        """Return the metrics."""
        return {f"{name}-time-ns-total": total for name, total in self._totals.items()}


CALLS: Final = ("flush", "metadata-wait")
TRANSACTION_CALLS: Final = ("txn-init", "txn-begin", "txn-send-offsets", "txn-commit", "txn-abort")
