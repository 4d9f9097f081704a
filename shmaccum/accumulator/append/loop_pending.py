"""Batches this process contributed to that are not yet complete, as tasks of an event loop wait for them.

The counterpart of `PendingBatches.wait_until` for asyncio. The loop's doorbell wakes it (`shmaccum.shm.loop_wakeup`),
it reads the process's completion ring in its own thread, and results resolve there. Whichever thread or loop of the
process reads a completion, it resolves the waits of every loop: its own at once, those of other loops by
``call_soon_threadsafe``.

While a task waits, its loop makes sure every `WAIT_SLICE_S` that there is a sender. It is started in a thread of the
loop's executor, since that takes half a second; if none can be started, the waits end with a SenderError.

A cancelled task stops waiting. Its record stays accepted, and the other waits go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from shmaccum._core import FutureRecordMetadata
from shmaccum.accumulator.append.waits import WAIT_SLICE_S
from shmaccum.errors import ShmaccumError
from shmaccum.shm.loop_wakeup import LoopDoorbell, LoopListener, LoopWakeup, set_done
from shmaccum.shm.slab import Slab
from shmaccum.shm.wakeup import NO_COMPLETIONS, Result, Slices

if TYPE_CHECKING:
    from shmaccum.accumulator.append.pending_batches import PendingBatches


class LoopPending(LoopWakeup):
    """What the tasks of one event loop wait by. Used in the loop's thread, where nothing else is said."""

    def __init__(
        self,
        slab: Slab,
        pending: PendingBatches,
        doorbell: LoopDoorbell[LoopPending],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(doorbell, loop)
        self._slab = slab
        self._pending = pending
        self._waiting: set[asyncio.Future[None]] = set()
        """For records, by tasks of this loop."""
        self._callbacks = 0
        """Functions of this loop to call when a record is complete."""
        self._keeps_listening = False
        self._listener = LoopListener(self, self._look)
        self._timer: asyncio.TimerHandle | None = None
        self._starting: asyncio.Future[None] | None = None

    # --- waiting for records ------------------------------------------------------------------------

    def until_complete(self, future: FutureRecordMetadata) -> Generator[Any, None, None]:
        """Wait until a record is complete.

        Raises:
            IllegalStateError: the producer was closed meanwhile.
            SenderError: there is no sender, and none could be started.
        """
        waiting = self.loop.create_future()
        self._waiting.add(waiting)
        try:
            self._pending.call_back(lambda error, metadata: self._resolve(waiting), future)
            self._listen()
            yield from waiting
        finally:
            self._waiting.discard(waiting)

    def call_when_done(self, function: Callable[[FutureRecordMetadata], Any], future: FutureRecordMetadata) -> None:
        """Call ``function(future)`` in this loop, and in the present context, when a record is complete."""
        self._callbacks += 1
        run = copy_context().run
        self._pending.call_back(lambda error, metadata: self._call(run, self._ran, function, future), future)
        self._listen()

    def run_callbacks(self) -> None:
        """Read completions in this loop for as long as there are callbacks that have not run."""
        self._keeps_listening = True
        self._listen()

    def _ran(self, function: Callable[[FutureRecordMetadata], Any], future: FutureRecordMetadata) -> None:
        self._callbacks -= 1
        function(future)

    def _resolve(self, waiting: asyncio.Future[None]) -> None:
        """End a wait, in any thread."""
        if asyncio._get_running_loop() is self.loop:
            set_done(waiting)
        else:
            self._call(set_done, waiting)

    def _call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function soon in this loop, in any thread; not if the loop is closed."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function, *args)

    def _is_needed(self) -> bool:
        if self._keeps_listening and not self._pending.has_callbacks():
            self._keeps_listening = False
        return bool(self._waiting) or self._callbacks > 0 or self._keeps_listening

    def _listen(self) -> None:
        """Listen while there is something to wait for, and look again."""
        if not self._is_needed():
            self._listener.stop()
            return
        expected = self._pending.heard() + 1
        self._listener.expect(expected)
        if self._pending.contributions.tail >= expected:
            self.loop.call_soon(self._look)
        if self._timer is None:
            self._timer = self.loop.call_later(WAIT_SLICE_S, self._check)

    def _look(self) -> None:
        """Read completions: resolve the waits, run callbacks."""
        try:
            self.doorbell.check_open()
            self._pending.poll()
            self._listen()
        except Exception as error:
            self._fail(error)

    def _check(self) -> None:
        """Look without a wake-up, for lost batches too, and make sure that there is a sender."""
        self._timer = None
        try:
            self.doorbell.check_open()
            if not self._is_needed():
                self._listener.stop()
                return
            if not self._slab.has_sender() and self._starting is None:
                self._starting = asyncio.ensure_future(self.ensure_sender())
                self._starting.add_done_callback(self._started)
            self._pending.give_up_lost()
        except Exception as error:
            self._fail(error)
        else:
            self._look()

    def _started(self, starting: asyncio.Future[None]) -> None:
        self._starting = None
        if not starting.cancelled() and (error := starting.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the waits for records with an error."""
        for waiting in self._waiting:
            if not waiting.done():
                # One for each wait: a shared one would collect their tracebacks.
                waiting.set_exception(type(error)(*error.args) if isinstance(error, ShmaccumError) else error)

    # --- waiting for conditions ---------------------------------------------------------------------

    def until(self, condition: Callable[[], bool]) -> Generator[Any, None, None]:
        """Wait until a condition holds that completions change."""
        return self.wait_until(condition, None).__await__()  # type: ignore[return-value]

    async def wait_until(
        self, condition: Callable[[], bool], timeout_s: float | None, batches: Callable[[], int] = lambda: 1
    ) -> bool:
        """Wait until the condition holds, as `PendingBatches.wait_until` does."""
        pending = self._pending
        pending.poll()
        if condition():
            return True
        with self.listening() as listener:
            waiting = pending.waiting(listener, condition, timeout_s, batches)
            return await listener.wait_for(waiting, self.ensure_sender)

    async def wait_for_memory(self, slices: Slices[Result]) -> Result:
        """Run a wait for memory to its end: `BufferPool.waiting`."""
        with self.listening(NO_COMPLETIONS) as listener:
            return await listener.wait_for(slices, self.ensure_sender)

    async def ensure_sender(self) -> None:
        """Start a sender if there is none, in a thread. Raises SenderError: none could be started."""
        if not self._slab.has_sender():
            await self.loop.run_in_executor(None, self._pending.while_waiting)
