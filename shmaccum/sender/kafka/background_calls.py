"""BackgroundCalls: calls that can take long, each on a thread of its own, while the sender goes on.

To look up a name, to get a token, a Kerberos ticket, or a key from a password: nobody knows how long that takes, and
what there is for it blocks. The thread of a call touches neither the slab nor a connection; it only leaves what came
of its call, and wakes the sender's thread, which then goes on with it. So a sender that is killed over a call leaves
what it would leave without, and one that is told to stop does not wait: the threads end with the process.

Calls of one key run one after the other, so that a token provider is called by one thread at a time, and a call that
never returns costs one thread, however often it is tried.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from shmaccum.sender.kafka.poller import READ, Poller

OnDone = Callable[[Any, BaseException | None], None]
"""Takes what a call returned, or what it raised."""

_THREAD_NAME: Final = "shmaccum-background-call"


class BackgroundCall:
    """One call, under way or waiting for its turn."""

    __slots__ = ("_call", "_error", "_is_cancelled", "_on_done", "_result")

    def __init__(self, call: Callable[[], Any], on_done: OnDone) -> None:
        self._call = call
        self._on_done = on_done
        self._result: Any = None
        self._error: BaseException | None = None
        self._is_cancelled = False

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody wants to know any more."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Forget it. A call that has begun goes on, and nobody hears of it."""
        self._is_cancelled = True

    def work(self) -> None:
        """Make the call; for the background_call's own thread."""
        try:
            self._result = self._call()
        except BaseException as error:  # a token provider's SystemExit is no reason to lose the calls behind it
            self._error = error

    def tell(self) -> None:
        """Say what came of it; for the sender's thread."""
        if not self._is_cancelled:
            self._on_done(self._result, self._error)


class BackgroundCalls:
    """Runs background_calls, and tells the sender's thread what came of them from within `Poller.wait`.

    Args:
        poller: that the sender's thread waits with.
    """

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[BackgroundCall]] = {}
        """By key, those that wait for their turn; guarded by the lock. A key that is here has a thread."""
        self._done: deque[BackgroundCall] = deque()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Rung by the threads; -1 once it is closed. Guarded by the lock."""
        poller.add(self._wakeup, READ, self._tell)

    def run(self, key: str, call: Callable[[], Any], on_done: OnDone) -> BackgroundCall:
        """Have a call made on another thread.

        Args:
            key: calls of the same key are made one after the other.
            call: what to do.
            on_done: called by the sender's thread, unless the background_call is cancelled before.

        Raises:
            OSError: no thread can be started.
        """
        background_call = BackgroundCall(call, on_done)
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is not None:
                while waiting and waiting[-1].is_cancelled:
                    waiting.pop()
                waiting.append(background_call)
                return background_call
            self._waiting[key] = deque([background_call])
        try:
            threading.Thread(target=self._work, args=(key,), name=_THREAD_NAME, daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                del self._waiting[key]
            raise OSError(errno.EAGAIN, f"no thread can be started for {key}") from error
        return background_call

    def _work(self, key: str) -> None:
        """Make the calls of a key until there are no more; this is what its thread does."""
        while True:
            with self._lock:
                waiting = self._waiting[key]
                if not waiting:
                    del self._waiting[key]
                    return
                background_call = waiting.popleft()
            if background_call.is_cancelled:
                continue
            background_call.work()
            self._done.append(background_call)
            with self._lock:
                if self._wakeup >= 0:
                    os.eventfd_write(self._wakeup, 1)

    def _tell(self, events: int) -> None:
        os.eventfd_read(self._wakeup)
        while self._done:
            self._done.popleft().tell()

    def close(self) -> None:
        """Hear of no background_call any more."""
        with self._lock:
            wakeup, self._wakeup = self._wakeup, -1
            for waiting in self._waiting.values():
                waiting.clear()
        self._poller.remove(wakeup)
        os.close(wakeup)
