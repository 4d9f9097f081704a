"""Measures what spans cost the thread that sends: processor time a record, without, unsampled and sampled.

The spans go to OpenTelemetry's batch processor and an exporter that drops them. Records of 100 bytes go into a log.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased

from shmaccum import Producer, ProducerInterceptor
from shmaccum.opentelemetry import SpanInterceptor


class Dropping(SpanExporter):
    """Exports nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop the spans."""
        return SpanExportResult.SUCCESS


def microseconds(records: int, interceptors: list[Any]) -> float:
    """Return the thread's processor time for a record, from `send` to the end of `flush`."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {"transport": "log", "log.dir": directory, "interceptor.classes": interceptors}
        with Producer(settings | {"sender.idle.ms": 0}) as producer:
            producer.send("t", b"x").get(30)
            value = b"x" * 100
            began = time.thread_time()
            for _ in range(records):
                producer.send("t", value)
            producer.flush()
            return (time.thread_time() - began) / records * 1e6


def spans(sampler: Sampler) -> partial[SpanInterceptor]:
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(BatchSpanProcessor(Dropping()))
    return partial(SpanInterceptor, provider)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    cases: dict[str, list[Any]] = {
        "no interceptor": [],
        "an interceptor that does nothing": [ProducerInterceptor],
        "spans, none sampled": [spans(ALWAYS_OFF)],
        "spans, 1 % sampled": [spans(ParentBased(TraceIdRatioBased(0.01)))],
        "spans, all sampled": [spans(ALWAYS_ON)],
    }
    times: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(args.rounds):  # in turn, so that other programs' work hits all alike
        for case, interceptors in cases.items():
            times[case].append(microseconds(args.records, interceptors))
    for case, of_case in times.items():
        print(f"{case:34} {statistics.median(of_case):6.2f} µs a record (least {min(of_case):.2f})")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
