"""The alert rules and the dashboard, as Prometheus and Grafana load them from docs/monitoring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

DOCUMENTS: Final = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
RULES: Final = DOCUMENTS / "shmaccum-alerts.yml"
DASHBOARD: Final = DOCUMENTS / "grafana-dashboard.json"


def alerts() -> list[dict[str, Any]]:
    """Return the rules, each with its labels and annotations among its keys."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return [rule | rule["labels"] | rule["annotations"] for rule in group["rules"]]


def panels() -> list[tuple[str, list[str]]]:
    """Return the title and the queries of each panel of the dashboard."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [(panel["title"], [target["expr"] for target in panel["targets"]]) for panel in found]


def filled(expr: str, interval: str) -> str:
    """Return a query as Grafana sends it for all slabs."""
    return expr.replace("$slab", ".*").replace("$__rate_interval", interval)
