"""The dashboard for Grafana, and its queries with the variables filled in."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

_OF: Final = '{slab=~"$slab"}'
_WIDTH: Final = 8
_HEIGHT: Final = 7
_COLUMNS: Final = 3


class Query(NamedTuple):
    """A query of a panel, and the template of its legend."""

    expr: str
    legend: str


class Panel(NamedTuple):
    """A plot over time.

    Attributes:
        title: says what it shows.
        unit: Grafana's name of it.
        description: what is normal, and what is not.
        queries: one or more.
    """

    title: str
    unit: str
    description: str
    queries: tuple[Query, ...]


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{_OF}[$__rate_interval]))"


def _quantile(quantile: str, metric: str, by: str) -> str:
    return f"histogram_quantile({quantile}, {_rate(f'{metric}_bucket', f'{by}, le')})"


PANELS: Final = (
    Panel(
        "Records acknowledged",
        "ops",
        "Records a second that brokers have acknowledged.",
        (Query(_rate("shmaccum_records_sent_total", "slab, topic"), "{{slab}} {{topic}}"),),
    ),
    Panel(
        "Oldest record",
        "s",
        "Age of the oldest record that is not acknowledged. Steady growth: nothing is acknowledged. Records fail at "
        "delivery.timeout.ms.",
        (Query(f"max by (slab) (shmaccum_oldest_record_age_seconds{_OF})", "{{slab}}"),),
    ),
    Panel(
        "Records failed, and batches sent again",
        "ops",
        "Failed records are errors of the programs' futures. Batches sent again are normal when leaders move.",
        (
            Query(_rate("shmaccum_records_failed_total", "slab"), "{{slab}} records failed"),
            Query(_rate("shmaccum_batches_retried_total", "slab"), "{{slab}} batches sent again"),
        ),
    ),
    Panel(
        "Bytes acknowledged",
        "Bps",
        "Bytes a second as sent: compressed.",
        (Query(_rate("shmaccum_bytes_sent_total", "slab, topic"), "{{slab}} {{topic}}"),),
    ),
    Panel(
        "Memory",
        "bytes",
        "Memory for batches in use. At the limit, producers wait.",
        (
            Query(
                f"sum by (slab) (shmaccum_buffer_total_bytes{_OF} - shmaccum_buffer_available_bytes{_OF})",
                "{{slab}} used",
            ),
            Query(f"sum by (slab) (shmaccum_buffer_total_bytes{_OF})", "{{slab}} limit"),
        ),
    ),
    Panel(
        "Errors",
        "ops",
        "Errors of brokers and the network by class. `shmaccum status` has their texts.",
        (Query(_rate("shmaccum_errors_total", "slab, error"), "{{slab}} {{error}}"),),
    ),
    Panel(
        "Delivery time",
        "s",
        "From a batch's first record to its acknowledgement, p50 and p99.",
        (
            Query(_quantile("0.5", "shmaccum_delivery_time_seconds", "slab"), "{{slab}} p50"),
            Query(_quantile("0.99", "shmaccum_delivery_time_seconds", "slab"), "{{slab}} p99"),
        ),
    ),
    Panel(
        "Queue time",
        "s",
        "From a batch's first record to its first drain: linger.ms, and what it waits for the sender. p50 and p99.",
        (
            Query(_quantile("0.5", "shmaccum_queue_time_seconds", "slab"), "{{slab}} p50"),
            Query(_quantile("0.99", "shmaccum_queue_time_seconds", "slab"), "{{slab}} p99"),
        ),
    ),
    Panel(
        "Request latency",
        "s",
        "From a request to its answer, by broker, p99. One that differs: its disk, or its replicas.",
        (Query(_quantile("0.99", "shmaccum_request_latency_seconds", "slab, broker"), "{{slab}} broker {{broker}}"),),
    ),
    Panel(
        "Brokers",
        "short",
        "Brokers with a connection, and those whose last connection failed.",
        (
            Query(f"sum by (slab) (shmaccum_broker_connected{_OF})", "{{slab}} connected"),
            Query(f"sum by (slab) (shmaccum_broker_failed{_OF})", "{{slab}} failed"),
        ),
    ),
    Panel(
        "Sender",
        "short",
        "1: the sender lives. It leaves when idle, unless it is supervised: then 0 is normal without records.",
        (
            Query(f"min by (slab) (shmaccum_sender_up{_OF})", "{{slab}} up"),
            Query(f"max by (slab) (shmaccum_sender_stopped{_OF})", "{{slab}} stopped"),
        ),
    ),
    Panel(
        "Processes",
        "short",
        "Processes that use the slab.",
        (Query(f"sum by (slab, role, state) (shmaccum_processes{_OF})", "{{slab}} {{role}} {{state}}"),),
    ),
    Panel(
        "Waits for memory",
        "s",
        "Seconds a second that threads wait for memory. Above 0 for long: brokers are slower than producers.",
        (Query(_rate("shmaccum_memory_wait_seconds_sum", "slab"), "{{slab}}"),),
    ),
    Panel(
        "Records in a batch",
        "short",
        "Mean. Few records in a batch at a high rate: raise linger.ms.",
        (
            Query(
                f"{_rate('shmaccum_batch_records_sum', 'slab')} / {_rate('shmaccum_batch_records_count', 'slab')}",
                "{{slab}}",
            ),
        ),
    ),
    Panel(
        "Throttled",
        "percentunit",
        "Part of the time for which brokers throttle us: a quota.",
        (Query(_rate("shmaccum_broker_throttle_seconds_total", "slab, broker"), "{{slab}} broker {{broker}}"),),
    ),
)


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    data: dict[str, Any] = {
        "title": "shmaccum",
        "uid": "shmaccum",
        "description": "Generated by tools/generate_docs from tools/monitoring/dashboard.py.",
        "tags": ["kafka", "shmaccum"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                {
                    "name": "slab",
                    "label": "Slab",
                    "type": "query",
                    "datasource": {"type": "prometheus", "uid": "${datasource}"},
                    "query": "label_values(shmaccum_sender_up, slab)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(data, indent=2) + "\n"


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {
            "x": number % _COLUMNS * _WIDTH,
            "y": number // _COLUMNS * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query.expr, "legendFormat": query.legend}
            for place, query in enumerate(panel.queries)
        ],
    }


def filled(expr: str, interval: str) -> str:
    """Return a query as Grafana sends it for all slabs."""
    return expr.replace("$slab", ".*").replace("$__rate_interval", interval)
