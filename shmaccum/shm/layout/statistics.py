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
    """a `BrokerState`; a new entry's is stored last"""
    NODE: Final = 1
    """32 bits two's complement: the broker's id; below 0 for an address of bootstrap.servers of an unknown broker"""
    SINCE_MS: Final = 2
    """wall-clock milliseconds since when it is in this state"""
    CONNECTIONS: Final = 3
    """connections that became ready"""
    FAILURES: Final = 4
    """connections that failed, while being opened or later"""
    IN_FLIGHT: Final = 5
    """requests without an answer"""
    OLDEST_MS: Final = 6
    """monotonic milliseconds when the oldest of these was sent; 0 if there is none"""
    ANSWERS: Final = 7
    """requests answered"""
    LATENCY_US: Final = 8
    """microseconds from the last answered request to its answer"""
    THROTTLES: Final = 9
    """answers with which the broker throttled us"""
    THROTTLE_MS: Final = 10
    """milliseconds for which it did, in all"""
    LONGEST_THROTTLE_MS: Final = 11
    """milliseconds of the longest of these times"""
    THROTTLED_MS: Final = 12
    """monotonic milliseconds until which it throttles us; 0 if it never did"""
    INCIDENT: Final = 13
    """number of its last incident; 0 while there was none"""
    INCIDENT_MS: Final = 14
    """wall-clock milliseconds of that"""
    ANSWERED_MS: Final = 15
    """monotonic milliseconds of the last answer; 0 before the first"""
    REQUESTS: Final = 16
    """requests sent, of every kind"""
    BYTES_OUT: Final = 17
    """bytes in them"""
    LARGEST_REQUEST: Final = 18
    """bytes in the largest of them"""
    BYTES_IN: Final = 19
    """bytes in the answers"""
    CLOSED: Final = 20
    """connections that were ready, and have ended"""
    REFUSED: Final = 21
    """connections that failed because one side did not accept the other's login or certificate"""
    LOGINS_AGAIN: Final = 22
    """times that a ready connection logged in again, before its session ended"""
    ADDRESS_LENGTH: Final = 23
    """bytes in the address"""
    ADDRESS: Final = 24
    """first word of the address, ``host:port``, ASCII"""


class Histogram:
    """Words of a histogram; its buckets follow."""

    TOTAL: Final = 0
    """sum of all values"""
    LARGEST: Final = 1
    """the largest value"""
    BUCKETS: Final = 2
    """first bucket: how many values were in it"""


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
