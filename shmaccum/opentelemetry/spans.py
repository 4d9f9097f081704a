"""A span for each record: from `send` to its acknowledgement, with its context in the record's headers.

The producer has no code for spans: `SpanInterceptor` is one of ``interceptor.classes``. The span itself must get from
``on_send`` to ``on_acknowledgement``. It travels with the record: one value of its headers is a `bytes` with the span
as an attribute. So the span is found without a table, whatever propagator is configured.

Names are those of OpenTelemetry's semantic conventions for messaging, version 1.44.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from shmaccum.abi import VERSION
from shmaccum.cluster import RecordMetadata
from shmaccum.errors import ApiVersionError
from shmaccum.producer.interceptors import ProducerInterceptor, ProducerRecord
from shmaccum.record.fields import Headers

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue
except ImportError as missing:
    raise ApiVersionError(
        f"OpenTelemetry needs the library opentelemetry-api ({missing}): pip install 'shmaccum[opentelemetry]'"
    ) from missing

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"

Pairs = list[tuple[str, Any]]


class SpanInterceptor(ProducerInterceptor):
    """Makes a span of kind PRODUCER for each record that `send` accepts or refuses.

    Use it as the last one of ``interceptor.classes``, by class, by its dotted name, or as
    ``functools.partial(SpanInterceptor, attributes={...})``.

    The span's context goes into the record's headers, by OpenTelemetry's global propagator: as ``traceparent``, unless
    it is configured otherwise. An unsampled record gets the header alone. If the record has such a header already, that
    one stays, and the span links to it.

    Args:
        tracer_provider: makes the spans; by default the global one.
        attributes: of every span, such as ``messaging.client.id``.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, attributes: Mapping[str, AttributeValue] | None = None
    ) -> None:
        self._tracer = _tracer(tracer_provider)
        self._attributes: Final = dict(attributes or {})
        self._propagator = propagate.get_global_textmap()
        self._fields = frozenset(self._propagator.fields)
        self._process = os.getpid()
        self._open: set[Span] = set()
        """Spans of this process that have not ended."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Begin the span; put its context into the headers."""
        pairs = _pairs(record.headers)
        if pairs is None:  # `send` refuses it, and says why
            return record
        attributes = _attributes(record.topic, self._attributes)
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        at, links = self._given(pairs)
        span = self._tracer.start_span(
            f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes, links=links
        )
        if not links:
            self._propagator.inject(pairs, trace.set_span_in_context(span), _Setter())
        if at < len(pairs):
            if span.is_recording():
                pairs[at] = (pairs[at][0], self._with_span(pairs[at][1], span))
            record.headers = pairs
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata, error: Exception | None, headers: Headers | None = None
    ) -> None:
        """End the span, if the record has one."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        span = next((value.span for _, value in pairs if type(value) is _ValueWithSpan), None)
        if span not in self._open:  # without a span, or of headers that were sent before
            return
        self._open.discard(span)
        if metadata.partition >= 0:
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
        if metadata.offset >= 0:
            span.set_attribute("messaging.kafka.offset", metadata.offset)
        if error is not None:
            _note_error(span, error)
        span.end()

    def close(self) -> None:
        """End the spans of records whose acknowledgement this process will not see."""
        left, self._open = self._open, set()
        if self._process != os.getpid():
            return  # a child's exit: they are the parent's
        for span in left:
            span.add_event("producer closed before the acknowledgement")
            span.end()

    def _given(self, pairs: Pairs) -> tuple[int, Sequence[Link]]:
        """Return where the record's own context is in its headers, and links to it; their end if it has none."""
        for at, (name, value) in enumerate(pairs):
            if name in self._fields and _plain(value):
                extracted = self._propagator.extract(pairs, Context(), _Getter())
                context = trace.get_current_span(extracted).get_span_context()
                return (at, [Link(context)]) if context.is_valid else (len(pairs), [])
        return len(pairs), []

    def _with_span(self, value: Any, span: Span) -> _ValueWithSpan:
        if self._process != os.getpid():  # a forked child: what is open belongs to the parent
            self._process, self._open = os.getpid(), set()
        linked = _ValueWithSpan(_plain(value))
        linked.span = span
        self._open.add(span)
        return linked


@contextmanager
def batch_span(
    topic: str,
    rows: int,
    tracer_provider: TracerProvider | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> Iterator[Span]:
    """Open a span of kind PRODUCER around a `send_batch` and the wait for its future.

    Rows get no headers: `send_batch` runs no Python for each of them. The span is that of the whole batch.

    Args:
        topic: the topic.
        rows: number of rows.
        tracer_provider: makes the span; by default the global one.
        attributes: more attributes.
    """
    of_batch = _attributes(topic, attributes or {}) | {"messaging.batch.message_count": rows}
    tracer = _tracer(tracer_provider)
    with tracer.start_as_current_span(
        f"send {topic}",
        kind=SpanKind.PRODUCER,
        attributes=of_batch,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except Exception as error:
            _note_error(span, error)
            raise


class _ValueWithSpan(bytes):
    """Value of a header, and the span whose context it is."""

    span: Span


class _Setter(Setter[Pairs]):
    def set(self, carrier: Pairs, key: str, value: str) -> None:
        carrier.append((key, value.encode()))


class _Getter(Getter[Pairs]):
    def get(self, carrier: Pairs, key: str) -> list[str] | None:
        return [_plain(value).decode(errors="replace") for name, value in carrier if name == key] or None

    def keys(self, carrier: Pairs) -> list[str]:
        return [name for name, _ in carrier]


def _plain(value: Any) -> bytes:
    """Return a header's value as it is sent; empty if it is null, or `send` refuses it."""
    if isinstance(value, str):
        return value.encode() if value.isascii() else b""
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else b""


def _pairs(headers: Headers | None) -> Pairs | None:
    """Return headers as a list of pairs; None if they are none that `send` takes."""
    try:
        return [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers or ())]
    except (TypeError, ValueError):
        return None


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("shmaccum", VERSION, provider, SCHEMA)


def _attributes(topic: str, more: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        **more,
    }


def _note_error(span: Span, error: Exception) -> None:
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
