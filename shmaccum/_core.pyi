"""Types of the core, which ``core/_core.pyx`` defines."""

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, final

import numpy as np
import numpy.typing as npt

from shmaccum.accumulator.append.futures import DeliveryCallback, FutureRecordMetadata
from shmaccum.record.fields import Headers

@final
class Geometry:
    def __init__(
        self,
        slot_size: int,
        slot_count: int,
        max_processes: int = 128,
        max_topics: int = 512,
        max_partitions: int = 4096,
        redo_size: int = 0,
        max_lanes: int = 64,
    ) -> None: ...
    @property
    def total_size(self) -> int: ...
    def __hash__(self) -> int: ...

@final
class Segment:
    def __init__(self, descriptor: int, geometry: Geometry) -> None: ...
    @property
    def geometry(self) -> Geometry: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def join(self, entry: int, incarnation: int) -> int: ...
    def leave(self) -> None: ...
    def writable(self) -> memoryview: ...
    def view(self, region: str) -> npt.NDArray[np.void]: ...

LOCK_BUSY: int
LOCK_TAKEN: int
LOCK_UNFINISHED: int
LOCK_REJOIN: int

@final
class SlabLock:
    def __init__(self, segment: Segment, number: int, gate: str | None = None) -> None: ...
    @property
    def number(self) -> int: ...
    @property
    def owner(self) -> int: ...
    def acquire_now(self) -> int: ...
    def acquire_word(self) -> int: ...
    def take_over(self, dead: int) -> int: ...
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
    def __init__(self, segment: Segment, lock: SlabLock, damaged: Callable[[str], Exception]) -> None: ...
    def allocate(self, taken: list[Buffer], count: int, most: int = 1) -> tuple[int, int]: ...
    def free(self, *buffers: Buffer) -> tuple[int, int, int]: ...
    def look(
        self,
        ticket: MemoryTicket,
        taken: list[Buffer],
        most: int,
        was_woken: bool | None,
        dead: Iterable[int],
        now_s: float,
        absent_s: float,
    ) -> tuple[int, int]: ...
    def leave(self, ticket: MemoryTicket, waited_ns: int) -> tuple[int, int]: ...
    def reclaim(self, dead: Iterable[int], now_s: float, absent_s: float) -> tuple[int, int, int]: ...
    def grow(self, buffer: Buffer) -> tuple[int, bool]: ...
    def rebuild(self) -> tuple[int]: ...
    def is_taken(self, buffer: Buffer) -> bool: ...
    @property
    def free_slots(self) -> int: ...
    def is_exhausted(self) -> bool: ...
    def waiters(self) -> list[tuple[int, int, bool]]: ...
    def owners(self) -> set[int]: ...

SEALING_TIMEOUT_MS: int
AHEAD_MS: int
MOST_DRAINED: int

@final
class PartitionDeques:
    def __init__(self, segment: Segment, damaged: Callable[[str], Exception]) -> None: ...
    def drain(self, entries: list[int], slots: list[int], sizes: list[int], now_ms: int) -> tuple[int, int]: ...
    def take_first(self, entry: int, slot: int, limits: int, lane: int = 0) -> tuple[int, bool]: ...
    def put_back(self, entry: int, slot: int) -> tuple[int]: ...
    def replace(
        self,
        entry: int,
        batch: Buffer,
        since_ms: int,
        records: bytes | memoryview | None,
        start: int,
        compressed: int,
    ) -> tuple[int, bool]: ...
    def rebuild(self, number: int) -> tuple[int]: ...

TABLES_FULL: int
TABLES_STALE: int

@final
class Tables:
    def __init__(self, segment: Segment, damaged: Callable[[str], Exception]) -> None: ...
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
    def close_lane(self, lane: int, generation: int, release: bool) -> tuple[int]: ...
    def take_lane(self, lane: int, holder: int) -> tuple[int]: ...
    def rebuild(self) -> tuple[int]: ...

def retry_backoff_ms(initial_ms: float, max_ms: float, attempts: int, partition: int = 0, position: int = 0) -> int: ...

@final
class ReadyCheck:
    closed: bool
    def __init__(
        self, segment: Segment, pool: BufferPool, damaged: Callable[[str], Exception], max_in_flight: int
    ) -> None: ...
    @property
    def is_urgent(self) -> bool: ...
    def set_backoff(self, initial_ms: float, max_ms: float) -> None: ...
    def set_leader(self, entry: int, leader: int, epoch: int) -> None: ...
    def hold_back(self, stripes: int, partitions: list[int]) -> None: ...
    def ready(self, now_ms: int, can_number: bool) -> tuple[set[int], set[int], list[int], float]: ...
    def choose(
        self, leader: int, begin: int, max_size: int, may_leave: int, now_ms: int
    ) -> tuple[list[int], int, int, int]: ...
    def take(self, stripe: int, now_ms: int) -> tuple[int]: ...
    def taken(self, now_ms: int) -> list[int]: ...
    def has_backlog(self) -> bool: ...

APPEND_NO_ROOM: int
APPEND_NOT_CONTRIBUTOR: int
APPEND_RING_UNREAD: int
APPEND_LEASE_OVER: int

class RecordFuture:
    def __init__(self, result: object, index: int, timestamp: int, sizes: int = 0) -> None: ...
    @property
    def batch_result(self) -> Any: ...
    @property
    def index(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def sizes(self) -> int: ...

@final
class Callbacks:
    def __init__(self, call: Callable[[DeliveryCallback, FutureRecordMetadata], None]) -> None: ...
    def __bool__(self) -> bool: ...
    @property
    def due(self) -> deque[int]: ...
    def add(self, batch: int, callback: DeliveryCallback, future: FutureRecordMetadata) -> None: ...
    def told_of(self, batch: int) -> None: ...
    def run(self) -> None: ...
    def run_of(self, batch: int) -> None: ...
    def forget(self) -> None: ...

@final
class Contributions:
    def __init__(
        self, slot_count: int, entry: int, call: Callable[[DeliveryCallback, FutureRecordMetadata], None]
    ) -> None: ...
    @property
    def callbacks(self) -> Callbacks: ...
    def reset(self, entry: int) -> None: ...
    def expect(self, batch: int, result: object, is_made: bool = False) -> int: ...
    def withdraw(self, batch: int) -> bool: ...
    def is_expected(self, batch: int) -> bool: ...
    def forget(self, batch: int) -> None: ...

@final
class Appender:
    def __init__(
        self,
        segment: Segment,
        contributions: Contributions,
        future: type[RecordFuture],
        damaged: Callable[[str], Exception],
        magic: int,
        linger_ms: int,
        compression: int,
        delivery_timeout_ms: int,
        retries: int,
        compresses: bool,
    ) -> None: ...
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
        is_open: bool,
        callback: DeliveryCallback | None = None,
    ) -> tuple[Any, ...]: ...
    def write_first(self, slot: int, timestamp: int, body: bytes) -> int: ...
    def begin(
        self,
        slot: int,
        now_us: int,
        size: int,
        count: int,
        base_timestamp: int,
        max_timestamp: int,
        largest: int,
        compressed: int = 0,
    ) -> None: ...
    asks_first: bool
    def append_rows(
        self,
        partition: int,
        lane: int,
        lane_generation: int,
        slot: int,
        batch: int,
        commit: int,
        rows: bytes | memoryview,
        count: int,
        timestamp: int,
        largest: int,
    ) -> tuple[Any, ...]: ...
    def append_batches(
        self, partition: int, lane: int, lane_generation: int, buffers: list[Buffer], is_open: bool
    ) -> tuple[Any, ...]: ...
    def close(self) -> None: ...

def murmur2(data: bytes) -> int: ...

class CallGuard:
    closed: bool

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
    def __init__(
        self,
        generation: int,
        count: int,
        sticky: StickyPartition | None = None,
        lane: int = 0,
        lane_generation: int = 0,
    ) -> None: ...
    @property
    def generation(self) -> int: ...
    @property
    def sticky(self) -> StickyPartition | None: ...
    def lead(self, number: int, entry: int) -> None: ...

class RecordPath:
    burst: int
    @property
    def destinations(self) -> dict[str, Destination]: ...
    def __init__(
        self,
        appender: Appender,
        guard: CallGuard,
        pending: object,
        max_body_size: int,
        ignores_keys: bool,
        is_direct: bool,
        pool: BufferPool | None,
        unused: dict[int, list[Buffer]],
    ) -> None: ...
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

class Producer:
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
    ) -> FutureRecordMetadata: ...

@final
class Cells:
    def __init__(
        self,
        count: int,
        before: int,
        width: int,
        fixed_size: int,
        valid: object,
        offsets: object,
        data: object,
    ) -> None: ...
    def partitions(self, partitions: npt.NDArray[np.int64], partition_count: int) -> None: ...

@final
class Bodies:
    def __init__(self, magic: int, key: Cells | None, value: Cells | None, headers: Cells | None) -> None: ...
    def body_sizes(self, sizes: npt.NDArray[np.int64]) -> None: ...

@final
class Rows:
    def __init__(
        self,
        bodies: Bodies,
        numbers: npt.NDArray[np.int64],
        body_sizes: npt.NDArray[np.int64],
        timestamps: npt.NDArray[np.int64],
    ) -> None: ...

@final
class RowBatches:
    cuts: list[int]
    sizes: list[int]
    largest: list[int]
    base_timestamps: list[int]
    max_timestamps: list[int]
    def __init__(self, rows: Rows) -> None: ...
    def add_to(self, room: int, first_offset: int, base_timestamp: int) -> int: ...
    def lay_out(self, first: int, room: int, most: int) -> int: ...
    def write(self, memory: memoryview | bytearray, places: list[int], first: int = 0) -> None: ...
    def records(self, number: int) -> memoryview: ...

def header_sections(
    counts: npt.NDArray[np.int64], names: Cells, values: Cells, offsets: npt.NDArray[np.int64]
) -> bytearray: ...
def least_and_largest(sizes: npt.NDArray[np.int64]) -> tuple[int, int]: ...
def stops_of_batches(sizes: npt.NDArray[np.int64], overhead: int, first_room: int, room: int) -> list[int]: ...
def group(partitions: npt.NDArray[np.int64], order: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> bool: ...
