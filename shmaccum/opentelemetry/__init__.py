"""Metrics and spans for OpenTelemetry: docs/monitoring/opentelemetry.md."""

from shmaccum.opentelemetry.metrics import instrument_slabs
from shmaccum.opentelemetry.spans import SpanInterceptor, batch_span

__all__ = ["SpanInterceptor", "batch_span", "instrument_slabs"]
