"""A result as a run leaves it, small enough to see through."""

from __future__ import annotations

from typing import Any

from tools.benchmark.cases.base import Variant
from tools.benchmark.results import FORMAT, variant_result
from tools.benchmark.settings import Settings, by_kafkas_names


def rounds(**figures: list[float]) -> list[dict[str, float]]:
    count = len(next(iter(figures.values())))
    return [{name: values[number] for name, values in figures.items()} for number in range(count)]


def variant(name: str, figures: dict[str, list[dict[str, float]]], **trouble: str) -> Any:
    shown = list(next(iter(figures.values()))[0])

    def no_turn(contestant: str) -> dict[str, float]:
        raise AssertionError

    return variant_result(Variant(name, f"title of {name}", list(figures), no_turn, shown), figures, trouble, 1.0)


def result(*cases: tuple[str, list[Any]]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "commit": "0123456789ab",
        "started": "2026-01-02T03:04:05+00:00",
        "took_s": 120.0,
        "command": ["python", "-m", "tools.benchmark", "--all"],
        "scale": 1.0,
        "smoke": False,
        "rounds": 3,
        "machine": {
            "cpu": "Some CPU",
            "cores": 2,
            "memory_gib": 8.0,
            "kernel": "Linux 6.1",
            "load_before": 0.1,
            "versions": {"Python": "3.11.4"},
        },
        "settings": by_kafkas_names(Settings()),
        "cases": [
            {"number": number, "name": name, "title": f"title of {name}", "variants": variants}
            for number, (name, variants) in enumerate(cases, 1)
        ],
    }
