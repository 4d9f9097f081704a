"""Starts the next sender when one has died, even without calls.

A process with producers runs one thread for each slab. Every `LOOK_S` the thread asks the kernel whether the slab has a
sender. If it has none and holds undelivered records of any process, dead ones included, the thread starts a sender. All
processes check independently; the start bytes of the lock file let one of them start a sender. They do the same for the
other shards that no process uses.

Appends cost nothing for it. `SenderWatch` checks as well when a producer begins a batch or waits, since those calls
have to fail if no sender can be started.

A forked child starts its thread with its first append. A process that cannot start a thread checks in its appends.
If gevent or eventlet has patched the program, the thread is a greenlet: a system thread could neither start a process
there nor import anything.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from shmaccum.accumulator.append.record_accumulator import RecordAccumulator
from shmaccum.errors import DeadOwnerError, ShmaccumError
from shmaccum.shm import native
from shmaccum.shm.slab import Slab

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Seconds between two checks: a new sender serves within two seconds, since it takes less than one to start."""
_LONGEST_PAUSE_S: Final = 10.0
"""Most seconds between two attempts while no sender can be started."""
_SYSTEM_TIMEOUT_S: Final = 0.05
_END_TIMEOUT_S: Final = 5.0
"""Most seconds to wait for a thread that is just starting a sender, which usually takes half a second."""


class WatchThread:
    """Watches the sender of one slab for all producers of this process: a companion of the `Slab`.

    The thread ends when the process leaves the slab. It also ends before a fork and starts again after it. So no child
    is forked in the middle of a check, and Python does not warn of a fork among threads. (3.13 and 3.14 do without the
    change of CPython's issue 137109: they count the threads that the parent's hooks have started again.)
    """

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._ensure: Callable[[], None] = lambda: None
        self._tend: Callable[[], None] = lambda: None
        self._accumulators: weakref.WeakSet[RecordAccumulator] = weakref.WeakSet()
        self._next_look_s = 0.0
        self._has_complained = False
        self.forked()
        slab.on_fork(self)
        slab.on_retire(self.end)
        _watches.add(self)

    def forked(self) -> None:
        """Forget the thread in a forked child; the next append starts one."""
        self._mutex = native.RLock()
        self._thread: _Thread | None = None
        self._is_paused = False
        self._have_appends_call(self._before_append)

    def watch_for(self, accumulator: RecordAccumulator, ensure: Callable[[], None], tend: Callable[[], None]) -> None:
        """Start a sender by ``ensure`` if one is dead, and by ``tend`` for deserted shards, until we leave the slab."""
        with self._mutex:
            self._accumulators.add(accumulator)
            self._ensure = ensure
            self._tend = tend
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
        """Start the thread again if `pause` ended it."""
        with self._mutex:
            if self._is_paused:
                self._is_paused = False
                self._start()

    def _start(self) -> None:
        """Start the thread; if that fails, appends check in its place."""
        if self._thread is None:
            self._thread = _Thread(self._run, f"shmaccum-watch-{self._slab.name}")
            try:
                self._thread.start()
            except BaseException as error:
                self.end()  # an interrupt can come before the thread runs, or after
                if not isinstance(error, RuntimeError):
                    raise
                if not self._has_complained:
                    self._has_complained = True
                    logger.warning(
                        "slab %r: cannot start the thread that replaces a dead sender (%s); calls of the producer do "
                        "so instead",
                        self._slab.name,
                        error,
                    )
        self._have_appends_call(self._before_append if self._thread is None else None)

    def _have_appends_call(self, look: Callable[[], None] | None) -> None:
        for accumulator in native.members(self._accumulators):
            accumulator.call_before_append(look)

    def _before_append(self) -> None:
        """Start the thread; if that fails, ensure that there is a sender, every `LOOK_S` at most.

        Raises SenderError: there was no sender, and none could be started.
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
                self._thread = None  # the program was patched meanwhile: the next append starts another
                self._have_appends_call(self._before_append)
                return
            try:
                self._look()
                pause_s = LOOK_S
            except DeadOwnerError:
                return  # this process has lost its table entry, as each call of its producers says
            except Exception as error:
                if self._thread is not thread:
                    return  # this process has left the slab meanwhile
                if not self._slab.lock_file.is_current():
                    self._have_appends_call(self._ensure)  # which raises: none may go to a slab that no sender finds
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                logger.warning(
                    "slab %r has undelivered records and no sender, and none starts: %s; next attempt in %g s",
                    self._slab.name,
                    error,
                    pause_s,
                    exc_info=not isinstance(error, ShmaccumError),
                )

    def _look(self) -> None:
        if not self._slab.has_sender() and self._slab.undelivered() != (0, 0):
            self._ensure()
        self._tend()


class _Thread:
    """A thread that can be ended; a greenlet if the program is patched. ``run`` returns once `is_over`."""

    def __init__(self, run: Callable[[_Thread], None], name: str) -> None:
        self.is_green = native.is_patched()
        self._thread = threading.Thread(target=run, args=(self,), name=name, daemon=True)
        self._going_on = threading.Lock()  # an Event made before the program is patched would wait as patched
        self._going_on.acquire()

    def start(self) -> None:
        """Start the thread. Raises RuntimeError: the process cannot have another thread."""
        self._thread.start()

    def is_over(self, wait_s: float) -> bool:
        """Wait for `end`; return whether it came in time. Called by the thread itself."""
        return self._going_on.acquire(timeout=wait_s)

    def end(self) -> None:
        """End the thread and wait until it has ended; call once only."""
        self._going_on.release()
        if self.is_green or native.is_patched() or self._thread is threading.current_thread():
            return  # waiting would let other greenlets run, in the middle of a fork
        with suppress(RuntimeError):  # its start was interrupted: if it runs after all, it ends at once
            self._thread.join(_END_TIMEOUT_S)
        # Python 3.12 counts the threads of the kernel to warn of a fork; there this one ends a moment after `join`.
        deadline_s = time.monotonic() + _SYSTEM_TIMEOUT_S
        while os.path.exists(f"/proc/self/task/{self._thread.native_id}") and time.monotonic() < deadline_s:
            native.sleep(0.0001)


_watches: weakref.WeakSet[WatchThread] = weakref.WeakSet()


def _for_all(change: Callable[[WatchThread], None]) -> None:
    for watch in native.members(_watches):
        change(watch)


os.register_at_fork(before=partial(_for_all, WatchThread.pause), after_in_parent=partial(_for_all, WatchThread.resume))
