"""A span for each record: from `send` to its outcome, with its context in the record's headers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fixture_types import Link, Start
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags, format_span_id
from producers import in_the_way, kept_slab, wait_until_gone
from senders import read_partition

from shmaccum import AsyncProducer, Producer, ProducerInterceptor, ProducerRecord
from shmaccum.errors import KafkaError, KafkaTimeoutError, RecordTooLargeError, SerializationError
from shmaccum.opentelemetry import SpanInterceptor, batch_span

Make = Callable[..., dict[str, object]]


class Traces:
    """Spans that have ended, and the provider that makes them."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.interceptor = partial(SpanInterceptor, self.provider)

    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def take(self) -> ReadableSpan:
        """Return the only span that has ended, and forget it."""
        [span] = self.ended()
        self._exporter.clear()
        return span


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spans") / "log"


@pytest.fixture(scope="module")
def settings(log: Path) -> Iterator[Make]:
    """Return a function that gives the settings of the module's slab; keywords change them."""
    with kept_slab(f"spans-{os.getpid()}", log, num_partitions=1) as settings:
        yield settings


def header_of(span: ReadableSpan) -> bytes:
    """Return the ``traceparent`` of a span's context."""
    assert span.context is not None
    context = span.context
    return b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, context.trace_flags)


def stored_headers(log: Path, topic: str) -> list[Any]:
    return [list(record.headers) for record in read_partition(log, topic)]


def test_a_span_begins_at_send_and_ends_at_the_acknowledgement(
    traces: Traces, settings: Make, log: Path, topic: str
) -> None:
    with Producer(settings(interceptor_classes=[traces.interceptor])) as producer:
        with traces.provider.get_tracer("app").start_as_current_span("request") as request:
            first = producer.send(topic, b"value", headers={"mine": b"1"})
            second = producer.send(topic, None)
        assert [span.name for span in traces.ended()] == ["request"]
        producer.flush()
        spans = traces.ended()[1:]
    assert [span.name for span in spans] == [f"send {topic}", f"send {topic}"]
    for span, future in zip(spans, (first, second), strict=True):
        assert span.kind is SpanKind.PRODUCER
        assert span.parent == request.get_span_context()
        assert span.status.status_code is StatusCode.UNSET
        assert span.attributes is not None
        tombstone = {"messaging.kafka.message.tombstone": True} if future is second else {}
        assert dict(span.attributes) == tombstone | {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": future.get(0).offset,
        }
    assert stored_headers(log, topic) == [
        [("mine", b"1"), ("traceparent", header_of(spans[0]))],
        [("traceparent", header_of(spans[1]))],
    ]


def check_failed(span: ReadableSpan, error: BaseException) -> None:
    assert span.attributes is not None
    assert span.attributes["error.type"] == type(error).__name__
    assert "messaging.kafka.offset" not in span.attributes
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, str(error))


def test_a_record_that_is_refused_or_fails_is_a_failed_span(
    traces: Traces, settings: Make, log: Path, topic: str
) -> None:
    """The log cannot be written until after ``delivery.timeout.ms``."""
    late = {"linger_ms": 0, "request_timeout_ms": 100, "delivery_timeout_ms": 300}
    with Producer(settings(interceptor_classes=[traces.interceptor], max_request_size=1024, **late)) as producer:
        with pytest.raises(RecordTooLargeError) as caught:
            producer.send(topic, b"x" * 2000, partition=0)
        check_failed(traces.take(), caught.value)
        producer.partitions_for(topic)
        with in_the_way(log / f"{topic}-0"):
            error = producer.send(topic, b"value").exception(30)
    assert error is not None
    check_failed(traces.take(), error)


def test_a_record_without_metadata_is_a_failed_span(traces: Traces, settings: Make, slab_name: str, topic: str) -> None:
    """Nothing listens at the broker's address."""
    nowhere = {"transport": "kafka", "bootstrap_servers": "127.0.0.1:1", "max_block_ms": 300}
    nowhere |= {"shmaccum_name": slab_name, "sender_idle_ms": 100}
    with Producer(settings(interceptor_classes=[traces.interceptor], **nowhere)) as producer:
        with pytest.raises(KafkaTimeoutError) as caught:
            producer.send(topic, b"value")
        check_failed(traces.take(), caught.value)
    wait_until_gone(slab_name)


def test_unsampled_record_has_the_header_and_no_span(settings: Make, log: Path, topic: str) -> None:
    traces = Traces(sampler=ALWAYS_OFF)
    with Producer(settings(interceptor_classes=[traces.interceptor])) as producer:
        producer.send(topic, b"value")
        producer.flush()
        [interceptor] = producer._interceptors._interceptors
        assert not interceptor._open
    assert traces.ended() == []
    [[(name, value)]] = stored_headers(log, topic)
    assert name == "traceparent"
    assert int(value[-2:], 16) & TraceFlags.SAMPLED == 0


def test_without_an_sdk_records_are_sent_unchanged(settings: Make, log: Path, topic: str) -> None:
    """The global provider then makes no spans. The interceptor is given by its dotted name."""
    names = "shmaccum.opentelemetry.SpanInterceptor"
    with Producer(settings(interceptor_classes=names)) as producer:
        producer.send(topic, b"value", headers=[("a", None)]).get(20)
    assert stored_headers(log, topic) == [[("a", None)]]


GIVEN = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def links(span: ReadableSpan) -> list[str]:
    return [format_span_id(link.context.span_id) for link in span.links]


def test_headers_of_the_record_stay(traces: Traces, settings: Make, log: Path, topic: str) -> None:
    """A context is linked, something else is not, and wrong headers are refused as without spans."""
    with Producer(settings(interceptor_classes=[traces.interceptor])) as producer:
        producer.send(topic, b"value", headers=[("traceparent", GIVEN)]).get(20)
        assert links(traces.take()) == ["b7ad6b7169203331"]
        producer.send(topic, b"value", headers=[("tracestate", None), ("traceparent", GIVEN.decode())]).get(20)
        span = traces.take()
        assert (links(span), span.status.is_ok) == (["b7ad6b7169203331"], True)
        for wrong in (7, "\ud800", 7.5):
            with pytest.raises(SerializationError):
                producer.send(topic, b"value", headers=[("tracestate", wrong), ("traceparent", GIVEN.decode())])
            span = traces.take()
            assert (links(span), span.status.is_ok) == (["b7ad6b7169203331"], False)
        with pytest.raises(KafkaError, match="headers must be pairs"):
            producer.send(topic, b"value", headers=7)  # type: ignore[arg-type]
        assert traces.ended() == []
        producer.send(topic, b"value", headers=[("traceparent", b"\xff")]).get(20)
        assert stored_headers(log, topic) == [
            [("traceparent", GIVEN)],
            [("tracestate", None), ("traceparent", GIVEN)],
            [("traceparent", b"\xff"), ("traceparent", header_of(traces.take()))],
        ]


def test_close_without_a_wait_ends_what_is_open(traces: Traces, settings: Make, topic: str) -> None:
    with Producer(settings(interceptor_classes=[traces.interceptor], linger_ms=0)) as keeps:
        producer = Producer(settings(interceptor_classes=[traces.interceptor], linger_ms=60_000))
        producer.send(topic, b"value")
        producer.close(0)
        [span] = traces.ended()
        assert [event.name for event in span.events] == ["producer closed before the acknowledgement"]
        keeps.flush()


class Renames(ProducerInterceptor):
    """Comes after the spans, and copies the headers."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, record.value, headers=dict(record.headers or ()))


def test_interceptor_behind_it_can_copy_the_headers(traces: Traces, settings: Make, topic: str) -> None:
    with Producer(settings(interceptor_classes=[traces.interceptor, Renames])) as producer:
        producer.send(topic, b"value")
        producer.flush()
    assert [span.name for span in traces.ended()] == [f"send {topic}"]


def test_async_producer_ends_spans_while_nothing_is_awaited(traces: Traces, settings: Make, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(settings(interceptor_classes=[traces.interceptor])) as producer:
            with traces.provider.get_tracer("app").start_as_current_span("request"):
                await producer.send(topic, b"value")
            async with asyncio.timeout(30):
                while len(traces.ended()) < 2:
                    await asyncio.sleep(0.01)

    asyncio.run(main())
    request, sent = traces.ended()
    assert sent.parent == request.context
    assert sent.name == f"send {topic}"


def in_a_fork(link: Link, producer: Producer, traces: Traces, topic: str) -> None:
    before = len(traces.ended())
    producer.send(topic, b"child").get(30)
    ended = traces.ended()[before:]
    link.send([format_span_id(span.context.span_id) for span in ended if span.context is not None])
    producer.close()
    link.send(len(traces.ended()) - before)


def test_forked_child_ends_its_own_spans_alone(
    traces: Traces, settings: Make, start: Start, log: Path, topic: str
) -> None:
    with Producer(settings(interceptor_classes=[traces.interceptor], linger_ms=50)) as producer:
        producer.send(topic, b"parent")
        child = start(in_a_fork, producer, traces, topic, how="fork")
        [span_id] = child.hear()
        assert child.hear() == 1
        child.result()
        producer.flush()
        [span] = traces.ended()
    headers = {record.value: dict(record.headers)["traceparent"] for record in read_partition(log, topic)}
    assert headers[b"parent"] == header_of(span)
    assert span_id.encode() in headers[b"child"]


def test_a_span_around_a_batch_of_columns(traces: Traces, settings: Make, topic: str) -> None:
    """A producer with interceptors refuses columns, so the batch's span is the program's."""
    batch = pa.record_batch({"value": [b"1", b"2"]})
    with Producer(settings()) as producer:
        with batch_span(topic, batch.num_rows, traces.provider):
            producer.send_batch(topic, batch).get(30)
        with pytest.raises(KafkaError), batch_span(topic, 1, traces.provider):
            producer.send_batch(topic, pa.record_batch({"wrong": [b"1"]}))
    good, bad = traces.ended()
    assert (good.name, good.kind, good.status.status_code) == (f"send {topic}", SpanKind.PRODUCER, StatusCode.UNSET)
    assert good.attributes is not None
    assert good.attributes["messaging.batch.message_count"] == 2
    assert bad.attributes is not None
    assert bad.attributes["error.type"] == "SerializationError"
    assert bad.status.status_code is StatusCode.ERROR
