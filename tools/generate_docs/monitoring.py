"""The page of all metrics, from the exporter's catalogue, and the alerts' runbook."""

from __future__ import annotations

from collections.abc import Iterable

from shmaccum.observe import catalogue
from shmaccum.observe.catalogue import Kind, Metric, opentelemetry_name
from tools.generate_docs.text import page
from tools.monitoring.files import alerts


def runbook() -> str:
    return page("alerts") + "".join(page("alert", **alert) for alert in alerts())


def metrics() -> str:
    bounds = [
        f"| `{metric.name}` | {', '.join(f'{bound:g}' for bound in metric.buckets.bounds)} |"
        for metric in catalogue.OF_SLABS
        if metric.buckets is not None
    ]
    tables = {"of_slabs": _table(catalogue.OF_SLABS), "of_exporter": _table(catalogue.OF_EXPORTER)}
    return page("metrics", **tables, buckets="\n".join(bounds))


def _table(found: Iterable[Metric]) -> str:
    lines = ["| metric | kind | labels | meaning | for OpenTelemetry |", "| --- | --- | --- | --- | --- |"]
    for metric in found:
        name = f"{metric.name}_total" if metric.kind is Kind.COUNTER else metric.name
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        opentelemetry = f"`{opentelemetry_name(metric)}`, {metric.unit}"
        lines.append(f"| `{name}` | {metric.kind.value} | {labels} | {metric.help} | {opentelemetry} |")
    return "\n".join(lines)
