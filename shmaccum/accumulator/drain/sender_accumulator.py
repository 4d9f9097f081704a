"""The sender's half of Kafka's RecordAccumulator: ready, drain, reenqueue, complete, expire.

It combines this package's modules, each of which names the words it owns. Only the process in the sender's role makes
one. If that dies, `recover` of the next sender goes on from the slot headers.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from shmaccum._core import STATE_MASK, Sequences, Super
from shmaccum.accumulator.drain.batch_drainer import BatchDrainer
from shmaccum.accumulator.drain.completer import BatchCompleter, BatchOutcome
from shmaccum.accumulator.drain.compression_ahead import CompressionAhead
from shmaccum.accumulator.drain.deferral import RETRY_MS, BatchReturns, Deferral
from shmaccum.accumulator.drain.expirer import BatchExpirer
from shmaccum.accumulator.drain.ready_check import Cluster, ReadyCheck, ReadyCheckResult
from shmaccum.accumulator.drain.sequence_doubt import SequenceDoubt
from shmaccum.accumulator.state.accumulator_state import AccumulatorState, levels_of
from shmaccum.accumulator.state.lanes import LaneTable
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.config import ProducerConfig
from shmaccum.errors import LockTimeoutError
from shmaccum.shm.layout import SlotState
from shmaccum.shm.locks import SlabLock


class SenderAccumulator:
    """The batches of a slab, as its sender drains them, with the settings that all users share. One thread uses it.

    Its functions and parts are documented where they are defined.
    """

    def __init__(self, state: AccumulatorState, config: ProducerConfig) -> None:
        slab, known = state.slab, state.map
        self.state: Final = state
        self._words = slab.words
        self.lanes: Final = LaneTable(slab, known)
        self._lanes_seen = -1
        """``Super.LANES_CHANGED`` when closed lanes were last emptied."""
        self.sequences: Final = Sequences(slab.core, config.enable_idempotence)
        self.deferral: Final = Deferral()
        self._returns = BatchReturns(slab.deques, known, self.deferral)
        completer = BatchCompleter(state.pool, known, self._returns, self.sequences, state.format.header_size)
        self._completer = completer
        self.complete: Final = completer.complete
        self.completed: Final = completer.completed
        self.release: Final = completer.release
        self.has_room_for_part: Final = completer.has_room_for_part
        self.counts: Final = completer.core
        self._ready_check = ReadyCheck(
            slab, known, self.sequences, self._returns, config.max_in_flight_requests_per_connection
        )
        self.rest_after: Final = self._ready_check.throttle.rest_after
        self.has_backlog: Final = self._ready_check.core.has_backlog
        self.ahead: Final = CompressionAhead(slab, self._ready_check.core, self.deferral, state.format)
        self.apply(config)
        drainer = self._drainer = BatchDrainer(slab, known, self._ready_check, completer, self.ahead)
        self.drain: Final = drainer.drain
        self.mute: Final = drainer.mute
        self.unmute: Final = drainer.unmute
        self.reenqueue: Final = drainer.reenqueue
        self.put_back: Final = drainer.put_back
        self.doubt: Final = SequenceDoubt(slab.core, self.sequences, self._ready_check.core, completer, drainer)
        self.expirer: Final = BatchExpirer(slab, known, completer, self._returns)
        self.abort_expired_batches: Final = self.expirer.abort_expired_batches
        self.abort_incomplete_batches: Final = self.expirer.abort_incomplete_batches

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Return the nodes to which something can be sent.

        A partition's first batch is sendable if it is full or has lingered for ``linger.ms``. It is also sendable if
        memory is exhausted, or a flush or the sender's shutdown is in progress. It is ready unless one of these holds:

        * it backs off after a failed attempt, or is being compressed;
        * its partition is muted, has no known leader, or waits for the fate of earlier sequence numbers;
        * there is no producer id, but there must be one.
        """
        if self._completer.to_free:
            self._completer.retry()
        if self._returns.waiting:
            self._returns.retry()
        self.ahead.collect()
        return self._ready_check.ready(cluster, now_ms)

    def drop_closed_lanes(self) -> list[BatchOutcome]:
        """Fail what is queued in lanes whose transaction has failed or ended, or whose holder has died; return it."""
        changed = self._words[Super.LANES_CHANGED]
        if self._lanes_seen == changed and not self.sequences.lanes_failed:
            return []
        self._lanes_seen = changed
        self.sequences.lanes_failed = False
        self.sequences.review_lanes()
        entries = [
            entry
            for lane in range(self.lanes.count())
            if not self.lanes.is_open(lane)
            for entry in self.lanes.entries_of(lane)
        ]
        # An append that found the lane open can still put its batch there, until its lock has been free.
        passed = [self._pass_through(lock) for lock in {self.state.slab.stripe(entry) for entry in entries}]
        dropped = self.expirer.drop(entries, self.lanes)
        if not all(passed) or self.lanes.hold_any(entries):
            self._lanes_seen = -1  # what is in flight can come back
        return dropped

    def _pass_through(self, lock: SlabLock) -> bool:
        """Wait until a lock has been free; return False if a stopped process holds it."""
        try:
            self.deferral.section(lock, lock.core.pass_through)
        except LockTimeoutError:
            return False
        return True

    def take_lanes_from_dead(self) -> None:
        """Close the lanes of dead processes. Raises LockTimeoutError: a stopped process holds the tables' lock."""
        slab = self.state.slab
        for lane, holder in self.lanes.abandoned():
            self.deferral.section(slab.tables_lock, partial(slab.tables.take_lane, lane, holder))

    def recover(self) -> None:
        """Recover from the last sender's death: finish completing batches, put batches in flight back.

        The ``delivery.timeout.ms`` of batches left by dead processes starts again.
        """
        self._drainer.recover()
        self.expirer.renew_orphans(time.monotonic_ns() // 1_000_000)

    def apply(self, config: ProducerConfig) -> None:
        """Apply new values of the settings that the users of the slab share."""
        self._ready_check.core.set_backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.ahead.levels = levels_of(config)

    def holds_batches_older_than(self, time_ms: int, now_ms: int) -> bool:
        """Return whether any batch, queued or in flight, was created at this monotonic millisecond or before.

        A batch that should have expired does not count: a stopped process has blocked it until now.
        """
        slab = self.state.slab
        held = (RecordBatch(slab.core, slot) for slot in slab.deques.slots_in(SlotState.OPEN, STATE_MASK))
        return any(
            batch.created_ms <= time_ms and batch.created_ms + batch.timeout_ms + RETRY_MS > now_ms for batch in held
        )

    def send_all(self) -> None:
        """Make everything sendable at once from now on, because the sender is about to leave."""
        self._ready_check.core.closed = True
