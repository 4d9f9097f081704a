"""Metrics by Kafka's names: the slab's counters and histograms, and the times of one producer's calls.

Counters are words of shared memory that only grow. Each has one writer: a process counts in its table entry, the
sender in the superblock, in the tables of partitions and brokers, and in histograms. Readers take no lock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from shmaccum._core import KEY_TOPIC_SHIFT, WORD, Geometry, Histogram, Partition, Process, Super, Topic
from shmaccum.shm import distribution
from shmaccum.shm.distribution import Distribution
from shmaccum.shm.layout import KEY_TOPIC_MASK, OfProcess, OfSender, Refusal, column_of
from shmaccum.shm.processes import counted

if TYPE_CHECKING:
    from shmaccum.shm.broker_table import BrokerInfo

Metrics = dict[str, float]
Groups = dict[str, Metrics]

_WINDOW_S: Final = 30.0
"""``metrics.sample.window.ms`` of Kafka, which has two samples by default."""
_THOUSANDTHS: Final = 1000
_RATES: Final = """
    batch-retry batch-split buffer-exhausted byte byte-append connection-close connection-creation
    failed-authentication incoming-byte network-io outgoing-byte record-append record-error record-retry record-send
    request response successful-authentication successful-reauthentication
"""
"""Those of which Kafka has the ``-total`` a second as ``-rate``."""


def slab_metrics(words: memoryview, geometry: Geometry) -> Metrics:
    """Return the metrics of a slab: its memory, and what its senders have sent and brokers have acknowledged.

    ``shmaccum status`` prints them. They keep their meaning, where Kafka's metric of the same name has another.
    """
    batches, records, requests = words[Super.BATCHES_SENT], words[Super.RECORDS_SENT], words[Super.REQUESTS_SENT]
    filled = words[Super.FILL_BYTES]
    found = _brokers(words, geometry)
    throttles = sum(each.throttles for each in found)
    return {
        **_of_both(words, geometry, found),
        "record-append-total": _appended(words, geometry, Process.RECORDS),
        "byte-append-total": _appended(words, geometry, Process.BYTES),
        "batch-create-total": _appended(words, geometry, Process.BATCHES),
        "batch-compress-total": _appended(words, geometry, Process.COMPRESSED),
        "buffer-exhausted-total": _appended(words, geometry, Process.EXHAUSTED),
        "buffer-peak-bytes": words[Super.PEAK_SLOTS] * geometry.slot_size,
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
        "records-per-batch-avg": _mean(records, batches),
        "records-per-request-avg": _mean(records, requests),
        "batch-size-avg": _mean(filled, batches),
        "batch-fill-ratio": _mean(filled, words[Super.CAPACITY_BYTES]),
        "compression-rate-avg": _mean(words[Super.BYTES_SENT], filled),
        **_times("record-delivery-time", distribution.read(words, geometry.sender_histogram(OfSender.DELIVERY_TIME))),
        **_times("request-latency", sum((each.latency for each in found), Distribution())),
        "requests-in-flight": sum(each.in_flight for each in found),
        "produce-throttle-time-avg": _mean(sum(each.throttle_ms for each in found), throttles),
        "produce-throttle-time-max": max((each.longest_throttle_ms for each in found), default=0),
        "connection-creation-total": sum(each.connections for each in found),
        "sender-start-total": words[Super.SENDER_STARTS],
        "reclaimed-slots-total": words[Super.RECLAIMED_SLOTS],
        "rebuild-total": words[Super.REBUILDS],
    }


def _of_both(words: memoryview, geometry: Geometry, found: Sequence[BrokerInfo]) -> Metrics:
    """Return the metrics of a slab whose meaning is Kafka's."""
    places = [geometry.process_histogram(entry, OfProcess.RECORD_SIZE) for entry in range(geometry.max_processes)]
    bytes_, records = _appended(words, geometry, Process.BYTES), _appended(words, geometry, Process.RECORDS)
    return {
        "buffer-total-bytes": geometry.slot_count * geometry.slot_size,
        "buffer-available-bytes": words[Super.FREE_SLOTS] * geometry.slot_size,
        **_times("record-queue-time", distribution.read(words, geometry.sender_histogram(OfSender.QUEUE_TIME))),
        "record-size-avg": _mean(bytes_, records),
        "record-size-max": max(words[at + Histogram.LARGEST] for at in places),
        "connection-count": sum(each.ready_connections for each in found),
    }


def _brokers(words: memoryview, geometry: Geometry) -> list[BrokerInfo]:
    from shmaccum.shm.broker_table import brokers  # not when a producer starts

    return brokers(words, geometry)


def _appended(words: memoryview, geometry: Geometry, word: int) -> int:
    """Return the sum of a counter over all processes."""
    return sum(words[geometry.process(entry) + word] for entry in range(geometry.max_processes))


def kafkas_of_slab(words: memoryview, geometry: Geometry) -> Metrics:
    """Return the metrics of a slab that Kafka has in ``producer-metrics``, with Kafka's meaning."""
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
    found = _brokers(words, geometry)
    return {
        **_of_both(words, geometry, found),
        "batch-size-avg": _mean(size, drained),
        "batch-size-max": words[Super.LARGEST_BATCH],
        "batch-split-total": words[Super.BATCHES_SPLIT],
        "compression-rate-avg": _mean(ratios, drained) / _THOUSANDTHS,
        "connection-close-total": sum(each.closed for each in found),
        "failed-authentication-total": sum(each.refused for each in found),
        "metadata-age": (time.monotonic() - words[Super.METADATA_MS] / 1000) if words[Super.METADATA_MS] else 0.0,
        "network-io-total": sum(each.requests + each.answers for each in found),
        "record-error-total": words[Super.RECORDS_FAILED] + refused,
        "record-retry-total": retried,
        "record-send-total": records,
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
    return {
        f"producer-node-metrics.node-{each.node}": _requests([each])
        for each in _brokers(words, geometry)
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
    groups = {}
    for topic, metrics in enumerate(found):
        metrics["compression-rate"] = _mean(ratios[topic], batches[topic]) / _THOUSANDTHS
        at = geometry.topic(topic) + Topic.NAME
        length = words[geometry.topic(topic) + Topic.NAME_LENGTH]
        name = words[at : at + -(-length // WORD)].tobytes()[:length].decode("ascii", "replace")
        groups[f"producer-topic-metrics.{name}"] = metrics
    return groups


_OF_TOPIC: Final = {
    "record-send-total": Partition.RECORDS_DRAINED,
    "byte-total": Partition.BYTES_DRAINED,
    "record-error-total": Partition.RECORDS_FAILED,
    "record-retry-total": Partition.RECORDS_RETRIED,
    "batch-retry-total": Partition.BATCHES_RETRIED,
}


def process_metrics(words: memoryview, geometry: Geometry, entry: int) -> Metrics:
    """Return the metrics of the process of an entry."""
    counter = partial(counted, words, geometry.process(entry))
    return {
        "record-append-total": counter(Process.RECORDS),
        "byte-append-total": counter(Process.BYTES),
        "batch-create-total": counter(Process.BATCHES),
        "bufferpool-wait-time-ns-total": counter(Process.WAIT_NS),
        "buffer-exhausted-total": counter(Process.EXHAUSTED),
    }


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0


def _times(name: str, microseconds: Distribution) -> Metrics:
    """Return the mean and the largest of some times, in milliseconds."""
    return {f"{name}-avg": microseconds.mean / 1000, f"{name}-max": microseconds.largest / 1000}


class Rates:
    """Totals a second, over the last 30 to 60 seconds, as Kafka computes them by default.

    Until there are older samples, rates are those since the first one. Groups that come later have begun with 0.
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
                    f"{name}-rate": max(0.0, metrics[total] - before.get(group, {}).get(total, 0.0)) / elapsed_s
                    for name in _RATES.split()
                    if (total := f"{name}-total") in metrics
                },
            }
            for group, metrics in groups.items()
        }


class CallTimes:
    """Nanoseconds that a producer's calls have taken, by Kafka's names (``KafkaProducerMetrics``).

    As in Kafka, a call that failed does not count. Threads that make the same call at once can lose a time.
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
