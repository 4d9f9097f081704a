"""The metrics of slabs for Prometheus: a collector for a registry of `prometheus_client`, and the text.

A program that has its own registry can register a `SlabCollector` there. `shmaccum exporter` has one with nothing else
in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from shmaccum.errors import ApiVersionError
from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import HistogramValue, Kind, Metric, Value
from shmaccum.observe.reader import SlabReader

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
        self._reader = SlabReader(slabs, partitions=partitions)

    def describe(self) -> Iterator[Family]:
        """Yield the metrics without values, so that a registry learns their names without reading a slab."""
        return map(_empty_family, _ALL)

    def collect(self) -> Iterator[Family]:
        """Read all slabs, and yield their metrics."""
        snapshot = self._reader.snapshot()
        for metric in _ALL:
            family = _empty_family(metric)
            for labels, value in snapshot.values(metric):
                family.samples.extend(_samples(metric, labels, value))
            yield family


def _samples(metric: Metric, labels: dict[str, str], value: Value) -> Iterator[Sample]:
    if not isinstance(value, HistogramValue):
        yield Sample(f"{metric.name}_total" if metric.kind is Kind.COUNTER else metric.name, labels, value)
        return
    for part, more, number in value.parts():
        yield Sample(f"{metric.name}_{part}", labels | more, number)


def _empty_family(metric: Metric) -> Family:
    return Family(metric.name, metric.help, metric.kind.value)


class Text(NamedTuple):
    """A text, and the media type to send it with."""

    content: bytes
    media_type: str


def exposition(collector: SlabCollector, accept: str = "") -> Text:
    """Read all slabs, and return their metrics as text.

    ``accept`` is the request's header of this name; without one that says anything, the text is in Prometheus's own
    format.
    """
    try:
        encoder, media_type = choose_encoder(accept)
    except (TypeError, ValueError):  # it fails at a version that is no number
        encoder, media_type = choose_encoder("")
    return Text(encoder(collector), media_type)
