"""The metrics that monitoring sees: names, labels, units and meanings, after Prometheus's rules for names.

Times are seconds and sizes are bytes. Each name begins with ``shmaccum_``. Every metric of a slab has the label
``slab``, before those named here. The names are stable: later versions can add metrics and labels.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final, NamedTuple

from shmaccum.shm.distribution import least_of

MICROSECOND: Final = 1e-6
_THOUSANDTH: Final = 1e-3


class Kind(Enum):
    """What a value of a metric does."""

    COUNTER = "counter"
    """It only grows. Its series have the suffix ``_total``."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Buckets(NamedTuple):
    """How a histogram of the slab becomes one with fewer buckets.

    Each bucket ends where one of the slab's ends, so its count is exact.

    Attributes:
        ends: for each bucket, the first bucket of the slab's that is not in it.
        bounds: for each bucket, its upper bound, as monitoring has it.
        unit: what a value of 1 in the slab is.
    """

    ends: tuple[int, ...]
    bounds: tuple[float, ...]
    unit: float


class Metric(NamedTuple):
    """A metric.

    Attributes:
        name: without the suffix ``_total`` of counters.
        kind: what its values do.
        labels: names of its labels; without ``slab``.
        help: what it means.
        unit: of its values, by UCUM as OpenTelemetry has it: ``s``, ``By``, ``1`` for a ratio or a flag; or what it
            counts, in braces. Amounts of a count or of bytes add up over slabs and hosts.
        buckets: of a histogram.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    unit: str
    buckets: Buckets | None = None


def _bucket_from(value: int) -> int:
    """Return the bucket of the slab that begins at a value."""
    found = next(bucket for bucket in range(value + 1) if least_of(bucket) >= value)
    if least_of(found) != value:
        raise ValueError(f"no bucket begins at {value}")
    return found


def _of_measured(ends: range | tuple[int, ...], unit: float) -> Buckets:
    """Return buckets of values that were rounded down to whole units: below an end, so at most the end."""
    return Buckets(tuple(map(_bucket_from, ends)), tuple(round(end * unit, 6) for end in ends), unit)


def _of_whole(ends: tuple[int, ...]) -> Buckets:
    """Return buckets of whole numbers: below an end is at most the number before it."""
    return Buckets(tuple(map(_bucket_from, ends)), tuple(float(end - 1) for end in ends), 1.0)


_TIMES: Final = _of_measured(tuple(1 << power for power in range(6, 29)), MICROSECOND)
"""From 64 microseconds to 268 seconds, each twice the one before it."""
_RATIOS: Final = _of_measured(tuple(range(128, 1025, 128)), _THOUSANDTH)
_RECORDS: Final = _of_whole(tuple(1 << power for power in range(1, 18)))
_SIZES: Final = _of_whole(tuple(1 << power for power in range(5, 26, 2)))


def le(bound: float) -> str:
    """Return a bucket's upper bound as Prometheus writes it."""
    return "+Inf" if bound == math.inf else repr(bound)


TOPIC: Final = ("topic",)
BROKER: Final = ("broker",)

# --- of each topic, or of each partition --------------------------------------------------------------
RECORDS_SENT: Final = Metric("shmaccum_records_sent", Kind.COUNTER, TOPIC, "Records acknowledged.", "{record}")
BYTES_SENT: Final = Metric("shmaccum_bytes_sent", Kind.COUNTER, TOPIC, "Bytes of acknowledged batches, as sent.", "By")
BATCHES_SENT: Final = Metric("shmaccum_batches_sent", Kind.COUNTER, TOPIC, "Batches acknowledged.", "{batch}")
RECORDS_FAILED: Final = Metric(
    "shmaccum_records_failed", Kind.COUNTER, TOPIC, "Records failed with an error.", "{record}"
)
BATCHES_RETRIED: Final = Metric(
    "shmaccum_batches_retried", Kind.COUNTER, TOPIC, "Times that a batch was put back to be sent again.", "{retry}"
)
QUEUED_RECORDS: Final = Metric(
    "shmaccum_queued_records", Kind.GAUGE, TOPIC, "Records in the slab that are not delivered.", "{record}"
)
QUEUED_BYTES: Final = Metric(
    "shmaccum_queued_bytes", Kind.GAUGE, TOPIC, "Bytes of batches that are not delivered, uncompressed.", "By"
)
OLDEST_RECORD_AGE: Final = Metric(
    "shmaccum_oldest_record_age_seconds",
    Kind.GAUGE,
    TOPIC,
    "Age of the oldest batch that is not delivered; 0 if there is none.",
    "s",
)
WITHOUT_LEADER: Final = Metric(
    "shmaccum_partitions_without_leader",
    Kind.GAUGE,
    TOPIC,
    "Partitions without a known leader: nothing is sent there.",
    "{partition}",
)

SENDS_REFUSED: Final = Metric(
    "shmaccum_sends_refused",
    Kind.COUNTER,
    ("topic", "reason"),
    "Calls of `send` and `send_batch` that failed before acceptance. Reasons: topic (no metadata), memory, too_large, "
    "lock, argument, other. An empty topic stands for all names without an entry in the slab's table.",
    "{call}",
)

# --- of the slab --------------------------------------------------------------------------------------
SLAB_CREATED: Final = Metric(
    "shmaccum_slab_created_timestamp_seconds", Kind.GAUGE, (), "When the slab was created, in seconds since 1970.", "s"
)
BUFFER_TOTAL: Final = Metric("shmaccum_buffer_total_bytes", Kind.GAUGE, (), "Memory for batches: buffer.memory.", "By")
BUFFER_AVAILABLE: Final = Metric(
    "shmaccum_buffer_available_bytes", Kind.GAUGE, (), "Memory for batches that is free.", "By"
)
BUFFER_PEAK: Final = Metric(
    "shmaccum_buffer_peak_bytes", Kind.GAUGE, (), "Most memory for batches that was ever used at once.", "By"
)
MEMORY_WAITERS: Final = Metric(
    "shmaccum_memory_waiters", Kind.GAUGE, (), "Threads of all processes that wait for memory.", "{thread}"
)
BUFFER_EXHAUSTED: Final = Metric(
    "shmaccum_buffer_exhausted", Kind.COUNTER, (), "Waits for memory that ended with BufferExhaustedError.", "{wait}"
)
TABLE_ENTRIES: Final = Metric(
    "shmaccum_table_entries",
    Kind.GAUGE,
    ("table",),
    "Entries in use of the tables of processes, topics, partitions.",
    "{entry}",
)
TABLE_LIMIT: Final = Metric(
    "shmaccum_table_limit", Kind.GAUGE, ("table",), "Entries that these tables have.", "{entry}"
)
PROCESSES: Final = Metric(
    "shmaccum_processes",
    Kind.GAUGE,
    ("role", "state"),
    "Processes that use the slab: alive, stopped, or dead and not yet cleaned up. One can have two roles.",
    "{process}",
)
RECORDS_APPENDED: Final = Metric(
    "shmaccum_records_appended",
    Kind.COUNTER,
    (),
    "Records appended by all processes, those that have ended too.",
    "{record}",
)
BYTES_APPENDED: Final = Metric("shmaccum_bytes_appended", Kind.COUNTER, (), "Bytes of appended records.", "By")
BATCHES_OPENED: Final = Metric("shmaccum_batches_opened", Kind.COUNTER, (), "Batches opened.", "{batch}")
BATCHES_COMPRESSED: Final = Metric("shmaccum_batches_compressed", Kind.COUNTER, (), "Batches compressed.", "{batch}")
LOCK_TAKEOVERS: Final = Metric(
    "shmaccum_lock_takeovers", Kind.COUNTER, (), "Locks taken over from dead holders.", "{takeover}"
)
INDEX_REBUILDS: Final = Metric(
    "shmaccum_index_rebuilds", Kind.COUNTER, (), "Times that indexes were rebuilt from the slot headers.", "{rebuild}"
)
SLOTS_RECLAIMED: Final = Metric(
    "shmaccum_slots_reclaimed",
    Kind.COUNTER,
    (),
    "Slots reclaimed from processes that died before they used them.",
    "{slot}",
)

# --- of the sender and the brokers --------------------------------------------------------------------
SENDER_UP: Final = Metric("shmaccum_sender_up", Kind.GAUGE, (), "1 if the slab has a living sender.", "1")
SENDER_STOPPED: Final = Metric(
    "shmaccum_sender_stopped", Kind.GAUGE, (), "1 if that sender is stopped, frozen, or gets no processor.", "1"
)
SENDER_STARTS: Final = Metric(
    "shmaccum_sender_starts", Kind.COUNTER, (), "Senders that have served the slab.", "{start}"
)
REQUESTS_SENT: Final = Metric("shmaccum_requests_sent", Kind.COUNTER, (), "Produce requests sent.", "{request}")
BATCHES_EXPIRED: Final = Metric(
    "shmaccum_batches_expired", Kind.COUNTER, (), "Batches that delivery.timeout.ms has ended.", "{batch}"
)
RECORDS_LOST: Final = Metric(
    "shmaccum_records_lost",
    Kind.COUNTER,
    (),
    "Failed records whose processes were dead: no process got the error.",
    "{record}",
)
EPOCH_BUMPS: Final = Metric(
    "shmaccum_producer_epoch_bumps", Kind.COUNTER, (), "Times that a partition's producer epoch was raised.", "{bump}"
)
ERRORS: Final = Metric(
    "shmaccum_errors", Kind.COUNTER, ("error",), "Errors of brokers and the network, by their class.", "{error}"
)
LASTING_ERRORS: Final = Metric(
    "shmaccum_lasting_errors",
    Kind.GAUGE,
    ("error",),
    "Errors that last now, such as a broker that cannot be reached, by their class.",
    "{error}",
)
BROKER_CONNECTED: Final = Metric(
    "shmaccum_broker_connected", Kind.GAUGE, BROKER, "1 if the sender has a connection to the broker.", "1"
)
BROKER_FAILED: Final = Metric(
    "shmaccum_broker_failed",
    Kind.GAUGE,
    BROKER,
    "1 if the last connection to the broker failed, until the next try.",
    "1",
)
BROKER_CONNECTIONS: Final = Metric(
    "shmaccum_broker_connections", Kind.COUNTER, BROKER, "Connections to the broker that became ready.", "{connection}"
)
BROKER_FAILURES: Final = Metric(
    "shmaccum_broker_connection_failures", Kind.COUNTER, BROKER, "Connections to the broker that failed.", "{failure}"
)
BROKER_THROTTLE: Final = Metric(
    "shmaccum_broker_throttle_seconds", Kind.COUNTER, BROKER, "Seconds for which the broker has throttled us.", "s"
)
IN_FLIGHT: Final = Metric("shmaccum_requests_in_flight", Kind.GAUGE, BROKER, "Requests without an answer.", "{request}")
OLDEST_REQUEST_AGE: Final = Metric(
    "shmaccum_oldest_request_age_seconds", Kind.GAUGE, BROKER, "Age of the oldest request without an answer.", "s"
)
REQUEST_LATENCY: Final = Metric(
    "shmaccum_request_latency_seconds", Kind.HISTOGRAM, BROKER, "From a request to its answer.", "s", _TIMES
)

# --- histograms of the slab ---------------------------------------------------------------------------
QUEUE_TIME: Final = Metric(
    "shmaccum_queue_time_seconds", Kind.HISTOGRAM, (), "From a batch's first record to its first drain.", "s", _TIMES
)
DELIVERY_TIME: Final = Metric(
    "shmaccum_delivery_time_seconds",
    Kind.HISTOGRAM,
    (),
    "From a batch's first record to its acknowledgement.",
    "s",
    _TIMES,
)
MEMORY_WAIT: Final = Metric("shmaccum_memory_wait_seconds", Kind.HISTOGRAM, (), "Waits for memory.", "s", _TIMES)
BATCH_RECORDS: Final = Metric(
    "shmaccum_batch_records", Kind.HISTOGRAM, (), "Records in an acknowledged batch.", "{record}", _RECORDS
)
BATCH_FILL: Final = Metric(
    "shmaccum_batch_fill_ratio", Kind.HISTOGRAM, (), "Part of its slots that a batch fills, uncompressed.", "1", _RATIOS
)
COMPRESSION: Final = Metric(
    "shmaccum_compression_ratio", Kind.HISTOGRAM, (), "Part of its size to which a batch was compressed.", "1", _RATIOS
)
RECORD_SIZE: Final = Metric(
    "shmaccum_record_size_bytes", Kind.HISTOGRAM, (), "Sizes of appended records.", "By", _SIZES
)

BY_TOPIC: Final = (
    RECORDS_SENT,
    BYTES_SENT,
    BATCHES_SENT,
    RECORDS_FAILED,
    BATCHES_RETRIED,
    QUEUED_RECORDS,
    QUEUED_BYTES,
    WITHOUT_LEADER,
    OLDEST_RECORD_AGE,
)
"""On request these have the label ``partition``, too."""
OF_SLABS: Final = tuple(each for each in tuple(globals().values()) if isinstance(each, Metric))

# --- of the exporter itself ---------------------------------------------------------------------------
SLABS: Final = Metric("shmaccum_slabs", Kind.GAUGE, (), "Slabs that were read.", "{slab}")
UNREADABLE_SLABS: Final = Metric(
    "shmaccum_unreadable_slabs",
    Kind.GAUGE,
    ("error",),
    "Slabs that were left out, by the error: damaged, of another user or version, or incomplete.",
    "{slab}",
)
READ_SECONDS: Final = Metric(
    "shmaccum_read_duration_seconds", Kind.GAUGE, (), "Seconds that it took to read all slabs.", "s"
)
OF_EXPORTER: Final = (SLABS, UNREADABLE_SLABS, READ_SECONDS)


def opentelemetry_name(metric: Metric) -> str:
    """Return a metric's name in OpenTelemetry, where the unit is no part of it."""
    name = metric.name.removeprefix("shmaccum_").removesuffix("_seconds")
    # "queued" alone would not say what.
    return f"shmaccum.{name if metric is QUEUED_BYTES else name.removesuffix('_bytes')}"
