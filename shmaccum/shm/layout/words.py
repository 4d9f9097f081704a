"""The number of every word of the slab in its entry, for Python code. ``core/layout.pxi`` has the meanings."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

MAGIC: Final = int.from_bytes(b"SHMACCUM", "little")


class SlotState(IntEnum):
    """A slot's state: the low 8 bits of its header's state word.

    ``FREE -> ALLOCATED -> OPEN -> CLOSED -> IN_FLIGHT -> COMPLETING -> FREE``. A batch that the sender sends again goes
    from IN_FLIGHT back to CLOSED; if only a part of a split batch is complete, it goes from COMPLETING back to CLOSED.
    """

    FREE = 0
    """No process owns it; its bit in the bitmap is set."""
    ALLOCATED = 1
    """Owned by the process in the owner field, not yet in a deque: freed if that process dies."""
    OPEN = 2
    """Last of its partition's deque; accepts records."""
    CLOSED = 3
    """In its partition's deque; accepts no records."""
    IN_FLIGHT = 4
    """The sender's; goes back to the front of its deque if the sender dies."""
    COMPLETING = 5
    """The result is in the header; the sender is pushing it to the contributors' rings."""


class TopicState(IntEnum):
    """A topic entry's state word."""

    UNUSED = 0
    """There is no such topic entry."""
    REQUESTED = 1
    """A producer needs the topic's metadata; the sender requests it."""
    KNOWN = 2
    """The topic exists; the entry has its number of partitions."""
    FAILED = 3
    """The sender's last metadata request for it failed; the entry's error word has the reason."""


class Refusal(IntEnum):
    """Why `send` or `send_batch` did not accept records; the label ``reason`` of monitoring is the name in small."""

    TOPIC = 0
    """There is no metadata of the topic, or the cluster does not allow its use."""
    MEMORY = 1
    """No memory became free in time."""
    TOO_LARGE = 2
    """A record is larger than ``max.request.size`` or the slab."""
    LOCK = 3
    """A stopped process held a lock for too long."""
    ARGUMENT = 4
    """An argument is not allowed, or cannot be serialized."""
    OTHER = 5
    """Any other error, such as a failed transaction."""


class Super:
    """Words of the superblock. Words 32 to 39 belong to the BufferPool, those from 40 on are the sender's counters."""

    MAGIC: Final = 0
    ABI: Final = 1
    READY: Final = 2
    TOTAL_SIZE: Final = 3
    OWNER_UID: Final = 4
    DIGEST: Final = 5
    SLOT_SIZE: Final = 6
    SLOT_COUNT: Final = 7
    MAX_PROCESSES: Final = 8
    MAX_TOPICS: Final = 9
    MAX_PARTITIONS: Final = 10
    CREATED_MS: Final = 11
    REDO_SIZE: Final = 12
    TOKEN: Final = 13
    SENDER_ENTRY: Final = 16
    SENDER_ASLEEP: Final = 17
    SENDER_STARTS: Final = 18
    PRODUCER_ID: Final = 19
    PRODUCER_EPOCH: Final = 20
    METADATA_REQUESTS: Final = 21
    SENDER_WAKES: Final = 22
    TOPIC_COUNT: Final = 24
    PARTITION_COUNT: Final = 25
    GENERATION: Final = 26
    MAX_LANES: Final = 27
    LANE_COUNT: Final = 28
    LANES_CHANGED: Final = 29
    REFUSALS: Final = 30
    FREE_SLOTS: Final = 32
    PEAK_SLOTS: Final = 33
    TOUCHED_SLOTS: Final = 34
    WAITER_HEAD: Final = 35
    WAITER_TAIL: Final = 36
    RECLAIMED_SLOTS: Final = 37
    REBUILDS: Final = 38
    ENOUGH_SLOTS: Final = 39
    BATCHES_SENT: Final = 40
    RECORDS_SENT: Final = 41
    BYTES_SENT: Final = 42
    BATCHES_FAILED: Final = 43
    RECORDS_FAILED: Final = 44
    BATCHES_RETRIED: Final = 45
    REQUESTS_SENT: Final = 46
    FILL_BYTES: Final = 47
    CAPACITY_BYTES: Final = 48
    EPOCH_BUMPS: Final = 50
    BATCHES_EXPIRED: Final = 51
    RECORDS_LOST: Final = 52
    HEIR_MS: Final = 53
    METADATA_MS: Final = 54
    INCIDENTS: Final = 55
    SENDER_RAN: Final = 56
    LET_IN_MS: Final = 57
    SETTINGS_GENERATION: Final = 58
    TIMEOUTS_CHANGED: Final = 59
    LEAVE_REQUEST: Final = 60
    WAITING_SINCE_MS: Final = 61
    LARGEST_BATCH: Final = 62
    BATCHES_SPLIT: Final = 63


class Lock:
    """Words of a lock's cache line."""

    OWNER: Final = 0
    TAKEOVERS: Final = 1


UNFINISHED_OWNER: Final = 0xFFFF
"""Owner word of a free lock whose last holder was interrupted: the next holder rebuilds first."""
TICKET_SHIFT: Final = 16
"""The incarnation of a lock's holder in the owner word; below it is its process entry + 1."""


class Process:
    """Words of a process entry."""

    STATE: Final = 0
    PID: Final = 1
    START_TIME: Final = 2
    PID_NAMESPACE: Final = 3
    INCARNATION: Final = 4
    ROLES: Final = 5
    ATTACHED_MS: Final = 6
    SHORTEST_TIMEOUT: Final = 7
    LOOP_ASLEEP: Final = 8
    LOOP_DOORBELL: Final = 9
    ASLEEP: Final = 10
    FLUSHING: Final = 11
    RING_HEAD: Final = 12
    WAKEUP: Final = 13
    RING_TAIL: Final = 16
    RECORDS: Final = 24
    BYTES: Final = 25
    BATCHES: Final = 26
    WAIT_NS: Final = 27
    WAITS: Final = 28
    EXHAUSTED: Final = 29
    COMPRESSED: Final = 30
    NAME_LENGTH: Final = 32
    NAME: Final = 33
    BEFORE: Final = 41


class Role(IntFlag):
    """Bits of `Process.ROLES`."""

    PRODUCER = 1
    SENDER = 2


class Topic:
    """Words of a topic entry; the name's bytes follow."""

    STATE: Final = 0
    PARTITIONS: Final = 1
    ERROR: Final = 2
    NAME_LENGTH: Final = 3
    ANSWERS: Final = 4
    ID_HIGH: Final = 5
    ID_LOW: Final = 6
    CHANGED: Final = 7
    REFUSALS: Final = 8
    REFUSED_ERROR: Final = 14
    REFUSED_MS: Final = 15
    NAME: Final = 16


class Partition:
    """Words of a partition entry."""

    KEY: Final = 0
    LEADER: Final = 1
    HEAD: Final = 2
    TAIL: Final = 3
    OPEN: Final = 4
    QUEUED: Final = 5
    NEXT_POSITION: Final = 6
    HELD: Final = 7
    NEXT_SEQUENCE: Final = 8
    MUTED: Final = 9
    IN_FLIGHT: Final = 10
    RECORDS_SENT: Final = 11
    BATCHES_SENT: Final = 12
    RECORDS_FAILED: Final = 13
    LAST_OFFSET: Final = 14
    ACKED_SEQUENCE: Final = 15
    BYTES_SENT: Final = 16
    BATCHES_RETRIED: Final = 17
    BATCHES_FAILED: Final = 18
    ERROR: Final = 19
    ERROR_MS: Final = 20
    BATCHES_DRAINED: Final = 21
    RECORDS_DRAINED: Final = 22
    BYTES_DRAINED: Final = 23
    COMPRESSION_DRAINED: Final = 24
    RECORDS_RETRIED: Final = 25
    MAX_BYTES: Final = 26


class Lane:
    """Words of a lane, which carries one transaction at a time; the bytes of its transactional id follow.

    The process that holds it writes them under the tables' lock, except ERROR.
    """

    HOLDER: Final = 0
    GENERATION: Final = 1
    PRODUCER_ID: Final = 2
    PRODUCER_EPOCH: Final = 3
    VERSION: Final = 4
    ERROR: Final = 5
    OPENED_MS: Final = 6
    ID_LENGTH: Final = 7
    ID: Final = 8


class Incident:
    """Words of an incident; the bytes of its text follow. The sender alone writes them; a death leaves NUMBER 0."""

    NUMBER: Final = 0
    CODE: Final = 1
    FIRST_MS: Final = 2
    LAST_MS: Final = 3
    LASTS: Final = 4
    LENGTH: Final = 5
    COUNT: Final = 6
    PLACE: Final = 7
    TEXT: Final = 8


class Slot:
    """Words of a slot header. All but the two links are truth."""

    STATE: Final = 0
    GENERATION: Final = 1
    PARTITION: Final = 2
    POSITION: Final = 3
    COMMIT: Final = 4
    MAX_TIMESTAMP: Final = 5
    BASE_TIMESTAMP: Final = 7
    CREATED_MS: Final = 8
    ATTEMPTS: Final = 9
    PRODUCER_ID: Final = 10
    SEQUENCE: Final = 11
    BASE_OFFSET: Final = 12
    RESULT: Final = 13
    NEXT: Final = 14
    PREVIOUS: Final = 15
    MAX_RECORD: Final = 16
    DRAINED_MS: Final = 17
    SETTLED: Final = 18
    SEALING: Final = 19
    COMPRESSED: Final = 20
    REDO: Final = 21
    PART: Final = 22
    CHAIN: Final = 23
    LINGER: Final = 24
    OPENED_US: Final = 25
    LIMITS: Final = 26
    SLOTS: Final = 27
    CONTRIBUTORS: Final = 28


class Waiter:
    """Words of a ticket's cell in the waiter queue."""

    HOLDER: Final = 0
    SLOTS: Final = 1


class Completion:
    """Words of a completion in a ring."""

    BATCH: Final = 0
    BASE_OFFSET: Final = 1
    RESULT: Final = 2
    RANGE: Final = 3
