"""Reads a slab's contents and users from outside.

Nothing here takes a lock, waits, or writes, so the slab's users are not disturbed. The price: words that are read one
after the other can be inconsistent, though each is correct. `shmaccum.shm.lifecycle.look` makes a `SlabView`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from shmaccum import _core
from shmaccum._core import WORD, Geometry, Lane, Partition, Process, Slot, Super, Topic
from shmaccum.cluster import broker_of
from shmaccum.errors import KafkaError
from shmaccum.later import np
from shmaccum.shm import validation
from shmaccum.shm.layout import (
    HOLDER_INCARNATION,
    KEY_NUMBER_MASK,
    KEY_TOPIC_MASK,
    MAX_SLEEP_MS,
    MAX_TRANSACTIONAL_ID,
    PROGRESS_MASK,
    Refusal,
    Role,
    SlotState,
    TopicState,
    count_of,
    error_of,
    holder_of,
    lane_error,
    owner_of,
    size_of,
    state_of,
)
from shmaccum.shm.lockfile import SENDER, LockFile
from shmaccum.shm.processes import ProcessInfo, ProcessTable

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]


SILENCE_MS: Final = 2000
"""A sender without a sign of life for this long after its sleep should have ended counts as stopped."""


class SenderInfo(NamedTuple):
    """A snapshot of the sender's role.

    Attributes:
        pid: of the newest sender, in its own pid namespace; None if there has been none, or it has left.
        alive: whether a living process has the role.
        asleep: whether it waits for its doorbell.
        stopped: whether it lives but does not run: SIGSTOP, a debugger, a frozen cgroup, or no sign of life for
            2 s after its sleep should have ended.
        silent_ms: milliseconds since its last sign of life; None without a living sender.
        starts: senders that have served this slab.
    """

    pid: int | None
    alive: bool
    asleep: bool
    stopped: bool
    silent_ms: int | None
    starts: int

    def halt(self) -> str:
        """Return which process is the stopped sender and since when; empty if it is not stopped."""
        if not self.stopped:
            return ""
        return f"process {self.pid} is stopped: it has not run for {(self.silent_ms or 0) / 1000:.1f} s"


class TopicInfo(NamedTuple):
    """A snapshot of a topic's entry.

    Attributes:
        name: the topic's.
        state: of its metadata: ``requested``, ``known``, ``failed``, or ``unused`` while the entry is being made.
        partitions: how many it has, 0 while unknown.
        error: why the sender's last answer had no metadata of it; None if it had, or there was no answer yet.
        refused: calls of `send` and `send_batch` that failed before acceptance, by reason; none of those with 0.
        refused_error: error of the last of these calls, None before the first.
        refused_ms: wall-clock milliseconds of that, 0 before the first.
    """

    name: str
    state: TopicState
    partitions: int
    error: type[KafkaError] | None
    refused: dict[str, int]
    refused_error: type[KafkaError] | None
    refused_ms: int


class PartitionInfo(NamedTuple):
    """A snapshot of a partition's entry and its batches.

    Attributes:
        entry: its number.
        topic, partition: which one.
        transactional_id: whose transactions the entry carries; None outside of transactions.
        leader: node id of its leader, None if unknown.
        queued_batches, queued_records, queued_bytes: contents of its deque, by the slot headers.
        in_flight_batches, in_flight_records, in_flight_bytes: contents of the batches sent without a response yet.
        muted: whether it is muted, or its batches wait for the outcome of earlier ones.
        oldest_ms: age of the oldest record that is not delivered, in milliseconds; 0 if there is none.
        batches_sent, records_sent, bytes_sent: acknowledged.
        batches_retried: how often a batch was sent again.
        batches_failed, records_failed: failed with an error; not those dropped with their transaction.
        last_offset: of the newest acknowledged record, None before the first.
        incident: number of its last incident, 0 for none.
        incident_ms: wall-clock milliseconds of that.
    """

    entry: int
    topic: str
    partition: int
    transactional_id: str | None
    leader: int | None
    queued_batches: int
    queued_records: int
    queued_bytes: int
    in_flight_batches: int
    in_flight_records: int
    in_flight_bytes: int
    muted: bool
    oldest_ms: int
    batches_sent: int
    records_sent: int
    bytes_sent: int
    batches_retried: int
    batches_failed: int
    records_failed: int
    last_offset: int | None
    incident: int
    incident_ms: int


class LaneInfo(NamedTuple):
    """A snapshot of a lane, which carries the transactions of one transactional id.

    Attributes:
        transactional_id: the id.
        pid: of the process that holds the lane; None if there is none, or if it has died and left its entry.
        alive: whether the holder lives.
        producer_id, producer_epoch: of the transaction; None while the lane is closed: the sender then sends nothing of
            it, and fails what is queued.
        version: of the transaction protocol.
        opened_ms: wall-clock milliseconds when the lane was opened for this producer id and epoch: the transaction is
            not older; None while it is closed.
        error: of the first batch of the transaction that failed, None while none has.
    """

    transactional_id: str
    pid: int | None
    alive: bool
    producer_id: int | None
    producer_epoch: int | None
    version: int
    opened_ms: int | None
    error: type[KafkaError] | None


class SlabView:
    """A read-only view of a slab; every method reads the current words."""

    def __init__(
        self, name: str, words: memoryview, geometry: Geometry, processes: ProcessTable, lock_file: LockFile
    ) -> None:
        self.name: Final = name
        self.words: Final = words.toreadonly()
        self.geometry: Final = geometry
        self._processes = processes
        self._lock_file = lock_file

    def close(self) -> None:
        """Release the memory, so that it can be unmapped."""
        self.words.release()

    def sender(self) -> SenderInfo:
        """Read the sender's role, without its form, which takes longer."""
        return sender_info(self.words, self._processes, self._lock_file)

    def processes(self) -> list[ProcessInfo]:
        """Read the used entries of the process table, by number, with the memory that each holds."""
        headers = self._headers()
        taken = headers[state_of(headers[:, Slot.STATE]) != SlotState.FREE]
        # Limited: a damaged number would make the sum wrap around.
        held = np.minimum(taken[:, Slot.SLOTS], np.uint64(self.geometry.slot_count))
        slots = np.zeros(_core.OWNER_MASK + 1, np.uint64)
        np.add.at(slots, owner_of(taken[:, Slot.STATE]).astype(np.intp), held)
        return [
            self._processes.info(entry)._replace(
                held_bytes=int(slots[entry]) * self.geometry.slot_size,
                stopped=self._processes.is_stopped(entry),
                locks=self._processes.held_by(entry),
            )
            for entry in self._processes.in_use()
        ]

    def producers(self) -> int:
        """Return how many living processes produce."""
        entries = (self._processes.info(entry) for entry in self._processes.in_use())
        return sum(each.alive and Role.PRODUCER in each.roles for each in entries)

    def topics(self) -> list[TopicInfo]:
        """Read the topic table, in its order. Raises SlabDamagedError: it, or the partition table, is damaged."""
        words = self.words
        validation.check_tables(self.name, words, self.geometry)
        topics = []
        for entry in range(words[Super.TOPIC_COUNT]):
            at = self.geometry.topic(entry)
            name = words[at + Topic.NAME : at + Topic.NAME + -(-words[at + Topic.NAME_LENGTH] // WORD)].tobytes()
            topics.append(
                TopicInfo(
                    name=name[: words[at + Topic.NAME_LENGTH]].decode("ascii"),
                    state=TopicState(words[at + Topic.STATE]),
                    partitions=words[at + Topic.PARTITIONS],
                    error=error_of(words[at + Topic.ERROR]),
                    refused={
                        reason.name.lower(): calls
                        for reason in Refusal
                        if (calls := words[at + Topic.REFUSALS + reason])
                    },
                    refused_error=error_of(words[at + Topic.REFUSED_ERROR]),
                    refused_ms=words[at + Topic.REFUSED_MS],
                )
            )
        return topics

    def lanes(self) -> list[LaneInfo]:
        """Read the lanes that a process holds, alive or dead, sorted by transactional id."""
        words, geometry = self.words, self.geometry
        count = min(words[Super.LANE_COUNT], geometry.max_lanes)
        held = [lane for lane in range(count) if words[geometry.lane(lane) + Lane.HOLDER]]
        return sorted(map(self._lane, held), key=lambda each: each.transactional_id)

    def _lane(self, lane: int) -> LaneInfo:
        at, words = self.geometry.lane(lane), self.words
        entry, incarnation = holder_of(words[at + Lane.HOLDER])
        pid, alive = None, False
        if 0 <= entry < self.geometry.max_processes:
            process = self._processes.info(entry)
            # Read after the entry: a process that has taken it since is not the holder.
            base = self.geometry.process(entry)
            if words[base + Process.STATE] and words[base + Process.INCARNATION] & HOLDER_INCARNATION == incarnation:
                pid, alive = process.pid, process.alive
        producer_id, error = words[at + Lane.PRODUCER_ID], words[at + Lane.ERROR]
        is_open = producer_id != 0
        return LaneInfo(
            transactional_id=self._transactional_id(lane),
            pid=pid,
            alive=alive,
            producer_id=producer_id - 1 if is_open else None,
            producer_epoch=words[at + Lane.PRODUCER_EPOCH] if is_open else None,
            version=words[at + Lane.VERSION],
            opened_ms=words[at + Lane.OPENED_MS] if is_open else None,
            error=lane_error(error) if error else None,
        )

    def _transactional_id(self, lane: int) -> str:
        """Return the id of a lane; a lease that is giving it another one can leave it incomplete for a moment."""
        at = self.geometry.lane(lane)
        length = min(self.words[at + Lane.ID_LENGTH], MAX_TRANSACTIONAL_ID)
        name = self.words[at + Lane.ID : at + Lane.ID + -(-length // WORD)].tobytes()[:length]
        return name.decode("utf-8", "backslashreplace")

    def all_partitions(self) -> tuple[list[PartitionInfo], list[PartitionInfo]]:
        """Read the partition table and each partition's batches, sorted by topic, number and transactional id.

        The second list has the entries of lanes that no process holds, while they have no batch.

        Raises SlabDamagedError: the tables, or the slot headers, are damaged.
        """
        headers = self._headers()
        words = self.words
        # The count only grows: read after the headers, it covers every partition that they name.
        count = words[Super.PARTITION_COUNT]
        names = [topic.name for topic in self.topics()]
        states = state_of(headers[:, Slot.STATE])
        queued = headers[(states == SlotState.OPEN) | (states == SlotState.CLOSED)]
        in_flight = headers[(states == SlotState.IN_FLIGHT) | (states == SlotState.COMPLETING)]
        batches, records, sizes = _contents(queued, count)
        sent, sent_records, sent_sizes = _contents(in_flight, count)
        ages = _oldest_by_partition(headers[states >= SlotState.OPEN], count)
        used: list[PartitionInfo] = []
        left: list[PartitionInfo] = []
        first = self.geometry.partition(0)
        table = words[first : first + count * Partition.length].tolist()
        for entry in range(count):
            at = entry * Partition.length
            key = table[at + Partition.KEY]
            lane = (key >> _core.KEY_LANE_SHIFT) - 1
            if lane >= self.geometry.max_lanes:
                continue  # damaged since the tables were checked
            is_used = lane < 0 or words[self.geometry.lane(lane) + Lane.HOLDER] or batches[entry] or sent[entry]
            (used if is_used else left).append(
                PartitionInfo(
                    entry=entry,
                    topic=names[(key >> _core.KEY_TOPIC_SHIFT & KEY_TOPIC_MASK) - 1],
                    partition=key & KEY_NUMBER_MASK,
                    transactional_id=self._transactional_id(lane) if lane >= 0 else None,
                    leader=_none_or_less_one(broker_of(table[at + Partition.LEADER])),
                    queued_batches=batches[entry],
                    queued_records=records[entry],
                    queued_bytes=sizes[entry],
                    in_flight_batches=sent[entry],
                    in_flight_records=sent_records[entry],
                    in_flight_bytes=sent_sizes[entry],
                    muted=table[at + Partition.MUTED] != 0 or table[at + Partition.HELD] != 0,
                    oldest_ms=ages[entry],
                    batches_sent=table[at + Partition.BATCHES_SENT],
                    records_sent=table[at + Partition.RECORDS_SENT],
                    bytes_sent=table[at + Partition.BYTES_SENT],
                    batches_retried=table[at + Partition.BATCHES_RETRIED],
                    batches_failed=table[at + Partition.BATCHES_FAILED],
                    records_failed=table[at + Partition.RECORDS_FAILED],
                    last_offset=_none_or_less_one(table[at + Partition.LAST_OFFSET]),
                    incident=table[at + Partition.ERROR],
                    incident_ms=table[at + Partition.ERROR_MS],
                )
            )
        for found in (used, left):
            found.sort(key=lambda each: (each.topic, each.partition, each.transactional_id or ""))
        return used, left

    def undelivered(self) -> tuple[int, int]:
        """Return how many batches and records are not delivered yet."""
        return _core.undelivered(self.words, self.geometry)

    def memory_waiters(self) -> int:
        """Return how many threads wait for memory. Raises SlabDamagedError: the waiter queue is damaged."""
        words, cells_at = self.words, self.geometry.waiter(0)
        before, tail, head = words[Super.WAITER_HEAD], words[Super.WAITER_TAIL], words[Super.WAITER_HEAD]
        head = min(head, tail)  # it can have moved; when the tail was read, it was between the two reads of it
        if before > tail or tail - head > _core.WAITERS:
            raise validation.damaged(
                self.name, f"its waiter queue begins at ticket {before} and ends at {tail}, of {_core.WAITERS}"
            )
        return sum(words[cells_at + ticket % _core.WAITERS * _core.Waiter.length] != 0 for ticket in range(head, tail))

    def lock_takeovers(self) -> int:
        """Return the number of takeovers from dead holders, over all locks."""
        return sum(self.words[self.geometry.lock(number) + _core.Lock.TAKEOVERS] for number in range(_core.LOCK_COUNT))

    def _headers(self) -> Words:
        """Return a copy of the slot headers, one row of words for each slot."""
        geometry = self.geometry
        start = geometry.headers // WORD
        with self.words[start : start + geometry.slot_count * geometry.slot_words] as headers:
            return np.array(headers, np.uint64).reshape(geometry.slot_count, geometry.slot_words)


def sender_info(words: memoryview, processes: ProcessTable, lock_file: LockFile) -> SenderInfo:
    """Read the sender's role."""
    entry = words[Super.SENDER_ENTRY] - 1
    # F_GETLK never reports this process's own lock.
    alive = entry == processes.me >= 0 or lock_file.holder(SENDER) != 0
    ran_ms, sleep_ms = words[Super.SENDER_RAN] >> _core.SLEEP_BITS, words[Super.SENDER_RAN] & MAX_SLEEP_MS
    silent_ms = max(0, time.monotonic_ns() // 1_000_000 - ran_ms)
    is_silent = silent_ms > sleep_ms + SILENCE_MS
    return SenderInfo(
        pid=processes.info(entry).pid if entry >= 0 else None,
        alive=alive,
        asleep=alive and words[Super.SENDER_ASLEEP] != 0,
        stopped=alive and entry >= 0 and (is_silent or processes.is_stopped(entry)),
        silent_ms=silent_ms if alive else None,
        starts=words[Super.SENDER_STARTS],
    )


def _contents(headers: Words, partitions: int) -> tuple[list[int], list[int], list[int]]:
    """Return how many batches, records that are not delivered, and bytes each partition entry has."""

    def by_partition(values: Words) -> list[int]:
        sums = np.zeros(partitions, np.uint64)
        np.add.at(sums, headers[:, Slot.PARTITION].astype(np.intp), values)
        return sums.tolist()

    records = count_of(headers[:, Slot.COMMIT]) - (headers[:, Slot.COMPLETED] & np.uint64(PROGRESS_MASK))
    ones = np.ones(len(headers), np.uint64)
    return by_partition(ones), by_partition(records), by_partition(size_of(headers[:, Slot.COMMIT]))


def _oldest_by_partition(headers: Words, partitions: int) -> list[int]:
    """Return the age of each partition entry's oldest batch, in milliseconds; 0 without batches."""
    now_us = np.uint64(time.monotonic_ns() // 1000)
    opened = np.full(partitions, now_us, np.uint64)
    np.minimum.at(opened, headers[:, Slot.PARTITION].astype(np.intp), headers[:, Slot.OPENED_US])
    return [int(age) // 1000 for age in now_us - opened]


def _none_or_less_one(word: int) -> int | None:
    """Decode a word stored as its value + 1, with 0 for none."""
    return word - 1 if word else None
