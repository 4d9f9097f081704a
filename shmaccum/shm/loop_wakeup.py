"""Wakes the asyncio event loops of a process, by a descriptor that they poll.

A process with event loops has a FIFO like the sender's, its *loop doorbell*. Each of its loops polls a descriptor of
its own of that FIFO. The word `Process.LOOP_ASLEEP`, which only the process writes, is set while a task or callback
listens. Another process makes its change, reads the word, and writes a byte only if it is set (`Wakeups`). So a process
without a loop costs the others one read. No wake-up is lost, by the same order of steps as in `shmaccum.shm.wakeup`.

One byte wakes all the loops. The first one to run reads it, and wakes the others by ``call_soon_threadsafe``, since
they can find the FIFO empty. No thread takes part. A loop that is busy is not pressed again for completions: it has a
byte to read.

The FIFO is in /dev/shm with the slab's other files, mode 0600 and under a name that only users of the slab can know. It
stays for the entry's next process, like the wake-up semaphore, and goes with the slab. What happens when:

* A process dies: presses go nowhere until another process takes the entry, which resets the word.
* A presser dies between its change and the press: a listener looks again when its slice of waiting runs out.
* A process forks: the child forgets the parent's loops, and closes its copies of their descriptors. It leaves the
  loops alone: it shares their epoll with the parent. Its loops get the doorbell of its entry.
* A loop is closed: it no longer polls. Its descriptor is closed when another loop first uses the slab, or when the
  process leaves the slab.
* The process leaves the slab: all listeners end with an IllegalStateError.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from shmaccum._core import Process
from shmaccum.errors import IllegalStateError, SlabPermissionError
from shmaccum.shm import native
from shmaccum.shm.files import NAME_ATTEMPTS, Descriptor, open_own, read_presses
from shmaccum.shm.slab import Slab
from shmaccum.shm.wakeup import Question, Result, Slices

W = TypeVar("W", bound="LoopWakeup")

IDLE_S: Final = 1.0
"""A loop polls its descriptor for this long after its last listener, since the next one often comes soon."""


class LoopDoorbell(Generic[W]):
    """The loop doorbell of one process. Loops in several threads can share it.

    ``make`` returns what wakes a loop: a `LoopWakeup`.
    """

    def __init__(self, slab: Slab, make: Callable[[LoopDoorbell[W], asyncio.AbstractEventLoop], W]) -> None:
        self._slab = slab
        self._make = make
        self._inherited: list[object] = []
        """Loops of the parent. They must not be collected here: a loop that is closed by that changes the epoll that it
        shares with the parent.
        """
        self.wakeups: dict[asyncio.AbstractEventLoop, W] = {}
        self._is_closed = False
        self._reset()
        slab.on_fork(self)
        slab.on_retire(self.close)

    def _reset(self) -> None:
        self.mutex = native.RLock()
        self._entry_at = -1
        self._listeners: dict[LoopListener, int] = {}
        """Each listener with the completion count to wake it at."""

    def forked(self) -> None:
        """Forget the parent's loops in a forked child."""
        self._inherited.append(self.wakeups)
        for wakeup in self.wakeups.values():
            wakeup.descriptor.close()
        self.wakeups = {}
        self._reset()

    def check_open(self) -> None:
        """Check that this process has not left the slab. Raises IllegalStateError: it has, or is about to."""
        if self._is_closed:
            raise IllegalStateError("the slab has been detached: this process gets no more wake-ups from it")

    def of_loop(self) -> W:
        """Return the wake-up of the running event loop.

        Raises:
            RuntimeError: none is running in this thread.
            IllegalStateError: the slab has been detached.
        """
        loop = asyncio.get_running_loop()
        wakeup = self.wakeups.get(loop)
        if wakeup is None:
            with self.mutex:
                self.check_open()
                for closed in [each for each in self.wakeups if each.is_closed()]:
                    self.wakeups.pop(closed).descriptor.close()
                wakeup = self.wakeups[loop] = self._make(self, loop)
        return wakeup

    def leave_loop(self) -> None:
        """Stop polling in the running event loop if nothing listens in it."""
        wakeup = self.wakeups.get(asyncio.get_running_loop())
        if wakeup is not None:
            wakeup.end_if_idle()

    def open(self) -> Descriptor:
        """Return a new descriptor of the FIFO, which is made if there is none.

        It has no number if the process has no descriptor left, or /dev/shm no room. A record can be accepted by now, so
        that is no error: a listener looks when its slice of waiting runs out.
        """
        words = self._slab.words
        with self.mutex:
            entry = self._slab.me
            self._entry_at = self._slab.geometry.process(entry)
            number_at = self._entry_at + Process.LOOP_DOORBELL
            for attempt in range(NAME_ATTEMPTS):
                path = self._slab.private.loop_doorbell_path(entry, words[number_at])
                try:
                    with contextlib.suppress(FileExistsError):
                        os.mkfifo(path, 0o600)
                    # For writing too: else a loop would read an end of file when the last writer closes.
                    return Descriptor(open_own(path, os.O_RDWR, kind=stat.S_IFIFO))
                except SlabPermissionError:
                    if attempt == NAME_ATTEMPTS - 1:
                        raise
                    words[number_at] += 1
                except OSError:
                    return Descriptor()
        raise AssertionError("unreachable")

    def expect(self, listener: LoopListener, completions: int) -> None:
        """Set a listener's completion count: the barrier before its check."""
        with self.mutex:
            self.check_open()
            self._listeners[listener] = max(1, completions)
            self._publish()

    def forget(self, listener: LoopListener) -> None:
        """Forget a listener."""
        with self.mutex:
            if self._listeners.pop(listener, None) is not None and not self._is_closed:
                self._publish()

    def _publish(self) -> None:
        """Publish the least count; a listener whose loop was closed in its wait no longer counts."""
        counts = self._listeners
        while counts and (least := min(counts, key=counts.__getitem__)).is_over():
            del counts[least]
        self._slab.words[self._entry_at + Process.LOOP_ASLEEP] = counts[least] if counts else 0

    def wake_all(self, except_for: LoopWakeup | None = None) -> None:
        """Wake the listeners of all loops; of the one in this thread at once."""
        for wakeup in list(self.wakeups.values()):
            if wakeup is not except_for:
                with contextlib.suppress(RuntimeError):  # its loop is closed
                    wakeup.loop.call_soon_threadsafe(wakeup.wake)

    def close(self) -> None:
        """End all waits, and stop polling; this process leaves the slab."""
        with self.mutex:
            self._is_closed = True
            wakeups, self.wakeups = list(self.wakeups.values()), {}
            if self._listeners and self._entry_at >= 0:
                self._slab.words[self._entry_at + Process.LOOP_ASLEEP] = 0
            self._listeners = {}
        for wakeup in wakeups:
            wakeup.is_over = True
            if wakeup.loop.is_closed():
                wakeup.descriptor.close()
                continue
            try:
                wakeup.loop.call_soon_threadsafe(wakeup.end)
            except RuntimeError:  # it was closed just now
                wakeup.descriptor.close()


class LoopWakeup:
    """What wakes one event loop, and the listeners in it. All but the constructor runs in the loop's thread.

    Its descriptor of the FIFO is its own. ``is_over``: whether the process has left the slab.
    """

    def __init__(self, doorbell: LoopDoorbell[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.loop: Final = loop
        self.is_over = False
        self.descriptor: Final = doorbell.open()
        self.doorbell: Final = doorbell
        self.listeners: dict[LoopListener, None] = {}
        """In the order in which they began, which is the order in which they wake."""
        self._idle: asyncio.TimerHandle | None = None
        if self.descriptor.number >= 0:
            loop.add_reader(self.descriptor.number, self._on_press)

    @contextmanager
    def listening(self, completions: int = 1) -> Iterator[LoopListener]:
        """Listen as of `LoopListener.expect`: in the block, check your condition, and wait only if it does not hold."""
        listener = LoopListener(self)
        try:
            listener.expect(completions)
            yield listener
        finally:
            listener.stop()

    def forget(self, listener: LoopListener) -> None:
        """Forget a listener; without others, the loop stops polling after `IDLE_S`."""
        self.listeners.pop(listener, None)
        self.doorbell.forget(listener)
        if not self.listeners and self._idle is None and not self.is_over and not self.loop.is_closed():
            self._idle = self.loop.call_later(IDLE_S, self.end_if_idle)

    def wake(self) -> None:
        """Wake all listeners of this loop."""
        for listener in list(self.listeners):
            listener.wake()

    def end_if_idle(self) -> None:
        """Stop polling if nothing listens."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self.listeners:
            with self.doorbell.mutex:
                if self.doorbell.wakeups.get(self.loop) is self:
                    del self.doorbell.wakeups[self.loop]
            self.end()

    def end(self) -> None:
        """Stop polling, and end the waits of this loop."""
        self.is_over = True
        if self.descriptor.number >= 0:
            self.loop.remove_reader(self.descriptor.number)
            self.descriptor.close()
        self.wake()

    def _on_press(self) -> None:
        """Read the presses, and wake the listeners of all loops: the others can find nothing to read."""
        if read_presses(self.descriptor.number):  # else another loop has read them, and wakes us
            self.doorbell.wake_all(except_for=self)
            self.wake()


class LoopListener:
    """A task, or a callback, that listens in one event loop.

    ``call`` is called at each wake-up; without it, wait by `wait`.
    """

    def __init__(self, wakeup: LoopWakeup, call: Callable[[], None] | None = None) -> None:
        self._wakeup = wakeup
        self._call = call
        self._was_woken = False
        self._waiting: asyncio.Future[None] | None = None

    def expect(self, completions: int) -> None:
        """Listen; wake only at that completion count, and for other events. Check your condition before you wait."""
        self._wakeup.listeners[self] = None
        self._wakeup.doorbell.expect(self, completions)

    def is_over(self) -> bool:
        """Return whether its loop is closed."""
        return self._wakeup.loop.is_closed()

    def stop(self) -> None:
        """Stop listening."""
        self._wakeup.forget(self)

    def wake(self) -> None:
        """Wake this listener."""
        self._was_woken = True
        if self._waiting is not None:
            set_done(self._waiting)
        if self._call is not None:
            self._call()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a wake-up, or take one since the last wait; False at a timeout. IllegalStateError: detached."""
        loop = self._wakeup.loop
        if not self._was_woken and not self._wakeup.is_over:
            self._waiting = waiting = loop.create_future()
            timer = loop.call_later(timeout_s, set_done, waiting)
            try:
                await waiting
            finally:
                timer.cancel()
                self._waiting = None
        self._wakeup.doorbell.check_open()
        was_woken, self._was_woken = self._was_woken, False
        return was_woken

    async def wait_for(self, slices: Slices[Result], before_wait: Callable[[], Awaitable[None]]) -> Result:
        """Run a wait to its end, in this task, as `shmaccum.shm.wakeup.Listener.wait_for` does in a thread."""

        async def wait(slice_s: float) -> bool:
            await before_wait()
            return await self.wait(max(0.0, slice_s))

        return await run_in_loop(slices, wait)


async def run_in_loop(
    call: Generator[Question, Any, Result], answer_to: Callable[[Question], Awaitable[object]]
) -> Result:
    """Run a generator to its end, in this task, as `shmaccum.shm.wakeup.run_to_end` does in a thread."""
    answer: object = None
    try:
        while True:
            try:
                question = call.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            answer = await answer_to(question)
    finally:
        call.close()


def set_done(future: asyncio.Future[None]) -> None:
    """End a wait, unless it is over."""
    if not future.done():
        future.set_result(None)
