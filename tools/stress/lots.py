"""Deaths by lot: whether a process of a write that is exactly once dies, and at which line of the code.

The processes of a Spark query draw `Lots`, also on whether a task fails or waits. No process knows how many others
there have been, so they count themselves in a directory. The n-th process at a step draws the same lot in every run
with the same seed.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tools.support.proc import read
from tools.support.processes import parent_of

_TRACED: Final = ("/shmaccum/transactions/", "/shmaccum/spark/exactly_once.py")
"""Code in which a process can be killed at each line."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Death:
    """Do something at the n-th line of the traced code, by default kill this process; never, for 0."""

    def __init__(self, line: int, *deeds: Callable[[], None]) -> None:
        self._left = line
        self._deeds = deeds or (die,)

    def __enter__(self) -> None:
        if self._left:
            sys.settrace(self._trace)

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not any(part in frame.f_code.co_filename for part in _TRACED):
            return None
        if event == "line":
            self._left -= 1
            if not self._left:
                for deed in self._deeds:
                    deed()
        return self._trace


@dataclass(frozen=True)
class Lots:
    """Where lots are drawn, and how likely each is for a task, or a plan and commit; pickled to all processes."""

    directory: str
    seed: int
    kill_driver: float
    kill_worker: float
    kill_executor: float
    kill_sender: float
    fail_task: float
    slow_task: float

    def draw(self, step: str) -> random.Random:
        """Return the lot of the next process at a step."""
        with open(Path(self.directory, f"drawn-{step}"), "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # the kernel releases it if this process is killed here
            number = os.fstat(file.fileno()).st_size
            file.write(b".")
        return random.Random(f"{self.seed} {step} {number}")

    def death(self, lot: random.Random, lines: int, *deaths: tuple[float, str, Callable[[], None]]) -> Death:
        """Draw by a process's lot what dies, and at which line of the traced code; one thing at most.

        Each death has its probability, what dies for the report (or nothing), and the deed.
        """
        line, left = lot.randrange(1, lines), lot.random()
        for probability, what, deed in deaths:
            if 0 <= left < probability:
                deeds = [partial(self.note, what), deed] if what else [deed]
                return Death(line, *deeds)
            left -= probability
        return Death(0)

    def note(self, what: str) -> None:
        with open(Path(self.directory, "notes"), "ab", buffering=0) as file:
            file.write(what.replace("\n", " ").encode() + b"\n")  # in one piece: a process can die right after it

    def notes(self) -> Counter[str]:
        file = Path(self.directory, "notes")
        return Counter(file.read_text().splitlines() if file.exists() else ())


def die_with_jvm() -> None:
    """Kill the JVM that started this process, an executor or the driver, and then this process."""
    pid = os.getppid()
    while pid > 1 and read(pid, "comm").strip() != b"java":
        pid = parent_of(pid)
    if pid > 1:
        os.kill(pid, signal.SIGKILL)
    die()
