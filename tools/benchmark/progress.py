"""Prints a run's progress and remaining time on standard error."""

from __future__ import annotations

import sys
import time


class Progress:
    """Progress on one line of a terminal, or one line per variant.

    Args:
        expected_s: approximate seconds of the whole run, as far as known beforehand.
    """

    def __init__(self, expected_s: float = 0.0) -> None:
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()
        self._expected_s = expected_s
        self._done_s = 0.0
        self._took_s = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def expect(self, seconds: float) -> None:
        """Set the approximate seconds of the whole run."""
        self._expected_s = seconds

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._write(text, "\n")

    def doing(self, text: str) -> None:
        """Show the current activity until the next one."""
        if self._live:
            self._write(text, "")

    def done(self, expected_s: float, took_s: float) -> None:
        """Record the real duration of a step, to correct the estimate."""
        self._done_s += expected_s
        self._took_s += took_s

    def _left(self) -> str:
        """Return the remaining time, corrected by how accurate the estimates have been."""
        if not self._done_s or self._done_s >= self._expected_s:
            return ""
        left_s = (self._expected_s - self._done_s) * self._took_s / self._done_s
        return f", {minutes(left_s)} left"

    def _write(self, text: str, end: str) -> None:
        line = f"[{self.seconds:5.0f} s{self._left()}] {text.rstrip()}"
        print(f"\r{line}\033[K" if self._live else line, end=end, file=sys.stderr, flush=True)


def minutes(seconds: float) -> str:
    """Return a time for people, to the minute."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
