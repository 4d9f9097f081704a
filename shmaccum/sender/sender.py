"""The sender's loop, after Kafka's ``Sender.java``.

One pass of `Sender.run_once`: expire, ready, drain, mute, send, poll. A pass that leaves nothing to do starts listening
to the doorbell. The next pass checks once more and only then sleeps, so no wake-up is lost, and no process presses the
doorbell of a sender at work. If every node has as many requests in flight as it may have, the sender sleeps until an
answer comes. It does not listen then, since it could not send what it would be woken for.

The sender alone writes ``Super.REQUESTS_SENT``, ``BYTES_SENT`` and ``SENDER_RAN``, without a lock. A death leaves the
batches in flight in their slots; `SenderAccumulator.recover` of the next sender queues them again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from shmaccum import __version__
from shmaccum._compiled import FORM
from shmaccum.accumulator.drain.completer import BatchOutcome, stored_at
from shmaccum.accumulator.drain.ready_check import FOREVER_MS
from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.accumulator_state import levels_of
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import Cluster, Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import (
    CorruptRecordError,
    DuplicateSequenceNumberError,
    IllegalStateError,
    InvalidMetadataError,
    KafkaError,
    LockTimeoutError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UnsupportedCompressionTypeError,
)
from shmaccum.sender.batch_splitter import BatchSplitter
from shmaccum.sender.handover import has_successor
from shmaccum.sender.idleness import Idleness
from shmaccum.sender.response_coalescing import ResponseCoalescing
from shmaccum.sender.sealer import Sealer
from shmaccum.sender.topic_requests import TopicRequests
from shmaccum.sender.transport import ProduceBatch, ProduceResponse, Transport
from shmaccum.shm import shared_settings
from shmaccum.shm.incidents import Incidents
from shmaccum.shm.layout import (
    MAX_SLEEP_MS,
    PROGRESS_MASK,
    SLEEP_BITS,
    STATE_MASK,
    TIME_MASK,
    Slot,
    SlotState,
    Super,
)
from shmaccum.shm.wakeup import Doorbell

logger = logging.getLogger(__name__)

_SETTINGS_GENERATION: Final = Super.SETTINGS_GENERATION
_REQUESTS_SENT: Final = Super.REQUESTS_SENT
_BYTES_SENT: Final = Super.BYTES_SENT
_COMPLETING: Final = int(SlotState.COMPLETING)
_STATE: Final = Slot.STATE
_PIECE: Final = Slot.PIECE
_STATE_BITS: Final = STATE_MASK
_PROGRESS_MASK: Final = PROGRESS_MASK
_RAN: Final = Super.SENDER_RAN
_SLEEP_BITS: Final = SLEEP_BITS
_MAX_SLEEP_MS: Final = MAX_SLEEP_MS
_REQUESTS_A_PASS: Final = 5
"""Most requests to a node in one pass, as many as may be in flight by default. Answers wait meanwhile."""
_DAMAGES: Final = (
    CorruptRecordError,
    UnsupportedCompressionTypeError,
    IllegalStateError,
    struct.error,
    ValueError,
    OverflowError,
)
"""Errors of sealing a batch with a damaged header or damaged records."""
HOUSEKEEPING_MS: Final = 1000
"""Least milliseconds between two searches for dead processes."""
LOOK_AGAIN_MS: Final = 100
"""Longest sleep while the sender waits for a topic, a leader or a producer id."""


class Sender:
    """Drains one slab into one transport. One thread runs it; any thread can call `stop`.

    Args:
        accumulator: Of the slab; this process has its sender's role.
        transport: Started.
        doorbell: Of the slab.
        config: The settings; the slab's values replace those of scope shared.
        gives_way: Whether to hand the role over to a supervised sender that waits for it.

    Attributes:
        has_handed_over: Whether it left for that reason.
    """

    def __init__(
        self,
        accumulator: SenderAccumulator,
        transport: Transport,
        doorbell: Doorbell,
        config: ProducerConfig,
        *,
        gives_way: bool = False,
    ) -> None:
        self._accumulator = accumulator
        state = accumulator.state
        self._pool = state.pool
        self._slab = state.slab
        self._memory = state.slab.memory
        self._map = state.map
        self._sequences = accumulator.sequences
        self._limits = accumulator.limits
        self._transport = transport
        self._doorbell = doorbell
        self._config = config
        self._settings_seen = 0
        self._max_request_size = config.max_request_size
        # With one request in flight, order is kept without sequence numbers: a retry must not overtake.
        self._guarantee_message_order = config.max_in_flight_requests_per_connection == 1
        self._topic_requests = TopicRequests(accumulator, transport)
        self._splitter = BatchSplitter(accumulator)
        self._sealer = Sealer(state, self._splitter, levels_of(config))
        self._in_flight: list[RecordBatch | None] = [None] * state.slab.geometry.slot_count
        """By slot."""
        self._under_way = 0
        """Number of batches in flight."""
        self._listening = False
        self._stopping_since_ms: int | None = None
        self._stop_now = False
        self._gives_way = gives_way
        self.has_handed_over = False
        self._coalescing = ResponseCoalescing()
        self._incidents = state.slab.companion(Incidents)
        self._incidents.begin()
        self._next_housekeeping_ms = 0
        self._idleness = Idleness(state.slab, config.sender_idle_ms)

    # --- running ------------------------------------------------------------------------------------

    def run(self, on_serving: Callable[[], None] | None = None) -> None:
        """Serve until stopped, or idle for ``sender.idle.ms``, or a supervised sender waits for the role.

        Args:
            on_serving: called after the first pass, once the sender has handled what the slab held.
        """
        logger.info("shmaccum %s (%s), process %d", __version__, FORM, os.getpid())
        self._accumulator.recover()
        if not self._is_done():
            self.run_once(_now_ms())
        if on_serving is not None:
            on_serving()
        while not self._is_done():
            self.run_once(_now_ms())
        if self.has_handed_over:
            self._await_answers()

    def stop(self) -> None:
        """Deliver what the slab holds, then leave; on a second call leave at once.

        Undelivered records stay in the slab for the next sender. A signal handler can call it.
        """
        self._stop_now = self._stopping_since_ms is not None
        self._stopping_since_ms = _now_ms()
        self._accumulator.send_all()
        self._doorbell.ring()

    def run_once(self, now_ms: int) -> None:
        """Make one pass of the loop."""
        self._memory.words[_RAN] = now_ms << _SLEEP_BITS
        if self._listening:
            self._doorbell.look()
        if self._memory.words[_SETTINGS_GENERATION] != self._settings_seen:
            self._apply_settings()
        # 1. Metadata, producers' requests for it, and the producer id.
        is_asked = self._topic_requests.serve(self._transport.cluster())
        self._update_producer_id()
        self._give_up_if_out_of_reach()
        cluster = self._transport.cluster()
        # 2. Expire batches; first, so that no expired batch is sent.
        expired = self._accumulator.abort_expired_batches(now_ms)
        if expired:
            logger.warning("failed %d batches: delivery.timeout.ms expired", len(expired))
        if self._sequences.aside_count:
            for entry in self._sequences.left_aside():
                self._end_doubt(entry, stored=False, now_ms=now_ms)
        # 3. Ready check: nodes with ready batches, and topics with an unknown leader.
        result = self._accumulator.ready(cluster, now_ms)
        if result.unknown_leader_topics:
            self._transport.request_update(result.unknown_leader_topics)
        # 4. Keep the nodes that take a request now.
        not_ready_timeout = FOREVER_MS
        for node in list(result.ready_nodes):
            if not self._transport.ready(node, now_ms):
                result.ready_nodes.discard(node)
                not_ready_timeout = min(not_ready_timeout, self._transport.connection_delay_ms(node, now_ms))
        # 5. Drain their batches and send them, by node.
        if result.ready_nodes:
            self._stop_listening()
        is_all = True
        began_ns = time.monotonic_ns()
        for node in result.ready_nodes:
            is_all = self._send_to(node, cluster, now_ms) and is_all
        if result.ready_nodes:
            self._accumulator.rest_after(began_ns / 1e6, time.monotonic_ns() / 1e6)
        # 6. How long the sender can sleep.
        is_busy = self._transport.is_busy()
        poll_timeout = 0.0
        if is_busy or not result.ready_nodes:
            expiry_delay_ms = self._accumulator.next_expiry_ms - now_ms
            poll_timeout = min(not_ready_timeout, expiry_delay_ms)
            if not is_busy:
                poll_timeout = min(poll_timeout, result.next_ready_check_delay_ms)
        if is_asked or result.unknown_leader_topics or self._sequences.need_producer_id:
            poll_timeout = min(poll_timeout, LOOK_AGAIN_MS)
        # 7. Poll: wait, and handle the answers.
        if not self._keep_house(now_ms):
            # No long sleep before the next housekeeping: a process can have died, and none be left to wake the sender.
            poll_timeout = min(poll_timeout, self._next_housekeeping_ms - now_ms)
        may_sleep = self._listening or is_busy
        if poll_timeout > 0 and may_sleep:  # otherwise the next pass checks once more
            poll_timeout = min(poll_timeout, self._idleness.longest_sleep_ms(now_ms, self._under_way > 0))
            if self._listening:
                self._doorbell.sleep_until(now_ms + poll_timeout)
        if is_all and not may_sleep:
            self._doorbell.listen()
            self._listening = True
        if is_busy and 0 < self._coalescing.next_ms < poll_timeout:
            time.sleep(self._coalescing.next_ms / 1000)
        if not may_sleep or poll_timeout < 0:
            poll_timeout = 0.0
        self._memory.words[_RAN] = now_ms << _SLEEP_BITS | int(min(poll_timeout + 1, _MAX_SLEEP_MS))
        responses = self._transport.poll(poll_timeout, self._doorbell.descriptor)
        if is_busy:
            self._coalescing.learn(len(responses), self._under_way)
        if may_sleep and not responses:
            self._stop_listening(rang=True)
        self._handle_produce_responses(responses)

    def _stop_listening(self, *, rang: bool = False) -> None:
        """Stop listening to the doorbell, and empty it.

        Args:
            rang: whether it can have been pressed although the sender did not listen: late, or by `stop`.
        """
        if self._listening or rang:
            self._doorbell.answer()
            self._listening = False

    def _apply_settings(self) -> None:
        """Apply the shared settings that the slab holds now."""
        there = shared_settings.read(self._slab.words, self._slab.buffer, self._slab.geometry)
        self._settings_seen = there.generation
        before, config = self._config, self._config.with_shared(there.shared)
        changed = [name for name in there.shared if name in config.settings and config[name] != before[name]]
        if not changed:
            return
        for name in changed:
            logger.info("setting %s changed from %r to %r", name, before[name], config[name])
        self._config = config
        self._max_request_size = config.max_request_size
        self._sealer.levels = levels_of(config)
        self._accumulator.apply(config)
        self._transport.apply(config)

    # --- who we are -------------------------------------------------------------------------------

    def _update_producer_id(self) -> None:
        """Get a producer id if the slab needs one: in a new slab, or because the old one cannot be used further."""
        if self._sequences.need_producer_id:
            answer = self._transport.init_producer_id()
            if answer is not None:
                self._sequences.use_producer_id(*answer)
                logger.info("producer id %d, epoch %d", *answer)

    def _give_up_if_out_of_reach(self) -> None:
        """Fail all batches if the transport cannot send anything."""
        failure = self._transport.failure()
        if failure is not None:
            aborted = self._accumulator.abort_incomplete_batches(failure, self._incidents.last_of(failure))
            if aborted:
                logger.error("failed %d batches, since nothing can be sent: %s", len(aborted), failure.__name__)

    # --- sending ------------------------------------------------------------------------------------

    def _send_to(self, node: Node, cluster: Cluster, now_ms: int) -> bool:
        """Send a node its ready batches, in up to `_REQUESTS_A_PASS` requests while it has a backlog.

        A request holds one batch of a partition. So a backlog of few partitions costs one pass for several requests.

        Returns:
            Whether no known backlog is left.
        """
        accumulator = self._accumulator
        for _ in range(_REQUESTS_A_PASS):
            drained = accumulator.drain(cluster, (node,), self._max_request_size, now_ms)[node.id]
            sealed = self._seal_all(drained, now_ms)
            if sealed:
                self._transport.send(node, sealed, now_ms)
                self._memory.words[_REQUESTS_SENT] += 1
            if not sealed or not accumulator.has_backlog(node):
                return True
            if not self._transport.ready(node, now_ms):
                break
        return False

    def _seal_all(self, drained: list[RecordBatch], now_ms: int) -> list[ProduceBatch]:
        """Seal drained batches. A damaged one fails alone."""
        words = self._memory.words
        sealed = []
        for batch in drained:
            if words[batch.at + _PIECE] and not self._splitter.admit(batch, now_ms):
                continue
            if self._guarantee_message_order:
                self._accumulator.mute(self._map.by_entry[batch.partition].topic_partition)
            try:
                sealed.append(self._sealer.seal(batch))
                self._in_flight[batch.slot] = batch
                self._under_way += 1
            except _DAMAGES as error:
                logger.error("%r is damaged: %s; failed it", batch, error)
                self._splitter.answered(batch)
                if self._guarantee_message_order:
                    self._accumulator.unmute(self._map.by_entry[batch.partition].topic_partition)
                batch.write_off()
                self._accumulator.complete([BatchOutcome(batch, error=CorruptRecordError)])
        return sealed

    # --- answers ------------------------------------------------------------------------------------

    def _handle_produce_responses(self, responses: list[ProduceResponse]) -> None:
        """Complete stored batches, reenqueue what can succeed later, fail the rest (``Sender.completeBatch``)."""
        now_ms = _now_ms()
        words = self._memory.words
        outcomes: list[BatchOutcome] = []
        out_of_date: set[str] = set()
        bytes_sent = 0
        for response in responses:
            produced, error = response.batch, response.error
            batch = self._landed(produced.slot)
            produced.release()
            piece = words[batch.at + _PIECE]
            if piece:
                self._splitter.answered(batch)
            if self._guarantee_message_order:
                self._accumulator.unmute(produced.topic_partition)
            if error is not None and issubclass(error, InvalidMetadataError):
                out_of_date.add(produced.topic_partition.topic)
            stored = error is None or error is DuplicateSequenceNumberError
            if not stored and _is_out_of_order(response):
                stored = self._sequences.is_stored(batch)
            if stored:
                bytes_sent += produced.size
                if self._sequences.aside_count:  # a broker that has this batch has the batches before it
                    outcomes += self._end_doubt(batch.partition, stored=True, now_ms=now_ms)
            if words[batch.at + _STATE] & _STATE_BITS == _COMPLETING:
                self._accumulator.release(batch, stored=stored)  # it expired in flight
            elif stored:
                offset, append_time_ms = response.base_offset, response.log_append_time_ms
                outcomes.append(stored_at(batch, offset, append_time_ms, piece & _PROGRESS_MASK))
            elif self._splitter.can_divide(response):
                given_up = self._splitter.divide(batch, response)
                outcomes += [] if given_up is None else [given_up]
            elif self._can_retry(batch, response, now_ms):
                self._retry(batch, response, now_ms)
            else:
                outcomes.append(self._fail(batch, response))
            if self._sequences.aside_count and not self._sequences.is_aside(batch):
                self._end_doubt(batch.partition, stored=False, now_ms=now_ms)
        words[_BYTES_SENT] += bytes_sent
        if outcomes:
            self._accumulator.complete(outcomes)
        if out_of_date:
            self._transport.request_update(out_of_date)

    def _landed(self, slot: int) -> RecordBatch:
        """Take the answered batch in a slot out of those in flight; return it."""
        batch = self._in_flight[slot]
        if batch is None:
            raise IllegalStateError(f"the transport answered a batch in slot {slot}, which has none in flight")
        self._in_flight[slot] = None
        self._under_way -= 1
        return batch

    def _can_retry(self, batch: RecordBatch, response: ProduceResponse, now_ms: int) -> bool:
        """Return whether to send a batch again; one with a sequence number also if that number is out of order."""
        if response.error is None or batch.attempts >= self._limits.retries(batch):
            return False
        may_succeed = response.error.retriable or (_is_out_of_order(response) and response.batch.base_sequence >= 0)
        return may_succeed and batch.created_ms + self._limits.timeout_ms(batch) > now_ms

    def _note(self, response: ProduceResponse) -> int:
        """Record why a batch failed as an incident; return its number."""
        return self._incidents.note(response.error or KafkaError, response.words)

    def _retry(self, batch: RecordBatch, response: ProduceResponse, now_ms: int) -> None:
        if _is_out_of_order(response):
            if self._sequences.set_aside(batch):
                logger.warning("%s; %r is stored if a batch behind it is", response.message, batch)
                return
            self._sequences.refused(batch)
        logger.warning("%s; retrying %r", response.message, batch)
        self._accumulator.reenqueue(batch, now_ms, self._note(response))

    def _end_doubt(self, entry: int, *, stored: bool, now_ms: int) -> list[BatchOutcome]:
        """Complete (``stored``) or reenqueue the batches of a partition that were set aside.

        Returns:
            The outcomes of the stored ones, in order. Their offsets are unknown.
        """
        outcomes = []
        for batch in self._sequences.take_aside(entry):
            if batch.state == SlotState.COMPLETING:
                self._accumulator.release(batch, stored=stored)  # it expired in flight
            elif stored:
                outcomes.append(BatchOutcome(batch))
            else:
                self._accumulator.reenqueue(batch, now_ms)
        return outcomes

    def _fail(self, batch: RecordBatch, response: ProduceResponse) -> BatchOutcome:
        logger.error("%s; failed %d records of %r", response.message, response.batch.record_count, batch)
        if response.error is ProducerFencedError:
            self._sequences.replace_producer_id()
        return BatchOutcome(batch, error=response.error, end=batch.piece_end, incident=self._note(response))

    # --- leaving ------------------------------------------------------------------------------------

    def _await_answers(self) -> None:
        """Handle answers to what is in flight, for ``request.timeout.ms`` at most; send nothing."""
        deadline_ms = _now_ms() + self._config.request_timeout_ms
        while self._under_way and not self._stop_now and (now_ms := _now_ms()) < deadline_ms:
            self._memory.words[_RAN] = now_ms << _SLEEP_BITS | LOOK_AGAIN_MS
            self._stop_listening(rang=True)
            self._handle_produce_responses(self._transport.poll(LOOK_AGAIN_MS, self._doorbell.descriptor))
        logger.info("handed the role over, with %d batches in flight", self._under_way)

    def _is_done(self) -> bool:
        if self._stop_now or self.has_handed_over:
            return True
        if self._stopping_since_ms is not None:
            return not self._holds_batches_older_than(self._stopping_since_ms)
        return self._idleness.is_over(_now_ms())

    def _holds_batches_older_than(self, time_ms: int) -> bool:
        headers = self._slab.headers
        held = (headers[:, Slot.STATE] & np.uint64(STATE_MASK)) >= SlotState.OPEN
        return bool(((headers[held, Slot.CREATED_MS] & np.uint64(TIME_MASK)) <= time_ms).any())

    def _keep_house(self, now_ms: int) -> bool:
        """Reclaim the memory and the table entries of dead processes; return False if it is not time yet."""
        if now_ms < self._next_housekeeping_ms:
            return False
        self._next_housekeeping_ms = now_ms + HOUSEKEEPING_MS
        with contextlib.suppress(LockTimeoutError):
            self._pool.reclaim(self._accumulator.deferral.with_lock(self._slab.pool_lock))
        self._slab.reap_dead()
        self.has_handed_over = self._gives_way and has_successor(self._slab)
        return True


def _is_out_of_order(response: ProduceResponse) -> bool:
    return response.error is not None and issubclass(response.error, OutOfOrderSequenceError)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
