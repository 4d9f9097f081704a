"""The programs of docs/monitoring/opentelemetry.md, as users copy them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from examples import example
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from producers import settings_of, wait_until_gone
from senders import read_partition

PAGE = "docs/monitoring/opentelemetry.md"


def test_the_program_exports_a_span_of_its_record(
    tmp_path: Path, slab_name: str, receiver: tuple[str, list[tuple[str, bytes]]]
) -> None:
    url, received = receiver
    settings = repr(settings_of(slab_name, tmp_path / "log", num_partitions=1)).strip("{}")
    changes = {'"bootstrap.servers": "broker1:9092"': settings, "TraceIdRatioBased(0.01)": "TraceIdRatioBased(1)"}
    program = example("Spans", changes, page=PAGE)
    environment = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=60)
    wait_until_gone(slab_name)
    assert {path for path, _ in received} == {"/v1/traces"}
    requests = [ExportTraceServiceRequest.FromString(body) for _, body in received]
    spans = {
        span.name: span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert spans.keys() == {"order", "send orders"}
    sent = spans["send orders"]
    assert sent.parent_span_id == spans["order"].span_id
    [record] = read_partition(tmp_path / "log", "orders")
    assert dict(record.headers)["traceparent"].split(b"-")[2] == sent.span_id.hex().encode()
