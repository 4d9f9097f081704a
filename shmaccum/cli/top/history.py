"""What successive reports of a slab tell together: rates, and how the last minute went."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from shmaccum.observe.report import SlabReport
from shmaccum.shm.distribution import Distribution

Total = Callable[[SlabReport], float]
"""Returns a number that only grows."""

_WINDOW_S: Final = 5.0
"""Rates and percentiles are those of these last seconds."""
_POINTS: Final = 120
"""Most points of a curve."""


class Sample(NamedTuple):
    """A report, and the monotonic seconds when it was made."""

    time_s: float
    slab: SlabReport


class Point(NamedTuple):
    """What curves show of one report."""

    appended: float
    """Records a second."""
    sent: float
    """Records a second."""
    delivery_ms: float
    """The 99th percentile."""


class History:
    """The last reports of one slab."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self.points: deque[Point] = deque(maxlen=_POINTS)
        """The oldest first."""

    def add(self, slab: SlabReport) -> None:
        """Add a report. One of another slab of the same name begins a new history."""
        if self._samples and self.slab.created_ms != slab.created_ms:
            self._samples.clear()
            self.points.clear()
        now = Sample(time.monotonic(), slab)
        if self._samples:
            before = self._samples[-1]
            since = slab.distributions["delivery_time_us"] - before.slab.distributions["delivery_time_us"]
            delivery_ms = since.percentile(99) / 1000
            self.points.append(Point(_rate(before, now, appended), _rate(before, now, sent), delivery_ms))
        self._samples.append(now)
        while len(self._samples) > 2 and now.time_s - self._samples[1].time_s >= _WINDOW_S:
            self._samples.popleft()

    @property
    def slab(self) -> SlabReport:
        """The last report."""
        return self._samples[-1].slab

    def rate(self, total: Total) -> float:
        """Return how much a total has grown a second in the last seconds."""
        return _rate(self._samples[0], self._samples[-1], total)

    def recent(self, name: str) -> Distribution:
        """Return a histogram of the last seconds; of all values, without two reports."""
        last = self.slab.distributions[name]
        return last - self._samples[0].slab.distributions[name] if len(self._samples) > 1 else last

    def recent_latency(self, node: int, address: str) -> Distribution:
        """Return the latencies of a broker's answers in the last seconds."""
        first, last = (
            next((each.latency for each in sample.slab.brokers if (each.node, each.address) == (node, address)), None)
            for sample in (self._samples[0], self._samples[-1])
        )
        if last is None:
            return Distribution()
        return last - first if first is not None and len(self._samples) > 1 else last

    def rate_of_process(self, entry: int, attached_ms: int) -> float:
        """Return how many records a second a process has appended in the last seconds."""
        key = (entry, attached_ms)
        return self.rate(
            lambda slab: sum(each.records for each in slab.processes if (each.entry, each.attached_ms) == key)
        )

    def rate_of_partition(self, entry: int) -> float:
        """Return how many records a second of a partition entry were acknowledged in the last seconds."""
        return self.rate(lambda slab: sum(each.records_sent for each in slab.partitions if each.entry == entry))


def appended(slab: SlabReport) -> float:
    """Return how many records all processes have appended."""
    return slab.distributions["record_size_bytes"].count


def sent(slab: SlabReport) -> float:
    """Return how many records brokers have acknowledged."""
    return slab.metrics["record-send-total"]


def _rate(before: Sample, now: Sample, total: Total) -> float:
    elapsed_s = now.time_s - before.time_s
    return max(0.0, total(now.slab) - total(before.slab)) / elapsed_s if elapsed_s > 0 else 0.0
