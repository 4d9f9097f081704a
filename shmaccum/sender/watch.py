"""Starts a slab's next sender when one has died, whether or not the producers are called.

A process that has producers of a slab runs one thread for it. Every `LOOK_S` the thread asks the kernel whether there
is a sender. If there is none and the slab holds undelivered records, the thread starts one, whoever appended them: a
producer that died leaves its records to the others. Producers of several processes look independently; the start
byte of the lock file lets one of them start a sender.

Appending costs nothing for it. `SenderWatch` looks as well where a producer begins a batch or waits, since those calls
have to fail where no sender can be started.

A forked child starts its thread with its first append. A process that can start no thread looks in its appends.
Where gevent or eventlet has patched the program, the thread is a greenlet: a thread of the system could not start a
process there, nor import anything.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.errors import DeadOwnerError, ShmaccumError
from shmaccum.shm import native
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Seconds between two looks: a new sender serves within two seconds, and takes less than one of them to start."""
_LONGEST_PAUSE_S: Final = 10.0
"""Seconds between two attempts, at most, where no sender can be started."""
_SYSTEM_PATIENCE_S: Final = 0.05
_END_PATIENCE_S: Final = 5.0
"""Seconds to wait for the end of a thread that is starting a sender at the moment: usually takes half of one."""


class WatchThread:
    """Looks after the sender of one slab for all producers of this process: a companion of the `Slab`.

    The thread ends when the process leaves the slab. It is ended before a fork and started again behind it, so that no
    child is forked in the middle of a look, and Python does not warn of a fork among threads.
    """

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._ensure: Callable[[], None] = _do_nothing
        self._accumulators: weakref.WeakSet[RecordAccumulator] = weakref.WeakSet()
        self._next_look_s = 0.0
        self._has_complained = False
        self._forked()
        slab.on_fork(self._forked)
        slab.on_retire(self.end)
        _watches.add(self)

    def _forked(self) -> None:
        """Have no thread, in a forked child, until it appends."""
        self._mutex = native.RLock()
        self._thread: _Thread | None = None
        self._is_paused = False
        self._have_appends_call(self._before_append)

    def watch_for(self, accumulator: RecordAccumulator, ensure: Callable[[], None]) -> None:
        """Look for a sender from now on, until this process leaves the slab.

        Args:
            accumulator: of a producer of this process.
            ensure: starts a sender if there is none.
        """
        with self._mutex:
            self._accumulators.add(accumulator)
            self._ensure = ensure
            self._start()

    def end(self) -> None:
        """End the thread."""
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()

    def pause(self) -> None:
        """End the thread until `resume`."""
        with self._mutex:
            self._is_paused = self._is_paused or self._thread is not None
        self.end()

    def resume(self) -> None:
        """Start the thread again if `pause` has ended it."""
        with self._mutex:
            if self._is_paused:
                self._is_paused = False
                self._start()

    def _start(self) -> None:
        """Start the thread; where there can be none, have appends look in its place."""
        if self._thread is None:
            self._thread = _Thread(self._run, f"shmaccum-watch-{self._slab.name}")
            try:
                self._thread.start()
            except RuntimeError as error:
                self._thread = None
                if not self._has_complained:
                    self._has_complained = True
                    logger.warning(
                        "slab %r: %s to look for a sender that died; only calls of the producer look for it",
                        self._slab.name,
                        error,
                    )
        self._have_appends_call(self._before_append if self._thread is None else None)

    def _have_appends_call(self, look: Callable[[], None] | None) -> None:
        for accumulator in self._accumulators:
            accumulator.call_before_append(look)

    def _before_append(self) -> None:
        """Start the thread; where there can be none, see to it that there is a sender, every `LOOK_S` at most.

        Raises:
            SenderError: there was no sender, and none could be started.
        """
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        with self._mutex:
            self._start()
        if self._thread is None:
            self._ensure()
            self._next_look_s = now_s + LOOK_S

    def _run(self, thread: _Thread) -> None:
        pause_s = LOOK_S
        while not thread.is_over(pause_s):
            if thread.is_green != native.is_patched():
                self._thread = None  # patched meanwhile: the next append starts another
                self._have_appends_call(self._before_append)
                return
            try:
                self._look()
                pause_s = LOOK_S
            except DeadOwnerError:
                return  # this process has no place in the slab any more, as each call of its producers says
            except Exception as error:
                if self._thread is not thread:
                    return  # this process has left the slab meanwhile
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                logger.warning(
                    "slab %r has no sender for the records in it: %s; next attempt in %g s",
                    self._slab.name,
                    error,
                    pause_s,
                    exc_info=not isinstance(error, ShmaccumError),
                )

    def _look(self) -> None:
        if not self._slab.has_sender() and self._slab.undelivered() != (0, 0):
            self._ensure()


class _Thread:
    """A thread that can be ended, or a greenlet where threads are patched.

    Args:
        run: called with this object; returns once `is_over`.
        name: the thread's.
    """

    def __init__(self, run: Callable[[_Thread], None], name: str) -> None:
        self.is_green = native.is_patched()
        self._thread = threading.Thread(target=run, args=(self,), name=name, daemon=True)
        self._going_on = threading.Lock()  # not an event: one that was made before the patch would wait as patched
        self._going_on.acquire()

    def start(self) -> None:
        """Run.

        Raises:
            RuntimeError: the process cannot have another thread.
        """
        self._thread.start()

    def is_over(self, wait_s: float) -> bool:
        """Wait for the end; return whether it came in time. For the thread itself."""
        return self._going_on.acquire(timeout=wait_s)

    def end(self) -> None:
        """End the thread and wait for that; once only."""
        self._going_on.release()
        if self.is_green or native.is_patched() or self._thread is threading.current_thread():
            return  # to wait would let other greenlets run, in the middle of a fork
        self._thread.join(_END_PATIENCE_S)
        # Python 3.12 counts the threads of the system, and there this one ends a moment later.
        deadline_s = time.monotonic() + _SYSTEM_PATIENCE_S
        while os.path.exists(f"/proc/self/task/{self._thread.native_id}") and time.monotonic() < deadline_s:
            native.sleep(0.0001)


_watches: weakref.WeakSet[WatchThread] = weakref.WeakSet()


def _pause_all() -> None:
    for watch in list(_watches):
        watch.pause()


def _resume_all() -> None:
    for watch in list(_watches):
        watch.resume()


os.register_at_fork(before=_pause_all, after_in_parent=_resume_all)


def _do_nothing() -> None:
    pass
