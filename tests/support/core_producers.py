"""Producers over the core alone, and what they have appended, read without the core."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from core_slabs import DYING, LIVING, UNFINISHED, Damaged, Slab

from shmaccum import _core
from shmaccum._core import LOCK_STRIPES, LOCK_TAKEN, LOCK_UNFINISHED, Buffer
from shmaccum.record import legacy, v2
from shmaccum.shm.layout import SlotState
from tools.support.oracle import violations

NO_ROOM, NOT_CONTRIBUTOR = _core.APPEND_NO_ROOM, _core.APPEND_NOT_CONTRIBUTOR
PARTITION = 3
SLOT_SIZE = 256
STARTS = {"empty": [], "two": [b"f" * 150, b"g" * 100]}
"""Values that another process has appended before a death; the second batch is open, and has 87 bytes left."""
HEADER_SIZES = 0, 0, v2.HEADER_SIZE
"""By magic."""


class Producer:
    """Appends to a partition, as an accumulator does.

    Batches are full from ``batch_size`` bytes on, and grow to ``max_bytes`` while they are young; 0: they do not grow.
    """

    def __init__(
        self,
        slab: Slab,
        core: Any = _core,
        entry: int = LIVING,
        magic: int = 2,
        linger_ms: int = 5,
        retries: int = 7,
        batch_size: int = SLOT_SIZE,
        max_bytes: int = 0,
    ) -> None:
        self.slab, self.entry, self.header_size, self.max_bytes = slab, entry, HEADER_SIZES[magic], max_bytes
        self.contributions = core.Contributions(slab.segment, entry, nobody, call_back, fail, Damaged)
        self.core = core.Appender(
            slab.segment,
            self.contributions,
            Damaged,
            magic,
            linger_ms,
            0,
            1_000_000 if max_bytes else 900,
            retries,
            batch_size,
            max_bytes,
            slab.pool,
            {},
        )
        slab.words[slab.word("superblock", "partition_count")] = 20

    def try_append(self, body: bytes, timestamp: int = 0, lane: int = 0, lane_generation: int = 0) -> tuple[Any, ...]:
        self.slab.be(self.entry)
        outcome: tuple[Any, ...] = self.core.append(PARTITION, lane, lane_generation, timestamp, body, 0)
        return outcome

    def begin(self, body: bytes, timestamp: int = 0) -> Buffer:
        """Make a batch of one record in as many new slots as it needs."""
        size = self.header_size + len(v2.encode_record(0, 0, 0, body))
        (buffer,) = self.slab.take(max(1, -(-size // SLOT_SIZE)) if self.max_bytes else 1)
        now_us = time.monotonic_ns() // 1000 if self.max_bytes else 1_000_000
        self.core.begin(PARTITION, buffer, now_us, timestamp, body)
        return buffer

    def append(self, body: bytes, timestamp: int = 0) -> tuple[Any, ...]:
        """Append to the open batch, or to a new one; return the outcome."""
        outcome = self.try_append(body, timestamp)
        if outcome[0] == NO_ROOM:
            buffer = self.begin(body, timestamp)
            self.contributions.expect(buffer.generation << 24 | buffer.slot, "t-3")
            outcome = self.core.append_batch(PARTITION, 0, 0, timestamp, body, 0, buffer.slot)
        while outcome[0] == NOT_CONTRIBUTOR:
            self.contributions.expect(outcome[1], "t-3")
            outcome = self.try_append(body, timestamp)
        assert outcome[0] == LOCK_TAKEN
        return outcome


def nobody() -> None:
    """Be the weak reference to no one who waits."""


def fail(result: Any, code: int, incident: int) -> Callable[[], Exception]:
    return lambda: Damaged(f"{code} of incident {incident}")


def call_back(callback: Callable[[object], object], future: object) -> None:
    callback(future)


def batches(slab: Slab) -> list[tuple[int, int, bytes]]:
    """Return the deque's batches: state, number of records, all committed bytes."""
    headers, memory = slab.segment.view("headers"), bytes(slab.segment)
    found = []
    for slot, count in queued(slab):
        begins = [len(memory) - (slab.slot_count - each) * SLOT_SIZE for each in slab.chain(Buffer(slot, 1, 0))]
        data = b"".join(memory[begin : begin + SLOT_SIZE] for begin in begins)
        found.append((int(headers["state"][slot]) & 0xFF, count, data[: int(headers["commit"][slot]) >> 25]))
    return found


def body_of(value: bytes, magic: int = 2) -> bytes:
    return v2.encode_body(None, value, ()) if magic == 2 else legacy.encode_body(None, value)


def queued(slab: Slab) -> list[tuple[int, int]]:
    """Return the slots of the deque's batches, and their numbers of records."""
    headers = slab.segment.view("headers")
    words = (headers[name].tolist() for name in ("position", "state", "commit"))
    found = sorted(zip(*words, range(slab.slot_count), strict=True))
    return [
        (slot, commit >> 1 & 0xFFFFFF)
        for _, state, commit, slot in found
        if state & 0xFF in (SlotState.OPEN, SlotState.CLOSED)
    ]


def records_of(slab: Slab) -> list[tuple[bytes, int]]:
    """Return value and timestamp of all records, read by their lengths."""
    found = []
    bases = slab.segment.view("headers")["base_timestamp"]
    for (slot, count), (_, _, data) in zip(queued(slab), batches(slab), strict=True):
        at = v2.HEADER_SIZE
        for index in range(count):
            size, at = varint(data, at)
            record, at = data[at : at + size], at + size
            assert len(record) == size
            delta, offset = varint(record, 1)
            place, offset = varint(record, offset)
            assert (record[0], place) == (0, index)
            key, offset = varint(record, offset)
            length, offset = varint(record, offset)
            assert (key, record[offset + length :]) == (-1, b"\0")
            found.append((record[offset : offset + length], int(bases[slot]) + delta))
        assert at == len(data)
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a varint by its definition; return it and the place behind it."""
    rest = shift = 0
    while True:
        rest |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return rest >> 1 ^ -(rest & 1), at


def deques(slab: Slab) -> Any:
    """Return the sections of the deques."""
    return slab.core.PartitionDeques(slab.segment, Damaged)


def recover(slab: Slab) -> None:
    """Do what the others do after the death of the process DYING."""
    core = slab.core
    slab.be(LIVING)
    for number in (0, LOCK_STRIPES + PARTITION):
        lock = core.SlabLock(slab.segment, number)
        if lock.owner:
            lock.unblock(lock.owner if lock.owner != UNFINISHED else 0)
        if lock.owner == UNFINISHED and number:
            assert deques(slab).rebuild(PARTITION) == (LOCK_TAKEN,)
        if lock.acquire_now() == LOCK_UNFINISHED:
            slab.pool.rebuild()
        lock.release()
    slab.pool.reclaim([DYING << 8 | 1 << 48], 0.0, 1.0)


def recovered(slab: Slab, whole: list[tuple[bytes, int]], least: int) -> list[tuple[bytes, int]]:
    """Recover from the death of the process DYING, which was appending; return the records that are there.

    Args:
        slab: of the test.
        whole: all records, with their timestamps, in order.
        least: how many are accepted, also by an earlier death.
    """
    recover(slab)
    assert violations(slab.segment) == []
    found = records_of(slab)
    assert found == whole[: len(found)]
    assert len(found) >= least, "a later death loses no record of an earlier one"
    return found


def records_at(*values: bytes) -> list[tuple[bytes, int]]:
    """Return values with the timestamps 10, 20 and so on."""
    return [(value, 10 * number) for number, value in enumerate(values, 1)]
