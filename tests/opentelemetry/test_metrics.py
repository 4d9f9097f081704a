"""OpenTelemetry gets the numbers of the exporter for Prometheus."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_types import Link, Start
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum
from producers import wait_until_gone
from prometheus_client.samples import Sample
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import Kind, opentelemetry_name
from shmaccum.observe.prometheus import SlabCollector
from shmaccum.observe.report import SlabReport, report
from shmaccum.opentelemetry import instrument_slabs
from shmaccum.opentelemetry.metrics import _ATTRIBUTES

Key = tuple[str, frozenset[tuple[str, str]]]


class Instrumented:
    """Metrics of slabs, as an SDK without an exporter collects them."""

    def __init__(self, slab_name: str, *, partitions: bool = False) -> None:
        self._reader = InMemoryMetricReader()
        provider = MeterProvider([self._reader], shutdown_on_exit=False)
        instrument_slabs(provider, slabs=[slab_name], partitions=partitions)

    def collect(self) -> dict[str, Any]:
        """Return the metrics by name."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        [resource] = data.resource_metrics
        [scope] = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}


def values_of(metrics: dict[str, Any]) -> dict[Key, float]:
    return {
        (name, frozenset(point.attributes.items())): point.value
        for name, metric in metrics.items()
        for point in metric.data.data_points
    }


def as_opentelemetry(metric: catalogue.Metric, sample: Sample) -> Key:
    """Return by which name and attributes OpenTelemetry has a sample of Prometheus's."""
    suffix = sample.name.removeprefix(metric.name) if metric.kind is Kind.HISTOGRAM else ""
    attributes = {_ATTRIBUTES.get(label, label): value for label, value in sample.labels.items()}
    return opentelemetry_name(metric) + suffix.replace("_", "."), frozenset(attributes.items())


CHANGES = {catalogue.READ_SECONDS.name, "shmaccum_oldest_record_age_seconds"}


def test_the_numbers_are_the_exporters(settings: Settings, slab_name: str) -> None:
    described = {metric.name: metric for metric in (*catalogue.OF_SLABS, *catalogue.OF_EXPORTER)}
    with Producer(settings | {"compression.type": "gzip"}) as producer:
        for number in range(7):
            producer.send("t", b"x" * 1000, partition=number % 2)
        producer.flush()
        for partitions in (False, True):
            ours = values_of(Instrumented(slab_name, partitions=partitions).collect())
            theirs = {
                as_opentelemetry(described[family.name], sample): sample.value
                for family in SlabCollector([slab_name], partitions=partitions).collect()
                if family.name not in CHANGES
                for sample in family.samples
            }
            assert ours.keys() >= theirs.keys()
            assert {key: ours[key] for key in theirs} == theirs
            assert len(theirs) > 100


def collected(link: Link, metrics: Instrumented) -> int:
    return len(metrics.collect())


def test_a_slab_is_observed_while_it_is_there_and_not_in_a_fork(
    settings: Settings, slab_name: str, start: Start
) -> None:
    metrics = Instrumented(slab_name)
    with Producer(settings) as producer:
        producer.send("t", b"value").get(20)
        found = metrics.collect()
        assert len(found) > 50
        assert start(collected, metrics, how="fork").result() == 0
    sent, queued, age = (found[f"shmaccum.{name}"] for name in ("records_sent", "queued_bytes", "oldest_record_age"))
    assert (sent.unit, sent.description) == ("{record}", "Records acknowledged.")
    assert [(type(each.data), each.unit) for each in (queued, age)] == [(Sum, "By"), (Gauge, "s")]
    assert isinstance(sent.data, Sum)
    assert (sent.data.is_monotonic, queued.data.is_monotonic) == (True, False)
    wait_until_gone(slab_name)
    left = values_of(metrics.collect())
    assert left["shmaccum.slabs", frozenset()] == 0
    assert not any(name == "shmaccum.records_sent" for name, _ in left)


def test_no_count_falls_when_a_slab_is_made_again(settings: Settings, slab_name: str) -> None:
    metrics = Instrumented(slab_name)
    seen: list[dict[Key, float]] = []
    for records, topic in ((7, "a"), (3, "b")):
        with Producer(settings) as producer:
            for _ in range(records):
                producer.send(topic, b"value").get(20)
            seen.append(values_of(metrics.collect()))
        wait_until_gone(slab_name)
    sent = {
        dict(attributes)["messaging.destination.name"]: value
        for (name, attributes), value in seen[1].items()
        if name == "shmaccum.records_sent"
    }
    assert sent == {"a": 7, "b": 3}
    of_slab = frozenset({("shmaccum.slab", slab_name)})
    assert [each["shmaccum.records_appended", of_slab] for each in seen] == [7, 10]
    assert [each["shmaccum.delivery_time.count", of_slab] for each in seen] == [7, 10]


def test_each_collection_reads_the_slabs_once(
    settings: Settings, slab_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shmaccum.observe import reader

    reads: list[str] = []

    def counted(name: str) -> SlabReport:
        reads.append(name)
        return report(name)

    monkeypatch.setattr(reader, "report", counted)
    metrics = Instrumented(slab_name)
    with Producer(settings) as producer:
        for number in range(1, 4):
            producer.send("t", b"value").get(20)
            [point] = metrics.collect()["shmaccum.records_sent"].data.data_points
            assert point.value == len(reads) == number
            assert dict(point.attributes) == {"shmaccum.slab": slab_name, "messaging.destination.name": "t"}
