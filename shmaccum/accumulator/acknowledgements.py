"""What a process waits to hear of: the batches that it contributed to, and are not done.

The process reads its completion ring when it appends, polls, flushes or waits; futures resolve and callbacks run
then, in order, in whichever thread it is.

Modelled in ``tools/model/pool.pml``.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from shmaccum.accumulator.completion import RingReader
from shmaccum.accumulator.futures import Part, ProduceRequestResult, error_of
from shmaccum.cluster import TopicPartition
from shmaccum.errors import DeadOwnerError
from shmaccum.shm.layout import BATCH_SLOT_BITS, Process, Slot
from shmaccum.shm.slab import Slab

_GENERATION: Final = Slot.GENERATION

WAIT_SLICE_S: Final = 0.25
"""How long a wait for the sender sleeps before it makes sure that there is one."""


class Acknowledgements:
    """The completion ring of this process, and the results that it will settle.

    Attributes:
        while_waiting: called before a wait for the sender and now and then during it, under no lock: the place
            to see to it that there is one.
    """

    def __init__(self, slab: Slab) -> None:
        self.while_waiting: Callable[[], None] = _do_nothing
        self._joining = threading.Lock()
        self._slab = slab
        self._words = slab.words
        self._memory = slab.memory
        self._join()
        slab.on_fork(self._forked)

    def _join(self) -> None:
        me = self._slab.me
        self._pending: dict[int, ProduceRequestResult] = {}
        self._flushes: dict[int, int] = {}
        self._ring = RingReader(self._slab.name, self._words, self._slab.geometry, me)
        self._reading = threading.RLock()  # a signal's handler may poll, too
        self._calling = threading.Lock()
        self._to_call: deque[ProduceRequestResult] = deque()
        self._contributor_at = Slot.CONTRIBUTORS + me // 64
        self._contributor_bit = 1 << me % 64
        self.process_at = self._slab.geometry.process(me)
        """Word index of this process's table entry."""
        self._pid = os.getpid()

    def _forked(self) -> None:
        """Forget, in a forked child, what is the parent's to wait for."""
        for result in self._pending.values():
            result.callbacks.clear()
            error = DeadOwnerError(f"this future belongs to process {self._pid}, which forked this one")
            result.settle(Part(result.told, -1, -1, error), 0)
        self._pending = {}
        self._joining = threading.Lock()
        self._ring.head = -1  # unlike any tail: so `poll` needs only one look to find out about both
        self._pid = -1

    def check_process(self) -> None:
        """Be a process of the slab's, if this is a forked child that is not yet."""
        if self._pid > 0:
            return
        with self._joining:
            if self._pid < 0:
                with self._slab.tables_lock:
                    pass  # the first use of any lock takes the child's own place in the slab
                self._join()

    # --- contributing -------------------------------------------------------------------------------

    def contribute(self, topic_partition: TopicPartition, slot: int, header: int) -> ProduceRequestResult:
        """Return the result object of the batch in a slot; the first time, note in its header that we wait for it.

        Under the partition's lock and before the commit of what we contribute: whoever completes the batch sees it.
        """
        batch = self._memory.words[header + _GENERATION] << BATCH_SLOT_BITS | slot
        result = self._pending.get(batch)
        if result is None:
            if self._words[self._ring.tail_at] != self._ring.head:
                self._read()  # keeps the ring from overflowing, however many threads have waited for memory
            result = self._pending[batch] = ProduceRequestResult(topic_partition, self)
            self._words[header + self._contributor_at] |= self._contributor_bit
        return result

    def contribute_new(
        self, topic_partition: TopicPartition, batches: Sequence[int], headers: Sequence[int]
    ) -> list[ProduceRequestResult]:
        """Note that this process contributes to batches that are yet to be placed, in memory that it has taken.

        To have read the ring before the first will do for all: their slots are nobody else's meanwhile.

        Args:
            topic_partition: where they go.
            batches: their ids.
            headers: the word index of the header of each.
        """
        if self._words[self._ring.tail_at] != self._ring.head:
            self._read()
        for header in headers:
            self._words[header + self._contributor_at] = self._contributor_bit
        results = [ProduceRequestResult(topic_partition, self) for _ in batches]
        self._pending.update(zip(batches, results, strict=True))
        return results

    def forget(self, batch: int) -> None:
        """Take a `contribute` to a batch that came to nothing back."""
        self._pending.pop(batch, None)

    # --- listening ----------------------------------------------------------------------------------

    def poll(self) -> None:
        """Read what there is to read, resolve futures and run callbacks; in a forked child, be a process first."""
        ring = self._ring
        if self._memory.words[ring.tail_at] == ring.head and not self._to_call:
            return
        self.check_process()
        self._read()
        # One thread runs the callbacks, so that they come in order; without a lock, so that they may append.
        while self._to_call and self._calling.acquire(blocking=False):
            try:
                while self._to_call:
                    self._to_call.popleft().run_callbacks()
            finally:
                self._calling.release()

    def _read(self) -> None:
        """Settle the results that the ring has something of."""
        with self._reading:
            for outcome in self._ring.read():
                result = self._pending.get(outcome.batch)
                if result is None:
                    continue  # told twice, or meant for this table entry's last process
                error = None if outcome.error is None else error_of(outcome.error, result.topic_partition)
                part = Part(outcome.first, outcome.base_offset, outcome.append_time_ms, error)
                result.settle(part, outcome.records)
                if result.callbacks:
                    self._to_call.append(result)
                if result.done:
                    self._pending.pop(outcome.batch, None)

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
        bell = self._slab.bell
        bell.check_open()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self.poll()
            if condition():
                return True
            with bell.listening() as ear:
                while True:
                    self.poll()
                    if condition():
                        return True
                    remaining = WAIT_SLICE_S if deadline is None else deadline - time.monotonic()
                    if remaining <= 0:
                        return False
                    expected = self._ring.head + (batches() + 1) // 2
                    ear.expect(expected)
                    if self._memory.words[self._ring.tail_at] >= expected:
                        continue
                    self.while_waiting()
                    ear.wait(min(remaining, WAIT_SLICE_S))
        except (ValueError, OSError):
            bell.check_open()  # another thread has detached the slab: memory and files are not there any more
            raise

    def incomplete(self) -> list[ProduceRequestResult]:
        """Return the results that are not settled."""
        return list(self._pending.values())

    # --- flushing -----------------------------------------------------------------------------------

    def begin_flush(self) -> None:
        """Make everything in the slab sendable at once, until `end_flush` by the same thread."""
        with self._reading:
            me = threading.get_ident()
            self._flushes[me] = self._flushes.get(me, 0) + 1
            self._count_flushes()
        self._slab.rope.pull()

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
        self._words[self.process_at + Process.FLUSHING] = sum(self._flushes.values())


def _do_nothing() -> None:
    pass
