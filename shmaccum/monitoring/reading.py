"""Reads a slab's metrics: one value for each series, whatever then exports them.

Reading takes no lock and stops no process, as `shmaccum.shm.inspection`. The counters of processes are summed over the
raw words of all entries of the process table. These words go on when another process takes the entry, so no sum falls
when a process dies. Tables are read as arrays, since there can be 4,096 partitions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shmaccum._core import INCIDENTS, KEY_TOPIC_SHIFT, Incident, Partition, Process, Slot, Super
from shmaccum.monitoring import catalogue
from shmaccum.monitoring.catalogue import Buckets, Metric
from shmaccum.shm.distribution import Distribution
from shmaccum.shm.incidents import IncidentInfo, read
from shmaccum.shm.inspection import SlabView
from shmaccum.shm.layout import (
    KEY_NUMBER_MASK,
    KEY_TOPIC_MASK,
    PROGRESS_MASK,
    BrokerState,
    OfProcess,
    OfSender,
    Refusal,
    Role,
    SlotState,
    count_of,
    size_of,
    state_of,
)
from shmaccum.shm.lifecycle import look
from shmaccum.shm.validation import check, reporting_damage

Words = npt.NDArray[np.uint64]
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
_KEY_TOPIC_MASK: Final = np.uint64(KEY_TOPIC_MASK)
_KEY_TOPIC_SHIFT: Final = np.uint64(KEY_TOPIC_SHIFT)
_KEY_MASK: Final = np.uint64((KEY_TOPIC_MASK << KEY_TOPIC_SHIFT) | KEY_NUMBER_MASK)
"""The key of a partition without its lane."""

_OF_SUPERBLOCK: Final = {
    catalogue.SENDER_STARTS: Super.SENDER_STARTS,
    catalogue.REQUESTS_SENT: Super.REQUESTS_SENT,
    catalogue.BATCHES_EXPIRED: Super.BATCHES_EXPIRED,
    catalogue.RECORDS_LOST: Super.RECORDS_LOST,
    catalogue.EPOCH_BUMPS: Super.EPOCH_BUMPS,
    catalogue.INDEX_REBUILDS: Super.REBUILDS,
    catalogue.SLOTS_RECLAIMED: Super.RECLAIMED_SLOTS,
}
_OF_PROCESSES: Final = {
    catalogue.RECORDS_APPENDED: Process.RECORDS,
    catalogue.BYTES_APPENDED: Process.BYTES,
    catalogue.BATCHES_OPENED: Process.BATCHES,
    catalogue.BATCHES_COMPRESSED: Process.COMPRESSED,
    catalogue.BUFFER_EXHAUSTED: Process.EXHAUSTED,
}
_OF_PARTITIONS: Final = {
    catalogue.RECORDS_SENT: Partition.RECORDS_SENT,
    catalogue.BYTES_SENT: Partition.BYTES_SENT,
    catalogue.BATCHES_SENT: Partition.BATCHES_SENT,
    catalogue.RECORDS_FAILED: Partition.RECORDS_FAILED,
    catalogue.BATCHES_RETRIED: Partition.BATCHES_RETRIED,
}
_HISTOGRAMS_OF_SENDER: Final = {
    catalogue.QUEUE_TIME: OfSender.QUEUE_TIME,
    catalogue.DELIVERY_TIME: OfSender.DELIVERY_TIME,
    catalogue.BATCH_RECORDS: OfSender.BATCH_RECORDS,
    catalogue.BATCH_FILL: OfSender.BATCH_FILL,
    catalogue.COMPRESSION: OfSender.COMPRESSION,
}
_HISTOGRAMS_OF_PROCESSES: Final = {
    catalogue.MEMORY_WAIT: OfProcess.MEMORY_WAIT,
    catalogue.RECORD_SIZE: OfProcess.RECORD_SIZE,
}
_ROLES: Final = {"producer": Role.PRODUCER, "sender": Role.SENDER}
_STATES: Final = ("alive", "stopped", "dead")
BOOTSTRAP: Final = "bootstrap"
"""Stands for all addresses of ``bootstrap.servers`` whose broker is not known."""


@dataclass(frozen=True, slots=True)
class SlabReading:
    """The metrics of a slab.

    Attributes:
        name: the slab's.
        created_ms: when it was created; a later slab of the same name has another time.
        series: of each metric, the values by their labels without ``slab``; not of `catalogue.ERRORS`.
        errors: the errors that the slab keeps, by number: class and how often they happened.
    """

    name: str
    created_ms: int
    series: Mapping[Metric, Series]
    errors: Mapping[int, tuple[str, int]]


def read_slab(name: str, *, partitions: bool = False) -> SlabReading:
    """Read a slab's metrics.

    Args:
        name: the slab's.
        partitions: whether the metrics of topics have a series for each partition.

    Raises:
        SlabNotFoundError: no slab has that name.
        SlabError: it cannot be read.
    """
    with look(name) as view, reporting_damage(name, view.words, view.geometry):
        check(name, view.words, view.geometry)
        found = _incidents(view)
        series: dict[Metric, Series] = {
            **_slab(view),
            **_processes(view),
            **_partitions(view, by_partition=partitions),
            catalogue.SENDS_REFUSED: _refused(view),
            **_brokers(view),
            **_lasting(found),
        }
        for metric, of_sender in _HISTOGRAMS_OF_SENDER.items():
            series[metric] = {(): histogram(metric, view.sender_distribution(of_sender))}
        for metric, of_process in _HISTOGRAMS_OF_PROCESSES.items():
            series[metric] = {(): histogram(metric, view.process_distribution(of_process))}
        errors = {number: (each.error.__name__, each.count) for number, each in found.items()}
        return SlabReading(name, view.words[Super.CREATED_MS], series, errors)


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


def _slab(view: SlabView) -> dict[Metric, Series]:
    """Read what the superblock has, and the tables' sizes."""
    words, geometry = view.words, view.geometry
    sender = view.sender()
    values: dict[Metric, float] = {metric: words[word] for metric, word in _OF_SUPERBLOCK.items()}
    values |= {
        catalogue.SLAB_CREATED: words[Super.CREATED_MS] * _MILLISECOND,
        catalogue.BUFFER_TOTAL: geometry.slot_count * geometry.slot_size,
        catalogue.BUFFER_AVAILABLE: words[Super.FREE_SLOTS] * geometry.slot_size,
        catalogue.BUFFER_PEAK: words[Super.PEAK_SLOTS] * geometry.slot_size,
        catalogue.MEMORY_WAITERS: view.memory_waiters(),
        catalogue.LOCK_TAKEOVERS: view.lock_takeovers(),
        catalogue.SENDER_UP: int(sender.alive),
        catalogue.SENDER_STOPPED: int(sender.stopped),
    }
    series: dict[Metric, Series] = {metric: {(): value} for metric, value in values.items()}
    series[catalogue.TABLE_LIMIT] = {
        ("partitions",): geometry.max_partitions,
        ("processes",): geometry.max_processes,
        ("topics",): geometry.max_topics,
    }
    return series


def _processes(view: SlabView) -> dict[Metric, Series]:
    """Read the process table: the processes, and the counts of all that there ever were."""
    words, geometry = view.words, view.geometry
    numbers: Series = {(role, state): 0 for role in _ROLES for state in _STATES}
    found = view.processes()
    for process in found:
        state = "dead" if not process.alive else "stopped" if process.stopped else "alive"
        for role, bit in _ROLES.items():
            numbers[role, state] = _number(numbers[role, state]) + (bit in process.roles)
    table = _table(words, geometry.process(0), geometry.max_processes, Process.length)
    series: dict[Metric, Series] = {metric: {(): int(table[:, word].sum())} for metric, word in _OF_PROCESSES.items()}
    series[catalogue.PROCESSES] = numbers
    series[catalogue.TABLE_ENTRIES] = {
        ("partitions",): words[Super.PARTITION_COUNT],
        ("processes",): len(found),
        ("topics",): words[Super.TOPIC_COUNT],
    }
    return series


def _partitions(view: SlabView, *, by_partition: bool) -> dict[Metric, Series]:
    """Read the partition table and the slot headers, and sum them by topic or by partition."""
    words, geometry = view.words, view.geometry
    headers = _table(words, geometry.header(0), geometry.slot_count, geometry.slot_words)
    headers = headers[state_of(headers[:, Slot.STATE]) >= SlotState.OPEN]
    # A partition is added after its topic, and a batch after its partition.
    count = min(words[Super.PARTITION_COUNT], geometry.max_partitions)
    table = _table(words, geometry.partition(0), count, Partition.length)
    topics = view.topics()
    keys = table[:, Partition.KEY] & _KEY_MASK
    of_topic = keys >> _KEY_TOPIC_SHIFT & _KEY_TOPIC_MASK
    groups, group = np.unique(keys if by_partition else of_topic, return_inverse=True)
    labels = [_labels([topic.name for topic in topics], key, by_partition=by_partition) for key in groups.tolist()]

    series: dict[Metric, Series] = {}
    for metric, word in _OF_PARTITIONS.items():
        series[metric] = _summed(labels, group, table[:, word])
    sizes = np.array([0, *(topic.partitions for topic in topics)], np.uint64)
    numbers = keys & np.uint64(KEY_NUMBER_MASK)
    leaderless = (table[:, Partition.KEY] == keys) & (table[:, Partition.LEADER] == 0) & (numbers < sizes[of_topic])
    series[catalogue.WITHOUT_LEADER] = _summed(labels, group, leaderless.astype(np.uint64))

    entries = headers[:, Slot.PARTITION].astype(np.intp)
    headers, entries = headers[entries < count], group[entries[entries < count]]
    records = count_of(headers[:, Slot.COMMIT]) - (headers[:, Slot.SETTLED] & np.uint64(PROGRESS_MASK))
    series[catalogue.QUEUED_RECORDS] = _summed(labels, entries, records)
    series[catalogue.QUEUED_BYTES] = _summed(labels, entries, size_of(headers[:, Slot.COMMIT]))
    now_us = np.uint64(time.monotonic_ns() // 1000)
    opened = np.full(len(labels), now_us, np.uint64)
    np.minimum.at(opened, entries, headers[:, Slot.OPENED_US])
    ages = ((now_us - opened) * catalogue.MICROSECOND).tolist()
    series[catalogue.OLDEST_RECORD_AGE] = dict(zip(labels, ages, strict=True))
    return series


def _refused(view: SlabView) -> Series:
    """Read the refused calls: for each topic one series a reason, since one that begins with 1 shows no increase."""
    series: Series = {("", "topic"): view.words[Super.REFUSALS]}
    for topic in view.topics():
        for reason in Refusal:
            name = reason.name.lower()
            series[topic.name, name] = topic.refused.get(name, 0)
    return series


def _labels(topics: list[str], key: int, *, by_partition: bool) -> Labels:
    topic = topics[(key >> KEY_TOPIC_SHIFT if by_partition else key) - 1]
    return (topic, str(key & KEY_NUMBER_MASK)) if by_partition else (topic,)


def _summed(labels: list[Labels], group: npt.NDArray[np.intp], values: Words) -> Series:
    sums = np.zeros(len(labels), np.uint64)
    np.add.at(sums, group, values)
    return dict(zip(labels, sums.tolist(), strict=True))


def _brokers(view: SlabView) -> dict[Metric, Series]:
    """Read the broker table; one series for each broker, even if it has had several addresses."""
    series: dict[Metric, Series] = {metric: {} for metric in _OF_BROKERS}
    latencies: dict[Labels, Distribution] = {}
    found = view.brokers()
    is_known = any(broker.node >= 0 and broker.state is BrokerState.READY for broker in found)
    for broker in found:
        # An address of bootstrap.servers is not tried again once a broker is known: its failure is history.
        has_failed = broker.state is BrokerState.FAILED and (broker.node >= 0 or not is_known)
        labels = (str(broker.node) if broker.node >= 0 else BOOTSTRAP,)
        latencies[labels] = latencies.get(labels, Distribution()) + broker.latency
        for metric, value in (
            (catalogue.BROKER_CONNECTIONS, broker.connections),
            (catalogue.BROKER_FAILURES, broker.failures),
            (catalogue.BROKER_THROTTLE, broker.throttle_ms * _MILLISECOND),
            (catalogue.IN_FLIGHT, broker.in_flight),
        ):
            series[metric][labels] = _number(series[metric].get(labels, 0)) + value
        for metric, value in (
            (catalogue.BROKER_CONNECTED, broker.state is BrokerState.READY),
            (catalogue.BROKER_FAILED, has_failed),
            (catalogue.OLDEST_REQUEST_AGE, broker.waiting_ms * _MILLISECOND),
        ):
            series[metric][labels] = max(_number(series[metric].get(labels, 0)), value)
    series[catalogue.REQUEST_LATENCY] = {
        labels: histogram(catalogue.REQUEST_LATENCY, latency) for labels, latency in latencies.items()
    }
    return series


_OF_BROKERS: Final = (
    catalogue.BROKER_CONNECTED,
    catalogue.BROKER_FAILED,
    catalogue.BROKER_CONNECTIONS,
    catalogue.BROKER_FAILURES,
    catalogue.BROKER_THROTTLE,
    catalogue.IN_FLIGHT,
    catalogue.OLDEST_REQUEST_AGE,
)


def _number(value: Value) -> float:
    return value if not isinstance(value, HistogramValue) else value.total


def _incidents(view: SlabView) -> dict[int, IncidentInfo]:
    """Read the kept incidents by number."""
    found = {}
    for entry in range(INCIDENTS):
        at = view.geometry.incident(entry)
        number = view.words[at + Incident.NUMBER]
        incident = read(view.words, at, number) if number % INCIDENTS == entry else None
        if incident is not None:
            found[number] = incident
    return found


def _lasting(found: Mapping[int, IncidentInfo]) -> dict[Metric, Series]:
    lasting: Series = {}
    for incident in found.values():
        labels = (incident.error.__name__,)
        lasting[labels] = _number(lasting.get(labels, 0)) + incident.lasts
    return {catalogue.LASTING_ERRORS: lasting}


def _table(words: memoryview, at: int, rows: int, width: int) -> Words:
    """Return a copy of a table, one row for each entry."""
    with words[at : at + rows * width] as table:
        return np.array(table, np.uint64).reshape(rows, width)
