"""Checks that resources stay constant: memory, file descriptors, /dev/shm, throughput.

The load is paced, below the machine's capacity, so that throughput measures shmaccum and not the machine's other work.
The rules apply to every process that was sampled for at least two minutes (the sender, the producers that are not
killed) and to /dev/shm as a whole:

* the first quarter of the samples is warm-up and does not count;
* memory stops growing. The median of the last quarter is at most 10 % (at least 2 MiB) above that of the second, or at
  most 2 % above that of the third. Both rules, because an allocator takes memory in steps and keeps it,
  whenever more threads than before are busy at once. One such step is not a leak, and a leak does not stop after one.
  Memory is the process's private memory (RssAnon) and the part of the slab that it has mapped (RssShmem), without the
  accounts, which are mapped files that grow with the records;
* file descriptors: the median of the last quarter is not above that of the second;
* /dev/shm: the most in the last quarter is at most 10 % above the most in the second;
* throughput: the records acknowledged in the last minute are at least 80 % of those of the second (the first is
  warm-up).
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

EVERY_S: Final = 2.0
LEAST_SAMPLES: Final = 60
"""Two minutes."""
_GROWTH: Final = 1.10
_STILL_GROWING: Final = 1.02
_MEMORY_SLACK: Final = 2 << 20
_LEAST_THROUGHPUT: Final = 0.8
_MINUTE_S: Final = 60.0
_RSS = re.compile(r"Rss(?:Anon|Shmem):\s+(\d+) kB")


@dataclass(slots=True)
class Series:
    """Samples of one process: private and shared memory in bytes, and file descriptors."""

    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)


class Soak:
    """Samples and their evaluation.

    Attributes:
        processes: by kind and pid.
        shared_bytes: in /dev/shm, of the slab.
        per_minute: records acknowledged in each whole minute.
    """

    def __init__(self) -> None:
        self.processes: dict[str, Series] = {}
        self.shared_bytes: list[int] = []
        self.per_minute: list[int] = []
        self._minute_began_s = -1.0
        self._acknowledged_then = 0

    def sample(self, now_s: float, pids: dict[str, int], files: Sequence[Path], acknowledged: int) -> None:
        """Take one sample: processes, by kind; the slab's files; the records that it counts as acknowledged."""
        for what, pid in pids.items():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
                descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue  # it has just exited
            series = self.processes.setdefault(f"{what} {pid}", Series())
            series.memory.append(1024 * sum(map(int, _RSS.findall(status))))
            series.descriptors.append(descriptors)
        self.shared_bytes.append(0)
        for file in files:
            with suppress(FileNotFoundError):
                self.shared_bytes[-1] += file.stat().st_blocks * 512
        if self._minute_began_s < 0:
            self._minute_began_s, self._acknowledged_then = now_s, acknowledged
        elif now_s - self._minute_began_s >= _MINUTE_S:
            self.per_minute.append(acknowledged - self._acknowledged_then)
            self._minute_began_s, self._acknowledged_then = self._minute_began_s + _MINUTE_S, acknowledged

    def problems(self) -> list[str]:
        """Return what did not stay constant."""
        judged = self._judged()
        found = [
            f"no {kind} was there for long enough to be judged: more --seconds, fewer kills"
            for kind in ("sender", "producer")
            if not any(what.startswith(kind) for what in judged)
        ]
        for what, series in judged.items():
            early, then, late = _medians_of_quarters(series.memory)
            if late > max(early * _GROWTH, early + _MEMORY_SLACK) and late > then * _STILL_GROWING:
                found.append(f"the memory of {what} grew from {early:,.0f} over {then:,.0f} to {late:,.0f} bytes")
            early, _, late = _medians_of_quarters(series.descriptors)
            if late > early:
                found.append(f"the file descriptors of {what} grew from {early:g} to {late:g}")
        early_shared, _, late_shared = (max(quarter, default=0) for quarter in _quarters(self.shared_bytes))
        if late_shared > early_shared * _GROWTH:
            found.append(f"/dev/shm grew from {early_shared:,} to {late_shared:,} bytes")
        if len(self.per_minute) < 3:
            found.append("fewer than three whole minutes: throughput cannot be judged")
        elif self.per_minute[-1] < self.per_minute[1] * _LEAST_THROUGHPUT:
            found.append(f"{self.per_minute[-1]:,} records in the last minute, {self.per_minute[1]:,} in the second")
        return found

    def rows(self) -> dict[str, object]:
        """Return the samples as lines of the report, for each process that lived long enough."""
        rows: dict[str, object] = {}
        for what, series in self._judged().items():
            memory, of = _medians_of_quarters(series.memory), _medians_of_quarters(series.descriptors)
            rows[what] = f"{memory[0]:,.0f} bytes, at last {memory[-1]:,.0f}; {of[0]:g} descriptors, at last {of[-1]:g}"
        now, most = self.shared_bytes[-1] if self.shared_bytes else 0, max(self.shared_bytes, default=0)
        rows["/dev/shm"] = f"{now:,} bytes, at most {most:,}"
        rows["records a minute"] = ", ".join(f"{count:,}" for count in self.per_minute)
        return rows

    def _judged(self) -> dict[str, Series]:
        return {what: series for what, series in self.processes.items() if len(series.memory) >= LEAST_SAMPLES}


def _quarters(samples: Sequence[int]) -> list[Sequence[int]]:
    """Return the second, the third and the last quarter."""
    quarter = len(samples) // 4
    return [samples[quarter * index : quarter * (index + 1)] for index in (1, 2, 3)]


def _medians_of_quarters(samples: Sequence[int]) -> list[float]:
    return [statistics.median(quarter) for quarter in _quarters(samples)]
