"""A running process, identified by pid and start time, so that no signal hits a reused pid."""

from __future__ import annotations

import os
import signal
import time
from typing import Final, NamedTuple

from tools.support.bare import procfs

STOP_TIMEOUT_S: Final = 20.0


class Running(NamedTuple):
    """A process, distinct from a later one with the same pid."""

    pid: int
    start_time: int
    """Clock ticks since boot."""

    @classmethod
    def process(cls, pid: int) -> Running:
        return cls(pid, procfs.start_time(pid))

    def is_alive(self) -> bool:
        return self.start_time != 0 and procfs.start_time(self.pid) == self.start_time

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still is there."""
        if self.is_alive():
            os.kill(self.pid, number)

    def wait_for_end(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def stop(self) -> None:
        """Stop it in order; kill it if that takes more than `STOP_TIMEOUT_S`."""
        self.signal(signal.SIGCONT)  # a stopped process would not handle the next signal
        self.signal(signal.SIGTERM)
        if not self.wait_for_end(STOP_TIMEOUT_S):
            self.kill()

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait_for_end(STOP_TIMEOUT_S)
