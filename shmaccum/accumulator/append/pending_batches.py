"""What a process waits to hear of: the batches that it contributed to, and are not done.

The process reads its completion ring when it appends, polls, flushes or waits; futures resolve and callbacks run
then, in order, in whichever thread it is.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final

from shmaccum.accumulator.append.callbacks import Callbacks
from shmaccum.accumulator.append.futures import DeliveryCallback, FutureRecordMetadata, Part, ProduceRequestResult
from shmaccum.accumulator.state.completion_ring import NOWHERE, Outcome, RingReader
from shmaccum.cluster import TopicPartition
from shmaccum.errors import DeadOwnerError, KafkaError, KafkaTimeoutError, ShmaccumError
from shmaccum.shm import native
from shmaccum.shm.incidents import IncidentInfo, Incidents
from shmaccum.shm.layout import BATCH_SLOT_BITS, BATCH_SLOT_MASK, STATE_MASK, Process, Slot, SlotState
from shmaccum.shm.slab import Slab

_GENERATION: Final = Slot.GENERATION

WAIT_SLICE_S: Final = 0.25
"""How long a wait for the sender sleeps before it makes sure that there is one."""


class PendingBatches:
    """The completion ring of this process, and the results that it will settle.

    Attributes:
        while_waiting: called before a wait for the sender and now and then during it, under no lock: the place
            to see to it that there is one.
        absence: returns why a partition is not there any more, in words; nothing if it is.
    """

    def __init__(self, slab: Slab) -> None:
        self.while_waiting: Callable[[], None] = _do_nothing
        self.absence: Callable[[TopicPartition], str] = lambda topic_partition: ""
        self._joining = native.Lock()
        self._slab = slab
        self._incidents = slab.companion(Incidents)
        self._weakly = weakref.ref(self)
        self._memory = slab.memory
        self._join()
        slab.on_fork(self._forked)

    def _join(self) -> None:
        me = self._slab.me
        self._results: dict[int, ProduceRequestResult] = {}
        self._flushes: dict[int, int] = {}
        self._ring = RingReader(self._slab.name, self._memory, self._slab.geometry, me)
        self._reading = native.RLock()  # a signal's handler may poll, too
        self._callbacks = Callbacks()
        self._contributor_at = Slot.CONTRIBUTORS + me // 64
        self._contributor_bit = 1 << me % 64
        self.process_at = self._slab.geometry.process(me)
        """Word index of this process's table entry."""
        self._pid = os.getpid()

    def _forked(self) -> None:
        """Forget, in a forked child, what is the parent's to wait for."""
        failure = partial(DeadOwnerError, f"this future belongs to process {self._pid}, which forked this one")
        for result in self._results.values():
            result.settle(Part(result.told, -1, -1, failure), 0)
        self._results = {}
        self._callbacks = Callbacks()
        self._joining = native.Lock()
        self._ring.head = NOWHERE  # so `poll` needs only one look to find out about both
        self._pid = -1

    def check_process(self) -> None:
        """Be a process of the slab's, if this is a forked child that is not yet."""
        if self._pid > 0:
            return
        with self._joining:
            if self._pid < 0:
                self._join()  # takes the child's own place in the slab; no greenlet is switched out over it

    # --- contributing -------------------------------------------------------------------------------

    def contribute(self, topic_partition: TopicPartition, slot: int, header: int) -> ProduceRequestResult:
        """Return the result object of the batch in a slot; the first time, note in its header that we wait for it.

        Under the partition's lock and before the commit of what we contribute: whoever completes the batch sees it.
        """
        memory = self._memory
        batch = memory.words[header + _GENERATION] << BATCH_SLOT_BITS | slot
        result = self._results.get(batch)
        if result is None:
            if memory.words[self._ring.tail_at] != self._ring.head:
                self._read()  # keeps the ring from overflowing, however many threads have waited for memory
            result = self._results[batch] = ProduceRequestResult(topic_partition, batch, self._weakly)
            memory.words[header + self._contributor_at] |= self._contributor_bit
        return result

    def contribute_new(
        self, topic_partition: TopicPartition, batches: list[int], headers: list[int]
    ) -> list[ProduceRequestResult]:
        """Note that this process contributes to batches that are yet to be placed, in memory that it has taken.

        To have read the ring before the first will do for all: their slots are nobody else's meanwhile.

        Args:
            topic_partition: where they go.
            batches: their ids.
            headers: the word index of the header of each.
        """
        words = self._memory.words
        if words[self._ring.tail_at] != self._ring.head:
            self._read()
        for header in headers:
            words[header + self._contributor_at] = self._contributor_bit
        results = []
        for batch in batches:
            result = self._results[batch] = ProduceRequestResult(topic_partition, batch, self._weakly)
            results.append(result)
        return results

    def forget(self, batch: int) -> None:
        """Take a `contribute` to a batch that came to nothing back."""
        self._results.pop(batch, None)

    # --- listening ----------------------------------------------------------------------------------

    def poll(self) -> None:
        """Read what there is to read, resolve futures and run callbacks; in a forked child, be a process first."""
        ring = self._ring
        if self._memory.words[ring.tail_at] == ring.head and not self._callbacks.due:
            return
        self.check_process()
        self._read()
        self._callbacks.run()

    def _read(self) -> None:
        """Settle the results that the ring has something of."""
        with self._reading:
            ring = self._ring
            ring.check()
            while (outcome := ring.first()) is not None:
                result = self._results.get(outcome.batch)
                if result is not None:  # otherwise it was told twice, or meant for this table entry's last process
                    self._settle(result, outcome)
                ring.take(outcome)

    def _give_up_lost(self) -> None:
        """Settle, by an error, what nobody will tell of: batches that are in their slots no more.

        Whoever frees a slot tells of its batch before. So a batch that is gone, and of which the ring, read after that,
        says nothing, went with a damaged header.
        """
        gone = [batch for batch in list(self._results) if not self._is_there(batch)]
        if not gone:
            return
        with self._reading:
            self._read()
            for batch in gone:
                result = self._results.pop(batch, None)
                if result is not None:
                    slot = batch & BATCH_SLOT_MASK
                    what = f"a batch of {result.topic_partition} is gone from slot {slot}, and nothing was told of it"
                    result.settle(Part(result.told, -1, -1, partial(self._slab.damaged, what)), 0)
                    self._callbacks.told_of(batch)

    def _is_there(self, batch: int) -> bool:
        """Return whether a slot still has the batch of that id."""
        words, header = self._slab.words, self._slab.geometry.header(batch & BATCH_SLOT_MASK)
        is_same = words[header + Slot.GENERATION] == batch >> BATCH_SLOT_BITS
        return bool(is_same and words[header + Slot.STATE] & STATE_MASK != SlotState.FREE)

    def _settle(self, result: ProduceRequestResult, outcome: Outcome) -> None:
        failure = None if outcome.error is None else self._failure(result.topic_partition, outcome)
        result.settle(Part(outcome.first, outcome.base_offset, outcome.append_time_ms, failure), outcome.records)
        self._callbacks.told_of(outcome.batch)
        if not outcome.records:
            self._results.pop(outcome.batch, None)

    def _failure(self, topic_partition: TopicPartition, outcome: Outcome) -> Callable[[], ShmaccumError]:
        """Return what makes the error of records that were given up, with the words of its incident.

        They are read now: other incidents take its place. A batch whose time was over has another error than its last
        attempt had, if there was one; that, or what the sender met last, is the cause.
        """
        kind = outcome.error
        assert kind is not None
        message = f"{topic_partition}: {kind.meaning()}"
        absence = self.absence(topic_partition)
        if absence:
            message += f"; {absence}"
        incident = self._incidents.find(outcome.incident)
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
        """Return what keeps the sender from sending, as far as is known, to be appended to an error; often empty."""
        return self._slab.trouble()

    def call_back(self, callback: DeliveryCallback, future: FutureRecordMetadata) -> None:
        """Have a callback called when its record is done; at once if it is."""
        self._callbacks.add(future.batch, callback, future)
        if future.is_done:
            self._callbacks.run_of(future.batch)

    def has_callbacks(self) -> bool:
        """Say whether there are callbacks that are to be called yet."""
        return bool(self._callbacks)

    def wait_until(
        self, condition: Callable[[], bool], timeout_s: float | None, batches: Callable[[], int] = lambda: 1
    ) -> bool:
        """Wait until the condition holds, polling as completions come; False if the time ran out first.

        Args:
            condition: what to wait for.
            timeout_s: for how long; None for as long as it takes.
            batches: returns how many batches must be done yet for it. Where those are many, completions are read when
                half of them are there, and so on, for to be woken costs more than to read some.

        Raises:
            IllegalStateError: the slab has been detached, perhaps meanwhile.
        """
        wakeup = self._slab.wakeup
        wakeup.check_open()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self.poll()
            if condition():
                return True
            with wakeup.listening() as listener:
                while True:
                    self.poll()
                    if condition():
                        return True
                    remaining = WAIT_SLICE_S if deadline is None else deadline - time.monotonic()
                    if remaining <= 0:
                        return False
                    expected = self._ring.head + (batches() + 1) // 2
                    listener.expect(expected)
                    if self._memory.words[self._ring.tail_at] >= expected:
                        continue
                    self.while_waiting()
                    if not listener.wait(min(remaining, WAIT_SLICE_S)):
                        self._give_up_lost()
        except (ValueError, IndexError, OSError):
            wakeup.check_open()  # another thread has detached the slab: memory and files are not there any more
            raise

    def heard(self) -> int:
        """Return how many completions this process has read."""
        return self._ring.head

    def is_waiting(self) -> bool:
        """Say whether anything is not settled."""
        return bool(self._results)

    def incomplete(self) -> list[ProduceRequestResult]:
        """Return the results that are not settled."""
        return list(self._results.values())

    # --- flushing -----------------------------------------------------------------------------------

    def begin_flush(self) -> None:
        """Make everything in the slab sendable at once, until `end_flush` by the same thread."""
        with self._reading:
            me = threading.get_ident()
            self._flushes[me] = self._flushes.get(me, 0) + 1
            self._count_flushes()
        self._slab.button.press()

    def end_flush(self) -> None:
        """Take a `begin_flush` back."""
        with self._reading:
            self._flushes[threading.get_ident()] -= 1
            self._count_flushes()

    def settle(self) -> None:
        """Take the flushes back that an interrupt kept this thread from ending."""
        with self._reading:
            self._flushes.pop(threading.get_ident(), None)
            self._count_flushes()

    def _count_flushes(self) -> None:
        self._memory.words[self.process_at + Process.FLUSHING] = sum(self._flushes.values())


def _caused_by(incident: IncidentInfo | None, kind: type[KafkaError], message: str) -> KafkaError:
    """Return an error whose cause is an incident, if there is one."""
    error = kind(message)
    if incident is not None:
        error.__cause__ = incident.error(incident.text)
    return error


def _do_nothing() -> None:
    pass
