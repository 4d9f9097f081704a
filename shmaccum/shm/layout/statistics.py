"""Words that no process acts on: broker table, histograms. Only people and monitoring read them.

Each has one writer, and is one store: the sender writes the broker table and most histograms, a process those of its
entry. All but the state of a broker only grow. A death between two stores leaves one of them out.

A histogram counts values in buckets: one for each of the numbers 0 to 15, then eight for each power of two, as HDR
histograms have them. So a bucket is at most an eighth as wide as its least value. The counts of an entry go on when
another process takes it. So a sum over all entries misses no process, alive or dead.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

EXACT: Final = 16
"""Values below this have a bucket each."""
PARTS: Final = 8
"""Buckets of each larger power of two."""


class BrokerState(IntEnum):
    """A broker's state, as the sender sees it."""

    UNUSED = 0
    """There is no such broker entry."""
    IDLE = 1
    """There is no connection, and none is being opened."""
    CONNECTING = 2
    """A connection is being opened."""
    READY = 3
    """A connection is open."""
    FAILED = 4
    """The last attempt failed, or the connection broke; there will be another attempt."""


class Broker:
    """Words of a broker entry; the bytes of its address follow. The sender alone writes them."""

    STATE: Final = 0
    NODE: Final = 1
    SINCE_MS: Final = 2
    CONNECTIONS: Final = 3
    FAILURES: Final = 4
    IN_FLIGHT: Final = 5
    OLDEST_MS: Final = 6
    ANSWERS: Final = 7
    LATENCY_US: Final = 8
    THROTTLES: Final = 9
    THROTTLE_MS: Final = 10
    LONGEST_THROTTLE_MS: Final = 11
    THROTTLED_MS: Final = 12
    INCIDENT: Final = 13
    INCIDENT_MS: Final = 14
    ANSWERED_MS: Final = 15
    REQUESTS: Final = 16
    BYTES_OUT: Final = 17
    LARGEST_REQUEST: Final = 18
    BYTES_IN: Final = 19
    CLOSED: Final = 20
    REFUSED: Final = 21
    LOGINS_AGAIN: Final = 22
    ADDRESS_LENGTH: Final = 23
    ADDRESS: Final = 24


class Histogram:
    """Words of a histogram; its buckets follow."""

    TOTAL: Final = 0
    LARGEST: Final = 1
    BUCKETS: Final = 2


class OfSender(IntEnum):
    """The histograms of the sender, about batches that are acknowledged."""

    QUEUE_TIME = 0
    """Microseconds from a batch's first record to its first drain."""
    DELIVERY_TIME = 1
    """Microseconds from a batch's first record to its acknowledgement."""
    BATCH_RECORDS = 2
    """Records in a batch."""
    BATCH_FILL = 3
    """Thousandths of its slots that a batch fills, uncompressed."""
    COMPRESSION = 4
    """Thousandths of its size to which a batch was compressed; not of batches that were not to be compressed."""


class OfProcess(IntEnum):
    """The histograms of a process."""

    MEMORY_WAIT = 0
    """Microseconds of a wait for memory."""
    RECORD_SIZE = 1
    """Bytes of a record, as in its batch."""
