"""The metrics of slabs for Prometheus: a collector for a registry of `prometheus_client`, and the text.

A program that has its own registry can register a `SlabCollector` there. `shmaccum exporter` has one with nothing else
in it.

`prometheus_client` writes the text. It takes 4 to 6 microseconds for a line, which is too long for 4,096 partitions
with nine lines each. So the lines of partitions, alike but for their values, are written here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from shmaccum.errors import ApiVersionError
from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import Kind, Metric
from shmaccum.observe.reader import SlabReader, Snapshot, labels_of
from shmaccum.observe.series import HistogramValue, Labels, Value

try:
    from prometheus_client.core import Metric as Family  # a metric with its values
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample
except ImportError as missing:
    raise ApiVersionError(
        f"metrics for Prometheus need the library prometheus_client ({missing}): pip install 'shmaccum[exporter]'"
    ) from missing

_END: Final = b"# EOF\n"
"""Ends a text of OpenMetrics."""
_REST: Final = tuple(metric for metric in catalogue.OF_SLABS if metric not in catalogue.BY_TOPIC)


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


class Text(NamedTuple):
    """A text, and the media type to send it with."""

    content: bytes
    media_type: str


def exposition(collector: SlabCollector, accept: str = "") -> Text:
    """Read all slabs, and return their metrics as text.

    Args:
        collector: of the slabs.
        accept: the request's header of this name; without one, the text is in Prometheus's own format.
    """
    encoder, media_type = choose_encoder(accept)
    if not collector.partitions:
        return Text(encoder(collector), media_type)
    snapshot = collector.snapshot()
    rest = encoder(_Rest(snapshot))
    end = _END if rest.endswith(_END) else b""
    return Text(b"".join((*_of_partitions(snapshot, openmetrics=bool(end)), rest)), media_type)


class _Rest(Collector):
    """Collects all but the metrics of partitions."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        return families(self._snapshot, _REST, partitions=True)


def _of_partitions(snapshot: Snapshot, *, openmetrics: bool) -> Iterator[bytes]:
    # All these metrics have the same series in the same order.
    labels = {slab: _written(slab, series[catalogue.RECORDS_SENT]) for slab, series in snapshot.slabs.items()}
    for metric in catalogue.BY_TOPIC:
        name = sample_name(metric)
        parts = [_head(metric, metric.name if openmetrics else name)]
        for slab, series in snapshot.slabs.items():
            values = series[metric].values()
            parts += [f"{name}{each}{value}\n" for each, value in zip(labels[slab], values, strict=True)]
        yield "".join(parts).encode()


def _head(metric: Metric, name: str) -> str:
    kind = Kind.COUNTER if metric.kind is Kind.COUNTER else Kind.GAUGE
    return f"# HELP {name} {metric.help}\n# TYPE {name} {kind.value}\n"


def _written(slab: str, all_labels: Iterable[Labels]) -> list[str]:
    of_slab = ",".join(f'{label}="{value}"' for label, value in labels_of(slab).items())
    escaped: dict[str, str] = {}
    written = []
    for topic, partition in all_labels:
        if topic not in escaped:
            escaped[topic] = topic.replace("\\", r"\\").replace('"', r"\"")
        written.append(f'{{{of_slab},topic="{escaped[topic]}",partition="{partition}"}} ')
    return written
