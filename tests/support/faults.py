"""Death, stops and interrupts at chosen moments of the package's code.

A process can be killed between any two instructions; `tools.step` does it before all of them, these tools before
a chosen line. An interrupt is what a signal's handler raises. It comes only where CPython looks for signals: when a
function begins, and when a call of a C function has returned. `InterruptAt` raises it at any of those moments,
`interrupted_by_alarm` after a time.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import shmaccum
from shmaccum.shm.locks import SlabLock
from tools.support.locks import held

_PACKAGE = str(Path(shmaccum.__file__).parent)


def before(function: Callable[..., Any], text: str, action: Callable[[], object]) -> None:
    """Have this thread act just before a line of a function of the package, the first that begins with ``text``."""
    source, first = inspect.getsourcelines(function)
    number = first + next(number for number, line in enumerate(source) if line.strip().startswith(text))
    code = function.__code__

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line" and frame.f_lineno == number:
            sys.settrace(None)
            action()
        return trace

    sys.settrace(trace)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith(("T", "t"))


@contextmanager
def stopped_with(lock: SlabLock | AbstractContextManager[object]) -> Iterator[int]:
    """Have a forked child take a lock and be stopped with it during the block; yields its process id."""
    pid = os.fork()
    if not pid:
        try:
            with held(lock) if isinstance(lock, SlabLock) else lock:
                stop()
        finally:
            os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)
        os.waitpid(pid, 0)


@contextmanager
def interrupted_by_alarm() -> Iterator[Callable[[float], None]]:
    """Interrupt the block by an alarm, wherever it is then; yield the function that sets it, in seconds from now."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def set_alarm(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    usual = signal.signal(signal.SIGALRM, interrupt)
    gc.collect()
    gc.disable()  # an interrupt that comes in the middle of a finalizer is lost, and the block waits for one
    try:
        yield set_alarm
    finally:
        set_alarm(0)
        gc.enable()
        signal.signal(signal.SIGALRM, usual)


class InterruptAt:
    """Interrupts the block at its ``moment``-th moment, if that ``came``; ``with InterruptAt(3) as interrupt: ...``.

    ``again``: when, counted from then, to interrupt what cleans up behind that. ``error``: what the handler raises.
    """

    def __init__(self, moment: int, again: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.came = False
        self._error = error
        self._moment = moment
        self._again = again

    def __enter__(self) -> InterruptAt:
        gc.disable()  # an error in a finalizer would come to nothing
        sys.setprofile(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        sys.settrace(None)
        sys.setprofile(None)
        gc.enable()
        return kind is self._error

    def _look(self, frame: FrameType, event: str, argument: object) -> None:
        # A generator that goes on looks, too, but an error raised here would not be raised inside of it.
        begins = event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        if frame.f_code is InterruptAt.__exit__.__code__ or not (begins or event == "c_return"):
            return
        self._moment -= 1
        if self._moment < 0:
            self.came = True
            sys.setprofile(None)
            if self._again is not None:
                self._moment, self._again = self._again, None
                self._look_on(frame)
            raise self._error

    def _look_on(self, frame: FrameType | None) -> None:
        """Look again from the next line on: a profile function that raises is not called any more."""

        def on(frame: FrameType, event: str, argument: object) -> None:
            sys.settrace(None)
            sys.setprofile(self._look)

        sys.settrace(on)
        while frame is not None:
            if frame.f_code.co_filename.startswith(_PACKAGE):
                frame.f_trace = on
            frame = frame.f_back
