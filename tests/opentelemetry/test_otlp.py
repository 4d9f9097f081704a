"""Metrics by OTLP, to a receiver: with whole histograms."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Capture, MonkeyPatch
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import Counter, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ConsoleMetricExporter,
    Histogram,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import DropAggregation, View
from producers import settings_of, wait_until_gone

from shmaccum import Producer
from shmaccum.cli.main import main
from shmaccum.observe import catalogue
from shmaccum.opentelemetry import instrument_slabs
from shmaccum.opentelemetry.otlp import HistogramExporter

Settings = dict[str, object]
Receiver = tuple[str, list[tuple[str, bytes]]]


@pytest.fixture
def settings(slab_name: str, tmp_path: Path) -> Iterator[Settings]:
    """Return the settings of the test's slab, which must be gone at the end."""
    yield settings_of(slab_name, tmp_path / "log")
    wait_until_gone(slab_name)


def by_name(body: bytes) -> dict[str, Any]:
    [resource] = ExportMetricsServiceRequest.FromString(body).resource_metrics
    [scope] = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def test_the_command_pushes_whole_histograms(settings: Settings, slab_name: str, receiver: Receiver) -> None:
    """OTLP's own exporter sends them, and a receiver decodes them: the buckets are Prometheus's."""
    url, received = receiver
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRIC_EXPORT_INTERVAL": "600000"}
    command = [sys.executable, "-m", "shmaccum", "exporter", "--otlp", slab_name]
    with Producer(settings) as producer:
        for size in (10, 100, 1000, 1000):
            producer.send("t", b"x" * size)
        producer.flush()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "metrics are pushed by OTLP\n"
                process.send_signal(signal.SIGTERM)  # it pushes a last time
                assert process.wait(30) == 0
            finally:
                process.kill()
    [(path, body)] = received
    assert path == "/v1/metrics"
    metrics = by_name(body)
    sizes = metrics["shmaccum.record_size"]
    assert (sizes.unit, sizes.description) == ("By", "Sizes of appended records.")
    [point] = sizes.histogram.data_points
    assert point.count == sum(point.bucket_counts) == 4
    assert 2110 < point.sum < 2300
    buckets = catalogue.RECORD_SIZE.buckets
    assert buckets is not None
    assert tuple(point.explicit_bounds) == buckets.bounds
    # Up to 31, 127, 511 and 2047 bytes.
    assert list(point.bucket_counts)[:4] == [1, 1, 0, 2]
    assert not point.HasField("min")
    assert not any(name.endswith((".bucket", ".count", ".sum")) for name in metrics)
    assert metrics["shmaccum.records_sent"].sum.data_points[0].as_int == 4


class Kept(ConsoleMetricExporter):
    """Keeps what it is to export."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.data: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any) -> MetricExportResult:
        self.data.append(metrics_data)
        return MetricExportResult.SUCCESS

    def last(self) -> dict[str, Any]:
        [resource] = self.data[-1].resource_metrics
        return {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}


def provider_of(exporter: Kept, **options: Any) -> MeterProvider:
    reader = PeriodicExportingMetricReader(HistogramExporter(exporter), export_interval_millis=600_000)
    return MeterProvider([reader], shutdown_on_exit=False, **options)


def test_histograms_of_deltas(settings: Settings, slab_name: str) -> None:
    """The other exporter's temporality holds: each point has what came since the one before."""
    exporter = Kept(preferred_temporality={ObservableCounter: AggregationTemporality.DELTA})
    provider = provider_of(exporter)
    instrument_slabs(provider, slabs=[slab_name])
    with Producer(settings) as producer:
        for records in (3, 2):
            for _ in range(records):
                producer.send("t", b"x" * 100).get(20)
            provider.force_flush()
            sizes = exporter.last()["shmaccum.record_size"].data
            assert isinstance(sizes, Histogram)
            assert sizes.aggregation_temporality is AggregationTemporality.DELTA
            [point] = sizes.data_points
            assert (point.count, sum(point.bucket_counts), point.bucket_counts[1]) == (records, records, records)
            assert point.attributes == {"shmaccum.slab": slab_name}
    provider.shutdown()


def test_other_metrics_pass_and_parts_of_a_histogram_stay(settings: Settings, slab_name: str) -> None:
    exporter = Kept(preferred_temporality={Counter: AggregationTemporality.CUMULATIVE})
    dropped = View(instrument_name="shmaccum.record_size.bucket", aggregation=DropAggregation())
    provider = provider_of(exporter, views=[dropped])
    instrument_slabs(provider, slabs=[slab_name])
    provider.get_meter("mine").create_counter("mine.bucket").add(1)
    with Producer(settings) as producer:
        producer.send("t", b"x").get(20)
        provider.force_flush()
    provider.shutdown()
    assert {"mine.bucket", "shmaccum.record_size.count", "shmaccum.record_size.sum"} <= exporter.last().keys()
    assert isinstance(exporter.last()["shmaccum.batch_records"].data, Histogram)


def test_an_unknown_protocol(monkeypatch: MonkeyPatch, capfd: Capture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke")
    assert main(["exporter", "--otlp"]) == 2
    assert "OTEL_EXPORTER_OTLP_PROTOCOL = 'smoke': must be one of http/protobuf, grpc" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("opentelemetry.metrics", "pip install 'shmaccum[opentelemetry]'"),
        ("opentelemetry.sdk.metrics", "pip install opentelemetry-sdk"),
        (
            "opentelemetry.exporter.otlp.proto.http.metric_exporter",
            "pip install opentelemetry-exporter-otlp-proto-http",
        ),
    ],
)
def test_the_error_of_a_missing_library_names_what_to_install(missing: str, said: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from shmaccum.cli.main import main; main(['exporter', '--otlp'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said in done.stderr
