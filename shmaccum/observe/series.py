"""A slab's report as the metrics of `shmaccum.observe.catalogue`: for each a value by its labels.

Whatever exports metrics, Prometheus's text or OpenTelemetry, reads these. Counts of processes and of lanes stay in
their entries when another one takes these over, and the sums here are over all entries: no counter falls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import Buckets, Metric
from shmaccum.observe.report import SlabReport
from shmaccum.shm.broker_table import BrokerInfo
from shmaccum.shm.distribution import Distribution
from shmaccum.shm.inspection import PartitionInfo
from shmaccum.shm.layout import BrokerState, Refusal, Role

Labels = tuple[str, ...]


class HistogramValue(NamedTuple):
    """A histogram, in the unit of its metric.

    Attributes:
        counts: of values up to each of the metric's bounds, and then of all values.
        total: sum of all values.
    """

    counts: tuple[int, ...]
    total: float


Value = float | HistogramValue
Series = dict[Labels, Value]

_MILLISECOND: Final = 1e-3
_COUNTED: Final = {
    catalogue.REQUESTS_SENT: "request-total",
    catalogue.BATCHES_EXPIRED: "batch-expired-total",
    catalogue.RECORDS_LOST: "record-lost-total",
    catalogue.EPOCH_BUMPS: "producer-epoch-bump-total",
    catalogue.RECORDS_APPENDED: "record-append-total",
    catalogue.BYTES_APPENDED: "byte-append-total",
    catalogue.BATCHES_OPENED: "batch-create-total",
    catalogue.BATCHES_COMPRESSED: "batch-compress-total",
    catalogue.BUFFER_EXHAUSTED: "buffer-exhausted-total",
}
_DISTRIBUTIONS: Final = {
    catalogue.QUEUE_TIME: "queue_time_us",
    catalogue.DELIVERY_TIME: "delivery_time_us",
    catalogue.MEMORY_WAIT: "memory_wait_us",
    catalogue.BATCH_RECORDS: "batch_records",
    catalogue.BATCH_FILL: "batch_fill_permille",
    catalogue.COMPRESSION: "compression_permille",
    catalogue.RECORD_SIZE: "record_size_bytes",
}
_ROLES: Final = {"producer": Role.PRODUCER, "sender": Role.SENDER}
BOOTSTRAP: Final = "bootstrap"
"""Stands for all addresses of ``bootstrap.servers`` whose broker is not known."""


def series_of(slab: SlabReport, *, by_partition: bool = False) -> dict[Metric, Series]:
    """Return the values of a slab's metrics by their labels, without ``slab``; not of `catalogue.ERRORS`.

    Args:
        slab: the slab's report.
        by_partition: whether the metrics of topics have a series for each partition.
    """
    tables = slab.tables
    lasting = Counter({each.error.__name__: 0 for each in slab.incidents})
    lasting.update(each.error.__name__ for each in slab.incidents if each.lasts)
    found: dict[Metric, Series] = {metric: {(): value} for metric, value in _amounts(slab).items()}
    found |= {metric: {(): histogram(metric, slab.distributions[name])} for metric, name in _DISTRIBUTIONS.items()}
    found |= {
        catalogue.TABLE_ENTRIES: {
            ("partitions",): tables.partition_entries,
            ("processes",): len(slab.processes),
            ("topics",): tables.topic_entries,
        },
        catalogue.TABLE_LIMIT: {
            ("partitions",): tables.max_partitions,
            ("processes",): tables.max_processes,
            ("topics",): tables.max_topics,
        },
        catalogue.PROCESSES: _processes(slab),
        catalogue.SENDS_REFUSED: _refused(slab),
        catalogue.LASTING_ERRORS: {(error,): number for error, number in lasting.items()},
    }
    return found | _of_topics(slab, by_partition=by_partition) | _of_brokers(slab.brokers)


def histogram(metric: Metric, distribution: Distribution) -> HistogramValue:
    """Return a distribution in the buckets of a metric; 0 in all of them if it counts nothing."""
    buckets: Buckets = metric.buckets or Buckets((), (), 1.0)
    counts = [sum(distribution.counts)]
    ends = buckets.ends
    if not counts[0]:
        return HistogramValue((0,) * (len(ends) + 1), 0.0)
    reached = [sum(distribution.counts[: ends[0]])] if ends else []
    for begin, end in pairwise(ends):
        reached.append(reached[-1] + sum(distribution.counts[begin:end]))
    return HistogramValue((*reached, counts[0]), distribution.total * buckets.unit)


def _amounts(slab: SlabReport) -> dict[Metric, Value]:
    """Return the metrics without labels."""
    return {
        **{metric: slab.metrics[name] for metric, name in _COUNTED.items()},
        catalogue.SLAB_CREATED: slab.created_ms * _MILLISECOND,
        catalogue.BUFFER_TOTAL: slab.memory.total,
        catalogue.BUFFER_AVAILABLE: slab.memory.available,
        catalogue.BUFFER_PEAK: slab.memory.peak,
        catalogue.MEMORY_WAITERS: slab.memory.waiting_threads,
        catalogue.LOCK_TAKEOVERS: slab.recovery.lock_takeovers,
        catalogue.INDEX_REBUILDS: slab.recovery.rebuilds,
        catalogue.SLOTS_RECLAIMED: slab.recovery.reclaimed_slots,
        catalogue.SENDER_UP: int(slab.sender.alive),
        catalogue.SENDER_STOPPED: int(slab.sender.stopped),
        catalogue.SENDER_STARTS: slab.sender.starts,
    }


def _processes(slab: SlabReport) -> Series:
    numbers: Counter[Labels] = Counter({(role, state): 0 for role in _ROLES for state in ("alive", "stopped", "dead")})
    for process in slab.processes:
        state = "dead" if not process.alive else "stopped" if process.stopped else "alive"
        numbers.update((role, state) for role, bit in _ROLES.items() if bit in process.roles)
    return {**numbers}


def _refused(slab: SlabReport) -> Series:
    """Return the refused calls: for each topic one series a reason, since one that begins with 1 shows no increase."""
    series: Series = {("", "topic"): slab.refused_without_topic}
    for topic in slab.topics:
        for reason in (each.name.lower() for each in Refusal):
            series[topic.name, reason] = topic.refused.get(reason, 0)
    return series


def _of_topics(slab: SlabReport, *, by_partition: bool) -> dict[Metric, Series]:
    """Sum the entries of each topic, or of each partition: it can have entries of lanes beside its own."""
    sizes = {topic.name: topic.partitions for topic in slab.topics}
    sums: dict[Labels, list[float]] = {}  # the oldest record's age, which does not add up, is the last
    for each in (*slab.partitions, *slab.idle_partitions):
        labels = (each.topic, str(each.partition)) if by_partition else (each.topic,)
        sum_of = sums.setdefault(labels, [0] * len(catalogue.BY_TOPIC))
        for number, value in enumerate(_counts(each, sizes[each.topic])):
            sum_of[number] += value
        sum_of[-1] = max(sum_of[-1], each.oldest_ms * _MILLISECOND)
    return {
        metric: {labels: counts[number] for labels, counts in sums.items()}
        for number, metric in enumerate(catalogue.BY_TOPIC)
    }


def _counts(each: PartitionInfo, size: int) -> Iterator[int]:
    """Yield what adds up of `catalogue.BY_TOPIC`, in its order."""
    yield each.records_sent
    yield each.bytes_sent
    yield each.batches_sent
    yield each.records_failed
    yield each.batches_retried
    yield each.queued_records + each.in_flight_records
    yield each.queued_bytes + each.in_flight_bytes
    yield each.transactional_id is None and each.leader is None and each.partition < size


def _of_brokers(brokers: list[BrokerInfo]) -> dict[Metric, Series]:
    """Return the metrics of brokers: one series for each, even if it has had several addresses."""
    is_known = any(broker.node >= 0 and broker.state is BrokerState.READY for broker in brokers)
    of: dict[Labels, list[BrokerInfo]] = {}
    for broker in brokers:
        of.setdefault((str(broker.node) if broker.node >= 0 else BOOTSTRAP,), []).append(broker)

    def has_failed(broker: BrokerInfo) -> bool:
        # An address of bootstrap.servers is not tried again once a broker is known: its failure is history.
        return broker.state is BrokerState.FAILED and (broker.node >= 0 or not is_known)

    found: dict[Metric, Series] = {
        catalogue.BROKER_CONNECTED: {
            name: int(any(each.state is BrokerState.READY for each in of[name])) for name in of
        },
        catalogue.BROKER_FAILED: {name: int(any(map(has_failed, of[name]))) for name in of},
        catalogue.BROKER_CONNECTIONS: {name: sum(each.connections for each in of[name]) for name in of},
        catalogue.BROKER_FAILURES: {name: sum(each.failures for each in of[name]) for name in of},
        catalogue.BROKER_THROTTLE: {name: sum(each.throttle_ms for each in of[name]) * _MILLISECOND for name in of},
        catalogue.IN_FLIGHT: {name: sum(each.in_flight for each in of[name]) for name in of},
        catalogue.OLDEST_REQUEST_AGE: {name: max(each.waiting_ms for each in of[name]) * _MILLISECOND for name in of},
    }
    latency = {name: sum((each.latency for each in of[name]), Distribution()) for name in of}
    found[catalogue.REQUEST_LATENCY] = {name: histogram(catalogue.REQUEST_LATENCY, latency[name]) for name in of}
    return found
