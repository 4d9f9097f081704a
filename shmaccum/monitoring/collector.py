"""The metrics of slabs for `prometheus_client`: a collector for a registry.

A program that has a registry of its own can register a `SlabCollector` there. `shmaccum exporter` has one with nothing
else in it.

A slab that cannot be read is left out and counted. A slab that is removed meanwhile is left out.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shmaccum.errors import ApiVersionError, SlabError, SlabNotFoundError
from shmaccum.monitoring import catalogue
from shmaccum.monitoring.catalogue import Kind, Metric
from shmaccum.monitoring.reading import HistogramValue, Series, SlabReading, Value, read_slab
from shmaccum.shm import names

try:
    from prometheus_client.core import Metric as Family  # a metric with its values
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample
except ImportError as missing:
    raise ApiVersionError(
        f"metrics for Prometheus need the library prometheus_client ({missing}): pip install 'shmaccum[exporter]'"
    ) from missing

__all__ = ["Family", "SlabCollector", "Snapshot", "empty_family", "families", "sample_name"]

_UNREADABLE: Final = ("SlabAbiError", "SlabDamagedError", "SlabPermissionError")
"""Classes of errors that always have a series, so that it is there before the first error."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All slabs at one time.

    Attributes:
        slabs: for each slab that was read, its metrics.
        unreadable: how many were left out, by the class of the error.
        seconds: how long it took to read them.
    """

    slabs: Mapping[str, Mapping[Metric, Series]]
    unreadable: Mapping[str, int]
    seconds: float


class SlabCollector(Collector):
    """Collects the metrics of slabs, for a ``CollectorRegistry``.

    Several threads can collect at once.

    Args:
        slabs: the names of the slabs; by default all of this host. Those of other users count as unreadable, unless
            this process is root's.
        partitions: whether the metrics of topics have a series for each partition. That is many series: nine for each.
    """

    def __init__(self, slabs: Sequence[str] | None = None, *, partitions: bool = False) -> None:
        self.partitions: Final = partitions
        self._slabs: Callable[[], Sequence[str]] = names.slab_names if slabs is None else lambda: slabs
        self._errors = _ErrorTotals()

    def describe(self) -> Iterator[Family]:
        """Yield the metrics without values, so that a registry learns their names without reading a slab."""
        return map(empty_family, (*catalogue.OF_SLABS, *catalogue.OF_EXPORTER))

    def collect(self) -> Iterator[Family]:
        """Read all slabs, and yield their metrics."""
        return families(self.snapshot(), catalogue.OF_SLABS, partitions=self.partitions)

    def snapshot(self) -> Snapshot:
        """Read all slabs."""
        began = time.perf_counter()
        slabs: dict[str, Mapping[Metric, Series]] = {}
        unreadable = Counter(dict.fromkeys(_UNREADABLE, 0))
        there = self._slabs()
        self._errors.keep(there)
        for name in there:
            try:
                reading = read_slab(name, partitions=self.partitions)
            except SlabNotFoundError:
                continue  # removed since the names were listed
            except (SlabError, OSError) as error:
                unreadable[type(error).__name__] += 1
            else:
                slabs[name] = {**reading.series, catalogue.ERRORS: self._errors.of(reading)}
        return Snapshot(slabs, unreadable, time.perf_counter() - began)


class _ErrorTotals:
    """Counts errors by class, so that no count falls when the slab drops an old error for a new one.

    The slab keeps the last `shmaccum.shm.layout.INCIDENTS` distinct errors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], tuple[dict[int, int], Counter[str]]] = {}
        """Of each slab, by name and creation: the counts that were seen last, by number, and the totals."""

    def keep(self, there: Iterable[str]) -> None:
        """Forget the slabs that are no longer there."""
        with self._lock:
            names_there = set(there)
            for key in [key for key in self._seen if key[0] not in names_there]:
                del self._seen[key]

    def of(self, reading: SlabReading) -> Series:
        """Return the totals of a slab, with this reading."""
        with self._lock:
            seen, totals = self._seen.setdefault((reading.name, reading.created_ms), ({}, Counter()))
            for number, (error, count) in reading.errors.items():
                if count > seen.get(number, 0):
                    totals[error] += count - seen.get(number, 0)
                    seen[number] = count
            newest = max(reading.errors, default=0)
            for number in [number for number in seen if number < newest and number not in reading.errors]:
                del seen[number]  # dropped: a number is never used again
            return {(error,): count for error, count in sorted(totals.items())}


def families(snapshot: Snapshot, metrics: Iterable[Metric], *, partitions: bool) -> Iterator[Family]:
    """Yield some metrics of all slabs, and then those of the reading itself."""
    for metric in metrics:
        labels = (*metric.labels, "partition") if partitions and metric in catalogue.BY_TOPIC else metric.labels
        family = empty_family(metric)
        for slab, series in snapshot.slabs.items():
            for values, value in series.get(metric, {}).items():
                family.samples.extend(_samples(metric, {"slab": slab, **dict(zip(labels, values, strict=True))}, value))
        yield family
    for metric, number in ((catalogue.SLABS, len(snapshot.slabs)), (catalogue.READ_SECONDS, snapshot.seconds)):
        family = empty_family(metric)
        family.samples.append(Sample(metric.name, {}, number))
        yield family
    family = empty_family(catalogue.UNREADABLE_SLABS)
    for error, number in sorted(snapshot.unreadable.items()):
        family.samples.append(Sample(catalogue.UNREADABLE_SLABS.name, {"error": error}, number))
    yield family


def empty_family(metric: Metric) -> Family:
    """Return a metric without values."""
    return Family(metric.name, metric.help, metric.kind.value)


def sample_name(metric: Metric) -> str:
    """Return the name of a metric's series; not of a histogram's."""
    return f"{metric.name}_total" if metric.kind is Kind.COUNTER else metric.name


def _samples(metric: Metric, labels: dict[str, str], value: Value) -> Iterator[Sample]:
    if not isinstance(value, HistogramValue):
        yield Sample(sample_name(metric), labels, value)
        return
    bounds = metric.buckets.bounds if metric.buckets is not None else ()
    for bound, count in zip((*bounds, math.inf), value.counts, strict=True):
        yield Sample(f"{metric.name}_bucket", {**labels, "le": "+Inf" if bound == math.inf else repr(bound)}, count)
    yield Sample(f"{metric.name}_count", labels, value.counts[-1])
    yield Sample(f"{metric.name}_sum", labels, value.total)
