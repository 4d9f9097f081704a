"""The metrics of slabs for `prometheus_client`: a collector for a registry.

A program that has a registry of its own can register a `SlabCollector` there. `shmaccum exporter` has one with nothing
else in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from shmaccum.errors import ApiVersionError
from shmaccum.monitoring import catalogue
from shmaccum.monitoring.catalogue import Kind, Metric
from shmaccum.monitoring.reading import HistogramValue, Value
from shmaccum.monitoring.snapshot import SlabReader, Snapshot, labels_of

try:
    from prometheus_client.core import Metric as Family  # a metric with its values
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample
except ImportError as missing:
    raise ApiVersionError(
        f"metrics for Prometheus need the library prometheus_client ({missing}): pip install 'shmaccum[exporter]'"
    ) from missing

__all__ = ["Family", "SlabCollector", "Snapshot", "empty_family", "families", "sample_name"]


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
        self._reader = SlabReader(slabs, partitions=partitions)

    def describe(self) -> Iterator[Family]:
        """Yield the metrics without values, so that a registry learns their names without reading a slab."""
        return map(empty_family, (*catalogue.OF_SLABS, *catalogue.OF_EXPORTER))

    def collect(self) -> Iterator[Family]:
        """Read all slabs, and yield their metrics."""
        return families(self.snapshot(), catalogue.OF_SLABS, partitions=self.partitions)

    def snapshot(self) -> Snapshot:
        """Read all slabs."""
        return self._reader.snapshot()


def families(snapshot: Snapshot, metrics: Iterable[Metric], *, partitions: bool) -> Iterator[Family]:
    """Yield some metrics of all slabs, and then those of the reading itself."""
    for metric in metrics:
        labels = (*metric.labels, "partition") if partitions and metric in catalogue.BY_TOPIC else metric.labels
        family = empty_family(metric)
        for slab, series in snapshot.slabs.items():
            for values, value in series.get(metric, {}).items():
                named = {**labels_of(slab), **dict(zip(labels, values, strict=True))}
                family.samples.extend(_samples(metric, named, value))
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
        yield Sample(f"{metric.name}_bucket", {**labels, "le": catalogue.le(bound)}, count)
    yield Sample(f"{metric.name}_count", labels, value.counts[-1])
    yield Sample(f"{metric.name}_sum", labels, value.total)
