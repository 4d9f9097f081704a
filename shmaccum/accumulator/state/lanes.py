"""Lanes: each carries the transactions of one transactional id through the slab.

A lane has its own deque for each partition, and its own producer id, epoch and sequence numbers. Memory, sender,
connections and compression are those of all. A process *leases* the lane of its transactional id. With that, and with
the end of each transaction, the lane gets a new generation. The deques refuse records of every older one. That is the
slab's own fence, in front of the brokers'. It also stops a call that still waits when its transaction ends.

The holder writes all words of a lane, under the tables' lock, with two exceptions. The sender writes ERROR, without a
lock, when a batch of the lane fails. Under the lock, it takes a lane away from a dead holder.

A lane is *open* while it has a producer id and no error. The sender fails what is queued in a lane that is not open. It
looks once the deques' locks have been free: an append that found the lane open has ended then. It checks again under
the lock, since a closed lane that is empty can be opened at any time. So records of an aborted transaction, or of a
process that died in one, leave the slab without being sent. A lane is opened only when it is empty: then no batch in it
has numbers of an older transaction. If the process dies in a lease, or before the store that opens the lane, the lane
stays closed, and the next lease begins again.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import Final

from shmaccum import _core
from shmaccum._core import LEASE_SHIFT, STATE_MASK, WORD, Lane, Partition, Process, Slot, Super
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.partition_queue import PartitionQueue
from shmaccum.errors import KafkaError, ProducerFencedError, SlabFullError
from shmaccum.shm import native
from shmaccum.shm.layout import SlotState, holder_of, holder_word, lane_error
from shmaccum.shm.slab import Slab

_SEQUENCE_MASK: Final = (1 << 32) - 1
"""Of NEXT_SEQUENCE, which has an epoch above it."""


class LaneTable:
    """The lanes of a slab, as any process sees them. Each is given by its entry."""

    def __init__(self, slab: Slab, known: PartitionMap) -> None:
        self._slab = slab
        self._words = slab.words
        self._geometry = slab.geometry
        self._map = known

    def count(self) -> int:
        """Return how many lanes there are."""
        return min(self._words[Super.LANE_COUNT], self._geometry.max_lanes)

    def transactional_id(self, lane: int) -> str:
        """Return the id of a lane."""
        at = self._geometry.lane(lane)
        start = (at + Lane.ID) * WORD
        return str(self._slab.buffer[start : start + self._words[at + Lane.ID_LENGTH]], "utf-8")

    def identity(self, lane: int) -> tuple[str, int, int]:
        """Return the transactional id of a lane, its protocol's version, and the number of its transaction."""
        at = self._geometry.lane(lane)
        return self.transactional_id(lane), self._words[at + Lane.VERSION], self._words[at + Lane.TRANSACTION]

    def is_held(self, lane: int) -> bool:
        """Return whether a living process holds a lane."""
        holder = self._words[self._geometry.lane(lane) + Lane.HOLDER]
        if not holder:
            return False
        entry, _ = holder_of(holder)
        incarnation = self._words[self._geometry.process(entry) + Process.INCARNATION]
        return holder == holder_word(entry, incarnation) and self._slab.processes.is_alive(entry)

    def is_open(self, lane: int) -> bool:
        """Return whether the sender may send what is queued in a lane."""
        at = self._geometry.lane(lane)
        return self._words[at + Lane.PRODUCER_ID] != 0 and not self._words[at + Lane.ERROR]

    def entries_of(self, lane: int) -> list[int]:
        """Return the partition entries of a lane."""
        self._map.refresh()
        return [queue.entry for (number, _), queue in list(self._map.of_lanes.items()) if number == lane + 1]

    def is_empty(self, lane: int) -> bool:
        """Return whether no batch of a lane is queued or in flight: by the slot headers, which are the truth."""
        return not self.hold_any(self.entries_of(lane))

    def hold_any(self, entries: list[int]) -> bool:
        """Return whether any batch of some partition entries is queued or in flight."""
        if not entries:
            return False
        held = self._slab.deques.slots_in(SlotState.OPEN, STATE_MASK)
        return not set(entries).isdisjoint(self._words[self._geometry.header(slot) + Slot.PARTITION] for slot in held)

    def abandoned(self) -> list[tuple[int, int]]:
        """Return the entries of lanes whose holder has died, and their HOLDER words."""
        holders = [(lane, self._words[self._geometry.lane(lane) + Lane.HOLDER]) for lane in range(self.count())]
        return [(lane, holder) for lane, holder in holders if holder and not self.is_held(lane)]

    def lease(self, transactional_id: str) -> LaneLease:
        """Lease the lane of an id, and fence its holder. Raises SlabFullError: living processes hold all lanes."""
        lane = _core.TABLES_STALE
        while lane == _core.TABLES_STALE:  # another process has leased the unused lane meanwhile
            lease = partial(self._slab.tables.lease, transactional_id.encode(), *self._unused())
            _, lane, generation = self._slab.tables_lock.run(lease)
        if lane == _core.TABLES_FULL:
            raise SlabFullError(
                f"no room for transactional.id {transactional_id!r}: the slab has its {self._geometry.max_lanes} "
                "transactions; set shmaccum.max.transactions higher (for all users of the slab)"
            )
        return LaneLease(self, self._slab, self._map, lane, generation)

    def _unused(self) -> tuple[int, int]:
        """Return a lane without a living holder or a batch, and its generation; (-1, 0) if there is none.

        A lane keeps its partition entries. So one that is unused is taken before a new one, which needs others.
        """
        for lane in range(self.count()):
            # Read before the looks that it vouches for.
            generation = self._words[self._geometry.lane(lane) + Lane.GENERATION]
            if not self.is_held(lane) and self.is_empty(lane):
                return lane, generation
        return -1, 0


class LaneLease:
    """A lane, as the process sees it that has leased it. Made by `LaneTable.lease`."""

    def __init__(self, table: LaneTable, slab: Slab, known: PartitionMap, lane: int, generation: int) -> None:
        self._table = table
        self._slab = slab
        self._words = slab.words
        self._map = known
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
        """Return the lane's deque for a partition, given the other one. Raises SlabFullError: the table is full."""
        queue = self._map.lane_queue(self._lane + 1, of)
        queue.lease(self._at, self._generation)
        return queue

    def end_transaction(self) -> None:
        """Refuse further records of the transaction; on return, all that were accepted are in their deques.

        An append checks GENERATION and puts its records in under one acquisition of its partition's lock. So one that
        was faster is over once these locks have been free. This is also so for one by the last holder of the lane.

        Raises LockTimeoutError: a stopped process holds one of them; the call can be repeated.
        """
        section = partial(self._slab.tables.end_transaction, self._lane, self._generation)
        _, is_valid = self._slab.tables_lock.run(section)
        self._generation += is_valid
        for lock in {self._slab.stripe(entry) for entry in self._table.entries_of(self._lane)}:
            lock.run(lock.core.pass_through)

    def open(self, producer_id: int, epoch: int, version: int) -> None:
        """Let the sender send what is appended from now on, in an empty lane; the version is 1 or 2.

        Raises ProducerFencedError: another process has leased the lane.
        """
        entries, now_ms = array("Q", self._table.entries_of(self._lane)), time.time_ns() // 1_000_000
        section = partial(
            self._slab.tables.open_lane, self._lane, self._generation, entries, producer_id, epoch, version, now_ms
        )
        _, is_valid = self._slab.tables_lock.run(section)
        if not is_valid:
            raise self.fenced()

    def go_on(self) -> None:
        """Let the sender send the next transaction in the lane, which is open and empty, as the same producer.

        Raises ProducerFencedError: another process has leased the lane.
        """
        _, is_valid = self._slab.tables_lock.run(partial(self._slab.tables.renew_lane, self._lane, self._generation))
        if not is_valid:
            raise self.fenced()

    def numbers(self) -> list[int]:
        """Return the next sequence numbers of the partitions that have one: they change when a batch is numbered."""
        at = [self._slab.geometry.partition(entry) for entry in self._table.entries_of(self._lane)]
        return [number for each in at if (number := self._words[each + Partition.NEXT_SEQUENCE] & _SEQUENCE_MASK)]

    def close(self) -> None:
        """Let the sender fail what is queued in the lane."""
        self._slab.tables_lock.run(partial(self._slab.tables.close_lane, self._lane, self._generation, False))
        self._slab.button.press()

    def release(self) -> None:
        """Leave the lane to the next process."""
        self._slab.tables_lock.run(partial(self._slab.tables.close_lane, self._lane, self._generation, True))

    def wait_until_empty(self, deadline_s: float, check: Callable[[], None]) -> bool:
        """Wait until no batch of the lane is queued or in flight; return False at a deadline, in monotonic seconds.

        An error of ``check`` ends the wait, and another process that leases the lane: what is in it then is its own.
        """
        if self._table.is_empty(self._lane):
            return True
        self._slab.button.press()  # to fail what the lane's last holder has queued

        def is_over() -> bool:
            check()
            return not self.is_valid or self._table.is_empty(self._lane)

        return native.poll(is_over, deadline_s - time.monotonic())

    def fenced(self) -> ProducerFencedError:
        """Return the error for a lane that another process has leased."""
        name = self._table.transactional_id(self._lane)
        return ProducerFencedError(
            f"transactional.id {name!r}: another producer of this host has called init_transactions with it"
        )
