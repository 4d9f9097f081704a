"""The metrics of slabs for Prometheus: a collector for a registry of `prometheus_client`, and the text.

A program that has its own registry can register a `SlabCollector` there. `shmaccum exporter` has one with nothing else
in it.

`prometheus_client` writes the text. It takes 4 to 6 microseconds for a line, which is too long for 4,096 partitions
with nine lines each. So the lines of partitions, alike but for their values, are written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from shmaccum.errors import ApiVersionError
from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import HistogramValue, Kind, Labels, Metric, Value
from shmaccum.observe.reader import SlabReader, Snapshot, labels_of

try:
    from prometheus_client.core import Metric as Family  # a metric with its values
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample
except ImportError as missing:
    raise ApiVersionError(
        f"metrics for Prometheus need the library prometheus_client ({missing}): pip install 'shmaccum[exporter]'"
    ) from missing

_ALL: Final = (*catalogue.OF_SLABS, *catalogue.OF_EXPORTER)


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
        return map(_empty_family, _ALL)

    def collect(self) -> Iterator[Family]:
        """Read all slabs, and yield their metrics."""
        return _families(self.snapshot(), _ALL)

    def snapshot(self) -> Snapshot:
        """Read all slabs."""
        return self._reader.snapshot()


def _families(snapshot: Snapshot, metrics: Iterable[Metric]) -> Iterator[Family]:
    for metric in metrics:
        family = _empty_family(metric)
        for labels, value in snapshot.values(metric):
            family.samples.extend(_samples(metric, labels, value))
        yield family


def _samples(metric: Metric, labels: dict[str, str], value: Value) -> Iterator[Sample]:
    if not isinstance(value, HistogramValue):
        yield Sample(_sample_name(metric), labels, value)
        return
    for bound, count in value.counts.items():
        yield Sample(f"{metric.name}_bucket", {**labels, "le": catalogue.le(bound)}, count)
    yield Sample(f"{metric.name}_count", labels, value.count)
    yield Sample(f"{metric.name}_sum", labels, value.total)


def _empty_family(metric: Metric) -> Family:
    return Family(metric.name, metric.help, metric.kind.value)


def _sample_name(metric: Metric) -> str:
    """Return the name of a metric's series; not of a histogram's."""
    return f"{metric.name}_total" if metric.kind is Kind.COUNTER else metric.name


class Text(NamedTuple):
    """A text, and the media type to send it with."""

    content: bytes
    media_type: str


def exposition(collector: SlabCollector, accept: str = "") -> Text:
    """Read all slabs, and return their metrics as text.

    ``accept`` is the request's header of this name; without one, the text is in Prometheus's own format.
    """
    encoder, media_type = choose_encoder(accept)
    if not collector.partitions:
        return Text(encoder(collector), media_type)
    snapshot = collector.snapshot()
    rest = encoder(_Rest(snapshot))
    return Text(b"".join((*_of_partitions(snapshot, openmetrics=rest.endswith(b"# EOF\n")), rest)), media_type)


class _Rest(Collector):
    """Collects all but the metrics of partitions."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Family]:
        return _families(self._snapshot, (metric for metric in _ALL if metric not in catalogue.BY_TOPIC))


def _of_partitions(snapshot: Snapshot, *, openmetrics: bool) -> Iterator[bytes]:
    # All these metrics have the same series in the same order.
    labels = {slab: _written(slab, series[catalogue.BY_TOPIC[0]]) for slab, series in snapshot.slabs.items()}
    for metric in catalogue.BY_TOPIC:
        name = _sample_name(metric)
        head = metric.name if openmetrics else name
        parts = [f"# HELP {head} {metric.help}\n# TYPE {head} {metric.kind.value}\n"]
        for slab, series in snapshot.slabs.items():
            values = series[metric].values()
            parts += [f"{name}{each}{value}\n" for each, value in zip(labels[slab], values, strict=True)]
        yield "".join(parts).encode()


def _written(slab: str, all_labels: Iterable[Labels]) -> list[str]:
    of_slab = ",".join(f'{label}="{value}"' for label, value in labels_of(slab).items())
    escaped: dict[str, str] = {}
    written = []
    for topic, partition in all_labels:
        if topic not in escaped:
            escaped[topic] = topic.replace("\\", r"\\").replace('"', r"\"")
        written.append(f'{{{of_slab},topic="{escaped[topic]}",partition="{partition}"}} ')
    return written
