"""Lots that the processes of a Spark query draw: whether one dies, and at which line; whether a task fails or waits.

No process knows how many others there have been, so they count themselves in a directory. The n-th process at a step
draws the same lot in every run with the same seed.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.stress.death import Death
from tools.support.processes import parent_of

_NOTES: Final = "notes"


@dataclass(frozen=True)
class Lots:
    """Where lots are drawn, and how likely each is; pickled to all processes.

    Attributes:
        directory: an existing one, which all processes share.
        seed: of all lots.
        kill_driver: probability, of each plan and commit.
        kill_worker: probability, of each task.
        fail_task: probability, of each task.
        slow_task: probability, of each task.
    """

    directory: str
    seed: int
    kill_driver: float
    kill_worker: float
    fail_task: float
    slow_task: float

    def draw(self, step: str) -> random.Random:
        """Return the lot of the next process at a step."""
        file = os.open(Path(self.directory, f"drawn-{step}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # the kernel releases it if this process is killed here
            number = os.fstat(file).st_size
            os.write(file, b".")
        finally:
            os.close(file)
        return random.Random(f"{self.seed} {step} {number}")

    def death(self, lot: random.Random, probability: float, lines: int, who: str, jvm: str, share: float) -> Death:
        """Draw whether, and where, this process dies.

        Args:
            lot: this process's.
            probability: that it does.
            lines: it dies at one of so many of the traced code, if it comes there.
            who: this process.
            jvm: the JVM above this process.
            share: probability that the JVM dies first.
        """
        dies, line, takes_jvm = lot.random() < probability, lot.randrange(1, lines), lot.random() < share

        def last_words() -> None:
            self.note(f"{who} killed" + (f", with {jvm}" if takes_jvm else ""))
            if takes_jvm:
                os.kill(_jvm_above(), signal.SIGKILL)

        return Death(line if dies else 0, last_words)

    def note(self, what: str) -> None:
        """Count something in the report."""
        file = os.open(Path(self.directory, _NOTES), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, what.replace("\n", " ").encode() + b"\n")  # in one piece: a process can die right after it
        os.close(file)

    def notes(self) -> Counter[str]:
        """Return what was noted, and how often."""
        file = Path(self.directory, _NOTES)
        return Counter(file.read_text().splitlines() if file.exists() else ())


def _jvm_above() -> int:
    """Return the pid of the JVM that started this process."""
    pid = os.getppid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = parent_of(pid)
        if pid <= 1:
            sys.exit("no JVM has started this process")
    return pid
