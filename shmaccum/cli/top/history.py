"""What successive reports of a slab tell together: rates, and how the last minute went."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shmaccum.observe.report import SlabReport
from shmaccum.shm.distribution import Distribution

Total = Callable[[SlabReport], float]
"""Returns a number that only grows."""

_WINDOW_S: Final = 5.0
"""Rates and percentiles are those of these last seconds."""
_POINTS: Final = 120
"""Most points of a curve."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A report, and the monotonic seconds when it was made."""

    time_s: float
    slab: SlabReport


@dataclass(slots=True)
class Curves:
    """One value for each report, the oldest first."""

    appended: deque[float] = field(default_factory=lambda: deque(maxlen=_POINTS))
    """Records a second."""
    sent: deque[float] = field(default_factory=lambda: deque(maxlen=_POINTS))
    """Records a second."""
    memory: deque[float] = field(default_factory=lambda: deque(maxlen=_POINTS))
    """The part of the memory that is in use."""
    delivery_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_POINTS))
    """The 99th percentile."""


class History:
    """The last reports of one slab."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self.curves = Curves()

    def add(self, slab: SlabReport) -> None:
        """Add a report. One of another slab of the same name begins a new history."""
        if self._samples and self._samples[-1].slab.created_ms != slab.created_ms:
            self._samples.clear()
            self.curves = Curves()
        before = self._samples[-1] if self._samples else None
        now = Sample(time.monotonic(), slab)
        self._samples.append(now)
        while len(self._samples) > 2 and now.time_s - self._samples[1].time_s >= _WINDOW_S:
            self._samples.popleft()
        if before is not None:
            curves = self.curves
            curves.appended.append(_rate(before, now, _appended))
            curves.sent.append(_rate(before, now, _sent))
            curves.memory.append(slab.memory.used / slab.memory.total)
            since = slab.distributions["delivery_time_us"] - before.slab.distributions["delivery_time_us"]
            curves.delivery_ms.append(since.percentile(99) / 1000)

    @property
    def slab(self) -> SlabReport:
        """The last report."""
        return self._samples[-1].slab

    @property
    def appended_rate(self) -> float:
        """Records a second that all processes have appended in the last seconds."""
        return _rate(self._samples[0], self._samples[-1], _appended)

    @property
    def sent_rate(self) -> float:
        """Records a second that brokers have acknowledged in the last seconds."""
        return _rate(self._samples[0], self._samples[-1], _sent)

    @property
    def byte_rate(self) -> float:
        """Bytes a second that brokers have acknowledged in the last seconds."""
        return _rate(self._samples[0], self._samples[-1], lambda slab: slab.metrics["byte-total"])

    def recent(self, name: str) -> Distribution:
        """Return a histogram of the last seconds; of all values, without two reports."""
        last = self._samples[-1].slab.distributions[name]
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
        return self._rate_of(
            lambda slab: sum(
                each.records for each in slab.processes if (each.entry, each.attached_ms) == (entry, attached_ms)
            )
        )

    def rate_of_partition(self, entry: int) -> float:
        """Return how many records a second of a partition entry were acknowledged in the last seconds."""
        return self._rate_of(lambda slab: sum(each.records_sent for each in slab.partitions if each.entry == entry))

    def _rate_of(self, total: Total) -> float:
        return _rate(self._samples[0], self._samples[-1], total)


def _appended(slab: SlabReport) -> float:
    return slab.distributions["record_size_bytes"].count


def _sent(slab: SlabReport) -> float:
    return slab.metrics["record-send-total"]


def _rate(before: Sample, now: Sample, total: Total) -> float:
    elapsed_s = now.time_s - before.time_s
    return max(0.0, total(now.slab) - total(before.slab)) / elapsed_s if elapsed_s > 0 else 0.0
