"""Metrics and spans by OTLP, to a receiver; histograms are whole."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from examples import example
from fixture_types import Capture, MonkeyPatch
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
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
from producers import wait_until_gone
from runs import run_python
from senders import read_partition
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.cli.main import main
from shmaccum.opentelemetry import instrument_slabs
from shmaccum.opentelemetry.otlp import HistogramExporter

Receiver = tuple[str, list[tuple[str, bytes]]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return the address of a receiver of OTLP by HTTP, and the path and body of each request so far."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_packed = self.headers.get("Content-Encoding") == "gzip"
            received.append((self.path, gzip.decompress(body) if is_packed else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


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
    assert tuple(point.explicit_bounds)[:4] == (31, 127, 511, 2047)
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


MISSING = {
    "opentelemetry.metrics": "pip install 'shmaccum[opentelemetry]'",
    "opentelemetry.sdk.metrics": "pip install opentelemetry-sdk",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter": "pip install opentelemetry-exporter-otlp-proto-http",
}


def test_the_error_of_a_missing_library_names_what_to_install() -> None:
    code = (
        "import sys; from shmaccum.cli.main import main\n"
        f"for name in {[*MISSING]}: sys.modules[name] = None; main(['exporter', '--otlp']); del sys.modules[name]"
    )
    said = run_python("-c", code).stderr.splitlines()
    assert len(said) == len(MISSING)
    for line, install in zip(said, MISSING.values(), strict=True):
        assert install in line


def test_the_documented_program_exports_a_span_of_its_record(
    settings: Settings, slab_name: str, receiver: Receiver, tmp_path: Path
) -> None:
    """The program of docs/monitoring/opentelemetry.md, as users copy it."""
    url, received = receiver
    given = repr({name: str(value) for name, value in (settings | {"num.partitions": 1}).items()}).strip("{}")
    changes = {'"bootstrap.servers": "broker1:9092"': given, "TraceIdRatioBased(0.01)": "TraceIdRatioBased(1)"}
    program = example("Spans", changes, page="docs/monitoring/opentelemetry.md")
    done = run_python("-c", program, env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    assert done.returncode == 0, done.stderr
    wait_until_gone(slab_name)
    assert {path for path, _ in received} == {"/v1/traces"}
    requests = [ExportTraceServiceRequest.FromString(body) for _, body in received]
    scopes = [scope for request in requests for resource in request.resource_spans for scope in resource.scope_spans]
    spans = {span.name: span for scope in scopes for span in scope.spans}
    assert spans.keys() == {"order", "send orders"}
    sent = spans["send orders"]
    assert sent.parent_span_id == spans["order"].span_id
    [record] = read_partition(tmp_path / "log", "orders")
    assert dict(record.headers)["traceparent"].split(b"-")[2] == sent.span_id.hex().encode()
