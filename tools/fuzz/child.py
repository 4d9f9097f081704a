"""What a target is, and how it runs actions in a forked child that can crash, hang, or allocate all memory."""

from __future__ import annotations

import faulthandler
import os
import random
import resource
import select
import shutil
import signal
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Self

from shmaccum.errors import ShmaccumError

TIME_LIMIT_S: Final = 20.0
"""Far longer than any action that does not hang."""
_MEMORY_LIMIT: Final = 1 << 30
"""Bytes that a child may map beyond what it begins with."""
_REPORT_BYTES: Final = 64 << 10


class Attempt(NamedTuple):
    """The result of an input."""

    data: bytes
    outcome: str
    """How it ended, in a few words, equal for equal ends."""
    wrong: str = ""
    """What is wrong with that, with a traceback if there is one; empty if nothing is."""


def try_in_child(action: Callable[[], str], time_limit_s: float | None = None) -> tuple[str, str]:
    """Run an action, which returns in a word how it ended, in a child that can take `TIME_LIMIT_S` by default.

    Returns:
        That word, or the name of the error of `shmaccum.errors` that it raised; and what is wrong: empty, or an
        undeclared error, a signal, or where it hung.
    """
    time_limit_s = TIME_LIMIT_S if time_limit_s is None else time_limit_s
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(readable)
        _be_child(action, writable, time_limit_s)
    os.close(writable)
    report = _read_all(readable, time.monotonic() + time_limit_s + 5)
    os.close(readable)
    if report is None:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if report is None:
        return "hung", f"it did not end within {time_limit_s + 5:.0f} s"
    text = report.decode(errors="replace")
    if os.WIFSIGNALED(status):
        return "killed", f"it was ended by signal {os.WTERMSIG(status)}\n{text}"
    if os.WEXITSTATUS(status):
        return "failed", text
    return text, ""


def allow(seconds: float) -> None:
    """Limit this child's remaining time; at the limit it prints where it is and exits."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=_report)


_report = -1
"""Where this child reports."""


def _be_child(action: Callable[[], str], writable: int, time_limit_s: float) -> None:
    global _report
    _report = writable
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        # To show where it hangs.
        faulthandler.enable(writable)
        allow(time_limit_s)
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + _MEMORY_LIMIT, mapped + _MEMORY_LIMIT))
        try:
            outcome = action()
        except ShmaccumError as error:
            outcome = type(error).__name__
        os.write(writable, outcome.encode())
        os._exit(0)
    except BaseException:
        os.write(writable, traceback.format_exc()[-_REPORT_BYTES:].encode())
        os._exit(1)


def _read_all(descriptor: int, deadline: float) -> bytes | None:
    """Return everything until the other side closes; None after the deadline."""
    parts: list[bytes] = []
    while (remaining := deadline - time.monotonic()) > 0:
        if select.select([descriptor], [], [], remaining)[0]:
            part = os.read(descriptor, _REPORT_BYTES)
            if not part:
                return b"".join(parts)
            parts.append(part)
    return None


class Target(ABC):
    """Makes inputs and tries them, in a directory of its own; use as a context manager."""

    suffix: ClassVar[str] = ".json"
    """Of files with its inputs."""
    in_a_row: ClassVar[int] = 1
    """Inputs that are made at once."""

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="shmaccum-fuzz-"))
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.directory)

    @abstractmethod
    def make(self, rng: random.Random) -> bytes:
        """Return a random input."""

    @abstractmethod
    def try_all(self, inputs: Sequence[bytes]) -> Iterator[Attempt]:
        """Try inputs."""

    def attempts(self, rng: random.Random) -> Iterator[Attempt]:
        """Make inputs and try them, forever."""
        while True:
            yield from self.try_all([self.make(rng) for _ in range(self.in_a_row)])
