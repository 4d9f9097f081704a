"""Fails batches that expire, or whose cluster cannot be reached at all.

``RecordAccumulator.expiredBatches`` and ``abortBatches``, and ``Sender.getExpiredInflightBatches``. A batch's time is
the longest ``delivery.timeout.ms`` of its contributors: no record fails before its own producer's time. It runs from
the creation, over all retries; a queued batch expires after those before it. A batch in flight expires, too: its
producers get the error at once, and its slot is freed when it is answered (`BatchCompleter.release`).

Each process stores the smallest ``delivery.timeout.ms`` of its producers in its table entry: the sender looks that
often for what has expired. After its death the word stays until another process takes the entry.

Time without a sender does not count for orphans, batches whose contributors are all dead. So each new sender restarts
their ``delivery.timeout.ms``, at most `MAX_RENEWALS` times.

The sender takes batches out of deques under their partition's lock. CREATED_MS it stores alone once a batch is placed;
a death between two of these stores leaves the rest for the next sender to renew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from shmaccum._core import AHEAD_MS, Partition, Process, Super
from shmaccum.accumulator.drain.completer import BatchCompleter, BatchOutcome
from shmaccum.accumulator.drain.deferral import RETRY_MS, BatchReturns
from shmaccum.accumulator.state.lanes import LaneTable
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.errors import DeliveryTimeoutError, KafkaError, LockTimeoutError, TransactionAbortedError
from shmaccum.shm.layout import LIMITS_MASK, SlotState, column_of
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)

MAX_RENEWALS: Final = 10
"""How often a batch's time is restarted. A batch that crashes every sender that tries to send it must expire."""


class BatchExpirer:
    """Fails batches of a slab before they are acknowledged.

    No batch, queued or in flight, expires before ``next_expiry_ms``, in monotonic milliseconds.
    """

    def __init__(self, slab: Slab, known: PartitionMap, completer: BatchCompleter, returns: BatchReturns) -> None:
        self._slab = slab
        self._words = slab.words
        self._map = known
        self._completer = completer
        self._returns = returns
        self.next_expiry_ms = 0.0
        self._timeouts_seen = -1
        """``Super.TIMEOUTS_CHANGED`` at the last look for what has expired."""

    def abort_expired_batches(self, now_ms: int) -> list[BatchOutcome]:
        """Fail the batches that are older than ``delivery.timeout.ms``; return their outcomes."""
        changed = self._words[Super.TIMEOUTS_CHANGED]
        if now_ms < self.next_expiry_ms and changed == self._timeouts_seen:
            return []
        self._timeouts_seen = changed
        # A batch created from now on expires later than this.
        self.next_expiry_ms = now_ms + self._shortest_ms()
        in_flight = [
            BatchOutcome(batch, error=DeliveryTimeoutError, incident=batch.attempt_incident)
            for batch in self._expired_in_flight(now_ms)
        ]
        queued = self._take(now_ms, DeliveryTimeoutError)
        self._words[Super.BATCHES_EXPIRED] += len(in_flight) + len(queued)
        if in_flight:
            self._completer.give_up_in_flight(in_flight)
        if queued:
            self._completer.complete(queued)
        return in_flight + queued

    def renew_orphans(self, now_ms: int) -> None:
        """Restart the time of all batches that dead processes left; a new sender's first act.

        One store a batch: if the sender dies in between, the next one renews all.
        """
        left = self._slab.deques.slots_in(SlotState.OPEN, SlotState.IN_FLIGHT)
        orphans = [batch for slot in left if self._completer.is_orphan(batch := RecordBatch(self._slab.core, slot))]
        for batch in orphans:
            if batch.renewals < MAX_RENEWALS:
                batch.renew(now_ms)
        if orphans:
            logger.info("%d batches of dead processes are queued or in flight; sending them", len(orphans))

    def abort_incomplete_batches(self, error: type[KafkaError], incident: int = 0) -> list[BatchOutcome]:
        """Fail all queued batches because of an incident; return their outcomes."""
        aborted = self._take(None, error, incident)
        self._completer.complete(aborted)
        return aborted

    def drop(self, entries: Iterable[int], lanes: LaneTable) -> list[BatchOutcome]:
        """Fail all queued batches of some partition entries, as their transaction is aborted; return their outcomes.

        Those whose lock a stopped process holds stay. So do those in a lane that is open by now: the next transaction
        can begin at any time once the lane is empty. The deque's lock decides, since it appends under that.
        """
        dropped: list[BatchOutcome] = []
        for entry in entries:
            lane = self._map.by_entry[entry].lane

            def is_aborted(_: RecordBatch, lane: int = lane) -> bool:
                return not lanes.is_open(lane - 1)

            dropped += self._take_from(entry, is_aborted, TransactionAbortedError, 0, lane)[0]
        if dropped:
            self._completer.complete(dropped)
        return dropped

    def _shortest_ms(self) -> int:
        """Return a lower bound for the timeout of new batches, until timeouts change."""
        geometry = self._slab.geometry
        at = geometry.process(0) + Process.SHORTEST_TIMEOUT
        timeouts = column_of(self._words, at, geometry.max_processes, Process.length)
        return min(filter(None, timeouts), default=LIMITS_MASK) - 1

    def _expired_in_flight(self, now_ms: int) -> list[RecordBatch]:
        slots = self._slab.deques.slots_in(SlotState.IN_FLIGHT, SlotState.IN_FLIGHT)
        batches = [RecordBatch(self._slab.core, slot) for slot in slots]
        expired = [batch for batch in batches if self._has_expired(batch, now_ms)]
        returning = [batch for batch in expired if batch.slot in self._returns.waiting]
        if returning:
            self._look_again(now_ms)  # they are not in flight: they wait to be put back into their deques
        return [batch for batch in expired if batch not in returning]

    def _take(self, now_ms: int | None, error: type[KafkaError], incident: int = 0) -> list[BatchOutcome]:
        """Take the expired batches out of their deques to fail them, or all if ``now_ms`` is None.

        Without an incident, each has that of its last attempt.
        """

        def is_due(batch: RecordBatch) -> bool:
            return now_ms is None or self._has_expired(batch, now_ms)

        taken: list[BatchOutcome] = []
        entries = self._slab.deques.occupied(self._slab.partition_count)
        self._map.refresh()  # after that look: then each of them is known, however new its lane is
        for entry in entries:
            found, is_done = self._take_from(entry, is_due, error, incident)
            taken += found
            if not is_done and now_ms is not None:
                self._look_again(now_ms)
        return taken

    def _take_from(
        self, entry: int, is_due: Callable[[RecordBatch], bool], error: type[KafkaError], incident: int, lane: int = 0
    ) -> tuple[list[BatchOutcome], bool]:
        """Take batches out of one deque while the first one is due; return also whether its lock was available.

        Meanwhile an append can raise the limits of a batch, or the lane (entry + 1) be opened: the section looks again.
        The limits are loaded before the look: loaded after it, they could be raised ones that have not expired.
        """
        taken: list[BatchOutcome] = []
        queue, deques = self._map.by_entry[entry], self._slab.deques
        at = self._slab.geometry.partition(entry)
        try:
            while batch := queue.first():
                limits = batch.limits
                if not is_due(batch):
                    break
                section = partial(deques.take_first, entry, batch.slot, limits, lane)
                _, was_taken = self._returns.deferral.section(queue.lock, section)
                if was_taken:
                    self._words[at + Partition.IN_FLIGHT] += 1
                    taken.append(BatchOutcome(batch, error=error, incident=incident or batch.attempt_incident))
        except LockTimeoutError:
            return taken, False
        return taken, True

    def _look_again(self, now_ms: int) -> None:
        self.next_expiry_ms = min(self.next_expiry_ms, now_ms + RETRY_MS)

    def _has_expired(self, batch: RecordBatch, now_ms: int) -> bool:
        """Return whether a batch has expired; if not, lower `next_expiry_ms` to its expiry."""
        if batch.created_ms > now_ms + AHEAD_MS:
            batch.bring_back(now_ms)
        expiry_ms = batch.created_ms + batch.timeout_ms
        if expiry_ms <= now_ms:
            return True
        self.next_expiry_ms = min(self.next_expiry_ms, expiry_ms)
        return False
