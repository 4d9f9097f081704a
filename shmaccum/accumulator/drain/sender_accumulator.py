"""The sender's half of Kafka's RecordAccumulator: ready, drain, reenqueue, complete, expire.

It combines this package's modules, each of which names the words it owns. Only the process in the sender's role makes
one. If that dies, `recover` of the next sender goes on from the slot headers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from shmaccum._core import STATE_MASK, Sequences, Super
from shmaccum.accumulator.drain.batch_drainer import BatchDrainer
from shmaccum.accumulator.drain.completer import BatchCompleter, BatchOutcome
from shmaccum.accumulator.drain.compression_ahead import CompressionAhead
from shmaccum.accumulator.drain.deferral import RETRY_MS, BatchReturns, Deferral
from shmaccum.accumulator.drain.expirer import BatchExpirer, DeliveryLimits
from shmaccum.accumulator.drain.open_batch_throttle import OpenBatchThrottle
from shmaccum.accumulator.drain.ready_check import Cluster, ReadyCheck, ReadyCheckResult
from shmaccum.accumulator.drain.sequence_doubt import SequenceDoubt
from shmaccum.accumulator.state.accumulator_state import AccumulatorState, levels_of
from shmaccum.accumulator.state.lanes import LaneTable
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import KafkaError
from shmaccum.shm.layout import LIMITS_MASK, SlotState


class SenderAccumulator:
    """The batches of a slab, as its sender drains them. One thread uses it.

    Args:
        state: shared by both halves of the accumulator.
        config: the settings that all users of the slab share.

    Attributes:
        limits: delivery timeouts and retries of batches.
        sequences: the producer id and sequence numbers.
        lanes: of transactions.
        doubt: decides batches that the broker refused as out of order, and can still have.
        deferral: of work that a stopped process blocks.
        counts: of what is sent and delivered.
        ahead: compresses large batches before they are drained.
    """

    def __init__(self, state: AccumulatorState, config: ProducerConfig) -> None:
        slab, pool, known = state.slab, state.pool, state.map
        self.state: Final = state
        self.limits: Final = DeliveryLimits(slab)
        self._slab = slab
        self.lanes: Final = LaneTable(slab, known)
        self._lanes_seen = -1
        """``Super.LANES_CHANGED`` when closed lanes were last emptied."""
        self.sequences: Final = Sequences(slab.core, config.enable_idempotence)
        self.deferral: Final = Deferral()
        self._returns = BatchReturns(state.slab.deques, known, self.deferral)
        self._throttle = OpenBatchThrottle(slab, pool)
        self._completer = BatchCompleter(
            slab, pool, known, self._returns, self.sequences, self.deferral, state.format.header_size
        )
        self.counts: Final = self._completer.core
        self._ready_check = ReadyCheck(
            slab,
            known,
            self.sequences,
            self.deferral,
            self._returns,
            self._throttle,
            config.max_in_flight_requests_per_connection,
        )
        self.ahead: Final = CompressionAhead(slab, self._ready_check.core, self.deferral, state.format)
        self.apply(config)
        self._drainer = BatchDrainer(
            slab,
            known,
            self._completer,
            self.sequences,
            self._ready_check,
            self.deferral,
            self._returns,
            self._throttle,
            self.ahead,
        )
        self.doubt: Final = SequenceDoubt(self.sequences, self._completer, self._drainer)
        self._expirer = BatchExpirer(slab, known, self._completer, self.deferral, self._returns, self.limits)

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Return the nodes to which something can be sent.

        A partition's first batch is sendable if it is full or has lingered for ``linger.ms``. It is also sendable if
        memory is exhausted, or a flush or the sender's shutdown is in progress. It is ready unless one of these holds:

        * it backs off after a failed attempt, or is being compressed;
        * its partition is muted, has no known leader, or waits for the fate of earlier sequence numbers;
        * there is no producer id, but there must be one.

        Args:
            cluster: the current cluster snapshot.
            now_ms: monotonic milliseconds.
        """
        self._completer.retry()
        self._returns.retry()
        self.ahead.collect()
        return self._ready_check.ready(cluster, now_ms)

    def drain(
        self, cluster: Cluster, nodes: Iterable[Node], max_size: int, now_ms: int
    ) -> dict[int, list[RecordBatch]]:
        """Take batches out of the deques: by node id, at most one per partition and ``max_size`` bytes per node.

        A first batch larger than ``max_size`` is still taken. The partitions of a node take turns in being
        first, so that none starves.
        """
        return self._drainer.drain(cluster, nodes, max_size, now_ms)

    def rest_after(self, began_ms: float, ended_ms: float) -> None:
        """Let open batches rest for a while if sending the drained ones took long and many of them were open.

        Args:
            began_ms: monotonic milliseconds when the sender began to drain, for all nodes.
            ended_ms: when it had sent the last batch.
        """
        self._throttle.rest_after(began_ms, ended_ms)

    def has_backlog(self) -> bool:
        """Return whether the last `drain`, of one node, left full batches that could go in another request at once."""
        return self._drainer.has_backlog()

    def mute(self, entry: int) -> None:
        """Send nothing of a partition entry until `unmute`, to keep order while a batch of it is in flight."""
        self._drainer.mute(entry)

    def unmute(self, entry: int) -> None:
        """Undo `mute`."""
        self._drainer.unmute(entry)

    def reenqueue(self, batch: RecordBatch, now_ms: int, incident: int = 0) -> None:
        """Put a batch that failed because of an incident, and may succeed later, back in front of all later ones."""
        self._drainer.reenqueue(batch, now_ms, incident)

    def put_back(self, batch: RecordBatch) -> None:
        """Put a batch back to be sent differently, without counting an attempt."""
        self._drainer.put_back(batch)

    def has_room_for_part(self, batch: RecordBatch, parts_in_flight: int) -> bool:
        """Return whether one more part of a split batch can be sent: its contributors' rings have room."""
        return self._completer.has_room_for_part(batch, parts_in_flight)

    def complete(self, outcomes: Iterable[BatchOutcome]) -> None:
        """Complete batches in flight: push their outcomes to all contributors, free the slots of whole ones."""
        self._completer.complete(outcomes)

    def completed(self, batches: Sequence[RecordBatch], contributors: Iterable[int]) -> None:
        """Free batches whose outcomes `counts` has pushed to their contributors."""
        self._completer.completed(batches, contributors)

    def release(self, batch: RecordBatch, *, stored: bool) -> None:
        """Free a batch that expired in flight, once it is answered; ``stored`` if the broker has it after all."""
        self._completer.release(batch, stored=stored)

    @property
    def next_expiry_ms(self) -> float:
        """Monotonic milliseconds before which no batch, queued or in flight, expires."""
        return self._expirer.next_expiry_ms

    def abort_expired_batches(self, now_ms: int) -> list[BatchOutcome]:
        """Fail the batches that are older than their ``delivery.timeout.ms``; return their outcomes.

        A batch in flight keeps its slot until `release`: the transport may still send from it.
        """
        return self._expirer.abort_expired_batches(now_ms)

    def abort_incomplete_batches(self, error: type[KafkaError], incident: int = 0) -> list[BatchOutcome]:
        """Fail all queued batches because of an incident; return their outcomes."""
        return self._expirer.abort_incomplete_batches(error, incident)

    def drop_closed_lanes(self) -> list[BatchOutcome]:
        """Fail what is queued in lanes whose transaction has failed or ended, or whose holder has died; return it."""
        if self._lanes_seen == self._slab.words[Super.LANES_CHANGED] and not self.sequences.lanes_failed:
            return []
        self._lanes_seen = self._slab.words[Super.LANES_CHANGED]
        self.sequences.lanes_failed = False
        self.sequences.review_lanes()
        entries = [
            entry
            for lane in range(self.lanes.count())
            if not self.lanes.is_open(lane)
            for entry in self.lanes.entries_of(lane)
        ]
        dropped = self._expirer.drop(entries, self.lanes)
        if self.lanes.hold_any(entries):
            self._lanes_seen = -1  # what is in flight can come back
        return dropped

    def take_lanes_from_dead(self) -> None:
        """Close the lanes of dead processes.

        Raises:
            LockTimeoutError: a stopped process holds the tables' lock.
        """
        slab = self.state.slab
        for lane, holder in self.lanes.abandoned():
            self.deferral.section(slab.tables_lock, partial(slab.tables.take_lane, lane, holder))

    def recover(self) -> None:
        """Recover from the last sender's death: finish completing batches, put batches in flight back.

        The ``delivery.timeout.ms`` of batches left by dead processes starts again.
        """
        self._drainer.recover()
        self._expirer.renew_orphans(time.monotonic_ns() // 1_000_000)

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
            batch.created_ms <= time_ms and batch.created_ms + (batch.limits & LIMITS_MASK) + RETRY_MS > now_ms
            for batch in held
        )

    def send_all(self) -> None:
        """Make everything sendable at once from now on, because the sender is about to leave."""
        self._ready_check.core.closed = True
