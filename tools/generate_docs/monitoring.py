"""The page of all metrics, from the exporter's catalogue, and the alerts' runbook."""

from __future__ import annotations

from collections.abc import Iterable

from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import Kind, Metric, opentelemetry_name
from tools.generate_docs.text import page, table
from tools.monitoring.files import alerts


def runbook() -> str:
    return page("alerts") + "".join(page("alert", **alert) for alert in alerts())


def metrics() -> str:
    buckets = {
        f"`{metric.name}`": ", ".join(f"{bound:g}" for bound in metric.buckets.bounds)
        for metric in catalogue.OF_SLABS
        if metric.buckets is not None
    }
    of_slabs, of_exporter = map(_table, (catalogue.OF_SLABS, catalogue.OF_EXPORTER))
    return page(
        "metrics",
        of_slabs=of_slabs,
        of_exporter=of_exporter,
        buckets=table(("histogram", "upper bounds"), buckets.items()),
    )


def _table(found: Iterable[Metric]) -> str:
    rows = [
        (
            f"`{metric.name}{'_total' * (metric.kind is Kind.COUNTER)}`",
            metric.kind.value,
            ", ".join(f"`{label}`" for label in metric.labels) or "-",
            metric.help,
            f"`{opentelemetry_name(metric)}`, {metric.unit}",
        )
        for metric in found
    ]
    return table(("metric", "kind", "labels", "meaning", "for OpenTelemetry"), rows)
