"""The metrics of slabs by OpenTelemetry: the numbers of ``shmaccum exporter``, from the same catalogue.

A catalogue's name becomes OpenTelemetry's: ``shmaccum_queue_time_seconds`` is ``shmaccum.queue_time`` with unit ``s``.
Counters and amounts, which add up over slabs and hosts, are sums. Ages and flags are gauges.

A slab's histograms are counted by other processes, so they can only be observed, and OpenTelemetry has no observable
histogram. Its SDKs for Java and Go let a MetricProducer give whole histograms; that for Python has none. So a histogram
is three counters: ``.bucket`` with the bounds in attribute ``le`` as Prometheus has them, ``.count`` and ``.sum``.
`shmaccum.opentelemetry.otlp` makes histograms of them again where the SDK exports. Counters, not percentiles: these can
neither be added up over hosts nor taken over a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from shmaccum.abi import VERSION
from shmaccum.errors import ApiVersionError
from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import HistogramValue, Kind, Metric, Series, Value, opentelemetry_name
from shmaccum.observe.reader import SlabReader, Snapshot

try:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter
except ImportError as missing:
    raise ApiVersionError(
        f"OpenTelemetry needs the library opentelemetry-api ({missing}): pip install 'shmaccum[opentelemetry]'"
    ) from missing

BUCKET: Final = ".bucket"
COUNT: Final = ".count"
SUM: Final = ".sum"
LE: Final = "le"
SCOPE: Final = "shmaccum"

_ATTRIBUTES: Final = {
    "slab": "shmaccum.slab",
    "shard": "shmaccum.shard",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "broker": "shmaccum.broker",
    "error": "error.type",
    "reason": "shmaccum.reason",
    "table": "shmaccum.table",
    "role": "shmaccum.process.role",
    "state": "shmaccum.process.state",
}
"""Names of attributes, by the catalogue's labels."""
_CREATED: Final = next(each for each in catalogue.OF_SLABS if each.name == "shmaccum_slab_created_timestamp_seconds")
_Counts = Mapping[Metric, Series]


def instrument_slabs(
    meter_provider: MeterProvider | None = None, *, slabs: Sequence[str] | None = None, partitions: bool = False
) -> None:
    """Register observable instruments for the metrics of slabs.

    Call it in one process of a host, once: every slab shows the work of all its processes. A forked child of that
    process observes nothing, so that nothing is counted twice.

    Args:
        meter_provider: where they are registered; by default the global one.
        slabs: the names of the slabs; by default all of this host.
        partitions: whether the metrics of topics have a series for each partition. That is nine series for each.
    """
    meter = get_meter(SCOPE, VERSION, meter_provider)
    source = _Source(SlabReader(slabs, partitions=partitions))
    for metric in (*catalogue.OF_SLABS, *catalogue.OF_EXPORTER):
        if metric.kind is Kind.HISTOGRAM:
            _register_histogram(meter, metric, source)
        else:
            _register(meter, metric, source)


class _Source:
    """Reads the slabs once for all instruments of a collection.

    No call marks where a collection begins. But each reads an instrument once: the second time one is read, so are the
    slabs.
    """

    def __init__(self, reader: SlabReader) -> None:
        self._reader = reader
        self._process: Final = os.getpid()
        self._lock = threading.Lock()
        self._totals = _Totals()
        self._snapshot: Snapshot | None = None
        self._used: set[str] = set()

    def values(self, name: str, metric: Metric) -> Iterator[tuple[dict[str, str], Value]]:
        """Yield a metric's attributes and values, for the instrument of a name."""
        if os.getpid() != self._process:
            return  # in a forked child, where the lock can be held by a thread of the parent
        with self._lock:
            if self._snapshot is None or name in self._used:
                snapshot = self._reader.snapshot()
                slabs = {slab: self._totals.of(slab, series) for slab, series in snapshot.slabs.items()}
                self._snapshot = replace(snapshot, slabs=slabs)
                self._used.clear()
            self._used.add(name)
            snapshot = self._snapshot
        for labels, value in snapshot.values(metric):
            yield {_ATTRIBUTES[label]: text for label, text in labels.items()}, value


class _Totals:
    """Counts over all slabs that a name has had. Those of a new slab begin with 0, but a counter never falls here.

    Else its difference between two collections could be negative. OTLP's exporter refuses a histogram with such a
    count, and with it all metrics.
    """

    def __init__(self) -> None:
        self._slabs: dict[str, tuple[Series, _Counts, _Counts]] = {}
        """Of each name: when its last slab was created, what those before it have counted, and what that one has."""

    def of(self, slab: str, series: _Counts) -> _Counts:
        """Return a slab's series, with the counts of those before it."""
        created = series[_CREATED]
        last, before, counted = self._slabs.get(slab, (created, {}, {}))
        if created != last:
            before = _sums(before, counted)
        counts = {metric: values for metric, values in series.items() if metric.kind is not Kind.GAUGE}
        self._slabs[slab] = created, before, counts
        return {**series, **_sums(before, counts)} if before else series


def _sums(some: _Counts, others: _Counts) -> _Counts:
    """Return the sums of two slabs' counts, with the series that only one of them has."""
    sums: dict[Metric, Series] = {metric: dict(values) for metric, values in some.items()}
    for metric, values in others.items():
        of_metric = sums.setdefault(metric, {})
        for labels, value in values.items():
            of_metric[labels] = value + of_metric[labels] if labels in of_metric else value  # type: ignore[operator]
    return sums


def _register(meter: Meter, metric: Metric, source: _Source) -> None:
    name = opentelemetry_name(metric)

    def observe(_: CallbackOptions) -> Iterator[Observation]:
        for attributes, value in source.values(name, metric):
            assert not isinstance(value, HistogramValue)
            yield Observation(value, attributes)

    if metric.kind is Kind.COUNTER:
        create = meter.create_observable_counter
    elif metric.unit == "By" or metric.unit.startswith("{"):  # an amount
        create = meter.create_observable_up_down_counter  # type: ignore[assignment]
    else:
        create = meter.create_observable_gauge  # type: ignore[assignment]
    create(name, [observe], metric.unit, metric.help)


def _register_histogram(meter: Meter, metric: Metric, source: _Source) -> None:
    for part, unit, what in (
        (BUCKET, "{value}", "Values up to le."),
        (COUNT, "{value}", "All values."),
        (SUM, metric.unit, "Sum of the values."),
    ):
        name = opentelemetry_name(metric) + part

        def observe(_: CallbackOptions, name: str = name, part: str = part) -> Iterator[Observation]:
            for attributes, value in source.values(name, metric):
                assert isinstance(value, HistogramValue)
                for each, more, number in value.parts():
                    if f".{each}" == part:
                        yield Observation(number, attributes | more)

        meter.create_observable_counter(name, [observe], unit, f"{metric.help} {what}")
