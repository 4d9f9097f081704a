"""The metrics of slabs by OTLP, with whole histograms, made of the counters that `instrument_slabs` registers.

It needs the SDK, because only there histograms are values, and not instruments.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from shmaccum.errors import ApiVersionError, ConfigError
from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import Kind, Metric, opentelemetry_name
from shmaccum.opentelemetry.metrics import BUCKET, COUNT, LE, SCOPE, SUM, instrument_slabs

try:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        Histogram,
        HistogramDataPoint,
        MetricExporter,
        MetricExportResult,
        MetricsData,
        NumberDataPoint,
        PeriodicExportingMetricReader,
        Sum,
    )
    from opentelemetry.sdk.metrics.export import Metric as Exported
except ImportError as missing:
    raise ApiVersionError(
        f"histograms for OpenTelemetry need its SDK ({missing}): pip install opentelemetry-sdk"
    ) from missing

_HISTOGRAMS: Final = {opentelemetry_name(each): each for each in catalogue.OF_SLABS if each.kind is Kind.HISTOGRAM}

_EXPORTERS: Final = {"http/protobuf": "http", "grpc": "grpc"}
"""For each protocol, how its exporter is called."""

Key = tuple[tuple[str, Any], ...]


def push_slabs(slabs: Sequence[str] | None = None, *, partitions: bool = False) -> MeterProvider:
    """Push the metrics of slabs by OTLP from now on, in a thread of the SDK; its ``shutdown`` pushes a last time.

    OpenTelemetry's environment variables say where to, how and how often: ``OTEL_EXPORTER_OTLP_ENDPOINT`` and
    ``_PROTOCOL``, ``OTEL_METRIC_EXPORT_INTERVAL``, ``OTEL_RESOURCE_ATTRIBUTES`` and the others of the SDK.

    Args:
        slabs: as in `instrument_slabs`.
        partitions: as in `instrument_slabs`.

    Raises:
        ApiVersionError: the exporter for the protocol is not installed.
        ConfigError: the protocol is unknown.
    """
    provider = MeterProvider([PeriodicExportingMetricReader(HistogramExporter(_otlp_exporter()))])
    instrument_slabs(provider, slabs=slabs, partitions=partitions)
    return provider


def _otlp_exporter() -> MetricExporter:
    names = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next(filter(None, map(os.environ.get, names)), "http/protobuf")
    if protocol not in _EXPORTERS:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL = {protocol!r}: must be one of {', '.join(_EXPORTERS)}")
    kind = _EXPORTERS[protocol]
    package = f"opentelemetry-exporter-otlp-proto-{kind}"
    try:
        module = import_module(f"opentelemetry.exporter.otlp.proto.{kind}.metric_exporter")
    except ImportError as missing:
        raise ApiVersionError(f"OTLP by {protocol} needs {package} ({missing}): pip install {package}") from missing
    exporter: MetricExporter = module.OTLPMetricExporter()
    return exporter


class HistogramExporter(MetricExporter):
    """Exports by another exporter, with the slabs' histograms as histograms.

    Args:
        exporter: such as ``OTLPMetricExporter()``; its temporality holds.
    """

    def __init__(self, exporter: MetricExporter) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more: Any) -> MetricExportResult:
        """Export the metrics of all scopes; the slabs' histograms as histograms."""
        resources = [
            replace(
                resource,
                scope_metrics=[
                    replace(scope, metrics=list(_with_histograms(scope.metrics)))
                    if scope.scope.name == SCOPE
                    else scope
                    for scope in resource.scope_metrics
                ],
            )
            for resource in metrics_data.resource_metrics
        ]
        return self._exporter.export(MetricsData(resources), timeout_millis, **more)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Flush the other exporter."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **more: Any) -> None:
        """Shut the other exporter down."""
        self._exporter.shutdown(timeout_millis, **more)


def _with_histograms(metrics: Sequence[Exported]) -> Iterator[Exported]:
    by_name = {metric.name: metric for metric in metrics}
    for metric in metrics:
        stem, dot, suffix = metric.name.rpartition(".")
        described = _HISTOGRAMS.get(stem)
        if described is None or not {stem + BUCKET, stem + COUNT, stem + SUM} <= by_name.keys():
            yield metric
        elif dot + suffix == BUCKET:
            yield _histogram(stem, described, metric, by_name[stem + COUNT], by_name[stem + SUM])


def _histogram(name: str, described: Metric, buckets: Exported, counts: Exported, sums: Exported) -> Exported:
    assert isinstance(buckets.data, Sum)
    totals = {_key(point): point for point in _points(sums)}
    reached: dict[Key, dict[float, int]] = {}
    for point in _points(buckets):
        bound = float(str((point.attributes or {})[LE]))
        reached.setdefault(_key(point), {})[bound] = int(point.value)
    points = []
    for point in _points(counts):
        key = _key(point)
        of_bounds = sorted(reached.get(key, {math.inf: int(point.value)}).items())
        before = [0, *(count for _, count in of_bounds)]
        points.append(
            HistogramDataPoint(
                attributes=point.attributes,
                start_time_unix_nano=point.start_time_unix_nano or 0,
                time_unix_nano=point.time_unix_nano,
                count=int(point.value),
                sum=totals[key].value if key in totals else 0,
                bucket_counts=[count - least for (_, count), least in zip(of_bounds, before, strict=False)],
                explicit_bounds=[bound for bound, _ in of_bounds if bound != math.inf],
                min=None,  # type: ignore[arg-type]  # OTLP does not need them, and the slab does not have them of a period
                max=None,  # type: ignore[arg-type]
            )
        )
    data = Histogram(points, buckets.data.aggregation_temporality)
    return Exported(name, described.help, described.unit, data)


def _points(metric: Exported) -> Iterable[NumberDataPoint]:
    return (point for point in metric.data.data_points if isinstance(point, NumberDataPoint))


def _key(point: NumberDataPoint) -> Key:
    return tuple(sorted((name, value) for name, value in (point.attributes or {}).items() if name != LE))
