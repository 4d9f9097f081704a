"""Batches this process contributed to that are not yet complete.

The process reads its completion ring when it appends, polls, flushes or waits. Futures resolve and callbacks run then,
in order, in the calling thread.

In shared memory the process stores its bit of a batch's CONTRIBUTORS, under the partition's lock: in
`shmaccum._core.Appender`. It alone stores FLUSHING and its ring's RING_HEAD in its table entry, without a
lock of the slab. After its death the ring is not read, and FLUSHING counts until the entry is freed.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shmaccum._core import (
    BATCH_SLOT_BITS,
    STATE_MASK,
    Contributions,
    FutureRecordMetadata,
    Process,
    ProduceRequestResult,
    Slot,
)
from shmaccum.accumulator.append.futures import DeliveryCallback
from shmaccum.accumulator.append.waits import WAIT_SLICE_S
from shmaccum.accumulator.state.partition_map import PartitionMap
from shmaccum.cluster import TopicPartition
from shmaccum.errors import (
    DeadOwnerError,
    InvalidPidMappingError,
    KafkaError,
    KafkaTimeoutError,
    ShmaccumError,
    TransactionalIdAuthorizationError,
    error_for_code,
)
from shmaccum.shm import native
from shmaccum.shm.incidents import IncidentInfo
from shmaccum.shm.layout import BATCH_SLOT_MASK, SlotState
from shmaccum.shm.slab import Slab
from shmaccum.shm.wakeup import Listener, Slices

if TYPE_CHECKING:  # asyncio takes long to import
    from shmaccum.accumulator.append.loop_pending import LoopPending
    from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
    from shmaccum.accumulator.state.partition_queue import PartitionQueue
    from shmaccum.shm.loop_wakeup import LoopDoorbell, LoopListener

logger = logging.getLogger(__name__)


_FATAL: Final = (InvalidPidMappingError, TransactionalIdAuthorizationError)
"""Errors of a batch outside of transactions that are final (``TransactionManager.maybeTransitionToErrorState``)."""


class PendingBatches:
    """This process's completion ring, and the results that it completes.

    Attributes:
        while_waiting: called before and during a wait for the sender, under no lock: makes sure that one runs.
        flushes: under way in this process. Call `count_flushes` after a change.
        lost: how many batches of each lane left their slot without a completion.
        idempotent: what this process appends to outside of transactions and with sequence numbers.
    """

    def __init__(self, slab: Slab) -> None:
        self.while_waiting: Callable[[], None] = lambda: None
        self.idempotent: weakref.WeakSet[RecordAccumulator] = weakref.WeakSet()
        self._slab = slab
        self._incidents = slab.incidents
        self._map = slab.companion(PartitionMap)
        self.contributions: Final = Contributions(
            slab.core, slab.me, weakref.ref(self), call_back, self._failure, slab.damaged
        )
        """Its batches by slot, for sections that append, and its completion ring."""
        self.callbacks: Final = self.contributions.callbacks
        self._loops: LoopDoorbell[LoopPending] | None = None
        self._join()
        slab.on_join(self._rejoin)
        slab.on_fork(self)

    def _join(self) -> None:
        me = self._slab.me
        self.contributions.join(me)
        self.flushes: set[object] = set()
        self.lost: Counter[int] = Counter()
        self._reading = native.RLock()  # reentrant: a signal handler may poll, too
        self.process_at = self._slab.geometry.process(me)
        """Word index of this process's table entry."""
        self._pid = os.getpid()

    def forked(self) -> None:
        """In a forked child: drop the parent's results."""
        failure = partial(DeadOwnerError, f"this future belongs to process {self._pid}, which forked this one")
        for batch in list(self.contributions.results):
            self.contributions.lose(batch, failure)
        self.callbacks.forget()
        self._reading = native.RLock()  # one of the parent's threads can hold the other
        self._pid = -1

    def _rejoin(self) -> None:
        """In a forked child that joins the slab: forget the parent's entry, whose ring it would read."""
        if self._pid < 0:  # not after an interrupt of the call before: records can be pending
            self._join()

    def check_process(self) -> None:
        """Join the slab, if this is a forked child that has not done so."""
        if self._pid < 0:
            self._slab.rejoin()

    # --- contributing -------------------------------------------------------------------------------

    def expect(self, queue: PartitionQueue, batch: int) -> ProduceRequestResult:
        """Return the result of a batch that this process is about to append to: `Contributions.expect`."""
        return self.contributions.expect(batch, queue.topic_partition, queue.lane)

    # --- listening ----------------------------------------------------------------------------------

    def poll(self) -> None:
        """Read completions, resolve futures, run callbacks; in a forked child, join the slab first."""
        if not self.contributions.has_news:
            return
        self.check_process()
        self.read()
        self.callbacks.run()

    def read(self) -> None:
        """Pop all completions from the ring and resolve their results."""
        with self._reading:
            self.contributions.read()

    def give_up_lost(self) -> None:
        """Fail results whose batch has left its slot without a completion.

        Completions are pushed before the slot is freed. So a batch that is gone, without one in the ring read after
        that, was lost with a damaged header.
        """
        gone = []
        for batch in list(self.contributions.results):
            words, header = self._slab.words, self._slab.geometry.header(batch & BATCH_SLOT_MASK)
            is_same = words[header + Slot.GENERATION] == batch >> BATCH_SLOT_BITS
            is_there = is_same and words[header + Slot.STATE] & STATE_MASK != SlotState.FREE
            if not is_there and not self.contributions.is_expected(batch):
                gone.append(batch)
        if not gone:
            return
        with self._reading:
            self.read()
            for batch in gone:
                result = self.contributions.results.get(batch)
                if result is not None:
                    self.lost[result.lane] += 1
                    slot = batch & BATCH_SLOT_MASK
                    what = f"slot {slot}: a batch of {result.topic_partition} was freed without a completion"
                    self.contributions.lose(batch, partial(self._slab.damaged, what))

    def _failure(self, result: ProduceRequestResult, code: int, number: int) -> Callable[[], ShmaccumError]:
        """Return what makes the error of failed records, by its incident; fail the producers to which it is final."""
        kind = error_for_code(code)
        failure = self._explained(result.topic_partition, kind, number)
        if kind in _FATAL and not result.lane:
            for producer in native.members(self.idempotent):
                producer.fail(failure)
        return failure

    def _explained(
        self, topic_partition: TopicPartition, kind: type[KafkaError], number: int
    ) -> Callable[[], ShmaccumError]:
        """Return a function that makes an error of records, with the text of their incident.

        Incidents are read now, because later ones overwrite them. An expired batch has another error than its last
        attempt; its cause is that attempt's error or, without one, the sender's latest.
        """
        message = f"{topic_partition}: {kind.meaning()}"
        absence = self._map.absence(topic_partition)
        if absence:
            message += f"; {absence}"
        incident = self._incidents.find(number)
        if incident is not None and incident.error is kind:
            return partial(kind, f"{message}: {incident.text}" if incident.text else message)
        if not issubclass(kind, KafkaTimeoutError):
            return partial(kind, message)
        if incident is not None:
            message += f"; its last attempt: {incident}"
        current = self._incidents.current()
        if current is not None and current != incident:
            message += f"; last error: {current}"
        return partial(_caused_by, incident or current, kind, message)

    def trouble(self) -> str:
        """Return, to append to an error, what keeps the sender from sending, as far as is known; often ""."""
        return self._slab.trouble()

    def call_back(self, callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
        """Call a callback when its record is complete; at once if it is."""
        self.callbacks.add(future.batch, callback, future)
        if future.is_done:
            self.callbacks.run_of(future.batch)

    def call_when_done(self, function: Callable[[FutureRecordMetadata], Any], future: FutureRecordMetadata) -> None:
        """Call ``function(future)`` when a record is complete; in the event loop of this thread, if one runs."""
        asyncio = sys.modules.get("asyncio")
        if asyncio is not None and asyncio._get_running_loop() is not None:
            self.of_loop().call_when_done(function, future)
        else:
            self.call_back(lambda error, metadata: function(future), future)

    def until_complete(self, future: FutureRecordMetadata) -> Generator[Any, None, None]:
        """Wait in the running event loop until a record is complete."""
        return self.of_loop().until_complete(future)

    def until(self, condition: Callable[[], bool]) -> Generator[Any, None, None]:
        """Wait in the running event loop until a condition holds that completions change."""
        return self.of_loop().until(condition)

    def of_loop(self) -> LoopPending:
        """Return this object as the running event loop needs it.

        Raises:
            RuntimeError: none is running in this thread.
            IllegalStateError: the slab has been detached.
        """
        if self._loops is None:
            from shmaccum.accumulator.append.loop_pending import LoopPending
            from shmaccum.shm.loop_wakeup import LoopDoorbell

            self._loops = LoopDoorbell(self._slab, partial(LoopPending, self._slab, self))
        return self._loops.of_loop()

    def leave_loop(self) -> None:
        """Stop waking the running event loop, unless something in it waits."""
        if self._loops is not None:
            self._loops.leave_loop()

    def has_callbacks(self) -> bool:
        """Return whether there are callbacks that have not run."""
        return bool(self.callbacks)

    def wait_until(
        self, condition: Callable[[], bool], timeout_s: float | None, batches: Callable[[], int] = lambda: 1
    ) -> bool:
        """Wait until the condition holds, polling as completions come; return False if the time runs out first.

        ``batches`` returns how many more batches must complete for it. If many, the process wakes when half of them
        have, then half of the rest, and so on, because a wake-up costs more than reading a few completions. No
        ``timeout_s``: no limit.

        Raises IllegalStateError: the slab has been detached, possibly during the wait.
        """
        wakeup = self._slab.wakeup
        wakeup.check_open()
        try:
            self.poll()
            if condition():
                return True
            with wakeup.listening() as listener:
                return listener.wait_for(self.waiting(listener, condition, timeout_s, batches), self.while_waiting)
        except (ValueError, IndexError, OSError):
            wakeup.check_open()  # another thread has detached the slab, with its memory and files
            raise

    def waiting(
        self,
        listener: Listener | LoopListener,
        condition: Callable[[], bool],
        timeout_s: float | None,
        batches: Callable[[], int],
    ) -> Slices[bool]:
        """Wait as `wait_until` does, by a listener; look for lost batches after a slice without a wake-up."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self.poll()
            if condition():
                return True
            remaining = WAIT_SLICE_S if deadline is None else deadline - time.monotonic()
            if remaining <= 0:
                return False
            expected = self.heard() + (batches() + 1) // 2
            listener.expect(expected)
            if self.contributions.tail < expected and not (yield min(remaining, WAIT_SLICE_S)):
                self.give_up_lost()

    def heard(self) -> int:
        """Return how many completions this process has read."""
        return self.contributions.head

    def is_waiting(self) -> bool:
        """Return whether any batch is not complete."""
        return bool(self.contributions.results)

    def incomplete(self) -> list[ProduceRequestResult]:
        """Return the results that are not complete."""
        return list(self.contributions.results.values())

    # --- flushing -----------------------------------------------------------------------------------

    def begin_flush(self, flush: object) -> None:
        """Make all batches of the slab sendable at once, until ``flush`` is no longer in `flushes`."""
        self.flushes.add(flush)
        self.count_flushes()
        self._slab.button.press()

    def count_flushes(self) -> None:
        """Publish the number of flushes; after an interrupt it can be outdated."""
        with self._reading:
            if self._pid > 0:  # else this is a forked child, and the entry still its parent's
                self._slab.words[self.process_at + Process.FLUSHING] = len(self.flushes)


def _caused_by(incident: IncidentInfo | None, kind: type[KafkaError], message: str) -> KafkaError:
    """Return an error with an incident, if there is one, as its cause."""
    error = kind(message)
    if incident is not None:
        error.__cause__ = incident.error(incident.text)
    return error


def call_back(callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
    """Call the callback of a record that is complete. One that raises stops no other."""
    error, metadata = future.outcome()
    try:
        callback(error, metadata)
    except Exception:
        logger.exception("a delivery callback for %s raised", future.topic_partition)
