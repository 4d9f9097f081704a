"""Wakes sleeping processes; costs nothing while they are awake.

Each producer has a wake-up semaphore, named after its process entry, and the word `Process.ASLEEP`, which only it
writes: set while one of its threads listens. Another process makes its change, reads the word, and posts only if it is
set. A listener for many completions sets the count to wake at, so that it does not wake for each.
The sender has the *doorbell*, a FIFO, so that it can wait for it and its sockets at once. So have the event loops of a
process (`shmaccum.shm.loop_wakeup`), with a word of its entry, `Process.LOOP_ASLEEP`, in the place of ASLEEP.

No wake-up is lost. A listener first sets its word, then checks its condition, then sleeps. A waker first makes its
change, then reads the word. Between the two steps, both have a full memory barrier: a fence, or that of a semaphore or
mutex. If a waker dies between its change and its post, the listener wakes when its slice of waiting runs out.

A sender that sleeps for a known time publishes when it will wake (`Doorbell.sleep_until`). Work that it needs only then
does not press the doorbell (`DoorbellButton.is_needed_by`). It clears that time before each check, in the same order.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

import posix_ipc

from shmaccum._core import Geometry, Process, SemaphoreWait, Super, memory_fence
from shmaccum.errors import IllegalStateError, ShmaccumError, SlabAbiError
from shmaccum.shm import native
from shmaccum.shm.files import Descriptor, open_own, open_semaphore, open_wakeup, read_presses
from shmaccum.shm.names import PrivateNames

NO_COMPLETIONS: Final = (1 << 63) - 1
"""More completions than there will ever be, for listeners that wait for other things (`Listener.expect`)."""


Question = TypeVar("Question")
Result = TypeVar("Result")
Slices: TypeAlias = Generator[float, bool | None, Result]
"""A wait: it yields how long to listen, in seconds, gets whether a wake-up came, and returns its result."""


def run_to_end(call: Generator[Question, Any, Result], answer_to: Callable[[Question], object]) -> Result:
    """Run a generator to its end, with an answer to all that it yields; return its result."""
    answer: object = None
    try:
        while True:
            try:
                question = call.send(answer)
            except StopIteration as end:
                result: Result = end.value
                return result
            answer = answer_to(question)
    finally:
        call.close()  # the first call here: an interrupt cannot come before it


class Listener:
    """One thread that listens for its process's wake-ups."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._seen = self._wakeup.count

    def expect(self, completions: int) -> None:
        """Wake only at that completion count of the ring, and for other events: check again before you wait."""
        with self._wakeup.mutex:
            self._wakeup.expect(self, completions)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a wake-up, or return at once if one came since the last wait; return False at a timeout.

        One thread at a time waits for the semaphore, and passes a wake-up on to all the others: only their own
        conditions show which of them it is for. Wait in slices (`SemaphoreWait`).

        In a program patched for greenlets it polls: greenlets and threads cannot wait for the same lock.
        """
        return native.poll(self._check, timeout_s) if native.is_patched() else self._wait(timeout_s)

    def wait_for(self, slices: Slices[Result], before_wait: Callable[[], object]) -> Result:
        """Run a wait to its end, in this thread; return its result. ``before_wait`` is called before each slice."""

        def wait(slice_s: float) -> bool:
            before_wait()
            return self.wait(slice_s)

        return run_to_end(slices, wait)

    def _check(self) -> bool:
        """Return whether a wake-up came since the last wait; without a system call if none did."""
        wakeup = self._wakeup
        if wakeup.count == self._seen and not wakeup.is_closed and not wakeup.semaphore.value:
            return False
        return self._wait(0.0)

    def _wait(self, timeout_s: float) -> bool:
        wakeup = self._wakeup
        mine = 0
        woken: list[None] = []
        try:
            with wakeup.mutex:
                wakeup.check_open()
                if wakeup.count == self._seen and wakeup.waiting:
                    # The thread that waited can notify late, when we listen already and yet another thread waits.
                    wakeup.changed.wait_for(self._can_return, timeout_s)
                    wakeup.check_open()
                if wakeup.count != self._seen:
                    self._seen = wakeup.count
                    return True
                if wakeup.waiting:
                    return False
                wakeup.waiting = mine = threading.get_ident()
            wakeup.wait.into(woken, timeout_s)
        finally:
            if mine:
                # No call between these: an interrupt must not leave `waiting` set while no thread waits.
                if woken:
                    wakeup.count += 1
                self._seen = wakeup.count
                wakeup.waiting = 0
                with wakeup.mutex:
                    if len(wakeup.listeners) > 1 or wakeup.is_closed:
                        wakeup.changed.notify_all()
        wakeup.check_open()
        return bool(woken)

    def _can_return(self) -> bool:
        """Return whether a wake-up came, no thread waits for the semaphore, or it is closed."""
        return self._wakeup.count != self._seen or not self._wakeup.waiting or self._wakeup.is_closed


class Wakeup:
    """This process's wake-up semaphore, shared by its threads."""

    # No `__dict__`: eventlet replaces each RLock that it finds in one, but not those inside a condition.
    __slots__ = (
        "_asleep_at",
        "_words",
        "changed",
        "count",
        "is_closed",
        "listeners",
        "mutex",
        "semaphore",
        "wait",
        "waiting",
    )

    def __init__(self, private: PrivateNames, entry: int, words: memoryview, geometry: Geometry) -> None:
        self.semaphore = open_wakeup(private, entry, words, geometry.process(entry) + Process.WAKEUP)
        self.wait = SemaphoreWait(self.semaphore.name)
        self.count = 0
        self._words = words
        self._asleep_at = geometry.process(entry) + Process.ASLEEP
        self.is_closed = False
        self.forked()

    def forked(self) -> None:
        """Forget the parent's threads in a forked child."""
        self.mutex = native.RLock()  # used directly: acquiring it through the condition is much slower
        self.changed = threading.Condition(self.mutex)
        self.waiting = 0
        """The thread that waits for the semaphore, 0 for none."""
        self.listeners: dict[Listener, int] = {}
        """Each listener with the completion count to wake it at."""

    def check_open(self) -> None:
        """Check that it is not closed. Raises IllegalStateError: it has been closed, perhaps by another thread."""
        if self.is_closed:
            raise IllegalStateError("the slab has been detached: this process gets no more wake-ups from it")

    @contextmanager
    def listening(self, completions: int = 1) -> Iterator[Listener]:
        """Listen as of `Listener.expect`: in the block, check your condition, and wait only if it does not hold."""
        listener = Listener(self)
        try:
            with self.mutex:
                self.expect(listener, completions)
            yield listener
        finally:
            with self.mutex:
                self.listeners.pop(listener, None)
                if not self.is_closed:
                    self._words[self._asleep_at] = min(self.listeners.values(), default=0)

    def expect(self, listener: Listener, completions: int) -> None:
        """Set a listener's completion count; under `mutex`, the barrier before its check."""
        self.listeners[listener] = max(1, completions)
        self._words[self._asleep_at] = min(self.listeners.values())

    def close(self) -> None:
        """End the waits of all threads and close the semaphore; its name stays for the entry's next process."""
        with self.changed:
            if self.waiting and not self.is_closed:
                self.semaphore.release()
            self.is_closed = True
            self.changed.notify_all()
            # A signal handler that runs in the waiting thread's wait can call this: the wait ends behind it.
            self.changed.wait_for(lambda: self.waiting in (0, threading.get_ident()))
        with contextlib.suppress(posix_ipc.ExistentialError):  # closed before an interrupt
            self.semaphore.close()


class Wakeups:
    """Wakes other processes by their wake-up semaphores, and their event loops by their doorbells."""

    def __init__(self, private: PrivateNames, words: memoryview, geometry: Geometry) -> None:
        self._private = private
        self._words = words
        self._geometry = geometry
        self._mutex = native.RLock()  # reentrant: a signal's handler can wake, too
        self._semaphores: dict[tuple[int, int], posix_ipc.Semaphore] | None = {}
        """By process entry and its word `Process.WAKEUP`."""
        self._doorbells: dict[tuple[int, int], Descriptor] = {}
        """By process entry and its word `Process.LOOP_DOORBELL`."""
        self._pressed: dict[int, int] = {}
        """By process entry: the `Process.LOOP_ASLEEP` for which completions have pressed its doorbell. A loop that has
        looked since then has stored a larger one.
        """

    def wake(self, entry: int) -> None:
        """Wake the process of an entry if it listens; call it after the change that it waits for."""
        if self._words[self._geometry.process(entry) + Process.LOOP_ASLEEP]:
            self._press(entry)
        self._post(entry)

    def _post(self, entry: int) -> None:
        """Post the wake-up semaphore of an entry if one of its threads listens."""
        if not self._words[self._geometry.process(entry) + Process.ASLEEP]:
            return
        with self._mutex:
            if self._semaphores is None:
                return  # another thread has left the slab
            wakeup = entry, self._words[self._geometry.process(entry) + Process.WAKEUP]
            semaphore = self._semaphores.get(wakeup)
            if semaphore is None:
                try:
                    semaphore = open_semaphore(self._private.wakeup_semaphore(*wakeup))
                except FileNotFoundError:
                    return  # the process is still attaching, and checks before it waits
                except (OSError, ShmaccumError):
                    return  # no descriptor, or a foreign semaphore: the listener's slice runs out soon
                self._semaphores[wakeup] = semaphore
            semaphore.release()

    def wake_for_completions(self, entry: int) -> None:
        """Wake the process of an entry if it listens and its completion count is reached."""
        words, process = self._words, self._geometry.process(entry)
        tail, loop_asleep = words[process + Process.RING_TAIL], words[process + Process.LOOP_ASLEEP]
        if loop_asleep and tail >= loop_asleep and self._pressed.get(entry) != loop_asleep:
            self._press(entry)
            self._pressed[entry] = loop_asleep
        if tail >= words[process + Process.ASLEEP]:
            self._post(entry)

    def _press(self, entry: int) -> None:
        """Press the doorbell of an entry's event loops; if that fails, their slice runs out soon."""
        with self._mutex:
            if self._semaphores is None:
                return
            doorbell = entry, self._words[self._geometry.process(entry) + Process.LOOP_DOORBELL]
            fifo = self._doorbells.get(doorbell)
            # A full FIFO (BlockingIOError) wakes them too.
            with contextlib.suppress(OSError, ShmaccumError):
                if fifo is None or not fifo.is_ours():
                    # For reading too: without a reader, after the process's death, a write would be a SIGPIPE.
                    path = self._private.loop_doorbell_path(*doorbell)
                    fifo = self._doorbells[doorbell] = Descriptor(open_own(path, os.O_RDWR, kind=stat.S_IFIFO))
                native.write(fifo.number, b"!")

    def close(self) -> None:
        """Close all semaphores and doorbells; `wake` does nothing from now on."""
        with self._mutex:
            semaphores, self._semaphores = self._semaphores, None
            for semaphore in (semaphores or {}).values():
                semaphore.close()
            for fifo in self._doorbells.values():
                fifo.close()
            self._doorbells = {}


class Doorbell:
    """The sender's end of its doorbell.

    Attributes:
        descriptor: readable after a press; for the transport to wait on.
        is_listening: whether `listen` was called since the last `answer`.

    Raises:
        SlabAbiError: the FIFO does not exist.
        SlabPermissionError: it does not belong to this user alone.
    """

    def __init__(self, private: PrivateNames, words: memoryview) -> None:
        self._words = words
        self.is_listening = False
        path = private.doorbell_path()
        try:
            # Opened for writing too: else the sender would read an end of file when the last writer closes.
            self.descriptor: Final = open_own(path, os.O_RDWR, kind=stat.S_IFIFO)
        except FileNotFoundError:
            raise SlabAbiError(
                f"{path} does not exist; `shmaccum destroy --force` removes the rest of the slab"
            ) from None

    def listen(self) -> None:
        """Ask for wake-ups from now on; check for work after this and before waiting."""
        self._words[Super.SENDER_WAKES] = 0
        # The time also identifies the sleep, among those of all senders.
        self._words[Super.SENDER_ASLEEP] = time.monotonic_ns()
        memory_fence()  # a process that still reads the old word made its change before this check
        self.is_listening = True

    def sleep_until(self, time_ms: float) -> None:
        """Publish by when, in monotonic ms, the next check for work is: after one, before a wait, while listening."""
        if self.is_listening:
            self._words[Super.SENDER_WAKES] = math.ceil(time_ms)

    def look(self) -> None:
        """Clear the published time before another check for work, still listening."""
        if self.is_listening and self._words[Super.SENDER_WAKES]:
            self._words[Super.SENDER_WAKES] = 0
            memory_fence()  # a process that still reads the old time made its change before this check

    def answer(self) -> None:
        """Stop listening, and discard the presses so far: also late ones, or `ring`, while it did not listen."""
        self._words[Super.SENDER_ASLEEP] = 0
        self.is_listening = False
        read_presses(self.descriptor)

    def ring(self) -> None:
        """Wake this sender itself, from a signal handler."""
        with contextlib.suppress(BlockingIOError):  # a full FIFO wakes it too
            os.write(self.descriptor, b"!")

    def close(self) -> None:
        """Close the FIFO."""
        os.close(self.descriptor)


class DoorbellButton:
    """Every other process's end of the sender's doorbell."""

    def __init__(self, private: PrivateNames, words: memoryview) -> None:
        self._path = private.doorbell_path()
        self._words = words
        self._mutex = native.RLock()
        self.fifo = Descriptor()
        self._closed = False
        self._rung = 0
        """The last sleep that this process ended (`Super.SENDER_ASLEEP`)."""

    def open(self) -> None:
        """Open the FIFO before descriptors become scarce; reopen it if the program has closed it.

        Raises:
            OSError: this process has no descriptor left.
            SlabPermissionError: the FIFO does not belong to this user alone.
        """
        if not self.fifo.is_ours():
            self.fifo = Descriptor()
            with contextlib.suppress(FileNotFoundError):
                # For reading too: without a reader, after the sender's death, a write would be a SIGPIPE.
                self.fifo = Descriptor(open_own(self._path, os.O_RDWR, kind=stat.S_IFIFO))

    def press(self, due_ms: int = 0) -> None:
        """Wake the sender if it sleeps, unless it will wake by itself within ``due_ms``, when it is needed.

        Call it after the change that concerns the sender. A sleep needs only one press of a process, however long the
        sender takes to wake.
        """
        # Only the sender clears the word: if we die before the press, the next process still presses.
        asleep = self._words[Super.SENDER_ASLEEP]
        if asleep in (0, self._rung):
            return
        if due_ms:
            now_ms = time.monotonic_ns() // 1_000_000
            if not self.is_needed_by(now_ms + due_ms, now_ms):
                return
        # Failures are not raised: the caller's change is made, and a sender that is not woken still wakes at its
        # sleep's end.
        with self._mutex:
            if self._closed:
                return  # another thread has left the slab
            try:
                self.open()
                with contextlib.suppress(BlockingIOError):  # a full FIFO wakes it too
                    native.write(self.fifo.number, b"!")
            except (OSError, ShmaccumError):
                return
            self._rung = asleep

    def is_needed_by(self, due_ms: int, now_ms: int) -> bool:
        """Return whether a sleeping sender must be woken for work that is due at ``due_ms``.

        It must not if it will wake in time on its own. A published time in the past does not count: it can be that of a
        dead sender.
        """
        return not now_ms < self._words[Super.SENDER_WAKES] <= due_ms

    def close(self) -> None:
        """Close the FIFO; `press` does nothing from now on."""
        with self._mutex:
            self._closed = True
            self.fifo.close()
