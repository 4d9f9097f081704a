"""The metrics that monitoring sees: names, labels, units, meanings, and how each is read from a slab's report.

Names follow Prometheus's rules. Times are seconds and sizes are bytes. Every metric of a slab has the label ``slab``,
before those named here. The names are stable: later versions can add metrics and labels.

Counts of processes and of lanes stay in their entries when another one takes these over, and the sums here are over all
entries: no counter falls.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from shmaccum._core import HISTOGRAM_BUCKETS
from shmaccum.observe.report import SlabReport
from shmaccum.shm.broker_table import BrokerInfo
from shmaccum.shm.distribution import Distribution, least_of
from shmaccum.shm.inspection import PartitionInfo
from shmaccum.shm.layout import BrokerState, Refusal, Role

MICROSECOND: Final = 1e-6
_MILLISECOND: Final = 1e-3


class Kind(Enum):
    """What a value of a metric does."""

    COUNTER = "counter"
    """It only grows. Its series have the suffix ``_total``."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


_COUNTER, _GAUGE, _HISTOGRAM = Kind


class Buckets(NamedTuple):
    """How a histogram of the slab becomes one with fewer buckets, in another unit.

    Each bucket ends where one of the slab's ends, so its count is exact. ``ends``: the first of the slab's buckets that
    is not in it; ``bounds``: its upper bound, as monitoring has it. ``unit``: what a
    value of 1 in the slab is.
    """

    ends: tuple[int, ...]
    bounds: tuple[float, ...]
    unit: float


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """A histogram, in the unit of its metric.

    ``counts``: by upper bound, how many values are at most that; the last bound is infinite.
    """

    counts: dict[float, int]
    total: float

    def __add__(self, other: HistogramValue) -> HistogramValue:
        counts = {bound: count + other.counts[bound] for bound, count in self.counts.items()}
        return HistogramValue(counts, self.total + other.total)

    def parts(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield its series: ``bucket`` with each bound as Prometheus writes it, ``count`` of all values, ``sum``."""
        for bound, count in self.counts.items():
            yield "bucket", {"le": "+Inf" if bound == math.inf else repr(bound)}, count
        yield "count", {}, self.counts[math.inf]
        yield "sum", {}, self.total


Labels = tuple[str, ...]
Value = float | HistogramValue
Series = dict[Labels, Value]
_Together = Callable[[Iterable[float]], float]


class _Reading(NamedTuple):
    """A report, and its entries by the labels of their series."""

    slab: SlabReport
    partitions: dict[Labels, list[PartitionInfo]]
    brokers: dict[Labels, list[BrokerInfo]]


@dataclass(slots=True, eq=False)
class Metric:
    """A metric; its name is without the suffix ``_total`` of counters, its labels are without ``slab``.

    The unit is that of UCUM as OpenTelemetry has it: ``s``, ``By``, ``1`` for a ratio or a flag; or what it counts, in
    braces. Amounts of a count or of bytes add up over slabs and hosts. ``read`` is None if no report has its series.
    """

    name: str
    kind: Kind
    unit: str
    labels: Labels = ()
    read: Callable[[_Reading], Series] | None = None
    buckets: Buckets | None = None
    help: str = ""

    def says(self, help: str) -> Metric:
        """Set the meaning."""
        self.help = " ".join(help.split())
        return self


def series_of(slab: SlabReport, *, by_partition: bool = False) -> dict[Metric, Series]:
    """Return the values of a slab's metrics by their labels, without ``slab``; not of `ERRORS`.

    ``by_partition``: whether the metrics of topics have a series for each partition.
    """
    partitions: dict[Labels, list[PartitionInfo]] = defaultdict(list)
    for each in (*slab.partitions, *slab.idle_partitions):
        partitions[(each.topic, str(each.partition)) if by_partition else (each.topic,)].append(each)
    brokers: dict[Labels, list[BrokerInfo]] = defaultdict(list)
    for broker in slab.brokers:
        # "bootstrap" stands for all addresses of bootstrap.servers whose broker is not known.
        brokers[(str(broker.node) if broker.node >= 0 else "bootstrap",)].append(broker)
    reading = _Reading(slab, partitions, brokers)
    return {metric: metric.read(reading) for metric in OF_SLABS if metric.read is not None}


def histogram(buckets: Buckets, distribution: Distribution) -> HistogramValue:
    """Return a distribution in fewer buckets; 0 in all of them if it counts nothing."""
    counts: dict[float, int] = {}
    reached = begin = 0
    for end, bound in zip(buckets.ends, buckets.bounds, strict=True):
        reached += sum(distribution.counts[begin:end])
        counts[bound] = reached
        begin = end
    counts[math.inf] = reached + sum(distribution.counts[begin:])
    return HistogramValue(counts, distribution.total * buckets.unit)


def opentelemetry_name(metric: Metric) -> str:
    """Return a metric's name in OpenTelemetry, where the unit is no part of it."""
    name = metric.name.removeprefix("shmaccum_").removesuffix("_seconds")
    # "queued" alone would not say what.
    return f"shmaccum.{name if name == 'queued_bytes' else name.removesuffix('_bytes')}"


# --- how metrics are made and read --------------------------------------------------------------------


def _buckets(ends: Iterable[int], unit: float | None = None) -> Buckets:
    """Return buckets that end below these values of the slab, where some of the slab's buckets begin.

    Measured values have a unit and were rounded down: below an end, so at most the end. The others are whole numbers:
    below an end is at most the number before it.
    """
    ends = tuple(ends)
    slabs = {least_of(bucket): bucket for bucket in range(HISTOGRAM_BUCKETS)}
    bounds = (float(end - 1) if unit is None else round(end * unit, 6) for end in ends)
    return Buckets(tuple(slabs[end] for end in ends), tuple(bounds), unit or 1.0)


def _of_slab(name: str, kind: Kind, unit: str, amount: Callable[[SlabReport], float]) -> Metric:
    return Metric(name, kind, unit, (), lambda reading: {(): amount(reading.slab)})


def _counted(name: str, unit: str, kafkas: str) -> Metric:
    """Return a counter that is one of the metrics by Kafka's names."""
    return _of_slab(name, _COUNTER, unit, lambda slab: slab.metrics[kafkas])


def _of_entries(
    label: str, name: str, kind: Kind, unit: str, amount: Callable[[Any], float], together: _Together = sum
) -> Metric:
    """Return a metric of all entries with the same labels.

    A topic or a partition can have entries of lanes beside its own, and a broker has one for each of its addresses.
    """

    def read(reading: _Reading) -> Series:
        by_labels: dict[Labels, list[Any]] = reading.partitions if label == "topic" else reading.brokers
        return {labels: together(map(amount, entries)) for labels, entries in by_labels.items()}

    return Metric(name, kind, unit, (label,), read)


_of_topic, _of_broker = partial(_of_entries, "topic"), partial(_of_entries, "broker")


def _histogram(name: str, unit: str, buckets: Buckets, distribution: str) -> Metric:
    def read(reading: _Reading) -> Series:
        return {(): histogram(buckets, reading.slab.distributions[distribution])}

    return Metric(name, _HISTOGRAM, unit, (), read, buckets)


def _without_leader(reading: _Reading) -> Series:
    sizes = {topic.name: topic.partitions for topic in reading.slab.topics}
    return {
        labels: sum(
            each.transactional_id is None and each.leader is None and each.partition < sizes[each.topic]
            for each in entries
        )
        for labels, entries in reading.partitions.items()
    }


def _refused(reading: _Reading) -> Series:
    """Return the refused calls: for each topic one series a reason, since one that begins with 1 shows no increase."""
    series: Series = {("", "topic"): reading.slab.refused_without_topic}
    for topic in reading.slab.topics:
        for reason in (each.name.lower() for each in Refusal):
            series[topic.name, reason] = topic.refused.get(reason, 0)
    return series


def _processes(reading: _Reading) -> Series:
    roles = {"producer": Role.PRODUCER, "sender": Role.SENDER}
    numbers: Counter[Labels] = Counter({(role, state): 0 for role in roles for state in ("alive", "stopped", "dead")})
    for process in reading.slab.processes:
        state = "dead" if not process.alive else "stopped" if process.stopped else "alive"
        numbers.update((role, state) for role, bit in roles.items() if bit in process.roles)
    return {**numbers}


def _lasting_errors(reading: _Reading) -> Series:
    lasting: Counter[Labels] = Counter()
    for incident in reading.slab.incidents:
        lasting[(incident.error.__name__,)] += incident.lasts
    return {**lasting}


def _failed_brokers(reading: _Reading) -> Series:
    # An address of bootstrap.servers is not tried again once a broker is known: its failure is history.
    is_known = any(each.node >= 0 and each.state is BrokerState.READY for each in reading.slab.brokers)
    return {
        name: int(any(each.state is BrokerState.FAILED and (each.node >= 0 or not is_known) for each in brokers))
        for name, brokers in reading.brokers.items()
    }


def _latencies(reading: _Reading) -> Series:
    return {
        name: histogram(_TIMES, sum((each.latency for each in brokers), Distribution()))
        for name, brokers in reading.brokers.items()
    }


_TIMES: Final = _buckets((1 << power for power in range(6, 29)), MICROSECOND)
"""From 64 microseconds to 268 seconds, each twice the one before it."""
_RATIOS: Final = _buckets(range(128, 1025, 128), 1e-3)
_RECORDS: Final = _buckets(1 << power for power in range(1, 18))
_SIZES: Final = _buckets(1 << power for power in range(5, 26, 2))

# --- the metrics --------------------------------------------------------------------------------------
ERRORS: Final = Metric("shmaccum_errors", _COUNTER, "{error}", ("error",)).says("""
    Errors of brokers and the network, by their class.""")
"""Counted by the reader, as the slab keeps only the last errors."""
BY_TOPIC: Final = (
    _of_topic("shmaccum_records_sent", _COUNTER, "{record}", lambda each: each.records_sent).says("""
        Records acknowledged."""),
    _of_topic("shmaccum_bytes_sent", _COUNTER, "By", lambda each: each.bytes_sent).says("""
        Bytes of acknowledged batches, as sent."""),
    _of_topic("shmaccum_batches_sent", _COUNTER, "{batch}", lambda each: each.batches_sent).says("""
        Batches acknowledged."""),
    _of_topic("shmaccum_records_failed", _COUNTER, "{record}", lambda each: each.records_failed).says("""
        Records failed with an error; not those that were dropped with their transaction."""),
    _of_topic("shmaccum_batches_retried", _COUNTER, "{retry}", lambda each: each.batches_retried).says("""
        Times that a batch was put back to be sent again."""),
    _of_topic(
        "shmaccum_queued_records", _GAUGE, "{record}", lambda each: each.queued_records + each.in_flight_records
    ).says("Records in the slab that are not delivered."),
    _of_topic("shmaccum_queued_bytes", _GAUGE, "By", lambda each: each.queued_bytes + each.in_flight_bytes).says("""
        Bytes of batches that are not delivered, uncompressed."""),
    _of_topic("shmaccum_oldest_record_age_seconds", _GAUGE, "s", lambda each: each.oldest_ms * _MILLISECOND, max).says(
        "Age of the oldest batch that is not delivered; 0 if there is none."
    ),
    Metric("shmaccum_partitions_without_leader", _GAUGE, "{partition}", ("topic",), _without_leader).says("""
        Partitions without a known leader: nothing is sent there."""),
)
"""On request these have the label ``partition``, too."""
OF_SLABS: Final = (
    *BY_TOPIC,
    Metric("shmaccum_sends_refused", _COUNTER, "{call}", ("topic", "reason"), _refused).says("""
        Calls of `send` and `send_batch` that failed before acceptance. Reasons: topic (no metadata), memory,
        too_large, lock, argument, other. An empty topic stands for all names without an entry in the slab's
        table."""),
    _of_slab("shmaccum_slab_created_timestamp_seconds", _GAUGE, "s", lambda slab: slab.created_ms * _MILLISECOND).says(
        "When the slab was created, in seconds since 1970."
    ),
    _of_slab("shmaccum_buffer_total_bytes", _GAUGE, "By", lambda slab: slab.memory.total).says("""
        Memory for batches: buffer.memory."""),
    _of_slab("shmaccum_buffer_available_bytes", _GAUGE, "By", lambda slab: slab.memory.available).says("""
        Memory for batches that is free."""),
    _of_slab("shmaccum_buffer_peak_bytes", _GAUGE, "By", lambda slab: slab.memory.peak).says("""
        Most memory for batches that was ever used at once."""),
    _of_slab("shmaccum_memory_waiters", _GAUGE, "{thread}", lambda slab: slab.memory.waiting_threads).says("""
        Threads of all processes that wait for memory."""),
    _counted("shmaccum_buffer_exhausted", "{wait}", "buffer-exhausted-total").says("""
        Waits for memory that ended with BufferExhaustedError."""),
    Metric(
        "shmaccum_table_entries",
        _GAUGE,
        "{entry}",
        ("table",),
        lambda reading: {
            ("partitions",): reading.slab.tables.partition_entries,
            ("processes",): len(reading.slab.processes),
            ("topics",): reading.slab.tables.topic_entries,
        },
    ).says("Entries in use of the tables of processes, topics, partitions."),
    Metric(
        "shmaccum_table_limit",
        _GAUGE,
        "{entry}",
        ("table",),
        lambda reading: {
            ("partitions",): reading.slab.tables.max_partitions,
            ("processes",): reading.slab.tables.max_processes,
            ("topics",): reading.slab.tables.max_topics,
        },
    ).says("Entries that these tables have."),
    Metric("shmaccum_processes", _GAUGE, "{process}", ("role", "state"), _processes).says("""
        Processes that use the slab: alive, stopped, or dead and not yet cleaned up. One can have two roles."""),
    _counted("shmaccum_records_appended", "{record}", "record-append-total").says("""
        Records appended by all processes, those that have ended too."""),
    _counted("shmaccum_bytes_appended", "By", "byte-append-total").says("Bytes of appended records."),
    _counted("shmaccum_batches_opened", "{batch}", "batch-create-total").says("Batches opened."),
    _counted("shmaccum_batches_compressed", "{batch}", "batch-compress-total").says("Batches compressed."),
    _of_slab("shmaccum_lock_takeovers", _COUNTER, "{takeover}", lambda slab: slab.recovery.lock_takeovers).says("""
        Locks taken over from dead holders."""),
    _of_slab("shmaccum_index_rebuilds", _COUNTER, "{rebuild}", lambda slab: slab.recovery.rebuilds).says("""
        Times that indexes were rebuilt from the slot headers."""),
    _of_slab("shmaccum_slots_reclaimed", _COUNTER, "{slot}", lambda slab: slab.recovery.reclaimed_slots).says("""
        Slots reclaimed from processes that died before they used them."""),
    _of_slab("shmaccum_sender_up", _GAUGE, "1", lambda slab: int(slab.sender.alive)).says("""
        1 if the slab has a living sender."""),
    _of_slab("shmaccum_sender_stopped", _GAUGE, "1", lambda slab: int(slab.sender.stopped)).says("""
        1 if that sender is stopped, frozen, or gets no processor."""),
    _of_slab("shmaccum_sender_starts", _COUNTER, "{start}", lambda slab: slab.sender.starts).says("""
        Senders that have served the slab."""),
    _counted("shmaccum_requests_sent", "{request}", "request-total").says("Produce requests sent."),
    _counted("shmaccum_batches_expired", "{batch}", "batch-expired-total").says("""
        Batches that delivery.timeout.ms has ended."""),
    _counted("shmaccum_records_lost", "{record}", "record-lost-total").says("""
        Failed records whose processes were dead: no process got the error."""),
    _counted("shmaccum_producer_epoch_bumps", "{bump}", "producer-epoch-bump-total").says("""
        Times that a partition's producer epoch was raised."""),
    ERRORS,
    Metric("shmaccum_lasting_errors", _GAUGE, "{error}", ("error",), _lasting_errors).says("""
        Errors that last now, such as a broker that cannot be reached, by their class."""),
    _of_broker("shmaccum_broker_connected", _GAUGE, "1", lambda each: int(each.state is BrokerState.READY), max).says(
        "1 if the sender has a connection to the broker."
    ),
    Metric("shmaccum_broker_failed", _GAUGE, "1", ("broker",), _failed_brokers).says("""
        1 if the last connection to the broker failed, until the next try."""),
    _of_broker("shmaccum_broker_connections", _COUNTER, "{connection}", lambda each: each.connections).says("""
        Connections to the broker that became ready."""),
    _of_broker("shmaccum_broker_connection_failures", _COUNTER, "{failure}", lambda each: each.failures).says("""
        Connections to the broker that failed."""),
    _of_broker("shmaccum_broker_throttle_seconds", _COUNTER, "s", lambda each: each.throttle_ms * _MILLISECOND).says("""
        Seconds for which the broker has throttled us."""),
    _of_broker("shmaccum_requests_in_flight", _GAUGE, "{request}", lambda each: each.in_flight).says("""
        Requests without an answer."""),
    _of_broker(
        "shmaccum_oldest_request_age_seconds", _GAUGE, "s", lambda each: each.waiting_ms * _MILLISECOND, max
    ).says("Age of the oldest request without an answer."),
    Metric("shmaccum_request_latency_seconds", _HISTOGRAM, "s", ("broker",), _latencies, _TIMES).says("""
        From a request to its answer."""),
    _histogram("shmaccum_queue_time_seconds", "s", _TIMES, "queue_time_us").says("""
        From a batch's first record to its first drain."""),
    _histogram("shmaccum_delivery_time_seconds", "s", _TIMES, "delivery_time_us").says("""
        From a batch's first record to its acknowledgement."""),
    _histogram("shmaccum_memory_wait_seconds", "s", _TIMES, "memory_wait_us").says("Waits for memory."),
    _histogram("shmaccum_batch_records", "{record}", _RECORDS, "batch_records").says("""
        Records in an acknowledged batch."""),
    _histogram("shmaccum_batch_fill_ratio", "1", _RATIOS, "batch_fill_permille").says("""
        Part of its slots that a batch fills, uncompressed."""),
    _histogram("shmaccum_compression_ratio", "1", _RATIOS, "compression_permille").says("""
        Part of its size to which a batch was compressed."""),
    _histogram("shmaccum_record_size_bytes", "By", _SIZES, "record_size_bytes").says("Sizes of appended records."),
)

# --- of the exporter itself ---------------------------------------------------------------------------
SLABS: Final = Metric("shmaccum_slabs", _GAUGE, "{slab}", ()).says("Slabs that were read.")
UNREADABLE_SLABS: Final = Metric("shmaccum_unreadable_slabs", _GAUGE, "{slab}", ("error",)).says("""
    Slabs that were left out, by the error: damaged, of another user or version, or incomplete.""")
READ_SECONDS: Final = Metric("shmaccum_read_duration_seconds", _GAUGE, "s", ()).says("""
    Seconds that it took to read all slabs.""")
OF_EXPORTER: Final = (SLABS, UNREADABLE_SLABS, READ_SECONDS)
