"""The metrics as text: Prometheus's own format, or OpenMetrics, as the reader accepts it.

`prometheus_client` writes the text. It takes 4 to 6 microseconds for a line, which is too long for 4,096 partitions
with nine lines each. So the lines of partitions, alike but for their values, are written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from shmaccum.monitoring import catalogue
from shmaccum.monitoring.catalogue import Kind, Metric
from shmaccum.monitoring.collector import Family, SlabCollector, Snapshot, families, sample_name
from shmaccum.monitoring.reading import Labels
from shmaccum.monitoring.snapshot import labels_of

# Here, after the collector, whose error names the extra if the library is missing.
from prometheus_client.exposition import choose_encoder  # isort: skip

_END: Final = b"# EOF\n"
"""Ends a text of OpenMetrics."""
_REST: Final = tuple(metric for metric in catalogue.OF_SLABS if metric not in catalogue.BY_TOPIC)


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


class _Rest:
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
