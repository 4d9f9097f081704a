"""Runs calls that can block on other threads.

Name look-ups, token providers, Kerberos tickets and key derivation block for an unknown time. The thread of a call
touches neither the slab nor a connection. It stores the result and wakes the sender's thread, which goes on with it. So
a death during a call leaves nothing more in the slab, and a sender that stops does not wait: the threads are daemons.

Calls of one key run one after the other. So one thread at a time calls a token provider, and a call that never returns
costs one thread, however often it is tried.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from shmaccum.kafka.poller import READ, Poller

OnDone = Callable[[Any, BaseException | None], None]
"""Takes what a call returned, or what it raised."""


class BackgroundCall:
    """One call, running or waiting for its turn."""

    _result: Any = None
    _error: BaseException | None = None
    is_cancelled = False
    """Whether the result is no longer wanted."""

    def __init__(self, call: Callable[[], Any], on_done: OnDone) -> None:
        self._call = call
        self._on_done = on_done

    def cancel(self) -> None:
        """Discard the result. A call that has begun goes on."""
        self.is_cancelled = True

    def work(self) -> None:
        """Make the call; called by its own thread."""
        try:
            self._result = self._call()
        except BaseException as error:  # a token provider's SystemExit is no reason to lose the calls behind it
            self._error = error

    def tell(self) -> None:
        """Pass the result on, unless cancelled; called by the sender's thread."""
        if not self.is_cancelled:
            self._on_done(self._result, self._error)


class BackgroundCalls:
    """Runs background calls; their results reach the sender's thread within `Poller.wait`."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[BackgroundCall]] = {}
        """Key -> calls that wait for their turn. A key in here has a thread. Guarded by lock."""
        self._done: deque[BackgroundCall] = deque()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Written to by the threads; -1 once closed. Guarded by lock."""
        poller.add(self._wakeup, READ, self._tell)

    def run(self, key: str, call: Callable[[], Any], on_done: OnDone) -> BackgroundCall:
        """Run a call on another thread, after those of the same key.

        ``on_done`` gets the result on the sender's thread, unless the call is cancelled before.

        Raises OSError: no thread can be started.
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
            threading.Thread(target=self._work, args=(key,), name="shmaccum-background-call", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                del self._waiting[key]
            raise OSError(errno.EAGAIN, f"no thread can be started for {key}") from error
        return background_call

    def _work(self, key: str) -> None:
        """Run the calls of a key until none is left; the body of the key's thread."""
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
        """Discard waiting calls and later results."""
        with self._lock:
            wakeup, self._wakeup = self._wakeup, -1
            for waiting in self._waiting.values():
                waiting.clear()
        self._poller.remove(wakeup)
        os.close(wakeup)
