"""Types of the core, which ``core/_core.pyx`` defines."""

from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final, Self, TypeVar, final

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from shmaccum.accumulator.append.futures import DeliveryCallback
from shmaccum.accumulator.append.pending_batches import PendingBatches
from shmaccum.cluster import RecordMetadata, TopicPartition
from shmaccum.errors import KafkaError, ShmaccumError
from shmaccum.record.fields import BatchMemory, BytesLike, Headers

_Batch = TypeVar("_Batch", bound="RecordBatch")

CACHE_LINE: int
PAGE: int
WORD: int
MAX_SLOTS: int
MAX_PROCESSES: int
MAX_TOPICS: int
MAX_LANES: int
STRIPES: int
LOCK_POOL: int
LOCK_TABLES: int
LOCK_STRIPES: int
LOCK_COUNT: int
TOKEN_WORDS: int
SETTINGS_SIZE: int
INCIDENTS: int
BROKERS: int
SENDER_HISTOGRAMS: int
PROCESS_HISTOGRAMS: int
HISTOGRAM_BUCKETS: int
WAITERS: int
PARTS_IN_FLIGHT: int
TICKET_SHIFT: int
UNFINISHED: int
STATE_MASK: int
OWNER_SHIFT: int
OWNER_MASK: int
INCARNATION_SHIFT: int
COMMIT_SIZE_SHIFT: int
COMMIT_COUNT_MASK: int
PROGRESS_SHIFT: int
ATTEMPTS_SHIFT: int
LINGER_SHIFT: int
LIMITS_SHIFT: int
COMPRESSION_MASK: int
BATCH_SLOT_BITS: int
KEY_TOPIC_SHIFT: int
KEY_LANE_SHIFT: int
LEASE_SHIFT: int
LANE_ERROR: int
HOLDER_SHIFT: int
SLEEP_BITS: int
HISTOGRAM_EXACT: int
HISTOGRAM_PARTS: int

# The number of each word in its entry, and the entry's length in words.

class Super:
    MAGIC: Final[int]
    ABI: Final[int]
    READY: Final[int]
    TOTAL_SIZE: Final[int]
    OWNER_UID: Final[int]
    DIGEST: Final[int]
    SLOT_SIZE: Final[int]
    SLOT_COUNT: Final[int]
    MAX_PROCESSES: Final[int]
    MAX_TOPICS: Final[int]
    MAX_PARTITIONS: Final[int]
    CREATED_MS: Final[int]
    TOKEN: Final[int]
    KEEPS_CHECKSUMS: Final[int]
    SENDER_ENTRY: Final[int]
    SENDER_ASLEEP: Final[int]
    SENDER_STARTS: Final[int]
    PRODUCER_ID: Final[int]
    PRODUCER_EPOCH: Final[int]
    METADATA_REQUESTS: Final[int]
    SENDER_WAKES: Final[int]
    TOPIC_COUNT: Final[int]
    PARTITION_COUNT: Final[int]
    GENERATION: Final[int]
    MAX_LANES: Final[int]
    LANE_COUNT: Final[int]
    LANES_CHANGED: Final[int]
    REFUSALS: Final[int]
    FREE_SLOTS: Final[int]
    PEAK_SLOTS: Final[int]
    TOUCHED_SLOTS: Final[int]
    WAITER_HEAD: Final[int]
    WAITER_TAIL: Final[int]
    RECLAIMED_SLOTS: Final[int]
    ENOUGH_SLOTS: Final[int]
    TURN: Final[int]
    BATCHES_SENT: Final[int]
    RECORDS_SENT: Final[int]
    BYTES_SENT: Final[int]
    BATCHES_FAILED: Final[int]
    RECORDS_FAILED: Final[int]
    BATCHES_RETRIED: Final[int]
    REQUESTS_SENT: Final[int]
    FILL_BYTES: Final[int]
    CAPACITY_BYTES: Final[int]
    REBUILDS: Final[int]
    EPOCH_BUMPS: Final[int]
    BATCHES_EXPIRED: Final[int]
    RECORDS_LOST: Final[int]
    HEIR_MS: Final[int]
    METADATA_MS: Final[int]
    INCIDENTS: Final[int]
    SENDER_RAN: Final[int]
    LET_IN_MS: Final[int]
    SETTINGS_GENERATION: Final[int]
    TIMEOUTS_CHANGED: Final[int]
    LEAVE_REQUEST: Final[int]
    WAITING_SINCE_MS: Final[int]
    LARGEST_BATCH: Final[int]
    BATCHES_SPLIT: Final[int]
    length: Final[int]

class Lock:
    OWNER: Final[int]
    TAKEOVERS: Final[int]
    length: Final[int]

class Process:
    STATE: Final[int]
    PID: Final[int]
    START_TIME: Final[int]
    PID_NAMESPACE: Final[int]
    INCARNATION: Final[int]
    ROLES: Final[int]
    ATTACHED_MS: Final[int]
    SHORTEST_TIMEOUT: Final[int]
    LOOP_ASLEEP: Final[int]
    LOOP_DOORBELL: Final[int]
    ASLEEP: Final[int]
    FLUSHING: Final[int]
    RING_HEAD: Final[int]
    WAKEUP: Final[int]
    RING_TAIL: Final[int]
    RECORDS: Final[int]
    BYTES: Final[int]
    BATCHES: Final[int]
    WAIT_NS: Final[int]
    WAITS: Final[int]
    EXHAUSTED: Final[int]
    COMPRESSED: Final[int]
    NAME_LENGTH: Final[int]
    NAME: Final[int]
    BEFORE: Final[int]
    length: Final[int]

class Topic:
    STATE: Final[int]
    PARTITIONS: Final[int]
    ERROR: Final[int]
    NAME_LENGTH: Final[int]
    ANSWERS: Final[int]
    ID_HIGH: Final[int]
    ID_LOW: Final[int]
    CHANGED: Final[int]
    REFUSALS: Final[int]
    REFUSED_ERROR: Final[int]
    REFUSED_MS: Final[int]
    NAME: Final[int]
    length: Final[int]

class Partition:
    KEY: Final[int]
    LEADER: Final[int]
    HEAD: Final[int]
    TAIL: Final[int]
    OPEN: Final[int]
    QUEUED: Final[int]
    NEXT_POSITION: Final[int]
    HELD: Final[int]
    NEXT_SEQUENCE: Final[int]
    MUTED: Final[int]
    IN_FLIGHT: Final[int]
    RECORDS_SENT: Final[int]
    BATCHES_SENT: Final[int]
    RECORDS_FAILED: Final[int]
    LAST_OFFSET: Final[int]
    ACKED_SEQUENCE: Final[int]
    BYTES_SENT: Final[int]
    BATCHES_RETRIED: Final[int]
    BATCHES_FAILED: Final[int]
    ERROR: Final[int]
    ERROR_MS: Final[int]
    BATCHES_DRAINED: Final[int]
    RECORDS_DRAINED: Final[int]
    BYTES_DRAINED: Final[int]
    COMPRESSION_DRAINED: Final[int]
    RECORDS_RETRIED: Final[int]
    MAX_BYTES: Final[int]
    ACKED_S: Final[int]
    length: Final[int]

class Lane:
    HOLDER: Final[int]
    GENERATION: Final[int]
    PRODUCER_ID: Final[int]
    PRODUCER_EPOCH: Final[int]
    VERSION: Final[int]
    ERROR: Final[int]
    OPENED_MS: Final[int]
    TRANSACTION: Final[int]
    ID_LENGTH: Final[int]
    ID: Final[int]
    length: Final[int]

class Incident:
    NUMBER: Final[int]
    CODE: Final[int]
    FIRST_MS: Final[int]
    LAST_MS: Final[int]
    LASTS: Final[int]
    LENGTH: Final[int]
    COUNT: Final[int]
    PLACE: Final[int]
    TEXT: Final[int]
    length: Final[int]

class Broker:
    STATE: Final[int]
    NODE: Final[int]
    SINCE_MS: Final[int]
    CONNECTIONS: Final[int]
    FAILURES: Final[int]
    IN_FLIGHT: Final[int]
    OLDEST_MS: Final[int]
    ANSWERS: Final[int]
    LATENCY_US: Final[int]
    THROTTLES: Final[int]
    THROTTLE_MS: Final[int]
    LONGEST_THROTTLE_MS: Final[int]
    THROTTLED_MS: Final[int]
    INCIDENT: Final[int]
    INCIDENT_MS: Final[int]
    ANSWERED_MS: Final[int]
    REQUESTS: Final[int]
    BYTES_OUT: Final[int]
    LARGEST_REQUEST: Final[int]
    BYTES_IN: Final[int]
    CLOSED: Final[int]
    REFUSED: Final[int]
    LOGINS_AGAIN: Final[int]
    ADDRESS_LENGTH: Final[int]
    ADDRESS: Final[int]
    length: Final[int]

class Histogram:
    TOTAL: Final[int]
    LARGEST: Final[int]
    BUCKETS: Final[int]
    length: Final[int]

class Waiter:
    HOLDER: Final[int]
    SLOTS: Final[int]
    length: Final[int]

class Completion:
    BATCH: Final[int]
    BASE_OFFSET: Final[int]
    RESULT: Final[int]
    RANGE: Final[int]
    length: Final[int]

class Slot:
    STATE: Final[int]
    GENERATION: Final[int]
    PARTITION: Final[int]
    POSITION: Final[int]
    COMMIT: Final[int]
    MAX_TIMESTAMP: Final[int]
    BASE_TIMESTAMP: Final[int]
    CREATED_MS: Final[int]
    ATTEMPTS: Final[int]
    PRODUCER_ID: Final[int]
    SEQUENCE: Final[int]
    BASE_OFFSET: Final[int]
    RESULT: Final[int]
    NEXT: Final[int]
    PREVIOUS: Final[int]
    MAX_RECORD: Final[int]
    COMPLETED: Final[int]
    COMPRESSED: Final[int]
    PART: Final[int]
    CHAIN: Final[int]
    LINGER: Final[int]
    FULL: Final[int]
    OPENED_US: Final[int]
    LIMITS: Final[int]
    SLOTS: Final[int]
    CHECKSUMS: Final[int]
    CONTRIBUTORS: Final[int]

def memory_file(name: bytes) -> int: ...

@final
class Geometry:
    def __init__(
        self,
        slot_size: int,
        slot_count: int,
        max_processes: int = 128,
        max_topics: int = 512,
        max_partitions: int = 4096,
        max_lanes: int = 64,
        keeps_checksums: int = 0,
    ) -> None: ...
    slot_size: Final[int]
    slot_count: Final[int]
    max_processes: Final[int]
    max_topics: Final[int]
    max_partitions: Final[int]
    max_lanes: Final[int]
    keeps_checksums: Final[int]
    ring_length: Final[int]
    contributor_words: Final[int]
    slot_words: Final[int]
    bitmap_size: Final[int]
    settings: Final[int]
    locks: Final[int]
    processes: Final[int]
    topics: Final[int]
    partitions: Final[int]
    lanes: Final[int]
    incidents: Final[int]
    brokers: Final[int]
    histograms: Final[int]
    waiters: Final[int]
    rings: Final[int]
    bitmap: Final[int]
    headers: Final[int]
    slots: Final[int]
    total_size: Final[int]
    def replace(self, **sizes: int) -> Geometry: ...
    def lock(self, number: int) -> int: ...
    def process(self, entry: int) -> int: ...
    def topic(self, entry: int) -> int: ...
    def partition(self, entry: int) -> int: ...
    def lane(self, entry: int) -> int: ...
    def incident(self, number: int) -> int: ...
    def sender_log(self) -> int: ...
    def broker(self, entry: int) -> int: ...
    def sender_histogram(self, which: int) -> int: ...
    def broker_histogram(self, entry: int) -> int: ...
    def process_histogram(self, entry: int, which: int) -> int: ...
    def ring(self, entry: int) -> int: ...
    def waiter(self, cell: int) -> int: ...
    def header(self, slot: int) -> int: ...
    def slot(self, slot: int) -> int: ...
    def __hash__(self) -> int: ...

@final
class Segment:
    def __new__(cls, descriptor: int, geometry: Geometry) -> Self: ...
    @property
    def geometry(self) -> Geometry: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def join(self, entry: int, incarnation: int) -> int: ...
    def leave(self) -> None: ...
    def release(self) -> None: ...
    def writable(self) -> memoryview: ...
    def view(self, region: str) -> npt.NDArray[np.void]: ...

LOCK_BUSY: int
LOCK_TAKEN: int
LOCK_UNFINISHED: int
LOCK_REJOIN: int

@final
class SlabLock:
    def __new__(cls, segment: Segment, number: int, gate: str | None = None) -> Self: ...
    @property
    def number(self) -> int: ...
    @property
    def owner(self) -> int: ...
    def acquire_now(self) -> int: ...
    def pass_through(self) -> tuple[int]: ...
    def unblock(self, dead: int) -> None: ...
    def release(self, unfinished: bool = False) -> None: ...

@final
class Buffer:
    def __init__(self, slot: int = 0, slots: int = 0, generation: int = 0) -> None: ...
    @property
    def slot(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def batch(self) -> int: ...
    def __hash__(self) -> int: ...

@final
class MemoryTicket:
    def __init__(self, slots: int, started_s: float, timeout_s: float) -> None: ...
    @property
    def slots(self) -> int: ...
    @property
    def started_s(self) -> float: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def number(self) -> int: ...
    @property
    def is_head(self) -> bool: ...

@final
class BufferPool:
    def __new__(cls, segment: Segment, lock: SlabLock, damaged: Callable[[str], Exception]) -> Self: ...
    def allocate(self, taken: list[Buffer], count: int) -> tuple[int, bool]: ...
    def free(self, *buffers: Buffer) -> tuple[int, int, int]: ...
    def look(
        self,
        ticket: MemoryTicket,
        taken: list[Buffer],
        was_woken: bool | None,
        dead: Iterable[int],
        now_s: float,
        absent_s: float,
    ) -> tuple[int, int]: ...
    def leave(self, ticket: MemoryTicket, waited_ns: int, needs_none: bool = False) -> tuple[int, int]: ...
    def reclaim(self, dead: Iterable[int], now_s: float, absent_s: float) -> tuple[int, int, int]: ...
    def grow(self, buffer: Buffer) -> tuple[int, bool]: ...
    def extend(self, buffer: Buffer, own: Buffer) -> tuple[int, bool]: ...
    def rebuild(self) -> tuple[int]: ...
    def is_taken(self, buffer: Buffer) -> bool: ...
    @property
    def free_slots(self) -> int: ...
    def is_exhausted(self) -> bool: ...
    def waiters(self) -> list[tuple[int, int, bool]]: ...
    def owners(self) -> set[int]: ...

AHEAD_MS: int
MOST_DRAINED: int

@final
class PartitionDeques:
    def __new__(cls, segment: Segment, damaged: Callable[[str], Exception]) -> Self: ...
    def take_first(self, entry: int, slot: int, limits: int, lane: int = 0) -> tuple[int, bool]: ...
    def close_first(self, entry: int, slot: int) -> tuple[int]: ...
    def put_back(self, entry: int, slot: int) -> tuple[int]: ...
    def slots_in(self, first: int, last: int) -> list[int]: ...
    def occupied(self, count: int) -> list[int]: ...
    def rebuild(self, number: int) -> tuple[int]: ...

TABLES_FULL: int
TABLES_STALE: int

@final
class Tables:
    def __new__(cls, segment: Segment, damaged: Callable[[str], Exception]) -> Self: ...
    def request(self, name: bytes, begin: int) -> tuple[int, int]: ...
    def update(
        self,
        entry: int,
        partitions: int,
        error: int,
        topic_id: int,
        answers: bool,
        known: int,
        begin: int,
        no_room: int,
    ) -> tuple[int, bool]: ...
    def refuse(self, entry: int, reason: int, calls: int, error: int, now_ms: int) -> tuple[int]: ...
    def lease(self, name: bytes, unused: int = -1, generation: int = 0) -> tuple[int, int, int]: ...
    def add_to_lane(self, lane: int, of: int, begin: int) -> tuple[int, int]: ...
    def open_lane(
        self,
        lane: int,
        generation: int,
        partitions: array[int],
        producer_id: int,
        epoch: int,
        version: int,
        now_ms: int,
    ) -> tuple[int, bool]: ...
    def end_transaction(self, lane: int, generation: int) -> tuple[int, bool]: ...
    def renew_lane(self, lane: int, generation: int) -> tuple[int, bool]: ...
    def close_lane(self, lane: int, generation: int, release: bool) -> tuple[int]: ...
    def take_lane(self, lane: int, holder: int) -> tuple[int]: ...
    def rebuild(self) -> tuple[int]: ...

COMPRESSING: int

@final
class ReadyCheck:
    ahead_size: int
    closed: bool
    def __new__(
        cls, segment: Segment, pool: BufferPool, damaged: Callable[[str], Exception], max_in_flight: int
    ) -> Self: ...
    @property
    def is_urgent(self) -> bool: ...
    def set_backoff(self, initial_ms: float, max_ms: float) -> None: ...
    def set_leader(self, entry: int, leader: int, epoch: int) -> None: ...
    def let_move(self, entry: int) -> None: ...
    def hold_back(self, stripes: int, partitions: list[int]) -> None: ...
    def ready(self, now_ms: int, can_number: bool) -> tuple[set[int], set[int], list[int], float]: ...
    def choose(
        self, leader: int, begin: int, max_size: int, may_leave: int, now_ms: int
    ) -> tuple[list[int], int, int, int, list[int]]: ...
    def take(self, stripe: int) -> tuple[int]: ...
    def set_ahead(self, slot: int, generation: int, size: int) -> None: ...
    def forget_ahead(self) -> None: ...
    def taken(self) -> list[int]: ...
    def has_backlog(self) -> bool: ...

def undelivered(words: memoryview[int], geometry: Geometry) -> tuple[int, int]: ...
def places_of(segment: Segment, slot: int, size: int) -> list[tuple[int, int]] | None: ...

@disjoint_base
class RecordBatch:
    def __new__(cls, segment: Segment, slot: int) -> Self: ...
    slot: Final[int]
    partition: Final[int]
    at: Final[int]
    partition_at: Final[int]
    state: int
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def linger_ms(self) -> int: ...
    @property
    def wanted(self) -> int: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def renewals(self) -> int: ...
    @property
    def limits(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def last_attempt_ms(self) -> int: ...
    @property
    def attempt_incident(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def is_split(self) -> bool: ...
    @property
    def completed(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def part_end(self) -> int: ...
    @property
    def result_end(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    def buffer(self) -> Buffer: ...
    def contents(self) -> tuple[int, int, int]: ...
    def places(self) -> list[tuple[int, int]] | None: ...
    def views(self) -> tuple[memoryview, ...] | None: ...
    def is_sound(self, header_size: int) -> bool: ...
    def is_intact(self, header_size: int) -> bool: ...
    def write_off(self) -> None: ...
    def contributors(self) -> list[int]: ...
    def renew(self, now_ms: int) -> None: ...
    def bring_back(self, now_ms: int) -> None: ...
    def note_attempt(self, now_ms: int, incident: int = 0) -> None: ...
    def identity(self) -> tuple[int, int, int]: ...
    def cut(self, end: int) -> None: ...
    def complete_part(self, never_stored: bool) -> None: ...

@final
class Sequences:
    lanes_failed: bool
    def __new__(cls, segment: Segment, enabled: bool) -> Self: ...
    @property
    def undecided_count(self) -> int: ...
    @property
    def need_producer_id(self) -> bool: ...
    def use_producer_id(self, producer_id: int, epoch: int) -> None: ...
    def replace_producer_id(self) -> None: ...
    def drained(self, batch: RecordBatch) -> None: ...
    def stored(self, batch: RecordBatch, records: int) -> None: ...
    def refused(self, batch: RecordBatch) -> None: ...
    def came_back(self, batch: RecordBatch, was_refused: bool) -> None: ...
    def is_missing(self, batch: RecordBatch) -> bool: ...
    def is_stored(self, batch: RecordBatch) -> bool: ...
    def finished(self, batch: RecordBatch) -> None: ...
    def give_back(self, batch: RecordBatch) -> None: ...
    def log_replaced(self, entry: int) -> None: ...
    def renew_idle(self, count: int, now_s: int) -> None: ...
    def recover(self, held: list[Any], count: int) -> None: ...
    def can_be_decided(self, batch: RecordBatch) -> bool: ...
    def suspend(self, batch: RecordBatch) -> None: ...
    def is_unknowable(self, batch: RecordBatch) -> bool: ...
    def take_undecided(self, entry: int) -> list[int]: ...
    def undecided_partitions(self) -> list[int]: ...
    def is_undecided(self, batch: RecordBatch) -> bool: ...
    def has_more_to_try(self, entry: int) -> bool: ...
    def fail_lane(self, entry: int, error: int) -> None: ...
    def is_closed(self, batch: RecordBatch) -> bool: ...
    def review_lanes(self) -> None: ...
    def review(self, entry: int) -> None: ...

@final
class Completer:
    def __new__(cls, segment: Segment, sequences: Sequences, header_size: int) -> Self: ...
    def conclude(
        self,
        batch: RecordBatch,
        base_offset: int,
        append_time_ms: int,
        end: int = 0,
        error: int = 0,
        incident: int = 0,
        is_aborted: bool = False,
    ) -> None: ...
    def conclude_stored(
        self,
        responses: list[ProduceResponse],
        in_flight: list[_Batch | None],
        now_us: int,
        contributors: set[int],
    ) -> tuple[list[_Batch], int]: ...
    def land(self, batch: RecordBatch) -> None: ...
    def count(self) -> None: ...
    def push(self, batch: RecordBatch, contributors: set[int], again: bool = False) -> None: ...
    def has_room(self, entry: int, owed: int) -> bool: ...
    def count_drained(self, batch: RecordBatch, size: int, records: int) -> None: ...
    def count_delivered(self, batch: RecordBatch, size: int, records: int, now_us: int) -> None: ...

def memory_fence() -> None: ...
def count_value(segment: Segment, at: int, value: int, times: int = 1) -> None: ...

@final
class SemaphoreWait:
    def __new__(cls, name: str) -> Self: ...
    def into(self, unit: list[None], timeout_s: float) -> None: ...

@disjoint_base
class OrderedWords:
    def __new__(cls, view: memoryview) -> Self: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def cast(self, kind: str) -> memoryview: ...
    def toreadonly(self) -> OrderedWords: ...
    def release(self) -> None: ...

APPEND_NO_ROOM: int
APPEND_GROW: int
APPEND_NOT_CONTRIBUTOR: int
APPEND_RING_UNREAD: int
APPEND_LEASE_OVER: int

@final
class ProduceBatch:
    def __init__(
        self,
        topic_partition: TopicPartition,
        payload: BatchMemory,
        record_count: int,
        magic: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        max_timestamp: int,
        slot: int,
        transactional_id: str | None = None,
        transaction_version: int = 0,
        transaction: int = 0,
    ) -> None: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def payload(self) -> BatchMemory: ...
    @property
    def size(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def transactional_id(self) -> str | None: ...
    @property
    def transaction_version(self) -> int: ...
    @property
    def transaction(self) -> int: ...
    def release(self) -> None: ...

@final
class ProduceResponse:
    def __init__(
        self,
        batch: ProduceBatch,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        error: type[KafkaError] | None = None,
        message: str = "",
        invalid_records: Mapping[int, str] | None = None,
        words: str = "",
    ) -> None: ...
    @property
    def batch(self) -> ProduceBatch: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def log_append_time_ms(self) -> int: ...
    @property
    def error(self) -> type[KafkaError] | None: ...
    @property
    def message(self) -> str: ...
    @property
    def invalid_records(self) -> Mapping[int, str]: ...
    @property
    def words(self) -> str: ...

@final
class InPlaceSealer:
    def __new__(
        cls,
        segment: Segment,
        partitions: object,
        identity: Callable[[int], tuple[str, int, int]],
    ) -> Self: ...
    def seal(self, batch: RecordBatch) -> ProduceBatch | None: ...
    def seal_all(
        self, drained: list[_Batch], in_flight: list[_Batch | None], counts: Completer
    ) -> tuple[list[ProduceBatch], list[_Batch]]: ...

def add_buffers(
    buffers: list[bytes | bytearray | memoryview], head: bytes, batches: dict[int, ProduceBatch], is_flexible: bool
) -> tuple[bytes, int]: ...
def read_stored(frame: bytes, batches: dict[str, dict[int, ProduceBatch]]) -> list[ProduceResponse] | None: ...

@final
class Part:
    def __init__(
        self, first: int, base_offset: int, append_time_ms: int, failure: Callable[[], ShmaccumError] | None
    ) -> None: ...
    @property
    def first(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def append_time_ms(self) -> int: ...
    @property
    def failure(self) -> Callable[[], ShmaccumError] | None: ...

@final
class ProduceRequestResult:
    def __init__(
        self, topic_partition: TopicPartition, batch: int, waiter: Callable[[], PendingBatches | None], lane: int = 0
    ) -> None: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def batch(self) -> int: ...
    @property
    def lane(self) -> int: ...
    @property
    def completed(self) -> int: ...
    @property
    def last(self) -> Part | None: ...
    @property
    def earlier(self) -> list[Part] | None: ...
    @property
    def done(self) -> bool: ...
    @property
    def waiter(self) -> PendingBatches: ...
    def complete(self, part: Part, records: int) -> None: ...
    def parts_between(self, first: int, stop: int) -> list[tuple[int, int, Part]]: ...

@final
class FutureRecordMetadata:
    """Future of one record; asyncio code can ``await`` it.

    It has the methods of `concurrent.futures.Future` and of kafka-python's futures. An accepted record
    cannot be recalled: no future can be cancelled, and a cancelled ``await`` only stops waiting.

    Args:
        result: of its batch.
        index: the record's index in its batch.
        timestamp: the record's own.
        sizes: bytes of the serialized key, plus 1, in the upper 32 bits, and of the value in the lower; 0 for a null.
    """
    def __init__(self, result: ProduceRequestResult, index: int, timestamp: int, sizes: int = 0) -> None: ...
    def __await__(self) -> Generator[Any, None, RecordMetadata]: ...
    @property
    def batch_result(self) -> ProduceRequestResult: ...
    @property
    def index(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def sizes(self) -> int: ...
    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record goes."""
    @property
    def batch(self) -> int:
        """The id of its batch."""
    @property
    def is_done(self) -> bool:
        """Whether the record is acknowledged or has failed. Only changes when the producer polls."""
    @property
    def value(self) -> RecordMetadata | None:
        """Where the record was stored; None while it is pending, or if it failed."""
    def outcome(self) -> tuple[ShmaccumError | None, RecordMetadata | None]:
        """Return `exception` and `value`."""
    def succeeded(self) -> bool:
        """Return whether the record is acknowledged."""
    def failed(self) -> bool:
        """Return whether the record failed."""
    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged; return where it is stored.

        Args:
            timeout: seconds; None for no limit (``delivery.timeout.ms`` bounds the wait).

        Raises:
            ResultTimeoutError: the time ran out; the record is still pending.
            IllegalStateError: the producer was closed while the record was pending.
            SenderError: the record is pending, but there is no sender, and none could be started.
            KafkaError: why the record failed.
        """
    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the result: `get`."""
    def exception(self, timeout: float | None = None) -> ShmaccumError | None:
        """Wait until the record is complete; return why it failed, None if it is acknowledged.

        Each call returns a new error. Errors about the wait are raised, as by `get`.
        """
    def done(self) -> bool:
        """Return `is_done`."""
    def running(self) -> bool:
        """Return whether the record is pending."""
    def cancel(self) -> bool:
        """Return False: an accepted record cannot be recalled."""
    def cancelled(self) -> bool:
        """Return False, see `cancel`."""
    def add_done_callback(self, function: Callable[[FutureRecordMetadata], Any]) -> None:
        """Call ``function(future)`` when the record is complete; at once if it is.

        It runs in the thread that next sends, polls, flushes or waits. If an event loop runs in the calling thread, it
        runs in that loop, soon, with no further call of this package.
        """
    def add_callback(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call ``callback(*args, metadata, **kwargs)`` when the record is acknowledged; return the future."""
    def add_errback(self, errback: Callable[..., Any], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Call ``errback(*args, error, **kwargs)`` when the record fails; return the future."""

@final
class Callbacks:
    def __init__(self, call: Callable[[DeliveryCallback, FutureRecordMetadata], None]) -> None: ...
    def __bool__(self) -> bool: ...
    @property
    def is_due(self) -> bool: ...
    def add(self, batch: int, callback: DeliveryCallback, future: FutureRecordMetadata) -> None: ...
    def make_due(self, batch: int) -> None: ...
    def run(self) -> None: ...
    def unfinished(self) -> set[int]: ...
    def run_elsewhere(self, batches: set[int]) -> bool: ...
    def run_of(self, batch: int) -> None: ...
    def in_flight(self, reports: Reports) -> list[Message]: ...
    def forget(self) -> None: ...

@final
class Contributions:
    def __new__(
        cls,
        segment: Segment,
        entry: int,
        waiter: Callable[[], PendingBatches | None],
        call: Callable[[DeliveryCallback, FutureRecordMetadata], None],
        fail: Callable[[ProduceRequestResult, int, int], Callable[[], ShmaccumError]],
        damaged: Callable[[str], Exception],
    ) -> Self: ...
    @property
    def callbacks(self) -> Callbacks: ...
    @property
    def results(self) -> dict[int, ProduceRequestResult]: ...
    @property
    def head(self) -> int: ...
    @property
    def tail(self) -> int: ...
    @property
    def has_news(self) -> bool: ...
    def join(self, entry: int) -> None: ...
    def expect(self, batch: int, topic_partition: TopicPartition, lane: int = 0) -> ProduceRequestResult: ...
    def is_expected(self, batch: int) -> bool: ...
    def withdraw(self, batch: int) -> None: ...
    def forget(self, batch: int) -> None: ...
    def lose(self, batch: int, failure: Callable[[], ShmaccumError]) -> ProduceRequestResult | None: ...
    def read(self) -> None: ...

@final
class Appender:
    def __new__(
        cls,
        segment: Segment,
        contributions: Contributions,
        damaged: Callable[[str], Exception],
        magic: int,
        linger_ms: int,
        compression: int,
        delivery_timeout_ms: int,
        retries: int,
        batch_size: int,
        max_bytes: int,
        pool: BufferPool,
        unused: dict[int, list[Buffer]],
    ) -> Self: ...
    @property
    def unused(self) -> dict[int, list[Buffer]]: ...
    def has_room(self, partition: int, body_size: int) -> bool: ...
    def growing(self, partition: int, body_size: int) -> tuple[Buffer | None, int]: ...
    def append(
        self,
        partition: int,
        lane: int,
        lane_generation: int,
        timestamp: int,
        body: bytes,
        sizes: int,
        callback: DeliveryCallback | None = None,
    ) -> tuple[Any, ...]: ...
    def append_batch(
        self,
        partition: int,
        lane: int,
        lane_generation: int,
        timestamp: int,
        body: bytes,
        sizes: int,
        slot: int,
        callback: DeliveryCallback | None = None,
    ) -> tuple[Any, ...]: ...
    def begin(self, partition: int, buffer: Buffer, now_us: int, timestamp: int, body: bytes) -> None: ...
    def batch_size(self, timestamp: int, body: bytes) -> int: ...
    asks_first: bool
    def open_batch(self, partition: int) -> tuple[Buffer, int, int] | None: ...
    def close(self) -> None: ...

def crc32c_of(view: BytesLike, crc: int = 0) -> int: ...
def v2_headers(headers: object) -> bytes | None: ...
def murmur2(data: bytes) -> int: ...

@disjoint_base
class CallGuard:
    closed: bool

@disjoint_base
class StickyPartition:
    partition: int
    produced: int
    @property
    def sticky_bytes(self) -> int: ...
    def __init__(self, sticky_bytes: int) -> None: ...
    def note(self, size: int) -> bool: ...
    def switch(self) -> None: ...

@final
class Destination:
    def __new__(
        cls,
        generation: int,
        count: int,
        sticky: StickyPartition | None = None,
        lane: int = 0,
        lane_generation: int = 0,
    ) -> Self: ...
    @property
    def generation(self) -> int: ...
    @property
    def sticky(self) -> StickyPartition | None: ...
    def lead(self, number: int, entry: int) -> None: ...

@disjoint_base
class RecordPath:
    burst: int
    def __init__(
        self,
        appender: Appender,
        guard: CallGuard,
        pending: object,
        max_body_size: int,
        ignores_keys: bool,
        is_direct: bool,
        has_interceptors: bool,
        serializers: object,
        transactions: object,
        partitions: object,
    ) -> None: ...
    def lead(self, topic: str, destination: Destination) -> None: ...
    def known(self, topic: str) -> Destination | None: ...
    def try_send(
        self,
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: Any,
        timestamp_ms: Any,
        on_delivery: Any,
    ) -> Any: ...
    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        body: bytes | None = None,
        partition: object = None,
        timestamp_ms: object = None,
        on_delivery: Callable[..., Any] | None = None,
        destinations: dict[str, Destination] | None = None,
    ) -> Any: ...

@disjoint_base
class Producer:
    """The part of `shmaccum.Producer` that sends single records.

    Attributes:
        _records: the path of its records; None before it is open.
    """

    _records: Any
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> FutureRecordMetadata:
        """Send a record. On return it is accepted: it will be acknowledged, or its error reported.

        Args:
            topic: the topic; created on first use where the cluster does that.
            value: what ``value.serializer`` takes; without one, bytes or text, or None (a tombstone).
            key: what ``key.serializer`` takes; without one, bytes or text, or None.
            headers: pairs of name and value, or a dict; a value is bytes, text or None.
            partition: its number; by default from the key's hash or, without a key, the sticky partition.
            timestamp_ms: milliseconds since the epoch; by default, now.
            on_delivery: called with (error, None) or (None, metadata) when the record is complete. It runs in this
                process, in the thread that next sends, polls, flushes or waits.

        Returns:
            Its future, with the methods of kafka-python's.

        Raises:
            KafkaTimeoutError: there was no metadata of the topic within ``max.block.ms``.
            BufferExhaustedError: no memory became free within ``max.block.ms``.
            LockTimeoutError: a stopped process held a lock for ``max.block.ms``; names the process.
            SlabDamagedError: the shared memory is damaged.
            RecordTooLargeError: the record is larger than ``max.request.size``, or than the slab.
            InvalidTopicError, UnknownTopicOrPartitionError, SerializationError, InvalidTimestampError: an argument.
            IllegalArgumentError: the partition is negative, or ``on_delivery`` cannot be called.
            IllegalStateError: an interceptor's ``on_send`` returned None.
            ProducerClosedError: the producer has been closed.
            SenderError: there was no sender, and none could be started.

        With a ``transactional.id`` it also raises IllegalStateError outside of a transaction, and the error of one that
        has failed. The record belongs to the transaction that is open when `send` is called. If another thread ends
        that one while the call waits, it raises IllegalStateError.

        Like Kafka's producer, it calls ``on_delivery`` before it raises an error that is an ``ApiException`` there
        (`KafkaError.is_api`): both are about the same record. Interceptors see every error.

        After an error the record is not accepted, and will not be sent. The exception is an interrupt, such as
        KeyboardInterrupt from a signal handler: it can arrive after the record is accepted and before `send` returns.
        """

@disjoint_base
class AsyncProducer:
    """The part of `shmaccum.AsyncProducer` that sends single records.

    Attributes:
        _records: the path of its records; None before it is started.
    """

    _records: Any
    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> FutureRecordMetadata:
        """Send a record. On return it is accepted: it will be acknowledged, or its error reported.

        Args:
            topic: the topic; created on first use where the cluster does that.
            value: what ``value.serializer`` takes; without one, bytes or text, or None (a tombstone).
            key: what ``key.serializer`` takes; without one, bytes or text, or None.
            headers: pairs of name and value, or a dict; a value is bytes, text or None.
            partition: its number; by default from the key's hash or, without a key, the sticky partition.
            timestamp_ms: milliseconds since the epoch; by default, now.
            on_delivery: called with (error, None) or (None, metadata) when the record is complete, in the event loop.

        Returns:
            Its future: ``await`` it for the acknowledgement.

        Raises:
            KafkaError: as `Producer.send`. After an error, or a cancellation, the record is not accepted.
        """

@final
class Reports:
    def __init__(self, error_of: Callable[[ShmaccumError], Any], only_errors: bool) -> None: ...
    @property
    def waiting(self) -> int: ...
    @property
    def due(self) -> deque[Message]: ...
    def serve(self) -> int: ...
    def clear(self) -> None: ...

@final
class Message:
    """A message, as its callback gets it: ``confluent_kafka.Message``, with what a producer knows of it.

    Until it is reported, it is the ``on_delivery`` of its record.

    Args:
        reports: of its producer.
        topic, key, value: its own.
        headers: pairs of a name and bytes or None; None without.
        callback: called with (error, message) once it is reported; None for none.

    Attributes:
        began: monotonic seconds of ``produce``.
        thread: that sends it; 0 if none does.
        future: of the record, once it is accepted.
        is_pending: whether it is neither complete nor refused nor purged.
    """

    thread: int
    future: FutureRecordMetadata | None
    def __init__(
        self,
        reports: Reports,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        callback: Callable[[Any, Message], Any] | None,
    ) -> None: ...
    @property
    def began(self) -> float: ...
    @property
    def is_pending(self) -> bool:
        """Whether it is neither complete nor refused nor purged."""
    def __call__(self, error: ShmaccumError | None, metadata: RecordMetadata | None) -> None: ...
    def __len__(self) -> int: ...
    def report(self, error: object) -> None:
        """Make the report due. The first one counts: a message that is purged can be stored later."""
    def drop(self) -> None:
        """Report nothing: it was refused."""
    def topic(self) -> str:
        """Return the topic."""
    def partition(self) -> int | None:
        """Return the partition; None if the message was never given one."""
    def offset(self) -> int | None:
        """Return the offset in the partition; None if it is not stored, or no broker says where."""
    def key(self) -> bytes | None:
        """Return the key."""
    def value(self) -> bytes | None:
        """Return the value."""
    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return the headers; None without."""
    def error(self) -> Any:
        """Return why it is not stored; None if it is."""
    def timestamp(self) -> tuple[int, int]:
        """Return (1, milliseconds), (2, those of the broker's log append time), or (0, -1) if it is not stored."""
    def latency(self) -> float:
        """Return the seconds from `produce` to the acknowledgement."""
    def leader_epoch(self) -> int | None:
        """Return None: it is not known here."""

@disjoint_base
class PollingCalls:
    """What produces and polls for a `shmaccum.compat.confluent.Producer`.

    Attributes:
        reports: of its messages.
        next_look: monotonic seconds; from then on, `PollingProducer.poll` looks for more than reports.
    """

    next_look: float
    @property
    def reports(self) -> Reports: ...
    def _open_path(
        self,
        reports: Reports,
        path: RecordPath,
        parked: dict[str, Any],
        partitioner: Callable[[bytes | None, int], int | None],
        callback: Callable[[Any, Message], Any] | None,
        header_list: Callable[[Any], list[tuple[str, bytes | None]]],
        max_messages: int,
    ) -> None: ...
    def _close_path(self) -> None: ...

@disjoint_base
class PollingProducer:
    """The part of `shmaccum.compat.confluent.Producer` that produces and polls, by its calls: ``_shm``."""

    _shm: Any
    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Callable[[Any, Message], Any] | None = None,
        on_delivery: Callable[[Any, Message], Any] | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Send a message; its callback runs in a later `poll` or `flush`.

        It waits for the metadata of a topic that the slab does not know yet, 1 s at most. Then the message waits in
        this process: a later `produce`, `poll` or `flush` sends it, or reports it after ``message.timeout.ms``.

        Raises:
            BufferError: too many messages are unreported, or the slab is full: poll, and try again.
            KafkaException: the message is too large, its partition does not exist, or there is no transaction.
            TypeError: an argument has the wrong type.
            RuntimeError: the producer is closed.
        """
    def poll(self, timeout: float | None = -1) -> int:
        """Call the callbacks of reported messages; wait for one up to ``timeout`` s, if it is not negative.

        Returns:
            How many messages were reported.
        """

@final
class Cells:
    def __new__(
        cls,
        count: int,
        before: int,
        width: int,
        fixed_size: int,
        valid: object,
        offsets: object,
        data: object,
    ) -> Self: ...
    def partitions(self, partitions: npt.NDArray[np.int64], partition_count: int) -> None: ...

@final
class Bodies:
    def __new__(
        cls,
        magic: int,
        key: Cells | None,
        value: Cells | None,
        headers: Cells | None,
        sizes: npt.NDArray[np.int64],
        timestamps: npt.NDArray[np.int64],
    ) -> Self: ...

@final
class Rows:
    @property
    def order(self) -> npt.NDArray[np.int64] | None: ...
    @property
    def results(self) -> list[ProduceRequestResult]: ...
    @property
    def cuts(self) -> list[int]: ...
    @property
    def firsts(self) -> list[int]: ...
    @property
    def is_news(self) -> bool: ...
    @property
    def left(self) -> int: ...
    def __new__(cls, bodies: Bodies, order: npt.NDArray[np.int64] | None, start: int, stop: int) -> Self: ...
    def append(
        self,
        partition: int,
        lane: int,
        lane_generation: int,
        appender: Appender,
        queue: object,
        free_unused: Callable[[], object],
    ) -> tuple[Any, ...]: ...
    def note(self, future: FutureRecordMetadata) -> None: ...
    def next_record(self) -> tuple[int, bytes]: ...
    def take_news(self) -> bool: ...
    def is_done(self) -> bool: ...

def header_sections(
    counts: npt.NDArray[np.int64], names: Cells, values: Cells, offsets: npt.NDArray[np.int64]
) -> bytearray: ...
def least_and_largest(sizes: npt.NDArray[np.int64]) -> tuple[int, int]: ...
def stops_of_batches(sizes: npt.NDArray[np.int64], overhead: int, first_room: int, room: int) -> list[int]: ...
def group(partitions: npt.NDArray[np.int64], order: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> bool: ...
