"""The dashboard for Grafana, and its queries with the variables filled in."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

_OF: Final = '{slab=~"$slab"}'
_WIDTH: Final = 8
_HEIGHT: Final = 7
_COLUMNS: Final = 3


class Panel(NamedTuple):
    """A plot over time.

    Attributes:
        title: says what it shows.
        unit: Grafana's name of it.
        description: what is normal, and what is not.
        queries: template of a legend -> query; one or more.
    """

    title: str
    unit: str
    description: str
    queries: dict[str, str]


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{_OF}[$__rate_interval]))"


def _quantile(quantile: str, metric: str, by: str) -> str:
    return f"histogram_quantile({quantile}, {_rate(f'{metric}_bucket', f'{by}, le')})"


def _median_and_p99(metric: str) -> dict[str, str]:
    return {"{{slab}} p50": _quantile("0.5", metric, "slab"), "{{slab}} p99": _quantile("0.99", metric, "slab")}


PANELS: Final = (
    Panel(
        "Records acknowledged",
        "ops",
        "Records a second that brokers have acknowledged.",
        {"{{slab}} {{topic}}": _rate("shmaccum_records_sent_total", "slab, topic")},
    ),
    Panel(
        "Oldest record",
        "s",
        "Age of the oldest record that is not acknowledged. Steady growth: nothing is acknowledged. Records fail at "
        "delivery.timeout.ms.",
        {"{{slab}}": f"max by (slab) (shmaccum_oldest_record_age_seconds{_OF})"},
    ),
    Panel(
        "Records failed, and batches sent again",
        "ops",
        "Failed records are errors of the programs' futures. Batches sent again are normal when leaders move.",
        {
            "{{slab}} records failed": _rate("shmaccum_records_failed_total", "slab"),
            "{{slab}} batches sent again": _rate("shmaccum_batches_retried_total", "slab"),
        },
    ),
    Panel(
        "Bytes acknowledged",
        "Bps",
        "Bytes a second as sent: compressed.",
        {"{{slab}} {{topic}}": _rate("shmaccum_bytes_sent_total", "slab, topic")},
    ),
    Panel(
        "Memory",
        "bytes",
        "Memory for batches in use. At the limit, producers wait.",
        {
            "{{slab}} used": f"sum by (slab) (shmaccum_buffer_total_bytes{_OF} - shmaccum_buffer_available_bytes{_OF})",
            "{{slab}} limit": f"sum by (slab) (shmaccum_buffer_total_bytes{_OF})",
        },
    ),
    Panel(
        "Errors",
        "ops",
        "Errors of brokers and the network by class. `shmaccum status` has their texts.",
        {"{{slab}} {{error}}": _rate("shmaccum_errors_total", "slab, error")},
    ),
    Panel(
        "Delivery time",
        "s",
        "From a batch's first record to its acknowledgement, p50 and p99.",
        _median_and_p99("shmaccum_delivery_time_seconds"),
    ),
    Panel(
        "Queue time",
        "s",
        "From a batch's first record to its first drain: linger.ms, and what it waits for the sender. p50 and p99.",
        _median_and_p99("shmaccum_queue_time_seconds"),
    ),
    Panel(
        "Request latency",
        "s",
        "From a request to its answer, by broker, p99. One that differs: its disk, or its replicas.",
        {"{{slab}} broker {{broker}}": _quantile("0.99", "shmaccum_request_latency_seconds", "slab, broker")},
    ),
    Panel(
        "Brokers",
        "short",
        "Brokers with a connection, and those whose last connection failed.",
        {
            "{{slab}} connected": f"sum by (slab) (shmaccum_broker_connected{_OF})",
            "{{slab}} failed": f"sum by (slab) (shmaccum_broker_failed{_OF})",
        },
    ),
    Panel(
        "Sender",
        "short",
        "1: the sender lives. It leaves when idle, unless it is supervised: then 0 is normal without records.",
        {
            "{{slab}} up": f"min by (slab) (shmaccum_sender_up{_OF})",
            "{{slab}} stopped": f"max by (slab) (shmaccum_sender_stopped{_OF})",
        },
    ),
    Panel(
        "Processes",
        "short",
        "Processes that use the slab.",
        {"{{slab}} {{role}} {{state}}": f"sum by (slab, role, state) (shmaccum_processes{_OF})"},
    ),
    Panel(
        "Waits for memory",
        "s",
        "Seconds a second that threads wait for memory. Above 0 for long: brokers are slower than producers.",
        {"{{slab}}": _rate("shmaccum_memory_wait_seconds_sum", "slab")},
    ),
    Panel(
        "Records in a batch",
        "short",
        "Mean. Few records in a batch at a high rate: raise linger.ms.",
        {"{{slab}}": " / ".join(_rate(f"shmaccum_batch_records_{what}", "slab") for what in ("sum", "count"))},
    ),
    Panel(
        "Throttled",
        "percentunit",
        "Part of the time for which brokers throttle us: a quota.",
        {"{{slab}} broker {{broker}}": _rate("shmaccum_broker_throttle_seconds_total", "slab, broker")},
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
        "gridPos": {"x": number % _COLUMNS * _WIDTH, "y": number // _COLUMNS * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend}
            for place, (legend, expr) in enumerate(panel.queries.items())
        ],
    }


def filled(expr: str, interval: str) -> str:
    """Return a query as Grafana sends it for all slabs."""
    return expr.replace("$slab", ".*").replace("$__rate_interval", interval)
