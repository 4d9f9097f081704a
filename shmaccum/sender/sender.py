"""The sender's loop, after Kafka's ``Sender.java``.

One pass of `Sender.run_once`: expire, ready, drain, mute, send, poll. A pass that leaves nothing to do starts listening
to the doorbell. The next pass checks again and only then sleeps, so no wake-up is lost, and no process presses the
doorbell of a sender at work. If every node has as many requests in flight as it may have, or has not read the last one
yet, the sender sleeps until one does. It does not listen then, since it could not send what it would be woken for.

The loop only orders the steps. What lasts from pass to pass is in its collaborators: `Doorbell` (listening), `Sleep`,
`BatchSplitter`, `ResponseHandler` (batches in flight), and the accumulator, with `SequenceDoubt`.

The sender alone writes ``Super.REQUESTS_SENT``, without a lock. A death leaves the batches in flight in their slots;
`SenderAccumulator.recover` of the next sender queues them again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import Final

from shmaccum._core import ProduceBatch, Super
from shmaccum.abi import VERSION
from shmaccum.accumulator.drain.completer import BatchOutcome
from shmaccum.accumulator.drain.ready_check import FOREVER_MS, Cluster, ReadyCheckResult
from shmaccum.accumulator.drain.sender_accumulator import SenderAccumulator
from shmaccum.accumulator.state.record_batch import RecordBatch
from shmaccum.cluster import Node
from shmaccum.config import ProducerConfig
from shmaccum.errors import CorruptRecordError, LockTimeoutError, TransactionAbortedError
from shmaccum.sender.batch_splitter import BatchSplitter
from shmaccum.sender.handover import has_successor
from shmaccum.sender.logfile import SELDOM
from shmaccum.sender.response_handler import ResponseHandler
from shmaccum.sender.sealer import DAMAGES, Sealer
from shmaccum.sender.sleep import LOOK_AGAIN_MS, Sleep
from shmaccum.sender.topic_requests import TopicRequests
from shmaccum.sender.transport import Transport
from shmaccum.shm import shared_settings
from shmaccum.shm.slab import STOPPED_TIMEOUT_S
from shmaccum.shm.wakeup import Doorbell

logger = logging.getLogger(__name__)

_REQUESTS_A_PASS: Final = 5
"""Most requests to a node in one pass, as many as may be in flight by default. Answers wait meanwhile."""
HOUSEKEEPING_MS: Final = 1000
"""Least milliseconds between two searches for dead processes."""
_RENEW_S: Final = 60
"""Least seconds between two searches for idle partitions."""
_BLOCKED_MS: Final = int(1000 * STOPPED_TIMEOUT_S)
"""After this long without a batch that can become ready, a sender that is to leave does so: no live process takes
longer to place a batch."""


class Sender:
    """Drains one slab into one transport. One thread runs it; any thread can call `stop`.

    The slab's values replace the settings of scope shared. ``gives_way``: whether to hand the role over to a supervised
    sender that waits for it; ``has_handed_over``: whether it left for that reason.
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
        self._slab = state.slab
        self._words = state.slab.words
        self._sequences = accumulator.sequences
        self._doubt = accumulator.doubt
        self._transport = transport
        self._doorbell = doorbell
        self._config = config
        self._max_request_size = config.max_request_size  # read for each request
        self._settings_seen = 0
        self._topic_requests = TopicRequests(accumulator, transport)
        self._splitter = BatchSplitter(accumulator)
        self._sealer = Sealer(state, self._splitter, accumulator.ahead)
        # With one request in flight, order is kept without sequence numbers: a retry must not overtake.
        mutes = config.max_in_flight_requests_per_connection == 1
        self._responses = ResponseHandler(accumulator, transport, self._splitter, mutes=mutes)
        self._sleep = Sleep(state.slab, config.sender_idle_ms)
        self._incidents = state.slab.incidents
        self._incidents.begin()
        self._stopping_since_ms: int | None = None
        self._stop_now = False
        self._blocked_since_ms: int | None = None
        self._gives_way = gives_way
        self.has_handed_over = False
        self._next_housekeeping_ms = 0
        self._renewed_s = 0
        """When idle partitions were last looked for, in wall-clock seconds."""

    # --- running ------------------------------------------------------------------------------------

    def run(self, on_serving: Callable[[], None] | None = None) -> None:
        """Serve until stopped, or idle for ``sender.idle.ms``, or a supervised sender waits for the role.

        ``on_serving`` is called after the first pass, once the sender has handled what the slab held.
        """
        logger.info("shmaccum %s, process %d", VERSION, os.getpid())
        self._accumulator.recover()
        self._accumulator.ahead.start(self._doorbell.ring)
        try:
            if not self._is_done():
                self.run_once(_now_ms())
            if on_serving is not None:
                on_serving()
            while not self._is_done():
                self.run_once(_now_ms())
        finally:
            self._accumulator.ahead.stop()
        if self.has_handed_over:
            self._await_answers()
        elif self._stopping_since_ms is not None:
            self._report_undelivered()

    def stop(self) -> None:
        """Deliver what the slab holds, then leave; on a second call leave at once.

        Undelivered records stay in the slab for the next sender. So do those that damage keeps from delivery: the
        sender does not wait for them. A signal handler can call it.
        """
        self._stop_now = self._stopping_since_ms is not None
        self._stopping_since_ms = _now_ms()
        self._accumulator.send_all()
        self._doorbell.ring()

    def run_once(self, now_ms: int) -> None:
        """Make one pass of the loop."""
        sleep, doorbell, transport = self._sleep, self._doorbell, self._transport
        sleep.begin_pass(now_ms)
        doorbell.look()
        if self._words[Super.SETTINGS_GENERATION] != self._settings_seen:
            self._apply_settings()
        # 1. Metadata, producers' requests for it, and the producer id.
        is_waiting = self._topic_requests.serve(transport.cluster())
        if self._sequences.need_producer_id and (answer := transport.init_producer_id()) is not None:
            self._sequences.use_producer_id(*answer)
            logger.info("producer id %d, epoch %d", *answer)
        failure = transport.failure()
        if failure is not None:
            aborted = self._accumulator.abort_incomplete_batches(failure, self._incidents.last_of(failure))
            if aborted:
                logger.error("failed %d batches, since nothing can be sent: %s", len(aborted), failure.__name__)
        cluster = transport.cluster()
        if not 0 <= (now_s := int(time.time())) - self._renewed_s < _RENEW_S:  # also after the computer has slept
            self._renewed_s = now_s
            self._sequences.renew_idle(self._slab.partition_count, now_s)
        # 2. Expire batches; first, so that no expired batch is sent.
        expired = self._accumulator.abort_expired_batches(now_ms)
        if expired:
            logger.warning("failed %d batches: delivery.timeout.ms expired", len(expired), extra={"seldom": "expired"})
        longest_ms = self._accumulator.expirer.next_expiry_ms - now_ms
        dropped = self._accumulator.drop_closed_lanes()
        if dropped:
            logger.info("dropped %d batches of transactions that are aborted", len(dropped))
        if self._sequences.undecided_count:
            self._doubt.give_up(now_ms)
        # 3. Ready check: nodes with ready batches, and topics with an unknown leader.
        ready_nodes, delay_ms, unknown_leader_topics = result = self._accumulator.ready(cluster, now_ms)
        if unknown_leader_topics:
            transport.request_update(unknown_leader_topics)
        if is_waiting or unknown_leader_topics or self._sequences.need_producer_id:
            longest_ms = min(longest_ms, LOOK_AGAIN_MS)
        if self._stopping_since_ms is not None:
            longest_ms = min(longest_ms, self._look_whether_blocked(result, now_ms))
        # 4. Keep the nodes that take a request now.
        for node in list(ready_nodes):
            if not transport.ready(node, now_ms):
                ready_nodes.discard(node)
                longest_ms = min(longest_ms, transport.connection_delay_ms(node, now_ms))
        # 5. Drain their batches and send them, by node.
        has_backlog = False
        if ready_nodes:
            if doorbell.is_listening:
                doorbell.answer()
            began_ns = time.monotonic_ns()
            # A list: `any` would send nothing to the nodes behind one with a backlog.
            has_backlog = True in [self._send_to(node, cluster, now_ms) for node in ready_nodes]
            self._accumulator.rest_after(began_ns / 1e6, time.monotonic_ns() / 1e6)
        # 6. Sleep, unless something can still be sent; no longer than until something becomes ready.
        is_busy = self._responses.in_flight > 0 and transport.is_busy()
        if not is_busy:
            longest_ms = 0 if ready_nodes else min(longest_ms, delay_ms)
        if now_ms < self._next_housekeeping_ms:
            # No long sleep before the next housekeeping: a process can have died, and none be left to wake the sender.
            longest_ms = min(longest_ms, self._next_housekeeping_ms - now_ms)
        else:
            self._reclaim_from_dead(now_ms)
            SELDOM.count_dropped()
        may_sleep = doorbell.is_listening or is_busy
        if not may_sleep:
            longest_ms = 0  # the next pass checks again
            if not has_backlog:
                doorbell.listen()
        timeout_ms = sleep.begin(longest_ms, self._responses.in_flight > 0)
        # 7. Poll: wait, and handle the answers.
        if may_sleep and timeout_ms > 0:
            doorbell.sleep_until(now_ms + timeout_ms)
        responses = transport.poll(timeout_ms, doorbell.descriptor)
        if responses:
            self._responses.handle(responses, _now_ms())
        elif may_sleep:
            doorbell.answer()

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
        self._accumulator.apply(config)
        self._transport.apply(config)

    # --- sending ------------------------------------------------------------------------------------

    def _send_to(self, node: Node, cluster: Cluster, now_ms: int) -> bool:
        """Send a node its ready batches, in up to `_REQUESTS_A_PASS` requests; return whether a known backlog is left.

        A request holds one batch of a partition. So a backlog of few partitions costs one pass for several requests.
        """
        accumulator = self._accumulator
        for _ in range(_REQUESTS_A_PASS):
            drained = accumulator.drain(cluster, node, self._max_request_size, now_ms)
            sealed = self._seal_all(drained, now_ms)
            if sealed:
                self._transport.send(node, sealed, now_ms)
                self._words[Super.REQUESTS_SENT] += 1
            if not sealed or not accumulator.has_backlog():
                return False
            if not self._transport.ready(node, now_ms):
                break
        return True

    def _seal_all(self, drained: list[RecordBatch], now_ms: int) -> list[ProduceBatch]:
        """Seal drained batches, and expect their answers. A damaged one fails alone."""
        sealed, rest = self._responses.seal(self._sealer, drained)
        for batch in rest:
            if batch.is_split:
                if not self._splitter.admit(batch, now_ms):
                    continue
                refused = self._splitter.refused(batch)
                if refused is not None:
                    self._accumulator.complete([refused])
                    continue
            if self._sequences.is_closed(batch):  # since the ready check
                self._accumulator.complete([BatchOutcome(batch, error=TransactionAbortedError)])
                continue
            try:
                produced = self._sealer.seal(batch)
            except DAMAGES as error:
                logger.error("%r is damaged: %s; failed it", batch, error)
                batch.write_off()
                self._accumulator.complete([BatchOutcome(batch, error=CorruptRecordError)])
                continue
            self._responses.expect(batch, produced)
            sealed.append(produced)
        return sealed

    # --- leaving ------------------------------------------------------------------------------------

    def _await_answers(self) -> None:
        """Handle answers to what is in flight, for ``request.timeout.ms`` at most; send nothing."""
        deadline_ms = _now_ms() + self._config.request_timeout_ms
        while self._responses.in_flight and not self._stop_now and (now_ms := _now_ms()) < deadline_ms:
            self._sleep.begin_pass(now_ms)
            self._doorbell.answer()
            responses = self._transport.poll(self._sleep.begin(LOOK_AGAIN_MS, True), self._doorbell.descriptor)
            self._responses.handle(responses, _now_ms())
        logger.info("handed the role over, with %d batches in flight", self._responses.in_flight)

    def _is_done(self) -> bool:
        if self._stop_now or self.has_handed_over:
            return True
        if self._stopping_since_ms is not None:
            now_ms = _now_ms()
            holds_batches = self._accumulator.holds_batches_older_than(self._stopping_since_ms, now_ms)
            return not holds_batches or self._is_blocked(now_ms)
        return self._sleep.is_over()

    def _look_whether_blocked(self, result: ReadyCheckResult, now_ms: int) -> float:
        """Note since when no event can make a batch ready: damage keeps back what is left. Return the longest sleep."""
        nodes, delay_ms, unknown = result
        if nodes or unknown or delay_ms < FOREVER_MS or self._responses.in_flight or self._sequences.need_producer_id:
            self._blocked_since_ms = None
            return FOREVER_MS
        self._blocked_since_ms = self._blocked_since_ms or now_ms
        return _BLOCKED_MS

    def _is_blocked(self, now_ms: int) -> bool:
        return self._blocked_since_ms is not None and now_ms - self._blocked_since_ms >= _BLOCKED_MS

    def _report_undelivered(self) -> None:
        """Log what this sender leaves undelivered. Raises SlabDamagedError: a word has an impossible value."""
        batches, records = self._slab.undelivered()
        if not batches:
            return
        is_blocked = self._is_blocked(_now_ms())
        why = ": no batch can become ready, so the slab is damaged" if is_blocked else ""
        logger.warning("left %d records in %d batches to the next sender%s", records, batches, why)
        if is_blocked:
            self._slab.check()

    def _reclaim_from_dead(self, now_ms: int) -> None:
        """Reclaim the memory and the table entries of dead processes."""
        self._next_housekeeping_ms = now_ms + HOUSEKEEPING_MS
        with contextlib.suppress(LockTimeoutError):
            self._accumulator.take_lanes_from_dead()
        with contextlib.suppress(LockTimeoutError):
            self._accumulator.deferral.run(self._slab.pool_lock, self._accumulator.state.pool.reclaim)
        self._slab.reap_dead()
        self.has_handed_over = self._gives_way and has_successor(self._slab)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
