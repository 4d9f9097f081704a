"""What spans cost the thread that sends: processor time a record, without, unsampled and sampled.

The spans go to OpenTelemetry's batch processor and an exporter that drops them. Records of 100 bytes go into a log.
"""

from __future__ import annotations

import argparse
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
from tools.bench.harness import Figures, print_table, spread, take_turns


class Dropping(SpanExporter):
    """Exports nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop the spans."""
        return SpanExportResult.SUCCESS


def microseconds(records: int, interceptors: list[Any]) -> Figures:
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
            return {"µs": (time.thread_time() - began) / records * 1e6}


def spans(sampler: Sampler) -> partial[SpanInterceptor]:
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(BatchSpanProcessor(Dropping()))
    return partial(SpanInterceptor, provider)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)


def run(options: argparse.Namespace) -> None:
    interceptors: dict[str, list[Any]] = {
        "no interceptor": [],
        "an interceptor that does nothing": [ProducerInterceptor],
        "spans, none sampled": [spans(ALWAYS_OFF)],
        "spans, 1 % sampled": [spans(ParentBased(TraceIdRatioBased(0.01)))],
        "spans, all sampled": [spans(ALWAYS_ON)],
    }
    contestants = {name: partial(microseconds, options.records, each) for name, each in interceptors.items()}
    turns = take_turns(contestants, options.rounds)
    print_table("µs a record", ((name, spread([each["µs"] for each in rounds])) for name, rounds in turns.items()))
