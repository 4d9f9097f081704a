"""Lanes: each carries the transactions of one transactional id through the slab.

A lane has its own deque for each partition, and its own producer id, epoch and sequence numbers. Memory, sender,
connections and compression are those of all. A process *leases* the lane of its transactional id. With that, and with
the end of each transaction, the lane gets a new generation. The deques refuse records of every older one. That is the
slab's own fence, in front of the brokers'. It also stops a call that still waits when its transaction ends.

The holder writes all words of a lane, under the tables' lock, with two exceptions. The sender writes ERROR, without a
lock, when a batch of the lane fails. Under the lock, it takes a lane away from a dead holder.

A lane is *open* while it has a producer id and no error. The sender fails what is queued in a lane that is not open. It
checks that under the deque's lock, since a closed lane that is empty can be opened at any time. So records of an
aborted transaction, or of a process that died in one, leave the slab without being sent. A lane is opened only when it
is empty: then no batch in it has numbers of an older transaction. If the process dies in a lease, or before the store
that opens the lane, the lane stays closed, and the next lease begins again.
"""

from __future__ import annotations

import time
from typing import Final

from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.errors import KafkaError, ProducerFencedError, SlabFullError
from shmaccum.shm import native
from shmaccum.shm.layout import (
    LEASE_MASK,
    LEASE_SHIFT,
    WORD,
    Lane,
    Partition,
    Process,
    Slot,
    SlotState,
    Super,
    holder_of,
    holder_word,
    lane_error,
    state_of,
)
from shmaccum.shm.slab import Slab

_EPOCH_SHIFT: Final = 32


class LaneTable:
    """The lanes of a slab, as any process sees them.

    Args:
        slab: the slab.
        partition_map: its partitions.
    """

    def __init__(self, slab: Slab, partition_map: PartitionMap) -> None:
        self._slab = slab
        self._words = slab.words
        self._geometry = slab.geometry
        self._map = partition_map

    def count(self) -> int:
        """Return how many lanes there are."""
        return min(self._words[Super.LANE_COUNT], self._geometry.max_lanes)

    def transactional_id(self, lane: int) -> str:
        """Return the id of a lane, given its entry."""
        at = self._geometry.lane(lane)
        start = (at + Lane.ID) * WORD
        return str(self._slab.buffer[start : start + self._words[at + Lane.ID_LENGTH]], "utf-8")

    def identity(self, lane: int) -> tuple[str, int]:
        """Return the transactional id of a lane, given its entry, and the version of its transaction protocol."""
        return self.transactional_id(lane), self._words[self._geometry.lane(lane) + Lane.VERSION]

    def is_held(self, lane: int) -> bool:
        """Return whether a living process holds a lane, given its entry."""
        holder = self._words[self._geometry.lane(lane) + Lane.HOLDER]
        if not holder:
            return False
        entry, _ = holder_of(holder)
        return holder == self._holder(entry) and self._slab.processes.is_alive(entry)

    def is_open(self, lane: int) -> bool:
        """Return whether the sender may send what is queued in a lane, given its entry."""
        at = self._geometry.lane(lane)
        return self._words[at + Lane.PRODUCER_ID] != 0 and not self._words[at + Lane.ERROR]

    def entries_of(self, lane: int) -> list[int]:
        """Return the partition entries of a lane, given its entry."""
        self._map.refresh()
        return [queue.entry for (number, _), queue in list(self._map.of_lanes.items()) if number == lane + 1]

    def is_empty(self, lane: int) -> bool:
        """Return whether no batch of a lane is queued or in flight: by the slot headers, which are the truth."""
        return not self.hold_any(self.entries_of(lane))

    def hold_any(self, entries: list[int]) -> bool:
        """Return whether any batch of some partition entries is queued or in flight."""
        if not entries:
            return False
        headers = self._slab.headers
        held = state_of(headers[:, Slot.STATE]) >= SlotState.OPEN
        return not set(entries).isdisjoint(headers[held, Slot.PARTITION].tolist())

    def abandoned(self) -> list[int]:
        """Return the entries of lanes whose holder has died."""
        words, geometry = self._words, self._geometry
        return [
            lane for lane in range(self.count()) if words[geometry.lane(lane) + Lane.HOLDER] and not self.is_held(lane)
        ]

    def take_away(self, lane: int) -> None:
        """Close a lane whose holder has died (the sender's side); under the tables' lock."""
        at = self._geometry.lane(lane)
        if self._words[at + Lane.HOLDER] and not self.is_held(lane):
            self._words[at + Lane.PRODUCER_ID] = 0
            self._words[at + Lane.HOLDER] = 0
            self._words[Super.LANES_CHANGED] += 1

    def lease(self, transactional_id: str) -> LaneLease:
        """Lease the lane of a transactional id; a process that holds it is fenced.

        Raises:
            SlabFullError: all lanes are held by living processes.
        """
        with self._slab.tables_lock:
            lane = self._find(transactional_id)
            if lane >= 0:
                at = self._geometry.lane(lane)
                words = self._words
                lease = (words[at + Lane.GENERATION] >> LEASE_SHIFT) + 1 & LEASE_MASK
                generation = lease << LEASE_SHIFT
                words[at + Lane.GENERATION] = generation  # first: from here on, the last holder's records are refused
                words[at + Lane.PRODUCER_ID] = 0
                words[at + Lane.HOLDER] = self._holder(self._slab.me)
                words[Super.LANES_CHANGED] += 1
        if lane < 0:
            raise SlabFullError(
                f"no room for transactional.id {transactional_id!r}: the slab has its {self._geometry.max_lanes} "
                "transactions; set shmaccum.max.transactions higher (for all users of the slab)"
            )
        return LaneLease(self, self._slab, self._map, lane, generation)

    def _holder(self, entry: int) -> int:
        """Return the HOLDER word of the process in an entry."""
        return holder_word(entry, self._words[self._geometry.process(entry) + Process.INCARNATION])

    def _find(self, transactional_id: str) -> int:
        """Return the lane of an id: its own, else one without a holder, else a new one; -1 if there is none.

        A lane keeps its partition entries. So one that is free is taken before a new one, which needs others.
        """
        count = self.count()
        for lane in range(count):
            if self.transactional_id(lane) == transactional_id:
                return lane
        for lane in range(count):
            if not self.is_held(lane) and self.is_empty(lane):
                self._words[self._geometry.lane(lane) + Lane.PRODUCER_ID] = 0
                self._name(lane, transactional_id)
                return lane
        if count < self._geometry.max_lanes:
            self._name(count, transactional_id)
            self._words[Super.LANE_COUNT] = count + 1
            return count
        return -1

    def _name(self, lane: int, transactional_id: str) -> None:
        """Store an id; a death in between leaves an empty one, in a closed lane."""
        at = self._geometry.lane(lane)
        name = transactional_id.encode()
        self._words[at + Lane.ID_LENGTH] = 0
        self._slab.buffer[(at + Lane.ID) * WORD : (at + Lane.ID) * WORD + len(name)] = name
        self._words[at + Lane.ID_LENGTH] = len(name)


class LaneLease:
    """A lane, as the process sees it that has leased it. Made by `LaneTable.lease`.

    Args:
        table: of the lane.
        slab: the slab.
        partition_map: its partitions.
        lane: the lane's entry.
        generation: of the lease.
    """

    def __init__(self, table: LaneTable, slab: Slab, partition_map: PartitionMap, lane: int, generation: int) -> None:
        self._table = table
        self._slab = slab
        self._words = slab.words
        self._map = partition_map
        self._lane = lane
        self._at = slab.geometry.lane(lane)
        self._generation = generation

    @property
    def is_valid(self) -> bool:
        """Whether no other process has leased the lane since."""
        return bool((self._words[self._at + Lane.GENERATION] ^ self._generation) >> LEASE_SHIFT == 0)

    @property
    def number(self) -> int:
        """The lane's entry + 1, as its deques have it."""
        return self._lane + 1

    @property
    def error(self) -> type[KafkaError] | None:
        """Error of the first batch of the transaction that failed."""
        failed = self._words[self._at + Lane.ERROR]
        return lane_error(failed) if failed else None

    def queue(self, of: PartitionQueue) -> PartitionQueue:
        """Return the lane's deque for a partition, given the one outside of transactions.

        Raises:
            SlabFullError: the partition table is full.
        """
        queue = self._map.lane_queue(self._lane + 1, of)
        queue.lease(self._at, self._generation)
        return queue

    def end_transaction(self) -> None:
        """Accept no more records of the transaction; on return, all that were accepted are in their deques.

        An append checks GENERATION and puts its records in under one acquisition of its partition's lock. So one that
        was faster is over once these locks have been free. This is also so for one by the last holder of the lane.

        Raises:
            LockTimeoutError: a stopped process holds one of them; the call can be repeated.
        """
        with self._slab.tables_lock:
            if self.is_valid:
                self._generation += 1
                self._words[self._at + Lane.GENERATION] = self._generation
        for lock in {self._slab.stripe(entry) for entry in self._table.entries_of(self._lane)}:
            with lock:
                pass

    def open(self, producer_id: int, epoch: int, version: int) -> None:
        """Let the sender send what is appended from now on; the lane is empty.

        Args:
            producer_id: of the transactional id.
            epoch: of this transaction.
            version: of the transaction protocol, 1 or 2.

        Raises:
            ProducerFencedError: another process has leased the lane.
        """
        words = self._words
        with self._slab.tables_lock:
            if self.is_valid:
                for entry in self._table.entries_of(self._lane):
                    at = self._slab.geometry.partition(entry)
                    words[at + Partition.NEXT_SEQUENCE] = words[at + Partition.ACKED_SEQUENCE] = epoch << _EPOCH_SHIFT
                words[self._at + Lane.ERROR] = 0
                words[self._at + Lane.PRODUCER_EPOCH] = epoch
                words[self._at + Lane.VERSION] = version
                words[self._at + Lane.OPENED_MS] = time.time_ns() // 1_000_000
                words[self._at + Lane.PRODUCER_ID] = producer_id + 1
                words[Super.LANES_CHANGED] += 1
                return
        raise self.fenced()

    def has_sent(self) -> bool:
        """Return whether the sender has numbered a batch since the lane was opened."""
        for entry in self._table.entries_of(self._lane):
            next_sequence = self._words[self._slab.geometry.partition(entry) + Partition.NEXT_SEQUENCE]
            if next_sequence & (1 << _EPOCH_SHIFT) - 1:
                return True
        return False

    def close(self) -> None:
        """Let the sender fail what is queued in the lane."""
        with self._slab.tables_lock:
            if self.is_valid:
                self._words[self._at + Lane.PRODUCER_ID] = 0
                self._words[Super.LANES_CHANGED] += 1
        self._slab.button.press()

    def release(self) -> None:
        """Leave the lane to the next process."""
        with self._slab.tables_lock:
            if self.is_valid:
                self._words[self._at + Lane.PRODUCER_ID] = 0
                self._words[self._at + Lane.HOLDER] = 0
                self._words[Super.LANES_CHANGED] += 1

    def wait_until_empty(self, deadline_s: float) -> bool:
        """Wait until no batch of the lane is queued or in flight; return False if the time runs out.

        Args:
            deadline_s: monotonic seconds.
        """
        if self._table.is_empty(self._lane):
            return True
        self._slab.button.press()  # to fail what the lane's last holder has queued
        return native.poll(lambda: self._table.is_empty(self._lane), deadline_s - time.monotonic())

    def fenced(self) -> ProducerFencedError:
        """Return the error for a lane that another process has leased."""
        name = self._table.transactional_id(self._lane)
        return ProducerFencedError(
            f"transactional.id {name!r}: another producer of this host has called init_transactions with it"
        )
