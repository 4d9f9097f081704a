"""Wakeups: how a process is woken, at no cost to anyone while it is awake.

Every producer has a *wakeup*, a named semaphore of its table entry, and a word that says whether one of its
threads listens. Whoever did something that may concern it looks at the word and posts only where it is set. Who waits
for many completions says how many there must be, so that it is not woken for each.
The sender has the *doorbell*, a FIFO, so that it can wait for it and for its sockets at once.

No wake-up is lost: a listener first sets its word, then looks for what it waits for, and only then sleeps; a
ringer first makes its change, then reads the word. Both have a semaphore or mutex operation in between, which
is a full memory barrier.

A sender that sleeps for a known time says when it will look (`Doorbell.sleep_until`): what it has no use for before
then need not be rung for (`DoorbellButton.is_needed_by`). It takes that back before each look, in the same order.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import posix_ipc

from shmaccum.errors import IllegalStateError, ShmaccumError, SlabAbiError
from shmaccum.shm import native
from shmaccum.shm.clockwait import ClockWait
from shmaccum.shm.files import Descriptor, open_own
from shmaccum.shm.layout import Geometry, Process, Super
from shmaccum.shm.names import PrivateNames
from shmaccum.shm.semaphores import open_semaphore, open_wakeup

NO_COMPLETIONS: Final = (1 << 63) - 1
"""More than there will ever be: for those who wait for something else (`Listener.expect`)."""


class Listener:
    """One thread listening for its process's wakeup."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._heard = self._wakeup.rings

    def expect(self, completions: int) -> None:
        """Be rung for completions only once so many have been written to the ring of this process, ever.

        What is told other than by a completion rings all the same. Look once more before you wait.
        """
        with self._wakeup.mutex:
            self._wakeup.expect(self, completions)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the wakeup rings, or rang since the last look; False if the time ran out first.

        One thread at a time waits for the semaphore itself and passes a ring on to all the others: which of
        them it was for, only their own conditions tell. Signals are held back meanwhile, so wait in slices.

        In a program that is patched for greenlets it looks again and again: they and threads wait by different means.
        """
        return native.poll(self._hears, timeout_s) if native.is_patched() else self._wait(timeout_s)

    def _hears(self) -> bool:
        """Return whether the wakeup has rung since the last look; without a system call where it has not."""
        wakeup = self._wakeup
        if wakeup.rings == self._heard and not wakeup.is_closed and not wakeup.semaphore.value:
            return False
        return self._wait(0.0)

    def _wait(self, timeout_s: float) -> bool:
        wakeup = self._wakeup
        mine = False
        rang: list[None] = []
        try:
            with wakeup.mutex:
                wakeup.check_open()
                if wakeup.rings == self._heard and wakeup.waiting:
                    # Who has waited may tell of it only when we listen already, and yet another one waits.
                    wakeup.changed.wait_for(self._has_something_to_do, timeout_s)
                    wakeup.check_open()
                if wakeup.rings != self._heard:
                    self._heard = wakeup.rings
                    return True
                if wakeup.waiting:
                    return False
                wakeup.waiting = mine = True
            wakeup.clock_wait.into(rang, timeout_s)
        finally:
            if mine:
                # Without a call in between: an interrupt must not leave the others waiting for one who does not wait.
                if rang:
                    wakeup.rings += 1
                self._heard = wakeup.rings
                wakeup.waiting = False
                with wakeup.mutex:
                    if len(wakeup.listeners) > 1 or wakeup.is_closed:
                        wakeup.changed.notify_all()
        wakeup.check_open()
        return bool(rang)

    def _has_something_to_do(self) -> bool:
        """Say whether there is a ring to hear, or nobody who waits for one; or the wakeup is closed."""
        return self._wakeup.rings != self._heard or not self._wakeup.waiting or self._wakeup.is_closed


class Wakeup:
    """This process's wakeup; its threads share it."""

    # Without a `__dict__`: eventlet replaces each RLock that it finds in one, but not those within a condition.
    __slots__ = (
        "_asleep_at",
        "_words",
        "changed",
        "clock_wait",
        "is_closed",
        "listeners",
        "mutex",
        "rings",
        "semaphore",
        "waiting",
    )

    def __init__(self, private: PrivateNames, entry: int, words: memoryview, geometry: Geometry) -> None:
        self.semaphore = open_wakeup(private, entry, words, geometry.process(entry) + Process.WAKEUP)
        self.clock_wait = ClockWait(self.semaphore)
        self.rings = 0
        self._words = words
        self._asleep_at = geometry.process(entry) + Process.ASLEEP
        self.is_closed = False
        self.forked()

    def forked(self) -> None:
        """Forget the threads that did not come along into a forked child."""
        self.mutex = native.RLock()  # by itself, since to take it by way of the condition is much slower
        self.changed = threading.Condition(self.mutex)
        self.waiting = False
        self.listeners: dict[Listener, int] = {}
        """Who listens, and from which number of completions on each wants to be rung for them."""

    def check_open(self) -> None:
        """Refuse to be waited for after `close`.

        Raises:
            IllegalStateError: it has been closed, perhaps by another thread.
        """
        if self.is_closed:
            raise IllegalStateError("the slab has been detached: nothing is heard of it here any more")

    @contextmanager
    def listening(self, completions: int = 1) -> Iterator[Listener]:
        """Listen: look for what you wait for *inside* the block, and wait by the listener only if it is not there.

        Args:
            completions: what `Listener.expect` begins with.
        """
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
        """Note what an listener listens for; with `mutex`, which is the barrier between this and a look."""
        self.listeners[listener] = max(1, completions)
        self._words[self._asleep_at] = min(self.listeners.values())

    def close(self) -> None:
        """End the waits of all threads and let go of the semaphore; its name stays for the entry's next process."""
        with self.changed:
            if self.waiting and not self.is_closed:
                self.semaphore.release()
            self.is_closed = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.waiting)
        self.clock_wait.close()
        with contextlib.suppress(posix_ipc.ExistentialError):  # closed already, before an interrupt
            self.semaphore.close()


class Wakeups:
    """Everybody's wakeups, to be rung."""

    def __init__(self, private: PrivateNames, words: memoryview, geometry: Geometry) -> None:
        self._private = private
        self._words = words
        self._geometry = geometry
        self._mutex = native.RLock()  # a signal's handler may ring, too
        self._semaphores: dict[tuple[int, int], posix_ipc.Semaphore] | None = {}
        """By process entry and number of the wakeup."""

    def wake(self, entry: int) -> None:
        """Wake the process of that entry if it listens. The change that it waits for has been made."""
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
                    return  # it is only just coming, and looks before it listens
                except (OSError, ShmaccumError):
                    return  # no descriptor, or not that process's wakeup: whoever listens looks by itself before long
                self._semaphores[wakeup] = semaphore
            semaphore.release()

    def wake_for_completions(self, entry: int) -> None:
        """Wake the process of that entry if it listens, and has as many completions as it waits for."""
        words, process = self._words, self._geometry.process(entry)
        if words[process + Process.RING_TAIL] >= words[process + Process.ASLEEP]:
            self.wake(entry)

    def close(self) -> None:
        """Let go of all semaphores; nobody is rung for any more."""
        with self._mutex:
            semaphores, self._semaphores = self._semaphores, None
            for semaphore in (semaphores or {}).values():
                semaphore.close()


class Doorbell:
    """The sender's wakeup, as the sender has it.

    Attributes:
        descriptor: readable after a ring; for the transport to wait on.

    Raises:
        SlabAbiError: it is gone.
        SlabPermissionError: it is not this user's alone.
    """

    def __init__(self, private: PrivateNames, words: memoryview) -> None:
        self._words = words
        self._barrier = native.Lock()
        path = private.doorbell_path()
        try:
            # Open for writing too, so that a reader never sees the end of the file when the last ringer goes.
            self.descriptor: Final = open_own(path, os.O_RDWR, kind=stat.S_IFIFO)
        except FileNotFoundError:
            raise SlabAbiError(f"{path} is gone; `shmaccum destroy` removes the rest of the slab") from None

    def listen(self) -> None:
        """Ask to be rung from now on; look for work after this and before waiting."""
        self._words[Super.SENDER_WAKES] = 0
        # The time numbers the sleeps, of this sender and of those before and after it.
        self._words[Super.SENDER_ASLEEP] = time.monotonic_ns()

    def sleep_until(self, time_ms: float) -> None:
        """Say that all there is will be looked at by then, in monotonic milliseconds: after a look, before waiting."""
        self._words[Super.SENDER_WAKES] = math.ceil(time_ms)

    def look(self) -> None:
        """Be about to look for work once more, still listening: what comes from now on may be too late for it."""
        if self._words[Super.SENDER_WAKES]:
            self._words[Super.SENDER_WAKES] = 0
            with self._barrier:
                pass  # a full barrier: whoever still reads the old time has made a change that this look will see

    def answer(self) -> None:
        """Be awake: no ring is needed, and those that came are forgotten."""
        self._words[Super.SENDER_ASLEEP] = 0
        try:
            while len(os.read(self.descriptor, 4096)) == 4096:
                pass
        except BlockingIOError:
            return  # nobody has rung

    def ring(self) -> None:
        """Wake this very sender, from a signal handler."""
        with contextlib.suppress(BlockingIOError):  # a full FIFO rings all the same
            os.write(self.descriptor, b"!")

    def close(self) -> None:
        """Let go of the FIFO."""
        os.close(self.descriptor)


class DoorbellButton:
    """The sender's wakeup, as everybody else has it."""

    def __init__(self, private: PrivateNames, words: memoryview) -> None:
        self._path = private.doorbell_path()
        self._words = words
        self._mutex = native.RLock()
        self.fifo = Descriptor()
        self._closed = False

    def open(self) -> None:
        """Be able to pull whatever becomes scarce later; again, if the program has closed what was open.

        Raises:
            OSError: this process has no descriptor left.
            SlabPermissionError: it is not this user's alone.
        """
        if not self.fifo.is_ours():
            self.fifo = Descriptor()
            with contextlib.suppress(FileNotFoundError):
                # For reading too: writing to a FIFO whose only reader, the sender, has died would be a SIGPIPE.
                self.fifo = Descriptor(open_own(self._path, os.O_RDWR, kind=stat.S_IFIFO))

    def press(self) -> int:
        """Wake the sender if it sleeps. The change that concerns it has been made.

        Returns:
            The sleep that it was woken from (`Super.SENDER_ASLEEP`): it takes one ring, however long it is about
            waking up. 0 if it does not sleep, or could not be woken.
        """
        # Only the sender takes the word back: if we die before the ring, whoever comes next rings all the same.
        asleep = int(self._words[Super.SENDER_ASLEEP])
        if not asleep:
            return 0
        # A failure is not the caller's, whose change has been made: a sender that is not woken looks by itself before
        # long.
        with self._mutex:
            if self._closed:
                return 0  # another thread has left the slab
            try:
                self.open()
                native.write(self.fifo.number, b"!")
            except BlockingIOError:
                return asleep  # a full FIFO rings all the same
            except (OSError, ShmaccumError):
                return 0
        return asleep

    def is_needed_by(self, due_ms: int, now_ms: int) -> bool:
        """Say whether a sender that sleeps has to be rung for what it has no use for before ``due_ms``.

        Not if it wakes up by itself in time. One that has not done so when it was to is rung: it may be another one's
        time, that of a sender which has died.
        """
        return not now_ms < self._words[Super.SENDER_WAKES] <= due_ms

    def close(self) -> None:
        """Let go of the FIFO; the sender is rung for no more."""
        with self._mutex:
            self._closed = True
            self.fifo.close()
